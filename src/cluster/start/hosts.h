/* SPDX-License-Identifier: MIT
 *
 * hosts.h: which hosts have stages, in the order of their layers.
 *
 * As a text: HOST[:N][=PATH],... N stages are on that host (1), which has the model at PATH (the path on this host). As
 * a file: a line for each host, HOST [slots=N] [path=PATH], or HOST:N; `#` begins a comment. That is also what Open
 * MPI, MPICH and the MPI operator of Kubernetes write.
 */
#ifndef QUERN_CLUSTER_START_HOSTS_H
#define QUERN_CLUSTER_START_HOSTS_H

#include <stdbool.h>

#include "base/error.h"

struct host {
    char name[256];
    char path[1024]; /* of the model; "": as on this host */
    int n;           /* stages */
    bool is_here;
};

struct hosts {
    struct host *host; /* [n], owned */
    int n, n_stages;
    bool are_here; /* all of them */
};

/* list or file: the other is NULL. At most STAGE_MOST stages. QN_EUSAGE, QN_ENOINPUT. */
int hosts_read(struct hosts *h, const char *list, const char *file, struct qn_error *e);
void hosts_deinit(struct hosts *h);

#endif
