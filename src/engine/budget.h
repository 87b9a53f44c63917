/* SPDX-License-Identifier: MIT
 *
 * budget.h: counts the memory that an engine needs of its budget, before anything is allocated.
 */
#ifndef QUERN_ENGINE_BUDGET_H
#define QUERN_ENGINE_BUDGET_H

#include "cache/kv.h"
#include "kernel/cpu.h"
#include "model/model.h"

/* The least memory with which weights can be streamed from disk. It covers the pages that the system reads ahead for
 * each thread, and memory that the budget does not count (vocabulary, page tables, the program itself). */
#define STREAM_BYTES ((uint64_t)256 << 20)

struct budget {
    uint64_t weights;     /* bytes that every token reads */
    uint64_t kv, buffers; /* kv: of pages, and of the n_windows window pages */
    int n_windows;
    uint64_t states; /* bytes of the n_states recurrent states */
    int n_states;
    uint64_t room; /* bytes of the budget that are left for weights */
};

/* Replaces zeros by the defaults, checks the ranges, and sets *level. p->kv_tokens is then whole pages. QN_EUSAGE: a
 * value is out of range. QN_EUNSUP: this machine does not have the instruction set. */
int budget_settle(struct qn_engine_params *p, const struct model *m, enum cpu_level *level, struct qn_error *e);
/* The same, where the caller knows for how many tokens there is room, whatever memory there is here. */
int budget_settle_for(struct qn_engine_params *p, const struct model *m, int64_t room, enum cpu_level *level,
                      struct qn_error *e);
struct kv_shape budget_kv_shape(const struct model *m, enum qn_kv kv);
/* p: after budget_settle(), here and below. Sets all fields except room. */
int budget_count(const struct model *m, const struct qn_engine_params *p, struct budget *b, struct qn_error *e);
/* Reduces the number of states so that half of the free memory is left, unless the caller asked for a number. */
void budget_spare_states(const struct kv_shape *shape, const struct qn_engine_params *p, struct budget *b);
/* Returns how many bytes of the weights must fit the budget. */
uint64_t budget_floor(const struct budget *b);
/* Sets all fields. QN_ENOMEM: the sum does not fit the budget; the message has all numbers. */
int budget_check(const struct model *m, const struct qn_engine_params *p, struct budget *b, struct qn_error *e);
/* The same for an engine whose layers are elsewhere, and whose cache has the shape `head`. weights is 0. */
int budget_check_head(const struct model *m, const struct kv_shape *head, const struct qn_engine_params *p,
                      struct budget *b, struct qn_error *e);

/* Of a model, or a part of one (model_part()); p: with its number of sessions. The tokens that the cache has if nobody
 * asks for a number, with so much memory and such weights; and those that so many bytes hold. */
int64_t budget_usual_tokens(const struct model *m, const struct qn_engine_params *p, uint64_t memory, uint64_t weights);
int64_t budget_tokens_that_fit(const struct model *m, const struct qn_engine_params *p, uint64_t bytes);
/* Returns the bytes of the weights of a part that every token reads. */
uint64_t budget_part_weights(const struct model *part);

/* Returns the embedding table if it is used for nothing else, because a token then reads only one row of it. Otherwise
 * NULL. */
const struct tensor *budget_rows_only(const struct model *m);

/* Returns the bytes that a session takes from the ledger, in addition to its part of the KV cache. */
size_t session_bytes(const struct model *m, int n_ctx);

#endif
