/* SPDX-License-Identifier: MIT
 *
 * chat.h: makes the prompt of a conversation: a request's messages and tools become the tokens that the model reads.
 *
 * A struct chat is immutable, and any number of threads may use it. It borrows the vocabulary and the strings of the
 * model's file, which must outlive it.
 */
#ifndef QUERN_TEXT_CHAT_H
#define QUERN_TEXT_CHAT_H

#include <jansson.h>
#include <time.h>

#include "base/buf.h"
#include "format/weights.h"
#include "text/chat/chat_cut.h"
#include "text/chat/chat_form.h"
#include "text/chat/chat_reply.h"
#include "text/token/origin.h"
#include "text/token/vocab.h"

struct chat;

/* Compiles the templates of the file; or, where src is not NULL, the template of n bytes in their place. *out is the
 * caller's, to chat_free(). QN_EDATA: the file has no template, or one is malformed (the message names the key);
 * QN_EUNSUP: a template uses a statement that is not supported; QN_ENOMEM. */
int chat_new(struct chat **out, const struct weights *w, const struct vocab *v, const char *src, size_t n,
             struct qn_error *e);
void chat_free(struct chat *c); /* NULL is fine */
/* out->size is set, and stays. */
void chat_capabilities(const struct chat *c, struct qn_chat_capabilities *out);

/* Owns all that it points to. */
struct chat_prompt {
    struct buf text;
    qn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    struct text_span *user; /* [n_user] the ranges of text that the template did not write: see origin.h */
    size_t n_user;
    int cuts[CHAT_CUTS]; /* [n_cuts], see chat_cut.h */
    size_t n_cuts;
    json_t *tools;           /* as the template got them; NULL: none */
    struct chat_form form;   /* of the template that was used */
    enum chat_begins begins; /* where the reply begins */
    bool is_silent;          /* the request switched thoughts off */
    unsigned changed;        /* bits of enum qn_chat_change */
};

/* Makes the prompt of a request: n bytes of JSON, which quern.h describes. now (may be NULL): the local time, for
 * templates that ask for it; without it asking is an error. cancel may be NULL. QN_EUSAGE: the request is malformed, or
 * the template refuses the conversation; QN_EDATA, QN_EUNSUP: the template fails; QN_ECANCEL; QN_ENOMEM. On failure
 * *out is zeroed. */
int chat_prompt_make(struct chat_prompt *out, const struct chat *c, const char *request, size_t n, const struct tm *now,
                     const struct qn_cancel *cancel, struct qn_error *e);
/* The most bytes that rendering a request of n bytes takes, for the template's values and its output. A request that
 * needs more is refused. */
size_t chat_prompt_bytes(size_t n);
void chat_prompt_deinit(struct chat_prompt *p);

#endif
