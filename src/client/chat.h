/* SPDX-License-Identifier: MIT
 *
 * chat.h: one request of the chat completions API, streamed: what is said, thought, used; how it ended.
 *
 * Reads server-sent events as the OpenAI API has them, from Quern's daemon or from another server; fields that only
 * Quern's daemon sends (the object `quern`, heartbeat comments) are used when they come. Everything that comes is
 * foreign: a reply that is none is QN_EDATA, with the part that is wrong.
 */
#ifndef QUERN_CLIENT_CHAT_H
#define QUERN_CLIENT_CHAT_H

#include <jansson.h>

#include "client/client.h"

enum chat_piece {
    CHAT_CONTENT,   /* text of the answer */
    CHAT_REASONING, /* text of what the model thought before */
    CHAT_NOTE,      /* what the server does meanwhile: "prefill 512/4096", "queued, 3 before" */
};

/* Whole UTF-8 characters, not terminated. Non-zero ends the request. */
typedef int chat_sink(void *arg, enum chat_piece kind, const char *text, size_t n);

/* Numbers are -1 where the server does not tell. */
struct chat_result {
    char finish[24]; /* "stop", "length", "cancelled", ... */
    char model[128];
    int n_prompt, n_cached, n_generated; /* tokens */
    double prefill_ms, decode_ms;
    int status;    /* of HTTP, when the server refused; 0 otherwise */
    char code[48]; /* of the error: "context_length_exceeded", "no_chat_template", ...; empty: not said */
    int retry_after_s;
};

/* request: an object as POST /v1/chat/completions has it, borrowed; "stream" and "stream_options" are added. Errors:
 * those of client_send(); the server's own words with QN_EUSAGE (400, 404, 413, 422), QN_EBUSY (429, 503, 504),
 * QN_ENOINPUT (401, 403), QN_EIO (any other): then result->status is set. One that comes
 * within the stream has no status, but a code. */
int chat_send(struct client *c, json_t *request, chat_sink *sink, void *arg, struct chat_result *result,
              struct qn_error *e);

/* How many tokens the prompt of this request has (POST /v1/chat/render). QN_EUNSUP: the server cannot tell. */
int chat_count(struct client *c, json_t *request, int *n_tokens, struct qn_error *e);

/* Any other exchange whose answer is a JSON document, at most `limit` bytes of it: *out returns owned. Errors as
 * chat_send's. */
int chat_fetch(struct client *c, const char *method, const char *path, json_t *body, size_t limit, json_t **out,
               struct chat_result *result, struct qn_error *e);

#endif
