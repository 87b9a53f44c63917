/* SPDX-License-Identifier: MIT
 *
 * patience.h: how a stage waits: it asks a few times, and then sleeps between two questions.
 *
 * A process that asks without a pause keeps a CPU from others that compute. Sleeps grow from 20 to 100 microseconds.
 * They are 2 milliseconds after 50 milliseconds without anything, and 6 after another second. Whoever knows that
 * something is under way waits longer before that (patience_expect), because each such sleep adds to the time of a
 * token. Whoever knows when it usually comes sleeps for 20 microseconds around that time (patience_usually). One
 * thread.
 */
#ifndef QUERN_CLUSTER_PATIENCE_H
#define QUERN_CLUSTER_PATIENCE_H

#include <stdint.h>

struct patience {
    int n_asked;       /* since something came */
    uint64_t since_ns; /* when that was */
    uint64_t alert_ns; /* how long it is worth asking often; 0: 50 milliseconds */
    uint64_t usual_ns; /* after how long it usually comes; 0: not known */
};

/* Lets this thread, and those that it makes, sleep as short as they want to. Otherwise the system adds about 50
 * microseconds to each sleep, to wake several threads at once. */
void patience_be_exact(void);

/* Something came, or the wait begins. */
void patience_reset(struct patience *p);
/* Call it after patience_reset(): something will probably come within so many nanoseconds. */
void patience_expect(struct patience *p, uint64_t ns);
/* Call it after patience_reset(): something usually comes after so many nanoseconds. More than half a second is no
 * usual time. */
void patience_usually(struct patience *p, uint64_t ns);
/* Nothing came: returns at once, or sleeps. */
void patience_wait(struct patience *p);
/* How long nothing came. */
uint64_t patience_ns(const struct patience *p);

#endif
