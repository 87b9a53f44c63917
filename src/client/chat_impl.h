/* SPDX-License-Identifier: MIT
 *
 * chat_impl.h: what chat.c and chat_stream.c share.
 */
#ifndef QUERN_CLIENT_CHAT_IMPL_H
#define QUERN_CLIENT_CHAT_IMPL_H

#include "base/buf.h"
#include "client/chat.h"

void chat_result_init(struct chat_result *r); /* nothing is known */
/* A JSON document of a server; NULL when it is none. */
json_t *chat_parse(const char *text, size_t n);
/* A member that is a count; -1 when it is not there, or none. */
int chat_number(const json_t *object, const char *name);
int chat_dump(struct buf *out, const json_t *j, struct qn_error *e);
/* Fills result and *e from a server's refusal; answer may be NULL, and of any shape. status 0: within a stream. */
int chat_refused(const json_t *answer, int status, struct chat_result *result, struct qn_error *e);

#endif
