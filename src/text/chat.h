/* SPDX-License-Identifier: MIT
 *
 * chat.h: conversations: a request's messages and tools to the tokens that the model reads.
 *
 * A struct chat is immutable and may be used by any number of threads. It borrows the vocabulary and the strings of the
 * model's file.
 */
#ifndef QUERN_TEXT_CHAT_H
#define QUERN_TEXT_CHAT_H

#include <jansson.h>
#include <time.h>

#include "base/buf.h"
#include "format/weights.h"
#include "text/chat_cut.h"
#include "text/chat_form.h"
#include "text/vocab.h"

struct chat;

/* src: a template in place of the file's; NULL: the file's. QN_EDATA names the key that is missing or malformed. */
int chat_new(struct chat **out, const struct weights *w, const struct vocab *v, const char *src, size_t n,
             struct qn_error *e);
void chat_free(struct chat *c); /* NULL is fine */

struct chat_prompt {
    struct buf text;
    qn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    int cuts[CHAT_CUTS]; /* [n_cuts] */
    size_t n_cuts;
    json_t *tools;         /* as the template got them; NULL: none */
    struct chat_form form; /* of the template that was used */
    bool thinking;         /* the reply begins in the middle of thoughts */
};

/* request: n bytes of JSON (quern.h describes it). now: local time, for templates that ask; NULL: asking is an error.
 * *out is left zeroed on failure. */
int chat_prompt_make(struct chat_prompt *out, const struct chat *c, const char *request, size_t n, const struct tm *now,
                     const struct qn_cancel *cancel, struct qn_error *e);
/* The most memory that rendering a request of n bytes takes for the template's values and what it writes: beyond that
 * the request is refused. */
size_t chat_prompt_bytes(size_t n);
void chat_prompt_deinit(struct chat_prompt *p);

#endif
