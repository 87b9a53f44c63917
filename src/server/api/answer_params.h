/* SPDX-License-Identifier: MIT
 *
 * answer_params.h: the parameters of a request for an answer, whatever API it speaks, and the tables of fields of the
 * OpenAI API's two kinds of request. Other APIs fill the same struct with tables of their own, together with
 * params_sampling_fields.
 */
#ifndef QUERN_SERVER_ANSWER_PARAMS_H
#define QUERN_SERVER_ANSWER_PARAMS_H

#include <quern.h>

#include "base/buf.h"
#include "server/json/field.h"

#define PARAMS_MAX_STOP       16
#define PARAMS_MAX_STOP_BYTES 65536 /* the engine's limit; checked here so that the field is named */
#define PARAMS_MAX_ANSWERS    64
#define PARAMS_MAX_BIAS       1024

/* Strings and JSON values are borrowed from `body` and `made`, which the struct owns. */
struct answer_params {
    json_t *body;
    json_t *made;                    /* an array that owns values made from those of the body; NULL: none */
    char *kept[PARAMS_MAX_STOP + 1]; /* texts that were copied from the body, owned; ended by NULL */
    int n_vocab;                     /* token ids are less than this */
    const struct qn_cancel *cancel;  /* asked while long lists are read; NULL: never */

    const char *model; /* NULL: not said */
    const char *user;  /* the client's user; has no effect */
    const char *cache_salt;
    bool stream, include_usage;
    int n, max_tokens; /* max_tokens -1: as many as there is room for */
    int64_t seed;
    bool has_seed;
    struct qn_sampling sampling; /* without the seed; owns logit_bias */
    const char *stop[PARAMS_MAX_STOP];
    int n_stop;
    qn_token *stop_tokens; /* [n_stop_tokens] */
    size_t n_stop_tokens;
    bool ignore_eos;
    int priority, deadline_ms;
    bool logprobs;
    int n_top; /* with each logprob */

    /* A text to be continued: either text or tokens. */
    const char *text;
    size_t n_text;
    qn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    bool parse_special, echo;

    /* a conversation */
    const json_t *messages, *tools, *documents, *template_kwargs, *system;
    const char *reasoning_effort;
    bool no_tools, one_call, add_generation_prompt;

    /* For an API that repeats them in its answer; owned. */
    json_t *instructions;   /* NULL: none */
    struct buf tools_again; /* as JSON */

    struct buf ignored; /* names of fields that changed nothing, as JSON strings with commas between them; owned */
};

void params_init(struct answer_params *a, int n_vocab);
void params_deinit(struct answer_params *a);
/* Reads the object of a request, and takes it over also when it fails. */
int params_read(struct answer_params *a, const struct field *const *tables, json_t *body, struct fault *f);
/* Frees the body after copying what the answer still needs: stop texts, and texts that are repeated in it. *n_bytes:
 * the memory that the copies take. Other members that pointed into the body are NULL afterwards. */
int params_let_go(struct answer_params *a, size_t *n_bytes, struct fault *f);
/* Takes over a value that was made, and returns it. NULL and *f when there is no memory, or when made is NULL because
 * there was none. */
json_t *params_keep(struct answer_params *a, json_t *made, struct fault *f);
/* Makes an owned JSON string of a buffer with joined texts, and empties the buffer. NULL and *f when there is no
 * memory. */
json_t *params_joined(struct buf *text, struct fault *f);
/* Call it for the i-th element of a list. Now and then it asks whether the request is still wanted; true and *f: it is
 * not. */
bool params_is_over(const struct answer_params *a, size_t i, struct fault *f);
/* Turns an array of token ids into a list that the caller frees with mem_free(). */
int params_tokens(const char *name, const json_t *array, int n_vocab, qn_token **out, size_t *n, struct fault *f);
/* Notes that a field was accepted and changes nothing; the answer names it. */
int params_ignore(struct answer_params *a, const char *name, struct fault *f);
field_parser params_parse_stop, params_parse_tool_choice, params_parse_parallel;

extern const struct field params_sampling_fields[]; /* how tokens are drawn: extensions, the same in all APIs */
extern const struct field params_openai_fields[];   /* of both kinds of request */
extern const struct field params_completion_fields[];
extern const struct field params_chat_fields[];

#endif
