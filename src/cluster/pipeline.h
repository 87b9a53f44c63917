/* SPDX-License-Identifier: MIT
 *
 * pipeline.h: the head of a chain of stages: it has the sequences and their page tables, and no keys or values.
 *
 * The head's pool has placeholders for pages and states (pipeline_kv_shape()), which scheduler, prefix tree and
 * sessions use as if there were something in them. The pipeline watches what they copy, and tells the stages with the
 * next step. One step is under way at a time. One thread, the one that uses the pool.
 */
#ifndef QUERN_CLUSTER_PIPELINE_H
#define QUERN_CLUSTER_PIPELINE_H

#include "cluster/link.h"
#include "cluster/step_packet.h"
#include "model/model.h"

struct pipeline_params {
    struct kv_pool *kv;        /* of pipeline_kv_shape(), borrowed; nothing in use yet */
    struct step_limits limits; /* the same in all stages */
    uint32_t group;
    struct link *to_first, *from_last; /* borrowed */
    uint64_t deadline_ns;              /* of a step's reply */
};

struct pipeline;

/* A shape with windows and states where that of the whole model has them, and next to no bytes. */
struct kv_shape pipeline_kv_shape(const struct model *m, enum kv_type type);
int pipeline_new(struct pipeline **out, const struct pipeline_params *p, struct qn_error *e);
void pipeline_free(struct pipeline *p); /* NULL is fine; before the pool */

/* Runs the batch through all stages, as forward_run() would. The rows that want logits get them if the limits have a
 * number of them: logits [n_wanted][n_vocab]. Otherwise they get the tokens that the last stage chose: tokens
 * [n_wanted]. The other pointer may be NULL, and so may is_cancelled.
 *
 * QN_ECANCEL: the pass was cancelled, and every sequence is as it was before, except that its reserved slots hold
 * anything. As in forward_run(), passes over models with a recurrent state with one row of each sequence are never
 * cancelled. QN_EIO, QN_EDATA: the stages do not answer, or wrongly; no further step can be run. */
int pipeline_run(struct pipeline *p, const struct batch *b, struct kv_seq *const *mem, bool (*is_cancelled)(void *arg),
                 void *arg, qn_token *tokens, float *logits, struct qn_error *e);
/* As forward_accept(), after pipeline_run() and before the next one. */
int pipeline_accept(struct pipeline *p, const int32_t *n_accepted, struct qn_error *e);

#endif
