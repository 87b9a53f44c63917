/* SPDX-License-Identifier: MIT
 *
 * engine.h: a model made ready to run: threads, kernels, budget, KV cache and buffers.
 *
 * All memory that an engine will ever use is counted against the budget before the engine is made. If it does not fit,
 * the engine is refused. Weights are the exception: they are pages of the file, which the system drops and reads again
 * as necessary.
 */
#ifndef QUERN_ENGINE_ENGINE_H
#define QUERN_ENGINE_ENGINE_H

#include "engine/core/hold.h"
#include "engine/core/stage.h"
#include "engine/core/usage.h"
#include "grammar/guide.h"
#include "model/forward.h"
#include "model/load.h"

struct qn_model {
    struct model *model;
    struct hold hold;
    char *name; /* for qn_model_name() */
    struct grammar_shelf grammars;
};

struct qn_grammar {
    const struct qn_model *model; /* held */
    struct shelved *shelved;      /* one of its users */
};

/* Takes a reference to the model, for objects that use it: the caller may close the model before them by mistake. */
const struct qn_model *model_hold(const struct qn_model *m);
void model_let_go(const struct qn_model *m); /* drops the reference; NULL is fine */

/* Takes the memory of the model's grammars from this ledger, which lives longer. Call it before the first grammar.
 * Without it they have a ledger of their own (grammar/shelf.h). */
void model_pay_grammars(const struct qn_model *m, struct ledger *l);
size_t model_grammar_bytes(const struct qn_model *m); /* taken from the ledger */

struct qn_engine {
    const struct qn_model *handle; /* held */
    const struct model *model;     /* belongs to the handle */
    struct hold hold;
    atomic_bool is_lent; /* a scheduler owns the engine: no session may be used */
    struct pool *pool;
    struct ledger ledger;
    size_t weight_bytes; /* bytes of the ledger that weights have: all of them, or as many as are left */
    size_t locked_bytes; /* of these, the bytes that the system cannot drop */
    struct kv_pool *kv;
    struct forward forward;
    bool is_head;                /* its steps run elsewhere (core/stage.h) */
    const struct stage *stage;   /* where; NULL: it computes itself, or the head has none yet */
    const struct store_far *far; /* of a head: the disks of those processes, borrowed; NULL: not known */
    int n_ctx, n_batch, n_sessions;
    struct batch batch;             /* the batch of the present pass, with room for n_batch rows */
    const struct qn_prefill *watch; /* the functions that follow the present call; NULL: none */
    size_t watch_total;             /* tokens of the timeline that the call evaluates */
    /* Takes back what the last pass computed too much of. NULL: nothing (engine_settle) */
    void (*settle)(void *arg);
    void *settle_arg;
};

/* Makes an engine whose steps run elsewhere (core/stage.h). shape: gives the head's cache a shape of its own. What the
 * layers take is not counted; the caller chooses n_ctx, kv_tokens and state_bytes by what is known of them. *out needs
 * a stage (engine_set_stage()) before its scheduler gets requests. Such an engine has no sessions, and drafts with the
 * model's own block for the next token are off. */
int engine_new_head(qn_engine **out, const qn_model *model, const struct qn_engine_params *params,
                    struct kv_shape (*shape)(const struct model *m, enum kv_type type), struct qn_error *e);
/* stage: becomes the engine's. */
void engine_set_stage(struct qn_engine *g, const struct stage *stage);

/* The tools of a prompt, borrowed; NULL: there are none. */
const json_t *prompt_tools(const struct qn_prompt *p);
/* Where the replies to a prompt begin; the prompt is borrowed. */
void prompt_guide_start(const struct qn_prompt *p, struct guide_start *out);

void engine_let_go(struct qn_engine *g); /* drops a reference from hold_get(&g->hold); NULL is fine */

/* The last pass may have rows of drafts (session_drafts.h). Call it before whatever needs the engine's buffers, or a
 * session that is not ahead. */
void engine_settle(struct qn_engine *g);

/* Makes `bytes` of the ledger free by taking room from weights that the system can drop. Locked weights keep their
 * room, and the weights keep at least STREAM_BYTES, so fewer bytes may be free in the end. */
void engine_make_room(struct qn_engine *g, size_t bytes);

/* Appends n tokens to the sequence m and evaluates them, in batches of at most n_batch rows. logits: [n_vocab], set to
 * those of the last token. On failure the sequence is as it was, but if g->watch cancels the call (QN_ECANCEL), the
 * batches that were evaluated before stay. Allocates nothing. */
int engine_append(struct qn_engine *g, struct kv_seq *m, const qn_token *tokens, size_t n, float *logits,
                  struct qn_error *e);
/* The same, but passes the logits of every `every`-th position (0, every, 2 * every, ...) of the sequence to `sink` as
 * they come, [n_vocab] each. scratch: [n_batch][n_vocab]. */
typedef int engine_sink(void *arg, const float *logits, struct qn_error *e);
int engine_append_all(struct qn_engine *g, struct kv_seq *m, const qn_token *tokens, size_t n, int every,
                      float *scratch, engine_sink *sink, void *arg, struct qn_error *e);

#endif
