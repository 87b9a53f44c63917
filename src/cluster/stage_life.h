/* SPDX-License-Identifier: MIT
 *
 * stage_life.h: the life of one stage: the greeting, then steps, until the head or a neighbour is gone.
 */
#ifndef QUERN_CLUSTER_STAGE_LIFE_H
#define QUERN_CLUSTER_STAGE_LIFE_H

#include <stdatomic.h>

#include "cluster/beat.h"
#include "kernel/cpu.h"

struct stage_life_params {
    const char *path; /* of the model on this host */
    const char *who;  /* this stage's name in messages: "stage 1 on HOST" */
    int number;       /* from 0 */
    int n_threads;    /* if the head leaves it to the stage */
    int n_local;      /* stages on this host */
    struct link *in, *out;
    struct link *relay_from; /* the last stage's link to this one, for the first of several; NULL: nothing to relay */
    struct link *head;       /* the head's socket, which gets signs of life, for the stage that has it; else NULL */
    struct beat *beat;       /* to the other ranks; NULL: there are none */
    enum cpu_level cpu;
    bool locks_weights;
    const char *cache_dir; /* made if it does not exist; NULL: the stage keeps nothing on disk */
    /* Called once, when everything is open, before the threads of the team begin and before the first step: nothing
     * else is needed from the system. dir: where files are made, or NULL. NULL: nothing has to be done. */
    int (*fence)(const char *path, const char *dir, struct qn_error *e);
    const atomic_bool *stop;
};

/* Returns when a link fails or *stop is true, with the reason. */
int stage_life_run(const struct stage_life_params *p, struct qn_error *e);

#endif
