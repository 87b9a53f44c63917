/* SPDX-License-Identifier: MIT
 *
 * chat_reply.h: takes a model's reply apart while it comes: its content, its thoughts, its tool calls.
 *
 * The text of a reply goes in, in pieces cut anywhere between characters. Events come out, which quern.h describes. The
 * joined events do not depend on where the pieces were cut. Malformed text comes out as it is: no text is an error.
 *
 * What to feed: ordinary text as the detokeniser gives it. The detokeniser drops the text of a control token; feed it
 * if chat_form_reads() is true for it, also if the token ends the generation. Feed no other control token.
 *
 * One thread at a time may use a struct chat_reply.
 */
#ifndef QUERN_TEXT_CHAT_REPLY_H
#define QUERN_TEXT_CHAT_REPLY_H

#include <jansson.h>

#include "base/error.h"
#include "text/chat/chat_form.h"

struct chat_reply;

/* Where the prompt ends. */
enum chat_begins {
    CHAT_BEGIN_REPLY,    /* where the model's turn begins */
    CHAT_BEGIN_THOUGHTS, /* in the middle of thoughts */
    CHAT_BEGIN_CONTENT,  /* in the middle of content */
};

/* tools: those of the request, which must outlive the reply; NULL: there are none, and no calls are looked for.
 * *out is the caller's, to chat_reply_free(). QN_ENOMEM. */
int chat_reply_new(struct chat_reply **out, const struct chat_form *form, const json_t *tools, enum chat_begins begins,
                   struct qn_error *e);
void chat_reply_free(struct chat_reply *r); /* NULL is fine */

/* Feeds the next n bytes, or the last n bytes. Both make the events of the call before invalid. QN_ENOMEM; after it the
 * reply can only be freed. */
int chat_reply_push(struct chat_reply *r, const char *text, size_t n, struct qn_error *e);
int chat_reply_end(struct chat_reply *r, const char *text, size_t n, struct qn_error *e);
/* Whether thoughts have begun and not ended. */
bool chat_reply_is_thinking(const struct chat_reply *r);
/* Takes the next event of the last call; false: there are no more. The event's text is borrowed until the next call. */
bool chat_reply_next(struct chat_reply *r, struct qn_reply_event *event);

#endif
