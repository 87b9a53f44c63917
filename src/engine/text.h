/* SPDX-License-Identifier: MIT
 *
 * text.h: tokens to the text of an answer: whole characters, ended by stop strings. The engine's side of qn_text.
 */
#ifndef QUERN_ENGINE_TEXT_H
#define QUERN_ENGINE_TEXT_H

#include "decode/stop.h"
#include "text/detok.h"

struct qn_text {
    struct detok detok;
    struct stop stop;
    struct buf whole, out; /* characters that became whole; of these, what is no part of a stop string */
};

/* As qn_text_new(); stop tokens are for stop_is_token(&t->stop, ...). Pushing a token then does not allocate. */
int text_new(struct qn_text **out, const struct vocab *v, bool continues, const char *const *stop, size_t n_stop,
             const qn_token *stop_tokens, size_t n_stop_tokens, struct qn_error *e);

#endif
