/* SPDX-License-Identifier: MIT
 *
 * ask_run.h: one run of `quern ask`: the options, the texts, and the functions that make requests of them.
 */
#ifndef QUERN_CLI_ASK_RUN_H
#define QUERN_CLI_ASK_RUN_H

#include <jansson.h>

#include "cli/core/talk.h"
#include "cli/place/answer_stream.h"
#include "cli/ask/message.h"
#include "cli/place/persona.h"
#include "cli/ask/input.h"
#include "cli/ask/session_lock.h"

enum ask_overflow { OVERFLOW_FAIL, OVERFLOW_HEAD, OVERFLOW_TAIL, OVERFLOW_MIDDLE, OVERFLOW_CHUNK };

struct ask_options {
    struct place_options place;
    struct receipt_options receipt;
    const char *persona, *system, *system_file, *encoding, *schema, *grammar, *regex, *choice, *choose, *session;
    struct cli_strings files, stop, args; /* args: of the persona */
    int max_tokens;                       /* -1: not given */
    int session_wait_s;                   /* for another question in the same session */
    int overflow;                         /* enum ask_overflow */
    bool json, json_object, verbose, allow_empty, each, extract, yes, quiet, go_on, no_keep;
    struct qn_sampling sampling;
};

struct ask_run {
    const struct invocation *v;
    const struct ask_options *o;
    const struct persona *persona; /* NULL: none */
    struct buf system;             /* UTF-8; empty: there is none of its own */
    struct talk talk;              /* what goes before the question: the system message, and what was said */
    struct session_lock lock;      /* of --session */
    struct buf instruction;        /* UTF-8; may be empty */
    struct input *input;           /* [n_inputs] */
    size_t n_inputs;
    json_t *schema;     /* NULL: none */
    struct buf grammar; /* the text of --grammar; empty: none */
    struct place place;
    bool placed; /* place is open */

    /* Of the model; valid after ask_look(). */
    int n_ctx, n_room; /* tokens; n_room: for the prompt, the rest is for the answer */
    struct buf model;  /* what identifies the model: its name, and the fingerprint of its file */
};

/* Builds the request, with `text` as the user's message. *out is for json_decref(). QN_ENOMEM. */
int ask_request(struct ask_run *a, const char *text, size_t n, json_t **out, struct qn_error *e);
/* The same without the user's sampling and format: greedy, with at most max_tokens. Equal requests of this kind have
 * equal answers. */
int ask_request_greedy(struct ask_run *a, const char *text, size_t n, int max_tokens, json_t **out, struct qn_error *e);
/* Reads the file of --schema into a->schema, or that of --grammar into a->grammar, and checks --regex and --choice. */
int ask_read_form(struct ask_run *a, struct qn_error *e);

/* The texts of which the answer is one, with commas between them; NULL: it is free. */
const char *ask_choices(const struct ask_options *o);

/* Asks the server for the size of the context and the identity of the model. QN_EUNSUP: it does not say. */
int ask_look(struct ask_run *a, struct qn_error *e);
/* Counts the tokens of a request with these texts and the instruction. QN_EUNSUP: the server cannot count. */
int ask_count(struct ask_run *a, const struct message_text *texts, size_t n, const char *instruction, int *n_tokens,
              struct qn_error *e);

/* Reads all texts, cuts them as the options say, and appends the message to *out. */
int ask_read_texts(struct ask_run *a, struct buf *out, struct qn_error *e);
/* The name to write above a text; NULL: it needs none. */
const char *ask_label(const struct ask_run *a, const struct input *s);

#endif
