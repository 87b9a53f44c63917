/* SPDX-License-Identifier: MIT
 *
 * pipeline.h: the head of a chain of stages: it has the sequences and their page tables, and no keys or values.
 *
 * The head's pool has placeholders for pages and states (pipeline_kv_shape()), which scheduler, prefix tree and
 * sessions use as if there were something in them. The pipeline watches what they copy, and tells the stages with the
 * next step. One thread, the one that uses the pool.
 *
 * Several steps may be under way at a time. Stages compute them in their order, and what the head does with pages and
 * states after it has sent a step comes after that step. So pages of a sequence may be given away while the stages
 * still write into them; but no copy of a state may be made while a step changes it.
 */
#ifndef QUERN_CLUSTER_PIPELINE_H
#define QUERN_CLUSTER_PIPELINE_H

#include "cluster/disk/disk_order.h"
#include "cluster/link.h"
#include "cluster/step_packet.h"
#include "engine/core/stage.h"
#include "model/model.h"

struct pipeline_params {
    struct kv_pool *kv;        /* of pipeline_kv_shape(), borrowed; nothing in use yet */
    struct step_limits limits; /* the same in all stages */
    uint32_t group;
    struct link *to_first, *from_last; /* borrowed */
    uint64_t deadline_ns;              /* of a step's reply */
    int depth;                         /* steps that may be under way at a time, 1..STAGE_STEPS; 0: 1 */
};

struct pipeline;

/* A shape with windows and states where that of the whole model has them, and next to no bytes. */
struct kv_shape pipeline_kv_shape(const struct model *m, enum kv_type type);
int pipeline_new(struct pipeline **out, const struct pipeline_params *p, struct qn_error *e);
void pipeline_free(struct pipeline *p); /* NULL is fine; before the pool */

/* Sends a step, of which fewer than `depth` may be under way. can_cancel: as far as the model allows. As in
 * forward_run(), passes over models with a recurrent state with one row of each sequence are never cancelled. QN_EIO,
 * QN_EDATA: the stages do not answer, or wrongly; no further step can be run. */
int pipeline_start(struct pipeline *p, const struct stage_step *s, bool can_cancel, struct qn_error *e);
/* Takes what the oldest step under way brought. QN_EBUSY: the stages are still at it, and is_needed has returned true,
 * which is asked between two looks. QN_ECANCEL: the step was cancelled. If no later one was started, every sequence is
 * as it was before, except that its reserved slots hold anything; otherwise its sequences are lost. */
int pipeline_finish(struct pipeline *p, bool (*is_needed)(void *arg), void *arg, struct stage_result *out,
                    struct qn_error *e);
/* No step that is under way is wanted any more. Stages end those that they have not completed. */
int pipeline_cancel(struct pipeline *p, struct qn_error *e);
/* One step from its start to its end, while none is under way. It is cancelled when is_cancelled (NULL: never) says so.
 */
int pipeline_run(struct pipeline *p, const struct batch *b, struct kv_seq *const *mem, bool (*is_cancelled)(void *arg),
                 void *arg, qn_token *tokens, float *logits, struct qn_error *e);
/* As forward_accept(), for the last step, when no other is under way. */
int pipeline_accept(struct pipeline *p, const int32_t *n_accepted, struct qn_error *e);

/* Sends an order about files, after the steps under way and what was copied since. Not between a step and its accept.
 * After DISK_ASK, pipeline_answer() has to be called until it has the answer, before the next DISK_ASK. */
int pipeline_order(struct pipeline *p, const struct disk_order *o, struct qn_error *e);
/* Takes the answer to DISK_ASK. QN_EBUSY: it has not come yet. */
int pipeline_answer(struct pipeline *p, uint32_t *is_busy, uint32_t *n_good, struct qn_error *e);
/* Measures how long a packet without work takes through all stages and back, while none is under way. */
int pipeline_round(struct pipeline *p, uint64_t *ns, struct qn_error *e);

#endif
