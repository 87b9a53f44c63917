/* SPDX-License-Identifier: MIT
 *
 * stage.h: where the steps of a scheduler run: in this process, or in other processes that have the layers.
 *
 * An engine without a struct stage computes itself. An engine with one is the head of a chain (cluster/pipeline.h): it
 * has the sequences, their page tables and everything that is done with logits, but no keys, values or states.
 */
#ifndef QUERN_ENGINE_CORE_STAGE_H
#define QUERN_ENGINE_CORE_STAGE_H

#include "model/forward.h"

/* All functions are called from the scheduler's thread, except close. */
struct stage_ops {
    /* As forward_run(). QN_ECANCEL: is_cancelled(cancel_arg) was true. Any other failure: what the other processes had
     * of all sequences is lost. is_cancelled may be NULL. */
    int (*run)(void *arg, const struct batch *b, struct kv_seq *const *mem, bool (*is_cancelled)(void *arg),
               void *cancel_arg, float *logits, struct qn_error *e);
    /* As forward_accept(). A failure is that of run. */
    int (*accept)(void *arg, const int32_t *n_accepted, struct qn_error *e);
    /* After a failure, when no sequence has pages any more: tries to go on, with empty sequences, and soon returns.
     * QN_EBUSY: not yet. Any other failure: nothing can be computed for now, because of that. */
    int (*mend)(void *arg, struct qn_error *e);
    void (*close)(void *arg); /* when the engine is freed */
};

struct stage {
    const struct stage_ops *ops;
    void *arg;
};

#endif
