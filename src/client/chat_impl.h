/* SPDX-License-Identifier: MIT
 *
 * chat_impl.h: what client_chat.c and chat_stream.c share.
 */
#ifndef QUERN_CLIENT_CHAT_IMPL_H
#define QUERN_CLIENT_CHAT_IMPL_H

#include "client/client_chat.h"

void chat_result_init(struct chat_result *r); /* nothing is known */
/* Parses a document from a server; the caller frees it with json_decref(). NULL: it is not JSON, or there is no memory.
 */
json_t *chat_parse(const char *text, size_t n);
/* A member that is a count; -1: it is absent or not a count. */
int chat_number(const json_t *object, const char *name);
/* Fills *result and *e from a server's refusal and returns the error code. answer may be NULL, and of any shape. status
 * 0: the refusal came within a stream. */
int chat_refused(const json_t *answer, int status, struct chat_result *result, struct qn_error *e);

#endif
