/* SPDX-License-Identifier: MIT
 *
 * warm.h: enters weights into the page table from another thread, while the program does something else.
 *
 * All functions are called by one thread.
 */
#ifndef QUERN_FORMAT_WARM_H
#define QUERN_FORMAT_WARM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "format/weights.h"

struct warm {
    const struct weights *weights; /* borrowed */
    size_t tensor, offset;         /* the next bytes to enter */
    bool is_gentle;                /* bytes that are not in memory are left out, so nothing is read from disk */
    pthread_t thread;
    bool started;
    atomic_bool stop;
};

/* Enters the next 2 MB at most. False: nothing is left, or the system cannot do it. Begin with a struct whose other
 * members than `weights` and `is_gentle` are zero. */
bool warm_step(struct warm *wm);
/* Starts the thread, if there is more than one CPU. w must stay open until warm_stop(). It is no error if no thread can
 * be started. */
void warm_start(struct warm *wm, const struct weights *w);
/* Ends the thread, however far it is. Waits a millisecond at most, or for one read from disk. */
void warm_stop(struct warm *wm);

#endif
