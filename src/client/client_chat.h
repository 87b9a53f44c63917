/* SPDX-License-Identifier: MIT
 *
 * client_chat.h: requests of the chat completions API: the text, thoughts and usage of a streamed answer, and how it
 * ended.
 *
 * It reads server-sent events as the OpenAI API defines them, from Quern's daemon or from another server. What only
 * Quern's daemon sends (the object `quern`, heartbeat comments) is used if it is there. All data is foreign: a
 * malformed reply is QN_EDATA, and *e names the wrong part.
 */
#ifndef QUERN_CLIENT_CLIENT_CHAT_H
#define QUERN_CLIENT_CLIENT_CHAT_H

#include <jansson.h>

#include "client/client.h"

enum chat_piece {
    CHAT_CONTENT,   /* text of the answer */
    CHAT_REASONING, /* the model's thoughts before the answer */
    CHAT_NOTE,      /* progress of the server: "prefill 512/4096", "queued, 3 before" */
    CHAT_RECEIPT,   /* the receipt of the answer, if the request asked for it: JSON in its canonical form */
    CHAT_PROMPT,    /* the prompt of a private receipt, in the same way */
};

/* Receives whole texts of the last two kinds, and of the others whole UTF-8 characters, not terminated. Non-zero ends
 * the request. */
typedef int chat_sink(void *arg, enum chat_piece kind, const char *text, size_t n);

/* Numbers are -1 if the server does not give them. */
struct chat_result {
    char finish[24]; /* "stop", "length", "cancelled", ... */
    char model[128];
    int n_prompt, n_cached, n_generated; /* tokens */
    int n_dropped; /* tokens that the context does not hold any more, because it rotates; -1: none */
    int n_passes, n_drafted, n_accepted; /* passes of the answer; guessed tokens, and those that were right */
    double prefill_ms, decode_ms;
    int status;     /* the HTTP status if the server refused; 0 otherwise */
    char code[48];  /* the code of the error: "context_length_exceeded", "no_chat_template", ...; "": none was given */
    char param[96]; /* the field that the error is about; "": none was given */
    int retry_after_s;
};

/* Sends a request and reads its answer. request: an object for POST /v1/chat/completions, borrowed; "stream" and
 * "stream_options" are added to a copy. Errors: those of client_send(), or the server's own words with QN_EUSAGE (400,
 * 404, 413, 422), QN_EBUSY (429, 503, 504), QN_ENOINPUT (401, 403) or QN_EIO (any other), and then result->status is
 * set. An error within the stream has no status, but a code. */
int chat_send(struct client *c, json_t *request, chat_sink *sink, void *arg, struct chat_result *result,
              struct qn_error *e);

/* Whether a request was refused because it names no model and the server has several. */
bool chat_wants_model(const struct chat_result *r);

/* Counts the tokens of the prompt of this request (POST /v1/chat/render). QN_EUNSUP: the server cannot tell. */
int chat_count(struct client *c, json_t *request, int *n_tokens, struct qn_error *e);

/* Any other exchange whose answer is a JSON document of at most `limit` bytes. body: borrowed; may be NULL. *out is
 * owned by the caller. Errors as those of chat_send(). */
int chat_fetch(struct client *c, const char *method, const char *path, json_t *body, size_t limit, json_t **out,
               struct chat_result *result, struct qn_error *e);

#endif
