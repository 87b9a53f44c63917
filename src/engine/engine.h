/* SPDX-License-Identifier: MIT
 *
 * engine.h: a model made ready to run: threads, kernels, budget, KV cache and buffers.
 *
 * The engine is asked for memory once, when it is made: everything it will ever use is
 * counted against the budget first, and refused as a whole when it does not fit. Weights are
 * the exception: their pages are the file's, which the system drops and reads again as it needs.
 */
#ifndef QUERN_ENGINE_ENGINE_H
#define QUERN_ENGINE_ENGINE_H

#include "model/load.h"
#include "model/step.h"

struct qn_model { struct model *model; };

/* Bytes a session takes from the ledger beside its part of the KV cache. */
size_t session_bytes(const struct model *m, int n_ctx);

struct qn_engine {
    const struct model *model; /* borrowed */
    struct pool *pool;
    struct ledger ledger;
    size_t weight_bytes; /* what the ledger holds for the weights: all, or what is left for them */
    size_t locked_bytes; /* of them, those that the system cannot drop */
    struct kv_pool *kv;
    struct step step;
    int n_ctx, n_batch, n_sessions;
    /* one batch's arrays, [n_batch] */
    int32_t *pos, *slot, *seq;
    uint8_t *want;
};

/* Leaves `bytes` of the ledger free, if weights that the system can drop have them: these are kept as far as there is
 * room, others have to be. */
void engine_make_room(struct qn_engine *g, size_t bytes);

/* Evaluates n tokens of one sequence behind its present end, in batches of at most n_batch rows;
 * logits [n_vocab] of the last one. On failure the sequence is as it was. No allocation. */
int engine_append(struct qn_engine *g, struct memory *m, const qn_token *tokens, size_t n, float *logits,
                  struct qn_error *e);
/* The same, giving the logits of every `every`-th position (0, every, 2 * every, ...) of the sequence
 * to `sink` as they come, [n_vocab] each. scratch: [n_batch][n_vocab]. */
typedef int engine_sink(void *arg, const float *logits, struct qn_error *e);
int engine_append_all(struct qn_engine *g, struct memory *m, const qn_token *tokens, size_t n, int every, float *scratch,
                      engine_sink *sink, void *arg, struct qn_error *e);

#endif
