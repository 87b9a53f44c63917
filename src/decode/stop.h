/* SPDX-License-Identifier: MIT
 *
 * stop.h: ends a reply at a stop string or a stop token.
 *
 * Text is pushed through as bytes, in pieces cut anywhere. What comes out at once is what can no longer be part of a
 * stop string; the longest end that may still become one is held back.
 */
#ifndef QUERN_DECODE_STOP_H
#define QUERN_DECODE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define STOP_MAX_BYTES 65536 /* the longest stop string */

struct stop_string {
    const void *bytes; /* any bytes, NUL included */
    size_t n;
};

struct stop {
    struct stop_pattern *patterns; /* one block holds all that is pointed at; NULL when there are none */
    size_t n_patterns;
    qn_token *tokens;
    size_t n_tokens;
    size_t holder; /* the text held back is the first patterns[holder].n_matched bytes of that pattern */
    int hit;       /* index of the stop string that ended the text, or -1 */
};

/* Copies both lists; either may be empty. QN_EUSAGE names the string that is empty or too long. */
int stop_init(struct stop *s, const struct stop_string *strings, size_t n_strings, const qn_token *tokens,
              size_t n_tokens, struct qn_error *e);
void stop_deinit(struct stop *s); /* a zeroed struct stop is deinitialised */

bool stop_is_token(const struct stop *s, qn_token t);
/* Appends to out what can be emitted now. When a stop string is complete, s->hit says which, out gets the text before
 * it, and the rest of the bytes is dropped, as is all that is pushed later. The string that ends first wins, among
 * those that end together the longest, then the first in the list. Fails (QN_ENOMEM) before anything has changed. */
int stop_push(struct stop *s, const void *bytes, size_t n, struct buf *out, struct qn_error *e);
/* The text ends here: appends what was held back. Nothing after a hit. As stop_push, may fail. */
int stop_flush(struct stop *s, struct buf *out, struct qn_error *e);

#endif
