/* SPDX-License-Identifier: MIT
 *
 * beat.c: sends and expects signs of life. See beat.h.
 */
#include "cluster/beat.h"

#define TEND_NS 2000000u /* between two questions to the library */
#define MS      1000000u

void beat_init(struct beat *b, struct link *to, struct link *from, const char *whom)
{
    *b = (struct beat){.to = to, .from = from, .whom = whom};
}

static int send(struct beat *b, uint64_t now, uint32_t need_ms, struct qn_error *e)
{
    bool done = false;
    int rc = b->send.is_started ? link_test(&b->send, &done, e) : 0;
    if (rc || b->send.is_started || (now - b->sent_ns < PULSE_EVERY_NS && need_ms == b->out)) return rc;
    b->sent_ns = now;
    b->out = need_ms;
    return link_isend(b->to, &b->send, &b->out, sizeof b->out, e);
}

static int receive(struct beat *b, uint64_t now, struct qn_error *e)
{
    bool done = false;
    int rc = b->receive.is_started ? link_test(&b->receive, &done, e) : 0;
    if (rc) return rc;
    if (done) pulse_heard(&b->pulse, now, b->receive.n == sizeof b->in ? (uint64_t)b->in * MS : 0);
    return b->receive.is_started ? 0 : link_irecv(b->from, &b->receive, &b->in, sizeof b->in, e);
}

int beat_tend(struct beat *b, uint64_t now, uint64_t need_ns, struct qn_error *e)
{
    uint32_t need_ms = (uint32_t)(need_ns / MS);
    if (now - b->tended_ns < TEND_NS && need_ms == b->out) return 0;
    b->tended_ns = now;
    int rc = send(b, now, need_ms, e);
    if (!rc) rc = receive(b, now, e);
    uint64_t ns = rc ? 0 : pulse_missing(&b->pulse, now);
    if (!ns) return rc;
    b->is_late = true;
    return error_set(e, QN_EIO, "nothing came from %s for %llu ms", b->whom, (unsigned long long)(ns / MS));
}

void beat_deinit(struct beat *b)
{
    link_cancel(&b->send);
    link_cancel(&b->receive);
}
