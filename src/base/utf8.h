/* SPDX-License-Identifier: MIT
 *
 * utf8.h: reads one character of strict UTF-8, and writes one. text/token/unicode.h reads text that may be broken.
 */
#ifndef QUERN_BASE_UTF8_H
#define QUERN_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the length of the character at p, where n bytes are left, and sets *cp to its code point. Returns 0 when
 * there is no character: overlong forms, surrogates and values above U+10FFFF are not characters. */
unsigned utf8_get(const uint8_t *p, size_t n, uint32_t *cp);
/* Writes cp, at most 0x10FFFF, as UTF-8. Returns its length, 1 to 4. */
unsigned utf8_put(uint8_t out[4], uint32_t cp);

#endif
