/* SPDX-License-Identifier: MIT
 *
 * pulse.c: decides when a silent neighbour is lost. See pulse.h.
 */
#include "cluster/pulse.h"

#define LEAST_NS 1000000000u
#define FACTOR   10
#define AWAY_NS  300000000u /* this process did not ask for so long: it cannot know */

void pulse_heard(struct pulse *s, uint64_t now_ns)
{
    if (s->heard_ns) s->gaps[s->n_gaps++ % PULSE_N_GAPS] = now_ns - s->heard_ns;
    s->heard_ns = s->asked_ns = now_ns;
}

void pulse_alive(struct pulse *s, uint64_t now_ns)
{
    if (s->heard_ns) s->heard_ns = s->asked_ns = now_ns;
}

uint64_t pulse_limit(const struct pulse *s)
{
    uint64_t sorted[PULSE_N_GAPS];
    int n = s->n_gaps < PULSE_N_GAPS ? s->n_gaps : PULSE_N_GAPS;
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > s->gaps[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = s->gaps[i];
    }
    return n && FACTOR * sorted[n / 2] > LEAST_NS ? FACTOR * sorted[n / 2] : LEAST_NS;
}

uint64_t pulse_missing(struct pulse *s, uint64_t now_ns)
{
    if (!s->heard_ns) return 0;
    if (now_ns - s->asked_ns > AWAY_NS) s->heard_ns = now_ns;
    s->asked_ns = now_ns;
    return now_ns - s->heard_ns > pulse_limit(s) ? now_ns - s->heard_ns : 0;
}
