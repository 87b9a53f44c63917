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
#include "engine/core/decoder.h"
#include "server/api/call_params.h"
#include "server/api/format_params.h"
#include "server/api/receipts.h"

#define PARAMS_MAX_STOP       16
#define PARAMS_MAX_STOP_BYTES 65536 /* the engine's limit; checked here so that the field is named */
#define PARAMS_MAX_ANSWERS    64
#define PARAMS_MAX_PROMPTS    2048 /* also the most answers of all prompts together */
#define PARAMS_MAX_BIAS       1024

enum { PARAMS_THINKING_UNSAID, PARAMS_THINKING_OFF, PARAMS_THINKING_ON };

/* Strings and JSON values are borrowed from `body` and `made`, which the struct owns. */
struct answer_params {
    json_t *body;
    json_t *made;                    /* an array that owns values made from those of the body; NULL: none */
    char *kept[PARAMS_MAX_STOP + 1]; /* texts that were copied from the body, owned; ended by NULL */
    int n_vocab;                     /* token ids are less than this */
    int n_ctx;                       /* tokens that a request may have; 0: not known */
    struct field_ignored ignored;    /* the fields that change nothing */
    const struct qn_cancel *cancel;  /* asked while long lists are read; NULL: never */

    const char *model; /* NULL: not said */
    const char *cache_salt;
    bool cache_prompt; /* false: nothing is taken from the cache */
    bool stream, include_usage;
    bool continuous_usage; /* with include_usage: in every chunk */
    int n, max_tokens;     /* max_tokens -1: as many as there is room for */
    bool has_max_tokens, has_best_of;
    int best_of;
    int64_t seed;
    bool has_seed;
    struct qn_sampling sampling; /* without the seed; owns logit_bias */
    const char *stop[PARAMS_MAX_STOP];
    int n_stop;
    qn_token *stop_tokens; /* [n_stop_tokens] */
    size_t n_stop_tokens;
    bool ignore_eos;
    struct format_params format; /* owned */
    struct call_params calls;    /* owned */
    int priority, deadline_ms;
    enum qn_draft draft; /* as `decoder` says, too */
    enum decoder decoder;
    struct qn_wedlm wedlm;     /* what is said of windows */
    enum receipt_wish receipt; /* of the answers */
    struct context_how context;
    bool has_context;
    bool logprobs;
    int n_top; /* with each logprob */

    /* A text to be continued: either text or tokens. Or several of them. */
    const json_t *prompts; /* an array of two or more texts or lists of tokens; NULL: there is one */
    const char *text;
    size_t n_text;
    qn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    bool parse_special, has_parse_special, echo;

    /* a gap to be filled between the text, or input_prefix and prompt, and the suffix */
    const json_t *input_prefix, *prompt, *suffix;
    const json_t *input_extra; /* files: objects with `text` and `filename` */
    int n_indent;              /* 0, or the answer ends before a line that is indented less */
    int predict_ms;            /* 0, or the answer ends at its first line's end after so long */
    bool was_cut;              /* something of the request did not fit the context and was left out */
    const json_t *samplers;    /* the names of the filters that are on; NULL: all */
    json_t *response_fields;   /* the members that the answer is to have; NULL: all. Owned */

    /* a conversation */
    const json_t *messages, *tools, *documents, *template_kwargs, *system;
    const char *reasoning_effort;
    int thinking; /* whether the model may think: PARAMS_THINKING_* */
    bool no_tools, one_call, add_generation_prompt;
    bool continue_final; /* the last message is the assistant's, to be continued */

    /* of responses */
    bool store;         /* the response is kept for later requests */
    bool summary;       /* thoughts come as the summary of their item */
    char continues[64]; /* the id of the response that this one continues; "": none. Longer ones are cut */

    /* For an API that repeats them in its answer; owned. */
    json_t *instructions;   /* NULL: none */
    struct buf tools_again; /* as JSON */
};

void params_init(struct answer_params *a, int n_vocab);
void params_deinit(struct answer_params *a);
/* Reads the object of a request, and takes it over also when it fails. Fields that change nothing are noted in
 * a->ignored, also when parts of the request are read later with the same f. */
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
field_parser params_parse_stop, params_parse_parallel, params_parse_stream_options;
field_parser params_parse_thinking; /* {"type": "enabled"}, with a budget that changes nothing */
field_parser params_parse_context;  /* which parts of a long conversation are dropped: only if none ever are */

extern const struct field params_sampling_fields[]; /* how tokens are drawn: extensions, the same in all APIs */
extern const struct field params_shared_fields[];   /* fields of other servers, the same in all APIs */
extern const struct field params_thinking_fields[]; /* whether the model may think, in chat completions */
extern const struct field params_openai_fields[];   /* of both kinds of request */
extern const struct field params_completion_fields[];
extern const struct field params_chat_fields[];
extern const struct field infill_fields[]; /* infill.c */

#endif
