/* SPDX-License-Identifier: MIT
 *
 * beat.c: sends and expects signs of life. See beat.h.
 */
#include "cluster/beat.h"

#include "base/os.h"

#define TEND_NS 2000000u /* between two questions to the library */

static uint8_t nothing[4];

void beat_init(struct beat *b, struct link *to, struct link *from, const char *whom)
{
    *b = (struct beat){.to = to, .from = from, .whom = whom};
}

static int send(struct beat *b, uint64_t now, struct qn_error *e)
{
    bool done = false;
    int rc = b->send.is_started ? link_test(&b->send, &done, e) : 0;
    if (rc || b->send.is_started || now - b->sent_ns < PULSE_EVERY_NS) return rc;
    b->sent_ns = now;
    return link_isend(b->to, &b->send, nothing, 0, e);
}

static int receive(struct beat *b, uint64_t now, struct qn_error *e)
{
    bool done = false;
    int rc = b->receive.is_started ? link_test(&b->receive, &done, e) : 0;
    if (rc) return rc;
    if (done) pulse_heard(&b->pulse, now);
    return b->receive.is_started ? 0 : link_irecv(b->from, &b->receive, nothing, 0, e);
}

int beat_tend(struct beat *b, struct qn_error *e)
{
    uint64_t now = clock_ns();
    if (now - b->tended_ns < TEND_NS) return 0;
    b->tended_ns = now;
    int rc = send(b, now, e);
    if (!rc) rc = receive(b, now, e);
    uint64_t ns = rc ? 0 : pulse_missing(&b->pulse, now);
    if (!ns) return rc;
    b->is_late = true;
    return error_set(e, QN_EIO, "nothing came from %s for %llu ms", b->whom, (unsigned long long)(ns / 1000000));
}

void beat_deinit(struct beat *b)
{
    link_cancel(&b->send);
    link_cancel(&b->receive);
}
