/* SPDX-License-Identifier: MIT
 *
 * decimal.h: numbers as the digits that JSON writes, compared and divided one digit at a time.
 *
 * Nothing is ever rounded: a bound of 0.1 is the number one tenth. The digits of a number arrive from the left, and the
 * comparison with another one (struct decimal_place) is known when the last one has arrived.
 */
#ifndef QUERN_GRAMMAR_DECIMAL_H
#define QUERN_GRAMMAR_DECIMAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define DECIMAL_DIGITS      700   /* the most before and after the point together */
#define DECIMAL_MAX_DIVISOR 10000 /* the digits of a divisor, read without their point */

/* Without needless zeros, except for one digit before the point; zero is not negative. */
struct decimal {
    bool negative;
    uint16_t n_whole, n_fraction;
    char digits[DECIMAL_DIGITS]; /* those before the point, then those after it */
};

enum decimal_order { DECIMAL_LESS, DECIMAL_AT_MOST, DECIMAL_MORE, DECIMAL_AT_LEAST };

/* The value of a JSON number: its shortest decimal text that reads as the same double. False: it has too many digits,
 * or x is not a number. */
bool decimal_of(struct decimal *out, const json_t *x);
bool decimal_is_whole(const struct decimal *x);
bool decimal_is_zero(const struct decimal *x);
/* Writes the number without an exponent. Returns its length. */
uint32_t decimal_write(const struct decimal *x, char out[DECIMAL_DIGITS + 3]);
/* -1, 0, 1: a is less than, equal to, more than b. */
int decimal_compare(const struct decimal *a, const struct decimal *b);

/* A place in a number that is compared with another one; it fits one word. */
struct decimal_place {
    bool negative, in_fraction;
    bool in_exponent; /* only if the other number is 0, so that it changes nothing */
    int8_t order;     /* of the digits so far and as many of the other number's: -1, 0, 1 */
    uint16_t n_read;  /* digits of this part; it stops counting when more of them change nothing */
};

/* Reads one character of a number. False: it is none that a number has, or it begins an exponent and x is not 0. */
bool decimal_read(const struct decimal *x, struct decimal_place *at, uint8_t c);
/* Whether the number that ends here has this order to x. */
bool decimal_ends(const struct decimal *x, const struct decimal_place *at, enum decimal_order order);

/* A place in a number that is divided by another one. */
struct decimal_rest {
    bool in_fraction;
    uint8_t n_fraction; /* digits after the point */
    uint16_t rest;
};

/* x as digits without a point, and the number of those after it; 0: they are more than DECIMAL_MAX_DIVISOR, or x is not
 * above 0. */
uint32_t decimal_divisor(const struct decimal *x, unsigned *n_fraction);
/* Reads one character. False: the number cannot be a multiple any more. */
bool decimal_divide(const struct decimal *x, struct decimal_rest *at, uint8_t c);

#endif
