/* SPDX-License-Identifier: MIT
 *
 * stage.h: where the steps of a scheduler run: in this process, or in other processes that have the layers.
 *
 * An engine without a struct stage computes itself. An engine with one is the head of a chain (cluster/pipeline.h): it
 * has the sequences, their page tables and everything that is done with logits, but no keys, values or states. Several
 * steps may be under way (away.c), each with rows of other answers or with the next rows of a prompt; stages compute
 * them in their order.
 */
#ifndef QUERN_ENGINE_CORE_STAGE_H
#define QUERN_ENGINE_CORE_STAGE_H

#include "model/forward.h"

#define STAGE_MOST 64 /* stages of a chain: the size of its lists in packets, too */

/* Tokens that are drawn where the logits are, so that these do not have to be sent. */
struct stage_draw {
    int row, n;  /* rows of the batch: a token is drawn from the first, and from each next one if it is the token
                    that was drawn before */
    int voice;   /* number of the sampler that the last stage keeps, below the scheduler's n_places */
    bool is_new; /* the last stage makes that sampler from what follows; otherwise it goes on with it */
    const struct qn_sampling *sampling;
    const qn_token *history; /* [n_history] */
    size_t n_history;
    double bound; /* sampler_bound() */

    uint64_t position;    /* of the first token */
    const uint64_t *mask; /* of the tokens that are allowed, if n is 1; NULL: all are */
    int n_top;            /* logprobs; -1: none */
    bool *is_put;         /* out: whether there was room for it; otherwise the rows bring their logits */
};

#define STAGE_NOT_DRAWN (-2) /* the chain ended before */

struct stage_drawn {
    qn_token token; /* -1: there was none to draw */
    float logprob;
    double surprise; /* sampler_surprise() */
    int n_top;
    struct qn_logprob top[QN_MAX_TOP_LOGPROBS];
};

/* What a step brought. */
struct stage_result {
    /* in: where the logits of the rows go that want them and are not drawn from, or the tokens that the last stage
     * chose. Each has the place that it would have if all rows that want logits had them. */
    float *logits;
    qn_token *tokens;
    struct stage_drawn *drawn; /* in: [n of all draws], in their order */
    int n_logits;              /* rows of logits that came */
    int n_times;
    uint32_t times[STAGE_MOST]; /* microseconds that the pass of each stage took */
};

struct stage_step {
    const struct batch *batch;
    struct kv_seq *const *mem;
    const struct stage_draw *draws; /* [n_draws] */
    int n_draws;
};

/* All functions are called from the scheduler's thread, except close. A failure that is not named means that what the
 * other processes had of all sequences is lost. */
struct stage_ops {
    /* Begins a step. can_cancel: it may be cancelled, as far as the model allows. */
    int (*start)(void *arg, const struct stage_step *s, bool can_cancel, struct qn_error *e);
    /* Waits for the oldest step under way. QN_EBUSY: is_needed(needed_arg) was true before that, which is asked again
     * and again. QN_ECANCEL: the step was cancelled; if it is the last one that was begun, its sequences are as they
     * were before. */
    int (*finish)(void *arg, bool (*is_needed)(void *arg), void *needed_arg, struct stage_result *out,
                  struct qn_error *e);
    /* No step under way is wanted any more. They still have to be finished. */
    int (*cancel)(void *arg, struct qn_error *e);
    /* As forward_accept(), for the last step, when none is under way. */
    int (*accept)(void *arg, const int32_t *n_accepted, struct qn_error *e);
    /* After a failure, when no sequence has pages any more: tries to go on, with empty sequences, and soon returns.
     * QN_EBUSY: not yet. Any other failure: nothing can be computed for now, because of that. */
    int (*mend)(void *arg, struct qn_error *e);
    void (*close)(void *arg); /* when the engine is freed */
};

struct stage {
    const struct stage_ops *ops;
    void *arg;
    int n_stages; /* n_stages + 1 steps may be under way, STAGE_STEPS at most */
};

#define STAGE_STEPS 9
static inline int stage_steps(const struct stage *s)
{
    return s->n_stages < STAGE_STEPS ? s->n_stages + 1 : STAGE_STEPS;
}

#endif
