/* SPDX-License-Identifier: MIT
 *
 * short_id.c: a hash, written with 62 digits.
 */
#include "base/short_id.h"

#include <string.h>

#include "base/hash.h"

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

void short_id(char out[SHORT_ID + 1], const void *p, size_t n)
{
    uint64_t h = hash_bytes(p, n, 0);
    for (int i = 0; i < SHORT_ID; i++, h /= 62) out[i] = digits[h % 62];
    out[SHORT_ID] = 0;
}

bool is_short_id(const char *text, size_t n)
{
    if (n != SHORT_ID) return false;
    for (size_t i = 0; i < n; i++)
        if (!memchr(digits, text[i], sizeof digits - 1)) return false;
    return true;
}
