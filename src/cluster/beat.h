/* SPDX-License-Identifier: MIT
 *
 * beat.h: signs of life in the ring of ranks: each sends one to the next rank ten times a second, whether it computes
 * or waits, and the last one to the first.
 *
 * MPI does not say that a rank is stopped, or that a cable is cut. A rank that hears nothing from the one before it for
 * too long (pulse.h) ends, and so mpirun ends the group. Beats are empty messages on links of their own, so a large
 * packet does not hold them up. One thread.
 */
#ifndef QUERN_CLUSTER_BEAT_H
#define QUERN_CLUSTER_BEAT_H

#include "cluster/link.h"
#include "cluster/pulse.h"

struct beat {
    struct link *to, *from; /* borrowed */
    const char *whom;       /* is heard, for messages; borrowed */
    struct link_transfer send, receive;
    uint64_t sent_ns, tended_ns;
    struct pulse pulse;
    bool is_late; /* beat_tend() failed because of the silence */
};

/* Everything else is 0. Nothing is sent before the first beat_tend(), and nothing expected before the first sign. */
void beat_init(struct beat *b, struct link *to, struct link *from, const char *whom);
/* To be called as often as possible: it looks at the clock first. QN_EIO: the rank before is lost. */
int beat_tend(struct beat *b, struct qn_error *e);
void beat_deinit(struct beat *b);

#endif
