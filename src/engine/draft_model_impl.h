/* SPDX-License-Identifier: MIT
 *
 * draft_model_impl.h: what draft_model.c (life, memory) and draft_chain.c (proposals) share.
 */
#ifndef QUERN_ENGINE_DRAFT_MODEL_IMPL_H
#define QUERN_ENGINE_DRAFT_MODEL_IMPL_H

#include "engine/draft_model.h"

/* A sequence that is open. Its memory holds tokens that are known to be the sequence's, and after them tokens that were
 * proposed: all of the last proposal, mostly except its last one. */
struct draft_seq {
    struct kv_seq memory;
    int max_slots;
    int most;       /* tokens that the present call wants; 0: none */
    int n_known;    /* slots of the first kind */
    int n_seen;     /* the tokens that the sequence had when it was read to its end; 0: it was not */
    int n_proposed; /* the last proposal */
    qn_token proposed[DRAFT_MOST];
    uint8_t sureness[DRAFT_MOST];
    uint8_t *copy;                  /* of a recurrent state; NULL: the model has none */
    int n_copied;                   /* the slots after which it was copied; -1: it holds nothing */
    uint64_t used;                  /* the last call that wanted proposals for it */
    bool is_foreign;                /* it has a token that the draft model does not know */
    struct draft_seq *next, **link; /* in the list of all that are open */
};

/* A sequence's part of a pass. */
struct draft_part {
    struct draft *draft;
    int n;          /* rows */
    double chance;  /* the product of the probabilities of its tokens so far */
    qn_token token; /* the most probable one after its last row; -1: none */
    float p;        /* its probability */
};

struct draft_model {
    struct drafter base;
    struct qn_engine *target;
    const struct qn_model *handle; /* held */
    const struct model *model;
    struct draft_model_params params;
    int n_ctx;
    size_t weight_bytes, other_bytes; /* taken from the ledger */
    struct kv_pool *kv;
    struct forward forward;
    struct batch batch;
    struct draft_seq *open;
    /* of one pass; parts and memories are [n_places] */
    struct draft_part *parts;
    int n_parts;
    struct kv_seq **memories;
    float *logits; /* [n_places][n_vocab]: of the parts in order; picking overwrites them */
    uint64_t n_calls, last_end_ns;
    double row_s, saved_rows; /* the time of a row among many; rows of the slow reading that were not used yet */
    double step_s;            /* the usual time between two calls; 0: not known */
    unsigned n_lost;          /* the last value of map_n_lost() */
    bool is_lost;             /* some of its weights could not be read */
};

#define DRAFT_MODEL_ROWS 128 /* of a pass, in addition to one for each place */

void draft_model_propose(struct drafter *d, struct draft *drafts, int n);

#endif
