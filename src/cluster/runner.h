/* SPDX-License-Identifier: MIT
 *
 * runner.h: a stage at work: packets come in, its layers are run, packets go out.
 *
 * The runner has the pages and states of its own layers, and no say in what they are used for (step_packet.h). It
 * checks everything that a packet asks for before it touches a page. One thread, which is member 0 of the team that
 * computes.
 */
#ifndef QUERN_CLUSTER_RUNNER_H
#define QUERN_CLUSTER_RUNNER_H

#include "cluster/link.h"
#include "cluster/patience.h"
#include "cluster/pulse.h"
#include "cluster/disk/stage_disk.h"
#include "cluster/step_packet.h"
#include "model/forward.h"

/* Chooses the tokens of a step's rows that want logits, in the last stage. logits: [n][n_vocab]. */
typedef void runner_draw_fn(void *arg, const float *logits, int n, qn_token *tokens);

struct runner_params {
    const struct model *model; /* one stage of a model, borrowed */
    const struct kernels *kernels;
    struct pool *pool; /* the team, borrowed */
    struct ledger *ledger;
    enum kv_type kv;
    int n_ctx;
    struct step_limits limits; /* those of the whole group */
    uint32_t group;
    runner_draw_fn *draw; /* for tests: chooses all tokens if limits.n_logits is 0; otherwise NULL */
    void *draw_arg;
    /* Called again and again while the stage waits, and between pieces of a pass. A failure ends the stage. NULL:
     * nothing else has to be done. */
    int (*tend)(void *arg, struct qn_error *e);
    void *tend_arg;
    struct pulse_own *pulse; /* is told of passes, before tend is called in one; borrowed. NULL: none */
    const char *disk_dir;    /* folder for files of pages (stage_disk.h); NULL: there are none */
    /* For measuring: a pass of so many rows takes at least as many nanoseconds. NULL: it takes as long as it takes. */
    uint64_t (*least_ns)(void *arg, int n_rows);
    void *least_arg;
};

struct runner;

/* The limits that follow from the whole model. The caller sets the others: rows, sequences, moves and the pools' sizes.
 */
void runner_limits(struct step_limits *l, const struct model *m, int n_ctx);
/* Takes pages, states and buffers from the ledger. QN_ENOMEM. */
int runner_new(struct runner **out, const struct runner_params *p, struct qn_error *e);
void runner_free(struct runner *r); /* NULL is fine */

/* Receives packets from `in` and sends to `out` until *stop is true or a link fails. QN_EIO, QN_EDATA: why it ended.
 * QN_ENOMEM. The links are the caller's. A bad packet, or one that needs too much memory, ends it after a reply that
 * says so. */
int runner_serve(struct runner *r, struct link *in, struct link *out, const atomic_bool *stop, struct qn_error *e);

#endif
