/* SPDX-License-Identifier: MIT
 *
 * group.h: the stages of one model as the head sees them: started once, attached to an engine, mended when they are
 * lost.
 *
 * group_start() starts the program quern-stage as a watcher, which starts mpirun, starts it again whenever it ends, and
 * ends everything when this process is gone. So this process starts no program later, and may be fenced in. The first
 * stage connects to a socket in a folder of its own; the others are reached through it.
 */
#ifndef QUERN_CLUSTER_GROUP_H
#define QUERN_CLUSTER_GROUP_H

#include <quern.h>

#include "cluster/step_packet.h"
#include "engine/core/stage.h"

struct group;

struct group_params {
    const char *program; /* quern-stage */
    const char *path;    /* of the model */
    const char *hosts;   /* "localhost,localhost", or "localhost:2": a stage for each; only this machine at present */
    int n_threads;       /* of each stage; 0: the stages share the CPUs */
};

/* Checks the hosts and starts the watcher. Call it while there is one thread and no fence. QN_EUSAGE, QN_EUNSUP: the
 * hosts; QN_EIO: something cannot be started. */
int group_start(struct group **out, const struct group_params *p, struct qn_error *e);
/* As qn_engine_new(), for an engine whose steps the group runs. params->n_threads is not used. */
int group_engine(struct group *g, qn_engine **out, const qn_model *model, const struct qn_engine_params *params,
                 struct qn_error *e);
/* What packets of a scheduler's steps may have. */
void group_limits(struct step_limits *l, const struct qn_scheduler *s);
/* Waits until the stages are ready to compute for the scheduler of that engine. Before it gets requests. The engine
 * frees what this made. QN_EIO: no stage came in time; QN_EDATA, QN_EUNSUP: a stage has another model or program. */
int group_attach(struct group *g, qn_scheduler *s, struct qn_error *e);
/* Ends the stages. After the engine. NULL is fine. */
void group_free(struct group *g);

#endif
