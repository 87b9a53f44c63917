/* SPDX-License-Identifier: MIT
 *
 * toml_number.c: a word of digits as TOML 1.0 (toml.io/en/v1.0.0) reads it.
 *
 * The grammar is checked while the word is copied without its underscores; the C library reads what remains, with C's
 * decimal point, which is that of the whole program.
 *
 * Does not know inf, nan or dates.
 */
#include "base/toml_number.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c, int base)
{
    if (base == 16) return c && strchr("0123456789abcdefABCDEF", c);
    return c >= '0' && c < '0' + base;
}

/* A run of digits, between any two of which there may be an underscore: copied without these. Returns where it ends;
 * NULL when it is none. */
static const char *copy_digits(char **out, const char *s, int base)
{
    for (;;) {
        if (!is_digit(*s, base)) return NULL;
        *(*out)++ = *s++;
        if (*s == '_')
            s++;
        else if (!is_digit(*s, base))
            return s;
    }
}

/* A decimal number, integer or float. Returns where it ends; NULL when it is none. */
static const char *copy_decimal(char **out, const char *s, bool *is_float)
{
    if (*s == '+' || *s == '-') *(*out)++ = *s++;
    const char *whole = s;
    s = copy_digits(out, s, 10);
    if (s && *whole == '0' && s - whole > 1) return NULL; /* a leading zero */
    if (s && *s == '.') {
        *is_float = true;
        *(*out)++ = *s++;
        s = copy_digits(out, s, 10);
    }
    if (s && (*s == 'e' || *s == 'E')) {
        *is_float = true;
        *(*out)++ = *s++;
        if (*s == '+' || *s == '-') *(*out)++ = *s++;
        s = copy_digits(out, s, 10);
    }
    return s;
}

int toml_number(const char *word, struct toml_value *v)
{
    char plain[TOML_MAX_NUMBER + 1], *out = plain;
    char mark = word[0] == '0' ? word[1] : '\0';
    int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    bool is_float = false;

    assert(strlen(word) <= TOML_MAX_NUMBER);
    const char *s = base == 10 ? copy_decimal(&out, word, &is_float) : copy_digits(&out, word + 2, base);
    if (!s || *s) return QN_EDATA;
    *out = '\0';
    if (is_float) {
        double real = strtod(plain, NULL);
        if (isinf(real)) return QN_EUNSUP;
        *v = (struct toml_value){.type = TOML_FLOAT, .real = real};
    } else {
        errno = 0;
        intmax_t integer = strtoimax(plain, NULL, base);
        if (errno) return QN_EUNSUP;
        *v = (struct toml_value){.type = TOML_INT, .integer = integer};
    }
    return 0;
}
