/* SPDX-License-Identifier: MIT
 *
 * warm.h: enters weights into the page table while the program does something else.
 */
#ifndef QUERN_FORMAT_WARM_H
#define QUERN_FORMAT_WARM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "format/weights.h"

struct warm {
    const struct weights *weights;
    pthread_t thread;
    bool started;
    atomic_bool stop;
};

/* Begins, if there is a CPU to spare; w must outlive it. Not beginning is no error. */
void warm_start(struct warm *wm, const struct weights *w);
/* Ends it wherever it is, within a millisecond or one read from disk. */
void warm_stop(struct warm *wm);

#endif
