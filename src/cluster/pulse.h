/* SPDX-License-Identifier: MIT
 *
 * pulse.h: how long a neighbour that shows itself ten times a second may be silent before it counts as lost.
 *
 * The limit is ten times the running median of the time between two signs, and a second at least. Only time that this
 * process watches counts: one that was away itself, for instance because it was stopped, begins anew.
 */
#ifndef QUERN_CLUSTER_PULSE_H
#define QUERN_CLUSTER_PULSE_H

#include <stdint.h>

#define PULSE_EVERY_NS 100000000u /* between two signs of one that has nothing to say */
#define PULSE_N_GAPS   15

struct pulse {
    uint64_t heard_ns, asked_ns; /* 0: nothing was heard yet, and nothing is expected */
    uint64_t gaps[PULSE_N_GAPS];
    int n_gaps; /* of all that there were */
};

/* A sign came at now_ns. */
void pulse_heard(struct pulse *s, uint64_t now_ns);
/* Something arrives that takes long: it is no sign of its own, but the neighbour is there. */
void pulse_alive(struct pulse *s, uint64_t now_ns);
/* Nothing came. Returns for how long, if that is too long; else 0. */
uint64_t pulse_missing(struct pulse *s, uint64_t now_ns);
uint64_t pulse_limit(const struct pulse *s);

#endif
