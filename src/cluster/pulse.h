/* SPDX-License-Identifier: MIT
 *
 * pulse.h: how long a neighbour that shows itself ten times a second may be silent before it counts as lost.
 *
 * The limit is ten times the running median of the time between two signs, and a second at least. A sign may ask for
 * more (struct pulse_own), up to a minute. Only time that this process watches counts: one that was away itself, for
 * instance because it was stopped, begins anew.
 */
#ifndef QUERN_CLUSTER_PULSE_H
#define QUERN_CLUSTER_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#define PULSE_EVERY_NS 100000000u /* between two signs of one that has nothing to say */
#define PULSE_N_GAPS   15
#define PULSE_MOST_NS  60000000000u /* that a sign may ask for */

struct pulse {
    uint64_t heard_ns, asked_ns; /* 0: nothing was heard yet, and nothing is expected */
    uint64_t gaps[PULSE_N_GAPS];
    int n_gaps;          /* of all that there were */
    uint64_t allowed_ns; /* that the last sign asked for */
};

/* A sign came at now_ns. asked_ns: the next one may take so long, because the neighbour computes; 0: no longer than
 * usual. */
void pulse_heard(struct pulse *s, uint64_t now_ns, uint64_t asked_ns);
/* Something arrives that takes long: it is no sign of its own, but the neighbour is there. */
void pulse_alive(struct pulse *s, uint64_t now_ns);
/* Nothing came. Returns for how long, if that is too long; else 0. */
uint64_t pulse_missing(struct pulse *s, uint64_t now_ns);
uint64_t pulse_limit(const struct pulse *s);

/* What a process that computes asks for. It looks after its neighbours between two pieces of a pass (pass.tend), and
 * one piece may have to wait for the disk: when weights are read for the first time, or were put out of memory during a
 * rest. Then nobody knows how long it takes. Afterwards the last passes tell. */
struct pulse_own {
    uint64_t looked_ns;  /* in this pass; 0: there is none */
    uint64_t passed_ns;  /* when the last one ended */
    uint64_t longest_ns; /* between two looks in the last passes */
    bool is_cold;        /* this pass is the first one, or the first one after a rest */
};

void pulse_own_begin(struct pulse_own *o, uint64_t now_ns); /* of a pass */
void pulse_own_look(struct pulse_own *o, uint64_t now_ns);  /* between two pieces; outside of a pass nothing is noted */
void pulse_own_end(struct pulse_own *o, uint64_t now_ns, bool is_complete);
/* What the next sign asks for: 0 outside of a pass; a minute in a cold one; else four times the longest piece, if that
 * is more than a second, and a minute at most. */
uint64_t pulse_own_need(const struct pulse_own *o);

#endif
