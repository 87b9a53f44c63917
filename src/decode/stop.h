/* SPDX-License-Identifier: MIT
 *
 * stop.h: ends a reply at a stop string or a stop token.
 *
 * Text is pushed through as bytes, in pieces cut anywhere. Bytes that can no longer be part of a stop string come out
 * at once. The longest end of the text that may still become a stop string is held back.
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

struct stop_scan {
    struct stop_pattern
        *patterns; /* in one block with everything that the other pointers point to; NULL: there are none */
    size_t n_patterns;
    qn_token *tokens;
    size_t n_tokens;
    size_t holder; /* the text held back is the first patterns[holder].n_matched bytes of that pattern */
    int hit;       /* index of the stop string that ended the text, or -1 */
};

/* Copies both lists; either may be empty. QN_EUSAGE names the string that is empty or too long. */
int stop_init(struct stop_scan *s, const struct stop_string *strings, size_t n_strings, const qn_token *tokens,
              size_t n_tokens, struct qn_error *e);
void stop_deinit(struct stop_scan *s); /* a zeroed struct stop_scan is deinitialised */

bool stop_is_token(const struct stop_scan *s, qn_token t);
/* Appends to out the bytes that can be emitted now. When a stop string is complete, s->hit is its index, out gets the
 * text before it, and the rest of the bytes and all later ones are dropped. The string that ends first wins; of those
 * that end together, the longest; then the first in the list. Fails (QN_ENOMEM) before anything has changed. */
int stop_push(struct stop_scan *s, const void *bytes, size_t n, struct buf *out, struct qn_error *e);
/* The text ends here: appends the bytes that were held back, and none after a hit. May fail like stop_push. */
int stop_flush(struct stop_scan *s, struct buf *out, struct qn_error *e);

#endif
