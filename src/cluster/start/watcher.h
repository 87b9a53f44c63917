/* SPDX-License-Identifier: MIT
 *
 * watcher.h: the head's end of the program that starts stages (cli/stage/watch.h), and the socket where they arrive.
 *
 * The head is fenced in after its start and can start no program, so it has a helper. They share a socket pair: the
 * head sends a letter for what should run from now on, and the watcher one for each run that ended. When the head is
 * gone, the watcher ends everything.
 */
#ifndef QUERN_CLUSTER_START_WATCHER_H
#define QUERN_CLUSTER_START_WATCHER_H

#include <sys/types.h>

#include "cluster/start/launch.h"

#define WATCHER_ALL   'a' /* all stages */
#define WATCHER_ALONE 'o' /* one stage on this host */
#define WATCHER_ENDED 'e' /* from the watcher: a run has ended by itself */
#define WATCHER_DONE  'd' /* from the watcher: what ran before the last letter is gone */

struct watcher {
    char dir[64], address[96]; /* a folder that only this user can look into, and the socket in it */
    int listener, log, control;
    int n_asked; /* letters without WATCHER_DONE */
    pid_t pid;
};

/* Makes folder and socket. After that the address is known. */
int watcher_open(struct watcher *w, struct qn_error *e);
/* Starts the watcher, and so the stages. Call it while there is one thread and no fence. */
int watcher_start(struct watcher *w, const struct launch_params *l, struct qn_error *e);
/* Ends what runs, and starts `what` at once. */
void watcher_run(struct watcher *w, char what);
/* How many runs have ended by themselves since the last call, without those that began before watcher_run(). QN_EIO:
 * the watcher is gone. */
int watcher_n_ended(struct watcher *w, int *n, struct qn_error *e);
/* Takes the connection of a stage. QN_EBUSY: there is none. */
int watcher_take(struct watcher *w, int *fd, struct qn_error *e);
/* What the last run has written first, 512 bytes at most, with ": " before it, or "". mpirun's own words come last. */
void watcher_log(const struct watcher *w, char *out, size_t size);
/* Ends all. The watcher removes the folder. */
void watcher_close(struct watcher *w);

#endif
