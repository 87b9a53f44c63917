/* SPDX-License-Identifier: MIT
 *
 * launch.h: the commands that start the stages of a group.
 *
 * The head talks to rank 0 only, over a socket in a folder, so rank 0 runs on the head's host. If the first of the
 * hosts is another one, rank 0 is a door: a process without layers that passes packets on.
 */
#ifndef QUERN_CLUSTER_START_LAUNCH_H
#define QUERN_CLUSTER_START_LAUNCH_H

#include "cluster/start/hosts.h"
#include "cluster/start/network.h"

struct launch_params {
    const char *program;           /* quern-stage, the same on all hosts */
    const char *path;              /* of the model on this host, absolute */
    const char *address;           /* of the head's socket */
    const struct hosts *hosts;     /* in the order of their layers */
    const struct network *network; /* that the hosts share; NULL: all of them are this one */
    int n_threads;                 /* of each stage; 0: those of a host share its CPUs */
    const char *cpu;               /* an instruction set; NULL: the best of each host */
    bool locks_weights, is_open;   /* open: stages stay without a fence */
    const char *cache_dir;         /* absolute, the same on all hosts; NULL: none */
    const char *command;           /* starts ranks, as `srun --mpi=pmix`; NULL: mpirun */
    const char *agent;             /* starts a command on a host; NULL: what MPI is configured for */
};

/* Words of a command line, owned; v[n] is NULL. */
struct words {
    char **v;
    int n;
};

bool launch_has_door(const struct launch_params *l);
/* The command for all stages. QN_EUSAGE: it cannot be made for these hosts. */
int launch_all(struct words *w, const struct launch_params *l, struct qn_error *e);
/* The command for one stage on this host, with all layers and without MPI. */
int launch_alone(struct words *w, const struct launch_params *l, struct qn_error *e);
/* mpirun and its helpers listen at each of the ports that they are given, and those of a group that has just ended
 * still do so for some seconds; a new group that gets the same ones hangs. So before each start, the ports in a command
 * of launch_all() are narrowed to a few, in `range`, of which argv gets the address. Another command stays as it is. */
#define LAUNCH_RANGE 24
void launch_pick_ports(char **argv, char range[LAUNCH_RANGE]);
int words_add(struct words *w, const char *word, struct qn_error *e);
void words_deinit(struct words *w);

#endif
