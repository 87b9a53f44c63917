/* SPDX-License-Identifier: MIT
 *
 * utf8.h: one character of UTF-8, read strictly and written.
 */
#ifndef QUERN_BASE_UTF8_H
#define QUERN_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at p, of which n bytes are there, and its code point; 0 when they begin with none: overlong
 * forms, surrogates and what lies beyond U+10FFFF are none. */
unsigned utf8_get(const uint8_t *p, size_t n, uint32_t *cp);
/* Writes cp, at most 0x10FFFF, as UTF-8; returns its length, 1..4. */
unsigned utf8_put(uint8_t out[4], uint32_t cp);

#endif
