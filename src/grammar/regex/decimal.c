/* SPDX-License-Identifier: MIT
 *
 * decimal.c: see decimal.h.
 */
#include "grammar/regex/decimal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* Places the point after `whole` of the digits d, which may lie outside of them. */
static bool place_point(struct decimal *out, const char *d, int n, int whole, bool negative)
{
    while (n > 0 && *d == '0') {
        d++;
        n--;
        whole--;
    }
    while (n > 0 && d[n - 1] == '0') n--;
    if (n == 0) whole = 0;
    int zeros_before = whole < 0 ? -whole : 0; /* between the point and the digits */
    int zeros_after = whole > n ? whole - n : 0;
    int n_whole = whole > 0 ? whole : 1;
    int fraction = n > whole ? n - whole : 0;
    if (n_whole + fraction > DECIMAL_DIGITS) return false;
    char *p = out->digits;
    if (whole <= 0) *p++ = '0';
    memset(p, '0', (size_t)zeros_before);
    memcpy(p + zeros_before, d, (size_t)n);
    memset(p + zeros_before + n, '0', (size_t)zeros_after);
    out->n_whole = (uint16_t)n_whole;
    out->n_fraction = (uint16_t)fraction;
    out->negative = negative && n > 0;
    return true;
}

/* Reads [-]digits[.digits][e[+-]digits]. */
static bool read_text(struct decimal *out, const char *s)
{
    char digits[64];
    int n = 0, whole = -1;
    bool negative = *s == '-';
    for (s += negative; *s && *s != 'e'; s++) {
        if (*s == '.')
            whole = n;
        else if (n < (int)sizeof digits)
            digits[n++] = *s;
    }
    if (whole < 0) whole = n;
    long exponent = *s == 'e' ? strtol(s + 1, NULL, 10) : 0;
    if (exponent > DECIMAL_DIGITS || exponent < -DECIMAL_DIGITS) return false;
    return place_point(out, digits, n, whole + (int)exponent, negative);
}

bool decimal_of(struct decimal *out, const json_t *x)
{
    char text[64];
    if (json_is_integer(x)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(x));
        return read_text(out, text);
    }
    if (!json_is_real(x)) return false;
    double v = json_real_value(x);
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, v);
        if (strtod(text, NULL) == v) break;
    }
    return read_text(out, text);
}

bool decimal_is_whole(const struct decimal *x) { return x->n_fraction == 0; }

bool decimal_is_zero(const struct decimal *x) { return x->n_whole == 1 && x->digits[0] == '0' && x->n_fraction == 0; }

uint32_t decimal_write(const struct decimal *x, char out[DECIMAL_DIGITS + 3])
{
    char *p = out;
    if (x->negative) *p++ = '-';
    memcpy(p, x->digits, x->n_whole);
    p += x->n_whole;
    if (x->n_fraction) {
        *p++ = '.';
        memcpy(p, x->digits + x->n_whole, x->n_fraction);
        p += x->n_fraction;
    }
    *p = '\0';
    return (uint32_t)(p - out);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    char text[DECIMAL_DIGITS + 3];
    struct decimal_place at = {0};
    uint32_t n = decimal_write(a, text);
    for (uint32_t i = 0; i < n; i++) decimal_read(b, &at, (uint8_t)text[i]);
    if (decimal_ends(b, &at, DECIMAL_LESS)) return -1;
    return decimal_ends(b, &at, DECIMAL_MORE) ? 1 : 0;
}

/* ---- comparing ---- */

/* The order of the numbers before the point, without their signs. */
static int whole_order(const struct decimal *x, const struct decimal_place *at)
{
    if (at->n_read != x->n_whole) return at->n_read < x->n_whole ? -1 : 1;
    return at->order;
}

static int order_of(int a, int b) { return (a > b) - (a < b); }

static void read_whole_digit(const struct decimal *x, struct decimal_place *at, char c)
{
    if (at->n_read > x->n_whole) return;
    if (at->n_read < x->n_whole && at->order == 0) at->order = (int8_t)order_of(c, x->digits[at->n_read]);
    at->n_read++;
    if (at->n_read > x->n_whole) at->order = 1;
}

static void read_fraction_digit(const struct decimal *x, struct decimal_place *at, char c)
{
    if (at->order != 0) return;
    bool more = at->n_read < x->n_fraction;
    at->order = (int8_t)order_of(c, more ? x->digits[x->n_whole + at->n_read] : '0');
    if (at->order != 0)
        at->n_read = 0;
    else if (more)
        at->n_read++;
}

bool decimal_read(const struct decimal *x, struct decimal_place *at, uint8_t c)
{
    if ((c == 'e' || c == 'E') && decimal_is_zero(x)) at->in_exponent = true;
    if (at->in_exponent) return true;
    if (c == '-' && !at->negative && !at->in_fraction && at->n_read == 0) {
        at->negative = true;
        return true;
    }
    if (c == '.' && !at->in_fraction) {
        at->order = (int8_t)whole_order(x, at);
        at->in_fraction = true;
        at->n_read = 0;
        return true;
    }
    if (c < '0' || c > '9') return false;
    if (at->in_fraction)
        read_fraction_digit(x, at, (char)c);
    else
        read_whole_digit(x, at, (char)c);
    return true;
}

bool decimal_ends(const struct decimal *x, const struct decimal_place *at, enum decimal_order order)
{
    int magnitude = at->in_fraction ? at->order : whole_order(x, at);
    unsigned n_read = at->in_fraction ? at->n_read : 0;
    int cmp;
    if (magnitude == 0 && n_read < x->n_fraction) magnitude = -1;
    if (at->negative == x->negative)
        cmp = at->negative ? -magnitude : magnitude;
    else if (decimal_is_zero(x) && magnitude == 0)
        cmp = 0; /* -0 */
    else
        cmp = at->negative ? -1 : 1;
    switch (order) {
    case DECIMAL_LESS: return cmp < 0;
    case DECIMAL_AT_MOST: return cmp <= 0;
    case DECIMAL_MORE: return cmp > 0;
    default: return cmp >= 0;
    }
}

/* ---- dividing ---- */

uint32_t decimal_divisor(const struct decimal *x, unsigned *n_fraction)
{
    uint32_t v = 0;
    *n_fraction = x->n_fraction;
    if (x->negative || x->n_fraction > 100) return 0;
    for (unsigned i = 0; i < (unsigned)x->n_whole + x->n_fraction; i++) {
        v = v * 10 + (uint32_t)(x->digits[i] - '0');
        if (v > DECIMAL_MAX_DIVISOR) return 0;
    }
    return v;
}

bool decimal_divide(const struct decimal *x, struct decimal_rest *at, uint8_t c)
{
    unsigned n_fraction;
    uint32_t divisor = decimal_divisor(x, &n_fraction), scale = 1, digit = (uint32_t)c - '0';
    if (c == '-') return true;
    if (c == '.') {
        at->in_fraction = true;
        return true;
    }
    if (digit > 9) return false;
    if (at->in_fraction && at->n_fraction == n_fraction) return digit == 0;
    if (at->in_fraction) at->n_fraction++;
    /* All digits are counted in units of the divisor's last place. */
    for (unsigned i = at->in_fraction ? at->n_fraction : 0; i < n_fraction; i++) scale = scale * 10 % divisor;
    at->rest = (uint16_t)((at->in_fraction ? at->rest + digit * scale : at->rest * 10u + digit * scale) % divisor);
    return true;
}
