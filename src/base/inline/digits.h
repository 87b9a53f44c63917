/* SPDX-License-Identifier: MIT
 *
 * digits.h: ASCII digits, whatever the locale. A caller may pass a char or a byte: no negative number is a digit.
 */
#ifndef QUERN_BASE_DIGITS_H
#define QUERN_BASE_DIGITS_H

#include <stdbool.h>

static inline bool is_digit(int c) { return c >= '0' && c <= '9'; }

/* The value of a hexadecimal digit, of either case; -1 if it is none. */
static inline int hex_digit(int c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

#endif
