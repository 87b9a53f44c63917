/* SPDX-License-Identifier: MIT
 *
 * chat_reply.h: a model's reply, taken apart as it comes: what it says, what it thinks, the tools it calls.
 *
 * The text of a reply goes in, in pieces cut anywhere between characters; events come out (quern.h describes them). The
 * events, joined, do not depend on where the pieces were cut. What is malformed comes out as it is: no text is an
 * error.
 *
 * Feeding it: ordinary text as the detokeniser gives it; a control token, whose text the detokeniser drops, by its text
 * if chat_form_reads() says so, else not at all. A token that ends the generation is no exception.
 */
#ifndef QUERN_TEXT_CHAT_REPLY_H
#define QUERN_TEXT_CHAT_REPLY_H

#include <jansson.h>

#include "base/error.h"
#include "text/chat_form.h"

struct chat_reply;

/* tools: the request's, borrowed; NULL: none, and no calls are looked for. thinking: the prompt ends in the middle of
 * thoughts. */
int chat_reply_new(struct chat_reply **out, const struct chat_form *form, const json_t *tools, bool thinking,
                   struct qn_error *e);
void chat_reply_free(struct chat_reply *r); /* NULL is fine */

/* Both make the events of the call before invalid. After a failure (QN_ENOMEM) the reply can only be freed. */
int chat_reply_push(struct chat_reply *r, const char *text, size_t n, struct qn_error *e);
int chat_reply_end(struct chat_reply *r, const char *text, size_t n, struct qn_error *e); /* its last n bytes */
bool chat_reply_next(struct chat_reply *r, struct qn_reply_event *event);

#endif
