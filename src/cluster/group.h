/* SPDX-License-Identifier: MIT
 *
 * group.h: the stages of one model as the head sees them: started once, attached to an engine, mended when they are
 * lost.
 *
 * group_start() starts the program quern-stage as a watcher, which starts mpirun, starts it again whenever it ends, and
 * ends everything when this process is gone. So this process starts no program later, and may be fenced in. The first
 * stage connects to a socket in a folder of its own; the others are reached through it. When they are lost twice in a
 * row, and the model fits this host, one stage here takes their place.
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
    const char *hosts;   /* as in hosts.h; NULL: hostfile has them */
    const char *hostfile;
    int n_threads;               /* of each stage; 0: the stages of a host share its CPUs */
    const char *cpu;             /* as in struct qn_engine_params */
    const char *interface;       /* of the network, for other hosts than this one */
    const char *ports;           /* as in network.h; NULL: the default */
    const char *command, *agent; /* as in launch.h */
    const char *cache_dir;       /* on all hosts, where stages keep pages; NULL: nowhere */
    bool is_trusted;             /* the network may be public */
    bool locks_weights, is_open; /* as in launch.h */
    bool never_alone;            /* no stage on this host takes the place of all others */
    bool rounds_rows;            /* what stages send each other is rounded to bf16: half the bytes, and other results */
};

/* Checks the hosts and starts the watcher. Call it while there is one thread and no fence. QN_EUSAGE: the hosts or
 * their network; QN_EIO: something cannot be started. */
int group_start(struct group **out, const struct group_params *p, struct qn_error *e);
/* As qn_engine_new(), for an engine whose steps the group runs. Waits until the stages have told their speed and
 * memory, and divides the layers; what params leave open (context, cache, states) follows from what the stages have.
 * params->memory_bytes: for the head and the stages on this host together. params->n_threads is not used. QN_EIO: no
 * stage came in time; QN_EDATA, QN_EUNSUP: a stage has another model or program; QN_ENOMEM: a stage has too little
 * memory. */
int group_engine(struct group *g, qn_engine **out, const qn_model *model, const struct qn_engine_params *params,
                 struct qn_error *e);
/* What packets of a scheduler's steps may have. */
void group_limits(struct step_limits *l, const struct qn_scheduler *s);
/* Waits until the stages are ready to compute for the scheduler of that engine. Before it gets requests. The engine
 * frees what this made. Errors are those of group_engine(). */
int group_attach(struct group *g, qn_scheduler *s, struct qn_error *e);
/* What a stage has, after group_attach(). */
struct group_stage {
    const char *host;   /* borrowed */
    int lo, hi;         /* its layers: [lo, hi) */
    double layer_ms;    /* that a token took in one of them before the layers were divided; 0: not measured */
    double head_ms;     /* the same for what comes after the last layer; 0 but for the last stage */
    double bytes;       /* of these weights, with their part of the cache */
    uint32_t memory_mb; /* of the host, for this stage; 0: not known */
    bool fits_all;      /* all layers have room there */
};
/* Returns how many stages there are; out[STAGE_MOST]. */
int group_stages(const struct group *g, struct group_stage *out);
/* How long a packet without work takes through all stages and back, in the median of some with pauses between them.
 * After the scheduler was freed, because only one thread may use the stages. */
int group_round(struct group *g, uint64_t pause_ns, double *ms, struct qn_error *e);
/* Whether stages round what they send each other, so that results are not those of one host. NULL: no. */
bool group_rounds_rows(const struct group *g);
/* Ends the stages. After the engine. NULL is fine. */
void group_free(struct group *g);

#endif
