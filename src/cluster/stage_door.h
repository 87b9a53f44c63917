/* SPDX-License-Identifier: MIT
 *
 * stage_door.h: rank 0 of a group whose first stage is not on the head's host: it has no layers and passes packets on.
 */
#ifndef QUERN_CLUSTER_STAGE_DOOR_H
#define QUERN_CLUSTER_STAGE_DOOR_H

#include "cluster/beat.h"

struct door_params {
    struct link *head, *first, *last; /* the head's socket, and the links to the first stage and from the last one */
    struct beat *beat;
    int (*fence)(const char *path, const char *dir, struct qn_error *e); /* as in stage_life.h */
    const char *path;
};

/* Returns when a link fails, with the reason. */
int door_run(const struct door_params *p, struct qn_error *e);

#endif
