/* SPDX-License-Identifier: MIT
 *
 * ask.h: what a client asks for, whatever API it speaks, and the tables of fields of the OpenAI API's two ways to ask
 * for an answer. Other APIs fill the same struct with tables of their own, beside ask_sampling_fields.
 */
#ifndef QUERN_SERVER_ASK_H
#define QUERN_SERVER_ASK_H

#include <quern.h>

#include "base/buf.h"
#include "server/field.h"

#define ASK_MAX_STOP       16
#define ASK_MAX_STOP_BYTES 65536 /* the engine's limit, here with the field's name */
#define ASK_MAX_ANSWERS    64
#define ASK_MAX_BIAS       1024

/* Strings and JSON values are borrowed from body and made. */
struct ask {
    json_t *body;
    json_t *made;                   /* an array of values that were made from the body's; NULL: none */
    char *kept[ASK_MAX_STOP + 1];   /* texts that were copied from the body */
    int n_vocab;                    /* token ids are below it */
    const struct qn_cancel *cancel; /* asked while long lists are read; NULL: nobody */

    const char *model; /* NULL: not said */
    const char *user;  /* whom a client asks for: has no effect */
    const char *cache_salt;
    bool stream, include_usage;
    int n, max_tokens; /* max_tokens -1: what there is room for */
    int64_t seed;
    bool has_seed;
    struct qn_sampling sampling; /* but for the seed; owns logit_bias */
    const char *stop[ASK_MAX_STOP];
    int n_stop;
    qn_token *stop_tokens; /* [n_stop_tokens] */
    size_t n_stop_tokens;
    bool ignore_eos;
    int priority, deadline_ms;
    bool logprobs;
    int n_top; /* with each logprob */

    /* a text to be continued: either of them */
    const char *text;
    size_t n_text;
    qn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    bool parse_special, echo;

    /* a conversation */
    const json_t *messages, *tools, *documents, *template_kwargs, *system;
    const char *reasoning_effort;
    bool no_tools, one_call, add_generation_prompt;

    /* of an API that says them again in its answer: owned */
    json_t *instructions;   /* NULL: none */
    struct buf tools_again; /* as JSON */
};

void ask_init(struct ask *a, int n_vocab);
void ask_deinit(struct ask *a);
/* Reads the object of a request, which the ask takes over. */
int ask_read(struct ask *a, const struct field *const *tables, json_t *body, struct fault *f);
/* Frees the body, and copies what the answer still needs of it: stop texts, and what is said again in it. *n_bytes:
 * what these take. Members that pointed to all else are NULL afterwards. */
int ask_let_go(struct ask *a, size_t *n_bytes, struct fault *f);
/* Remembers a value that was made (taken over; NULL: there was no memory). NULL and *f when there is no memory. */
json_t *ask_keep(struct ask *a, json_t *made, struct fault *f);
/* Texts were joined in a buffer: an owned JSON string of it, which is emptied. NULL and *f when there is no memory. */
json_t *ask_joined(struct buf *text, struct fault *f);
/* For the i-th of a list: nobody wants the rest any more (now and then it is asked). Fills *f then. */
bool ask_is_over(const struct ask *a, size_t i, struct fault *f);
/* An array of token ids to an owned list. */
int ask_tokens(const char *name, const json_t *array, int n_vocab, qn_token **out, size_t *n, struct fault *f);
field_parser ask_parse_stop, ask_parse_tool_choice, ask_parse_parallel;

extern const struct field ask_sampling_fields[]; /* how tokens are drawn: extensions, the same in all APIs */
extern const struct field ask_openai_fields[];   /* both ways */
extern const struct field ask_completion_fields[];
extern const struct field ask_chat_fields[];

#endif
