/* SPDX-License-Identifier: MIT
 *
 * string_step.h: reads the inside of a JSON string, and gives an expression its text without escapes.
 *
 * A string in which any text is allowed has all escapes of JSON. In other strings (patterns, enumerations, names), each
 * character has the one spelling that is usual: itself, or an escape where JSON asks for one.
 */
#ifndef QUERN_GRAMMAR_STRING_STEP_H
#define QUERN_GRAMMAR_STRING_STEP_H

#include "grammar/regex/regex.h"

#define STRING_PLAIN 0u /* the place of no escape */

struct string_place {
    re_id re;        /* what may follow in the text */
    uint32_t escape; /* the place in an escape */
    uint8_t text[4]; /* what the byte added to the text */
    uint8_t n_text;
    bool ends; /* it was the quotation mark at the end */
};

/* Reads one byte. False: it does not fit. */
bool string_step(struct regex *r, struct string_place *at, uint8_t byte);
/* Sets the bytes at which something changes. */
void string_bounds(struct regex *r, const struct string_place *at, uint64_t bits[4]);
/* Whether any text may follow, up to a number of characters: *least to *most. */
bool string_is_free(const struct regex *r, re_id re, uint32_t *least, uint32_t *most);

#endif
