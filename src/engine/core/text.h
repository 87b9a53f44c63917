/* SPDX-License-Identifier: MIT
 *
 * text.h: turns tokens into the text of an answer, in whole characters, up to a stop string: the struct of qn_text.
 */
#ifndef QUERN_ENGINE_TEXT_H
#define QUERN_ENGINE_TEXT_H

#include "decode/stop.h"
#include "text/token/detok.h"

struct qn_text {
    const struct qn_model *model; /* held; NULL: a text of the engine, which keeps its model open */
    struct detok detok;
    struct stop_scan stop;
    struct buf whole, out; /* characters that are complete; of these, the bytes that are not part of a stop string */
};

/* Like qn_text_new(), with stop tokens for stop_is_token(&t->stop, ...). Pushing a token does not allocate then. */
int text_new(struct qn_text **out, const struct vocab *v, bool continues, const char *const *stop, size_t n_stop,
             const qn_token *stop_tokens, size_t n_stop_tokens, struct qn_error *e);

#endif
