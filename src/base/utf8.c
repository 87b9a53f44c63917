/* SPDX-License-Identifier: MIT
 *
 * utf8.c: reads one character of strict UTF-8 (RFC 3629), and writes one. Nothing is repaired: the caller decides what
 * to do with bytes that are not a character.
 */
#include "base/utf8.h"

#include <assert.h>

/* The length of a character that begins with this byte; 0: no character begins with it. */
static unsigned length_of(uint8_t first)
{
    if (first < 0x80) return 1;
    if (first < 0xC2) return 0; /* a continuation, or an overlong form of two bytes */
    if (first < 0xE0) return 2;
    if (first < 0xF0) return 3;
    return first < 0xF5 ? 4 : 0;
}

unsigned utf8_get(const uint8_t *p, size_t n, uint32_t *cp)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};

    if (n == 0) return 0;
    unsigned len = length_of(p[0]);
    if (len > n) return 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7Fu >> len);
    for (unsigned i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *cp = c;
    return len;
}

unsigned utf8_put(uint8_t out[4], uint32_t cp)
{
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};

    assert(cp <= 0x10FFFF);
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    unsigned len = 4;
    if (cp < 0x10000) len = 3;
    if (cp < 0x800) len = 2;
    for (unsigned i = len - 1; i > 0; i--, cp >>= 6) out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)(lead[len] | cp);
    return len;
}
