/* SPDX-License-Identifier: MIT
 *
 * ask.h: what the parts of `quern ask` have in common: what was asked, and the request made of it.
 */
#ifndef QUERN_CLI_ASK_H
#define QUERN_CLI_ASK_H

#include <jansson.h>

#include "cli/answer.h"
#include "cli/message.h"
#include "cli/persona.h"
#include "cli/source.h"

enum ask_overflow { OVERFLOW_FAIL, OVERFLOW_HEAD, OVERFLOW_TAIL, OVERFLOW_MIDDLE, OVERFLOW_CHUNK };

struct ask_options {
    struct place_options place;
    const char *persona, *system, *system_file, *encoding, *schema;
    struct cli_strings files, stop;
    int max_tokens; /* -1: not said */
    int overflow;   /* enum ask_overflow */
    bool json, json_object, verbose;
    struct qn_sampling sampling;
};

struct ask {
    const struct invocation *v;
    const struct ask_options *o;
    const struct persona *persona; /* NULL: none */
    struct buf system;             /* UTF-8; empty: no message of the system's */
    struct buf instruction;        /* UTF-8; may be empty */
    struct source *source;         /* [n_sources] */
    size_t n_sources;
    json_t *schema; /* NULL: none */
    struct place place;
    bool placed; /* place is open */

    /* Of the model; known after ask_look(). */
    int n_ctx, n_room; /* tokens; n_room: of them for the prompt, the rest is the answer's */
    struct buf model;  /* what tells it from others: its name, the fingerprint of its file */
};

/* The request for the API, with the text as the user's message. QN_ENOMEM. */
int ask_request(struct ask *a, const char *text, size_t n, json_t **out, struct qn_error *e);
/* The same without the user's sampling and form: greedy, at most max_tokens. The same request has the same answer. */
int ask_request_greedy(struct ask *a, const char *text, size_t n, int max_tokens, json_t **out, struct qn_error *e);
/* Reads --schema's file. */
int ask_read_schema(struct ask *a, struct qn_error *e);

/* Asks the server for the size of the context. QN_EUNSUP: it does not say. */
int ask_look(struct ask *a, struct qn_error *e);
/* Tokens of a request with these texts and the instruction. QN_EUNSUP: the server cannot count. */
int ask_count(struct ask *a, const struct message_text *texts, size_t n, const char *instruction, int *n_tokens,
              struct qn_error *e);

/* The message of all texts, cut as the options say, added to *out. */
int ask_read_texts(struct ask *a, struct buf *out, struct qn_error *e);
/* The name to put over a text; NULL: it needs none. */
const char *ask_label(const struct ask *a, const struct source *s);

#endif
