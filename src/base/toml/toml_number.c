/* SPDX-License-Identifier: MIT
 *
 * toml_number.c: reads one number of TOML 1.0 (toml.io/en/v1.0.0). inf and nan are read in toml.c.
 *
 * The grammar is checked while the word is copied without its underscores. The C library then converts the copy. Its
 * decimal point is that of the C locale, which the whole program uses.
 */
#include "base/toml/toml_number.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/inline/digits.h"

static bool is_digit_of(char c, int base)
{
    if (base == 16) return hex_digit(c) >= 0;
    return c >= '0' && c < '0' + base;
}

/* Copies a run of digits without the underscores that may stand between any two of them. Returns where it ends; NULL
 * when there is no such run. */
static const char *copy_digits(char **out, const char *s, int base)
{
    for (;;) {
        if (!is_digit_of(*s, base)) return NULL;
        *(*out)++ = *s++;
        if (*s == '_')
            s++;
        else if (!is_digit_of(*s, base))
            return s;
    }
}

/* Copies a decimal number, integer or float. Returns where it ends; NULL when it is not one. */
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

/* The base that 0x, 0o and 0b stand for, by their letter; 10: it is another character. */
static int base_of(char letter)
{
    switch (letter) {
    case 'x': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 10;
    }
}

int toml_number(const char *word, struct toml_value *v)
{
    char plain[TOML_MAX_NUMBER + 1], *out = plain;
    int base = word[0] == '0' ? base_of(word[1]) : 10;
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
