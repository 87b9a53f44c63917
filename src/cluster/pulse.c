/* SPDX-License-Identifier: MIT
 *
 * pulse.c: decides when a silent neighbour is lost. See pulse.h.
 */
#include "cluster/pulse.h"

#define LEAST_NS 1000000000u
#define FACTOR   10
#define AWAY_NS  300000000u /* this process did not ask for so long: it cannot know */

#define REST_NS 10000000000u /* without a pass: weights may be out of memory */
#define PIECES  4            /* times the longest piece is what a sign asks for */
#define FORGET  16           /* passes; the longest piece becomes shorter by its part with each */

void pulse_heard(struct pulse *s, uint64_t now_ns, uint64_t asked_ns)
{
    s->allowed_ns = asked_ns < PULSE_MOST_NS ? asked_ns : PULSE_MOST_NS;
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
    uint64_t limit = n && FACTOR * sorted[n / 2] > LEAST_NS ? FACTOR * sorted[n / 2] : LEAST_NS;
    return limit > s->allowed_ns ? limit : s->allowed_ns;
}

uint64_t pulse_missing(struct pulse *s, uint64_t now_ns)
{
    if (!s->heard_ns) return 0;
    if (now_ns - s->asked_ns > AWAY_NS) s->heard_ns = now_ns;
    s->asked_ns = now_ns;
    return now_ns - s->heard_ns > pulse_limit(s) ? now_ns - s->heard_ns : 0;
}

void pulse_own_begin(struct pulse_own *o, uint64_t now_ns)
{
    o->is_cold = !o->passed_ns || now_ns - o->passed_ns > REST_NS;
    o->looked_ns = now_ns;
}

void pulse_own_look(struct pulse_own *o, uint64_t now_ns)
{
    if (!o->looked_ns) return;
    if (now_ns - o->looked_ns > o->longest_ns) o->longest_ns = now_ns - o->looked_ns;
    o->looked_ns = now_ns;
}

void pulse_own_end(struct pulse_own *o, uint64_t now_ns, bool is_complete)
{
    if (is_complete) o->longest_ns -= o->longest_ns / FORGET;
    pulse_own_look(o, now_ns);
    if (is_complete) o->passed_ns = now_ns;
    o->looked_ns = 0;
}

uint64_t pulse_own_need(const struct pulse_own *o)
{
    uint64_t need = PIECES * o->longest_ns;
    if (!o->looked_ns) return 0;
    if (o->is_cold || need > PULSE_MOST_NS) return PULSE_MOST_NS;
    return need > LEAST_NS ? need : 0;
}
