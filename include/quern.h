/* SPDX-License-Identifier: MIT
 *
 * quern.h: the public interface of libquern.
 *
 *     qn_model_open(&model, "model.gguf", &err);          weights, mapped; immutable, shareable
 *     qn_engine_new(&engine, model, NULL, &err);          threads, memory budget, KV cache
 *     qn_session_new(&session, engine, NULL, &err);       one timeline of tokens
 *     qn_tokenize(model, text, len, QN_ADD_BOS, NULL, &ids, &n, &err);
 *     qn_session_sync(session, ids, n, NULL, &err);       evaluates what is new
 *     while (!qn_session_step(session, &token, &err)) ... one more token each
 *
 * Every fallible call returns 0 or a negative enum qn_status and then has filled the qn_error
 * (which may be NULL). Outputs are written on success only. Parameter structs are made by their
 * _init function, which sets the defaults and the struct's size.
 *
 * Threads: a model may be used by any number of threads at once. An engine and all its sessions belong to one thread at
 * a time: the first thread of the team that computes is the one that calls. A qn_scheduler is the way for many threads:
 * it owns the engine while it lives, and each of its functions says who may call it. A qn_text belongs to one thread.
 *
 * The same model, tokens and seed give the same bits whatever the instruction set, the number
 * of threads, the batch size or what was computed before.
 */
#ifndef QUERN_H
#define QUERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QN_API __attribute__((visibility("default")))
#else
#define QN_API
#endif

/* ---- errors ---- */

enum qn_status {
    QN_OK = 0,
    QN_EUSAGE = -1,   /* the caller asked for something that makes no sense */
    QN_EDATA = -2,    /* a file or other input is malformed */
    QN_ENOINPUT = -3, /* a file cannot be opened or read */
    QN_EUNSUP = -4,   /* well-formed, but not something this engine does */
    QN_ENOMEM = -5,   /* memory: the allocator or the ledger said no */
    QN_EIO = -6,      /* reading or writing failed half-way */
    QN_ECANCEL = -7,  /* stopped on request */
    QN_ENUMERIC = -8, /* no token can be chosen: all logits are NaN or banned */
    QN_EFULL = -9,    /* the tokens do not fit the context */
    QN_EBUSY = -10,   /* too much waits already: try again later */
};

struct qn_error {
    int code;      /* enum qn_status */
    char msg[500]; /* one line, no newline; empty when code is 0 */
};

typedef int32_t qn_token;

/* Work that takes as long as its input is long asks this every few milliseconds, in the thread that does it; true: the
 * work ends with QN_ECANCEL and has changed nothing. NULL in the place of a struct qn_cancel: it is never cancelled. */
struct qn_cancel {
    bool (*is_cancelled)(void *arg);
    void *arg;
};

/* ---- sampling ---- */

struct qn_logit_bias { qn_token token; float bias; }; /* bias -INFINITY bans the token */

/* How the next token is drawn. Filters run in the order of the fields below; each is off at
 * the value its comment gives. Make one with qn_sampling_init(). */
struct qn_sampling {
    size_t size; /* sizeof(struct qn_sampling), set by qn_sampling_init */
    uint64_t seed; /* draws depend on (seed, position of the token) alone */

    const struct qn_logit_bias *logit_bias; /* borrowed while the sampler lives; NULL: none */
    size_t n_logit_bias;

    /* Penalties look at the last penalty_last_n tokens, prompt included (0: off, -1: all). */
    int32_t penalty_last_n;
    float repetition_penalty; /* 1: off; logit / p when positive, * p when negative */
    float frequency_penalty;  /* 0: off; logit - p * count */
    float presence_penalty;   /* 0: off; logit - p */

    /* DRY: logit - multiplier * base ^ (match - allowed_length) for tokens that would extend a
     * repeated sequence. */
    float dry_multiplier; /* 0: off */
    float dry_base;
    int32_t dry_allowed_length;
    int32_t dry_last_n; /* tokens looked back at; -1: all */
    const qn_token *dry_breakers; /* tokens a match never crosses; borrowed */
    size_t n_dry_breakers;

    float top_n_sigma; /* 0: off; keep logits >= max - n * standard deviation */
    int32_t top_k;     /* 0: off */
    float typical_p;   /* 1: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float xtc_probability; /* 0: off */
    float xtc_threshold;
    float temperature; /* 0: greedy: the largest logit after bias and penalties, filters ignored */
    float mirostat_tau; /* 0: off; else mirostat v2 replaces top_n_sigma .. xtc */
    float mirostat_eta;
};

QN_API void qn_sampling_init(struct qn_sampling *s);
/* A seed from the operating system. */
QN_API uint64_t qn_random_seed(void);

/* ---- model ---- */

typedef struct qn_model qn_model;

/* Opens a GGUF file (the first part of a split one). The file is mapped and must not change while open:
 * see qn_scheduler_look(). */
QN_API int qn_model_open(qn_model **out, const char *path, struct qn_error *e);

struct qn_model_params {
    size_t size;
    const char *pre; /* the pre-tokeniser of files that name none, `default`, or one that is not known; NULL: the latter
                        are refused */
};
QN_API void qn_model_params_init(struct qn_model_params *p);
/* The same with parameters; NULL: the defaults. */
QN_API int qn_model_open_with(qn_model **out, const char *path, const struct qn_model_params *p, struct qn_error *e);
QN_API void qn_model_close(qn_model *m); /* after its engines; NULL is fine */

/* A number that tells the model from others, and from itself when one of its files has changed: answers that were kept
 * under it may be used. Of another copy of the files it is another one. */
QN_API uint64_t qn_model_mark(const qn_model *m);
QN_API int32_t qn_model_n_vocab(const qn_model *m);
QN_API int32_t qn_model_n_ctx_train(const qn_model *m); /* tokens of context it was trained with */
QN_API bool qn_model_is_eog(const qn_model *m, qn_token t); /* the model ends its answer with this token */

/* ---- text ---- */

enum qn_tokenize_flag {
    QN_ADD_BOS = 1,       /* a begin token where the model wants one: for text to be continued */
    QN_ADD_EOS = 4,       /* an end token where the model wants one */
    QN_PARSE_SPECIAL = 2, /* the texts of control tokens mean these tokens; never for text of a user */
};
/* Any bytes are text. *ids returns owned: qn_free(). */
QN_API int qn_tokenize(const qn_model *m, const char *text, size_t n, unsigned flags, const struct qn_cancel *cancel,
                       qn_token **ids, size_t *n_ids, struct qn_error *e);
QN_API void qn_free(void *p);
/* Bytes that n tokens can stand for at most: a longer text cannot fit a context of n. */
QN_API size_t qn_model_max_text(const qn_model *m, int n_tokens);

/* The bytes one token stands for, not always whole UTF-8; with `special`, control tokens are their text, else nothing.
 * *bytes returns owned: qn_free(). */
QN_API int qn_token_bytes(const qn_model *m, qn_token token, bool special, char **bytes, size_t *n, struct qn_error *e);

/* Turns tokens into text as they come; only whole UTF-8 characters are given out. */
typedef struct qn_text qn_text;
/* continues: the text follows some that is already there, so its leading space stays.
 * stop: n_stop strings (copied) that end the text: it is given out up to the first one's beginning. */
QN_API int qn_text_new(qn_text **out, const qn_model *m, bool continues, const char *const *stop, size_t n_stop,
                       struct qn_error *e);
QN_API void qn_text_free(qn_text *t);
/* *bytes stays valid until the next call and may be empty; *stopped (may be NULL): a stop string came. Nothing has
 * changed after a failure, here and in qn_text_end(). */
QN_API int qn_text_push(qn_text *t, qn_token token, const char **bytes, size_t *n, bool *stopped, struct qn_error *e);
/* What was held back: the beginning of a stop string; an incomplete character, as U+FFFD. */
QN_API int qn_text_end(qn_text *t, const char **bytes, size_t *n, struct qn_error *e);

/* ---- chat ---- */

/* The model's chat template, compiled, and the form of its replies. Immutable: any number of threads may use it. The
 * model stays open as long. JSON crosses this interface as UTF-8 text. */
typedef struct qn_chat qn_chat;
/* source: a template in place of the file's; NULL: the file's own, which is tokenizer.chat_template, or with tools
 * tokenizer.chat_template.tool_use where there is one. QN_EDATA: there is none, or it is malformed. */
QN_API int qn_chat_new(qn_chat **out, const qn_model *m, const char *source, size_t n, struct qn_error *e);
QN_API void qn_chat_free(qn_chat *c); /* after its prompts and replies; NULL is fine */

/* A conversation as the model reads it. Immutable. */
typedef struct qn_prompt qn_prompt;
/* request: an object with these members, of which only messages is required; any other is QN_EUSAGE with its name.
 *     messages               as the OpenAI API has them; texts of users never become control tokens
 *     tools                  as the OpenAI API has them; null or [] is none
 *     documents              array, for templates with retrieval
 *     add_generation_prompt  bool, default true: the prompt ends where the reply begins
 *     chat_template_kwargs   object: more variables for the template (enable_thinking, reasoning_effort, ...)
 * QN_EUSAGE: the request is malformed or the template refuses it (its own words); QN_EDATA, QN_EUNSUP: the template
 * fails. */
QN_API int qn_chat_prompt(qn_prompt **out, const qn_chat *c, const char *request, size_t n,
                          const struct qn_cancel *cancel, struct qn_error *e);
/* The most memory, in bytes, that the template takes for a request of n bytes while that is called: its values and what
 * it writes. What would need more is refused with QN_EDATA. */
QN_API size_t qn_chat_prompt_bytes(size_t n);
QN_API void qn_prompt_free(qn_prompt *p); /* after its replies; NULL is fine */
/* Both belong to the prompt. The text has no NUL at its end, and no BOS but the one that the template writes. */
QN_API const char *qn_prompt_text(const qn_prompt *p, size_t *n);
QN_API const qn_token *qn_prompt_tokens(const qn_prompt *p, size_t *n);
/* Numbers of tokens behind which prompts of other conversations, or of this one later, will probably go on in another
 * way: for struct qn_request_params. */
QN_API const int *qn_prompt_boundaries(const qn_prompt *p, size_t *n);

/* Takes a reply apart as it comes: the tokens of the model go in, these events come out. Texts of one kind come in
 * pieces that are to be joined; a piece may end inside of a word but not inside of a character. */
enum qn_reply_kind {
    QN_REPLY_CONTENT,   /* text: more of the answer */
    QN_REPLY_REASONING, /* text: more of what the model thought before */
    QN_REPLY_CALL,      /* a tool call begins; text: the tool's name, whole */
    QN_REPLY_ARGUMENTS, /* text: more of the call's arguments, a JSON object */
    QN_REPLY_CALL_END,  /* the call is complete and its arguments are valid */
    /* What looked like a call is not one, or is cut off; text: all of it as the model wrote it, whole. call >= 0: it
     * is that call, which had begun and has no CALL_END; -1: nothing of it was given out before. */
    QN_REPLY_BAD_CALL,
};
struct qn_reply_event {
    enum qn_reply_kind kind;
    int call; /* CALL, ARGUMENTS, CALL_END: which one, from 0; they do not interleave */
    const char *text; /* n bytes, not terminated; valid until the next push or end */
    size_t n;
};

typedef struct qn_reply qn_reply;
/* The reply to this prompt. Calls are looked for only when the prompt had tools. stop: n_stop strings (copied) that end
 * the answer; they are looked for in the content, which is given out up to the first one's beginning. */
QN_API int qn_reply_new(qn_reply **out, const qn_chat *c, const qn_prompt *p, const char *const *stop, size_t n_stop,
                        struct qn_error *e);
QN_API void qn_reply_free(qn_reply *r); /* NULL is fine */
/* Every token that the model makes goes in, control tokens too; one that ends the generation may, and says nothing.
 * *stopped (may be NULL): a stop string came; what follows it is ignored. After a failure (QN_ENOMEM; QN_EUSAGE for a
 * token outside the vocabulary) the reply can only be freed. */
QN_API int qn_reply_push(qn_reply *r, qn_token token, bool *stopped, struct qn_error *e);
/* No more tokens: gives out what was held back. */
QN_API int qn_reply_end(qn_reply *r, struct qn_error *e);
/* Which of the stop strings has come; -1: none. */
QN_API int qn_reply_stop_index(const qn_reply *r);
/* The next event of the last push or end; false when there is none left. */
QN_API bool qn_reply_next(qn_reply *r, struct qn_reply_event *event);

/* ---- engine ---- */

enum qn_kv { QN_KV_F16, QN_KV_F32, QN_KV_Q8_0 };

struct qn_engine_params {
    size_t size;
    int n_threads;         /* 0: as many as this process may use */
    const char *cpu;       /* instruction set at most: "ref", "avx2", "avxvnni", "avx512", "amx"; NULL: the best there is */
    uint64_t memory_bytes; /* the budget for KV cache, buffers and weights; 0: what the machine has available */
    int n_ctx;             /* tokens a session may hold; 0: the model's, at most 4096 */
    int n_batch;           /* most rows in one forward pass; 0: 512 */
    int n_sessions;        /* full sessions the KV cache has room for */
    enum qn_kv kv;         /* how keys and values are stored */
    uint64_t state_bytes;  /* models with a recurrent state: the budget's part for the states of sequences and for copies of
                              them, without which what was computed before is of no use to others. 0: one for each session
                              and up to 16 copies, fewer where memory is short. Other models: of no meaning */
    bool lock_weights;     /* once read, weights stay in memory until the model is closed: all that the budget has room
                              for and RLIMIT_MEMLOCK allows */
};
QN_API void qn_engine_params_init(struct qn_engine_params *p);

typedef struct qn_engine qn_engine;

/* QN_ENOMEM when KV cache and buffers do not fit the budget, with a little room for weights: nothing large has been
 * touched. Weights that do not fit as a whole are read from the file again for every token; a warning says so. */
QN_API int qn_engine_new(qn_engine **out, const qn_model *m, const struct qn_engine_params *p, struct qn_error *e);
QN_API void qn_engine_free(qn_engine *g); /* after its sessions; NULL is fine */
QN_API int qn_engine_n_ctx(const qn_engine *g);

/* What an engine and a scheduler on it would take of the budget (whose size does not matter here). Nothing large is
 * allocated. */
struct qn_scheduler_params;
struct qn_engine_plan {
    size_t size;
    int n_ctx;
    uint64_t bytes;       /* all of it */
    uint64_t least_bytes; /* with which it runs, but reads the weights from the file again for every token */
};
/* p, s NULL: the defaults. out->size must be set. */
QN_API int qn_engine_plan(struct qn_engine_plan *out, const qn_model *m, const struct qn_engine_params *p,
                          const struct qn_scheduler_params *s, struct qn_error *e);

/* ---- session ---- */

typedef struct qn_session qn_session;

/* sampling NULL: the defaults of qn_sampling_init(). What it points to is borrowed. The session's own
 * memory is taken from the engine's budget. */
QN_API int qn_session_new(qn_session **out, qn_engine *g, const struct qn_sampling *sampling, struct qn_error *e);
QN_API void qn_session_free(qn_session *s); /* NULL is fine */
/* Makes the timeline exactly these tokens (at least one): keeps the longest common prefix, evaluates the
 * rest. The sampler's history becomes these tokens too, unless nothing changes at all. *n_kept (may be
 * NULL): tokens that were not evaluated again. On failure the timeline is empty or as far as it came,
 * never wrong. */
QN_API int qn_session_sync(qn_session *s, const qn_token *tokens, size_t n, size_t *n_kept, struct qn_error *e);
/* Draws the next token and appends it. QN_EFULL when the context is full. */
QN_API int qn_session_step(qn_session *s, qn_token *token, struct qn_error *e);
/* The logits that follow the timeline, [n_vocab], valid until the next call on this session. */
QN_API int qn_session_logits(qn_session *s, const float **logits, struct qn_error *e);
/* A second timeline with the same past; the KV cache is shared until one of them goes on. */
QN_API int qn_session_fork(qn_session **out, const qn_session *s, struct qn_error *e);
QN_API size_t qn_session_tokens(const qn_session *s, const qn_token **tokens);

/* ---- requests: many at once ---- */

/* Evaluates the requests of any number of threads together: one step computes a row of every running answer and a
 * piece of a prompt that is being read. It has a thread of its own, which owns the engine while the scheduler lives:
 * no session of that engine may be used meanwhile. What a request is answered does not depend on its neighbours, on
 * the cache or on how prompts were cut: the tokens and logprobs are those of a session with the same sampling.
 *
 * A request holds the KV pages for its prompt and max_tokens from admission to its end, so that no answer is ever cut
 * or computed again for want of memory; requests are admitted in the order of their priority and, within one priority,
 * the identity that has been computed least first, and then in the order they came. */
typedef struct qn_scheduler qn_scheduler;

struct qn_scheduler_params {
    size_t size;
    int n_running; /* answers that are evaluated together; 0: 8. A request of n answers takes n of these places */
    int n_queued;  /* requests that may wait; one more is refused with QN_EBUSY. 0: 64 */
    int n_prefill; /* most prompt rows in one step; 0: the engine's n_batch */
    int snapshot_every; /* models with a recurrent state: prompt tokens between copies of it. 0: 4096 */
    const char *cache_dir; /* where prefixes outlive the process; NULL: nowhere. Copied */
    uint64_t cache_bytes;  /* on disk at most; 0: nothing is written */
    const char *hash_dir;  /* where SHA-256 of model files may be remembered already, beside cache_dir; NULL: nowhere */
};
QN_API void qn_scheduler_params_init(struct qn_scheduler_params *p);
/* Its memory (for each place n_vocab logits and a sampler) is taken from the engine's budget. */
QN_API int qn_scheduler_new(qn_scheduler **out, qn_engine *g, const struct qn_scheduler_params *p, struct qn_error *e);
/* Takes no more requests, ends those that wait, lets the running ones go on for grace_s seconds and ends what is left
 * (QN_FINISH_STOPPED). Returns when every request has had its last event. Any thread, but not from a callback. */
QN_API void qn_scheduler_stop(qn_scheduler *s, double grace_s);
/* Stops, if that was not done, without grace. Nobody else may use s any more. NULL is fine. */
QN_API void qn_scheduler_free(qn_scheduler *s);

/* Any thread. Looks whether the model's files are still what they were when they were opened: by size, time of change,
 * inode and device. 0: they are. 1: another file has the name of one; what is open is intact. QN_EDATA: one was changed in
 * place; all requests end with this error, none is taken any more, and nothing more is kept in the cache. qn_submit()
 * looks, too. */
QN_API int qn_scheduler_look(qn_scheduler *s, struct qn_error *e);

struct qn_logprob { qn_token token; float logprob; }; /* natural logarithm, of the softmax of the unmodified logits */

enum qn_finish {
    QN_FINISH_NONE,        /* goes on */
    QN_FINISH_STOP_TOKEN,  /* an end-of-generation token, or one of stop_tokens: `token` */
    QN_FINISH_STOP_STRING, /* stop[stop_index] */
    QN_FINISH_LENGTH,      /* max_tokens, or the context is full */
    QN_FINISH_CANCELLED,
    QN_FINISH_DEADLINE,
    QN_FINISH_STOPPED, /* the scheduler was stopped */
    QN_FINISH_ERROR,   /* `error` says what */
};

enum qn_event_type {
    QN_EVENT_QUEUED,    /* waits: `place`. At once, and when the place changes */
    QN_EVENT_PREFILL,   /* n_done of n_total prompt tokens are evaluated: when it begins, when what of them is on disk has
                           been read, and after each step */
    QN_EVENT_PROMPT,    /* with prompt_logprobs, for each prompt token in order: token, logprob, top */
    QN_EVENT_TOKEN,     /* one for each generated token, stop tokens excepted: token, logprob, top, text */
    QN_EVENT_EMBEDDING, /* embedding */
    QN_EVENT_FINISH,    /* `answer` ends: finish, stop_index, token, text (held back; often empty). Each of n_answers has
                           one, begun or not, unless the request ended while it waited */
    QN_EVENT_DONE,      /* exactly one for each request, the last: finish, error, usage, timings */
};

struct qn_usage {
    int n_prompt, n_cached, n_generated; /* tokens; n_cached of the prompt's were not computed; all answers' */
};

struct qn_timings {
    double queue_ms, prefill_ms, decode_ms; /* from submission to admission, to the first token, to the end */
    /* Why no more of the prompt came from the cache, NULL where nothing was missed: "nothing" is stored for this salt,
     * all that is stored "differs", it "ends", or was "evicted"; there was no "room" to read what is on disk, or it was
     * "damaged"; "unused": the request wants all its rows computed; more is stored, but no copy of the recurrent "state"
     * behind it. And the first position that was missed. */
    const char *miss;
    int miss_position;
};

/* All fields that the type does not name are 0 (token: -1). Pointers are valid during the call. */
struct qn_event {
    enum qn_event_type type;
    uint64_t request;
    int answer; /* 0 .. n_answers - 1 */
    int place;  /* requests that came before this one and wait with its priority or a higher one */
    int n_done, n_total;
    qn_token token;
    float logprob; /* 0 unless asked for; NAN for the first token of a prompt */
    const struct qn_logprob *top; /* [n_top] the most probable tokens, descending */
    int n_top;
    /* Whole UTF-8 characters, not NUL-terminated. Empty while a character or the beginning of a stop string is held
     * back: later tokens bring it. */
    const char *text;
    size_t n_text;
    const float *embedding; /* [n_embedding] */
    int n_embedding;
    enum qn_finish finish;
    int stop_index;
    const struct qn_error *error; /* NULL unless finish is QN_FINISH_ERROR */
    struct qn_usage usage;
    struct qn_timings timings;
};

/* Called on the scheduler's thread, which computes nothing meanwhile: it must return soon. It may call qn_submit,
 * qn_cancel and qn_scheduler_stats, and everything that only takes the model. */
typedef void qn_callback(void *arg, const struct qn_event *event);

enum qn_pooling { QN_POOL_NONE, QN_POOL_MEAN, QN_POOL_LAST };
/* What the model's file says of its embeddings; NONE: nothing. */
QN_API enum qn_pooling qn_model_pooling(const qn_model *m);

struct qn_request_params {
    size_t size;
    const qn_token *prompt; /* [n_prompt], at least one. This and all else that is pointed at is copied */
    size_t n_prompt;
    const int *boundaries; /* [n_boundaries] ascending, 1..n_prompt: tokens of the prompt after which other requests will
                              probably go on in another way (qn_prompt_boundaries). Where a model has a recurrent state, a
                              copy of it is kept there */
    size_t n_boundaries;
    struct qn_sampling sampling; /* answer i draws with the seed sampling.seed + i */
    const char *const *stop;     /* [n_stop] strings that end an answer; not part of its text */
    size_t n_stop;
    const qn_token *stop_tokens; /* [n_stop_tokens] beyond the model's own end tokens */
    size_t n_stop_tokens;
    bool ignore_eog;        /* the model's own end tokens are ordinary */
    bool continues;         /* the text goes on from the prompt's: its leading space stays (see qn_text_new) */
    int max_tokens;         /* of each answer; -1: what the context has room for; 0: the prompt is evaluated, no more */
    int n_answers;          /* the prompt is evaluated once */
    int n_top_logprobs;     /* -1: no logprobs; 0: of the chosen token only; at most QN_MAX_TOP_LOGPROBS */
    bool prompt_logprobs;   /* also of the prompt's tokens, which then are all computed, not taken from the cache */
    int priority;           /* larger first */
    uint64_t identity;      /* whose it is: within a priority, identities get equal shares of what is computed; and
                               whose what it leaves in the cache is (qn_cache_list) */
    uint64_t salt[2];       /* cached prefixes are found by requests with the same identity and salt only */
    int deadline_ms;        /* from submission to the end; 0: none */
    enum qn_pooling pooling; /* other than NONE: an embedding of the prompt (length 1) and no answer */
    qn_callback *callback;
    void *arg;
};
#define QN_MAX_TOP_LOGPROBS 20
QN_API void qn_request_params_init(struct qn_request_params *p);

/* Any thread. *id is set before the first event. Returns, besides QN_EUSAGE for parameters that make no sense:
 *   QN_EBUSY   the queue is full; *retry_s (may be NULL) is set to the seconds until there is room, as far as can be
 *              told from the speed so far
 *   QN_EFULL   it will never fit: prompt and max_tokens exceed the context, or the answers the KV cache
 *   QN_ECANCEL the scheduler is being stopped
 *   QN_ENOMEM  no memory for the copy */
QN_API int qn_submit(qn_scheduler *s, const struct qn_request_params *p, uint64_t *id, double *retry_s,
                     struct qn_error *e);
/* Any thread. The request ends within milliseconds (between two pieces of work of a step) where its rows are most of
 * what is being computed, and otherwise after the step. false: there is no such request (any more). Its last event comes in either case. */
QN_API bool qn_cancel(qn_scheduler *s, uint64_t id);

/* Counters since the scheduler was made, and present values. */
struct qn_scheduler_stats {
    size_t size;
    int n_queued, n_running; /* requests */
    int n_answers;           /* that occupy one of n_places */
    int n_places;
    uint64_t n_submitted, n_refused; /* requests; refused: QN_EBUSY */
    uint64_t n_done[QN_FINISH_ERROR + 1]; /* by enum qn_finish */
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    uint64_t n_steps, n_rows, n_prefill_rows; /* n_rows / n_steps is the mean batch */
    double step_s;    /* what the last step took */
    double busy_s;    /* in steps altogether */
    double idle_s;    /* since the last step's end. Large while n_running > 0: something hangs */
    double prefill_tokens_per_s, decode_tokens_per_s; /* of late; 0: not known yet */
    /* the ledger, bytes */
    uint64_t budget_bytes, used_bytes; /* used is the sum of these: */
    uint64_t weight_bytes, kv_bytes, state_bytes, buffer_bytes, scheduler_bytes, cache_bytes;
    int n_pages, n_pages_free, n_pages_cached; /* of the KV cache; cached: given up when an answer needs them */
    int n_pages_touched; /* ever in use; the others are promised, but not in memory yet */
    int page_tokens;
    int n_states, n_states_free; /* recurrent states; of those in use, copies that the cache keeps: */
    int n_snapshots;
    int n_snapshots_disk;
    uint64_t cache_lookups, cache_hits, cache_hit_tokens; /* requests; tokens of prompts */
    uint64_t cache_disk_bytes;
};
/* Any thread. out->size must be set. */
QN_API void qn_scheduler_stats(qn_scheduler *s, struct qn_scheduler_stats *out);

/* ---- what the cache of prefixes holds ---- */

/* A stored conversation: a sequence of tokens that no other stored one continues. Those that begin alike share memory. */
struct qn_cached {
    uint64_t id; /* it keeps it while it grows, until it is dropped or the scheduler is freed */
    int n_tokens;
    uint64_t memory_bytes, disk_bytes; /* of all its pages, and of copies of recurrent states; being written counts as on disk */
    /* The same, but what several share is counted for one of them: these may be added up. */
    uint64_t memory_part_bytes, disk_part_bytes;
    double idle_s; /* since the last use; negative: not used since the scheduler was made, but found on disk */
};
/* Any thread, but not from a callback: both wait until the step that is being computed is over. QN_ECANCEL: the
 * scheduler has been stopped. */
/* What requests of this identity have left, the most recently used first. *list returns owned: qn_free(). */
QN_API int qn_cache_list(qn_scheduler *s, uint64_t identity, struct qn_cached **list, size_t *n, struct qn_error *e);
/* Drops it, if it is this identity's, from memory and disk, but for what others share; id 0: all of this identity. What
 * runs goes on, and leaves what it has when it ends. *n_dropped: how many. */
QN_API int qn_cache_drop(qn_scheduler *s, uint64_t identity, uint64_t id, size_t *n_dropped, struct qn_error *e);

/* ---- build ---- */

QN_API const char *qn_version(void); /* "0.1.0 (commit, compiler)" */
/* The best instruction set of this machine: "ref", "avx2", "avxvnni", "avx512" or "amx". */
QN_API const char *qn_cpu(void);

#ifdef __cplusplus
}
#endif
#endif
