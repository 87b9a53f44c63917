/* SPDX-License-Identifier: MIT
 *
 * beat.h: signs of life in the ring of ranks: each sends one to the next rank ten times a second, whether it computes
 * or waits, and the last one to the first.
 *
 * MPI does not say that a rank is stopped, or that a cable is cut. A rank that hears nothing from the one before it for
 * too long (pulse.h) ends, and so mpirun ends the group. A beat is a u32 on a link of its own, so a large packet does
 * not hold it up: the milliseconds until the next one, if that may take long, else 0. One thread.
 */
#ifndef QUERN_CLUSTER_BEAT_H
#define QUERN_CLUSTER_BEAT_H

#include "cluster/link.h"
#include "cluster/pulse.h"

struct beat {
    struct link *to, *from; /* borrowed */
    const char *whom;       /* is heard, for messages; borrowed */
    struct link_transfer send, receive;
    uint32_t out, in; /* what they carry */
    uint64_t sent_ns, tended_ns;
    struct pulse pulse;
    bool is_late; /* beat_tend() failed because of the silence */
};

/* Everything else is 0. Nothing is sent before the first beat_tend(), and nothing expected before the first sign. */
void beat_init(struct beat *b, struct link *to, struct link *from, const char *whom);
/* To be called as often as possible: it looks at the time first, which is that of clock_ns(). need_ns: of this process
 * (pulse_own_need()); when it changes, a sign is sent at once. QN_EIO: the rank before is lost. */
int beat_tend(struct beat *b, uint64_t now_ns, uint64_t need_ns, struct qn_error *e);
void beat_deinit(struct beat *b);

#endif
