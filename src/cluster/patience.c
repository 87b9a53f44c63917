/* SPDX-License-Identifier: MIT
 *
 * patience.c: a wait that leaves the CPU to others. See patience.h.
 */
#include "cluster/patience.h"

#include <sys/prctl.h>
#include <time.h>

#include "base/os.h"

#define ASK_AT_ONCE    5
#define FIRST_SLEEP_NS 20000
#define LAST_SLEEP_NS  100000
#define IDLE_AFTER_NS  50000000u
#define IDLE_SLEEP_NS  2000000
#define QUIET_AFTER_NS 1000000000u
#define QUIET_SLEEP_NS 6000000
#define SLACK_NS       1000
#define AROUND         16       /* a part of the usual time, before and after it, */
#define AROUND_NS      2000000u /* but no more than that */
#define USUAL_MOST_NS  500000000u

void patience_reset(struct patience *p) { *p = (struct patience){.since_ns = clock_ns()}; }

uint64_t patience_ns(const struct patience *p) { return clock_ns() - p->since_ns; }

void patience_expect(struct patience *p, uint64_t ns) { p->alert_ns = ns; }

void patience_usually(struct patience *p, uint64_t ns) { p->usual_ns = ns; }

void patience_be_exact(void) { prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0); }

/* The sleep after `waited`, which would be ns long, with regard to when something usually comes. */
static long near_usual(const struct patience *p, uint64_t waited, long ns)
{
    uint64_t around = p->usual_ns / AROUND < AROUND_NS ? p->usual_ns / AROUND : AROUND_NS;
    uint64_t from = p->usual_ns - around, to = p->usual_ns + around;
    if (!p->usual_ns || p->usual_ns > USUAL_MOST_NS || waited > to) return ns;
    if (waited >= from) return FIRST_SLEEP_NS;
    return waited + (uint64_t)ns > from ? (long)(from - waited) : ns;
}

void patience_wait(struct patience *p)
{
    if (p->n_asked++ < ASK_AT_ONCE) return;
    long ns = FIRST_SLEEP_NS + (long)(p->n_asked - ASK_AT_ONCE - 1) * 5000;
    if (ns > LAST_SLEEP_NS) ns = LAST_SLEEP_NS;
    uint64_t waited = patience_ns(p), alert = p->alert_ns > IDLE_AFTER_NS ? p->alert_ns : IDLE_AFTER_NS;
    if (waited > alert) ns = waited > alert + QUIET_AFTER_NS ? QUIET_SLEEP_NS : IDLE_SLEEP_NS;
    nanosleep(&(struct timespec){.tv_nsec = near_usual(p, waited, ns)}, NULL);
}
