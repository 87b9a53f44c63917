/* SPDX-License-Identifier: MIT
 *
 * quern.h: the public interface of libquern.
 *
 *     qn_model_open(&model, "model.gguf", &err);          weights, mapped; immutable, shareable
 *     qn_engine_new(&engine, model, NULL, &err);          threads, memory budget, KV cache
 *     qn_session_new(&session, engine, NULL, &err);       one timeline of tokens
 *     qn_tokenize(model, text, len, QN_ADD_BOS, &ids, &n, &err);
 *     qn_session_sync(session, ids, n, NULL, &err);       evaluates what is new
 *     while (!qn_session_step(session, &token, &err)) ... one more token each
 *
 * Every fallible call returns 0 or a negative enum qn_status and then has filled the qn_error
 * (which may be NULL). Outputs are written on success only. Parameter structs are made by their
 * _init function, which sets the defaults and the struct's size.
 *
 * Threads: a model may be used by any number of threads at once. An engine and its sessions
 * belong to one thread at a time.
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
};

struct qn_error {
    int code;      /* enum qn_status */
    char msg[500]; /* one line, no newline; empty when code is 0 */
};

typedef int32_t qn_token;

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

/* Opens a GGUF file (the first part of a split one). The file is mapped and must not change while open. */
QN_API int qn_model_open(qn_model **out, const char *path, struct qn_error *e);
QN_API void qn_model_close(qn_model *m); /* after its engines; NULL is fine */

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
QN_API int qn_tokenize(const qn_model *m, const char *text, size_t n, unsigned flags, qn_token **ids, size_t *n_ids,
                       struct qn_error *e);
QN_API void qn_free(void *p);
/* Bytes that n tokens can stand for at most: a longer text cannot fit a context of n. */
QN_API size_t qn_model_max_text(const qn_model *m, int n_tokens);

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

/* ---- build ---- */

QN_API const char *qn_version(void); /* "0.1.0 (commit, compiler)" */
/* The best instruction set of this machine: "ref", "avx2", "avxvnni", "avx512" or "amx". */
QN_API const char *qn_cpu(void);

#ifdef __cplusplus
}
#endif
#endif
