/* SPDX-License-Identifier: MIT
 *
 * stage_life.h: the life of one stage: the greeting, then steps, until the head or a neighbour is gone.
 */
#ifndef QUERN_CLUSTER_STAGE_LIFE_H
#define QUERN_CLUSTER_STAGE_LIFE_H

#include <stdatomic.h>

#include "cluster/link.h"

struct stage_life_params {
    const char *path; /* of the model on this host */
    const char *who;  /* this stage's name in messages: "stage 1 on HOST" */
    int number;       /* from 0 */
    int n_threads;    /* if the head leaves it to the stage */
    struct link *in, *out;
    struct link *relay_from; /* the last stage's link to this one, for the first of several; NULL: nothing to relay */
    const atomic_bool *stop;
};

/* Returns when a link fails or *stop is true, with the reason. */
int stage_life_run(const struct stage_life_params *p, struct qn_error *e);

#endif
