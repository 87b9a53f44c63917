/* SPDX-License-Identifier: MIT
 *
 * greeting.c: greets stages. See greeting.h.
 */
#include "cluster/greeting.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"

#define STAGE_NS     60000000000u                              /* until a stage has its memory */
#define ANSWER_BYTES (HELLO_BYTES > 1024 ? HELLO_BYTES : 1024) /* a probe's answer, or a refusal */

int greeting_init(struct greeting *g, struct link *link, struct hello *hello, struct qn_error *e)
{
    *g = (struct greeting){.link = link, .hello = hello, .begin_ns = clock_ns()};
    g->bytes = mem_alloc(HELLO_BYTES);
    g->answer = mem_alloc(ANSWER_BYTES);
    if (!g->bytes || !g->answer) return error_nomem(e, "a packet", HELLO_BYTES);
    struct packet_out out = {.p = g->bytes, .cap = HELLO_BYTES};
    hello->group = (uint32_t)rng_seed_from_os();
    packet_hello(&out, hello);
    int rc = link_irecv(link, &g->receive, g->answer, ANSWER_BYTES, e);
    return rc ? rc : link_isend(link, &g->send, g->bytes, out.n, e);
}

/* The stages' entries; everything else of it is the head's own. */
static int read_probe(const struct greeting *g, struct qn_error *e)
{
    if (g->receive.n != HELLO_BYTES)
        return error_set(e, QN_EDATA, "hosts: a probe's answer has %zu bytes, not %zu", g->receive.n, HELLO_BYTES);
    memcpy(g->hello->host, g->answer + PACKET_HEAD_BYTES + offsetof(struct hello, host), sizeof g->hello->host);
    for (int i = 0; i < g->hello->n_stages; i++) {
        const struct hello_host *h = &g->hello->host[i];
        if (h->lo < 0 || h->hi <= h->lo || h->hi > g->hello->n_layer)
            return error_set(e, QN_EDATA, "hosts: stage %d says that it has the layers %d to %d, of %d", i, h->lo,
                             h->hi - 1, g->hello->n_layer);
    }
    return 0;
}

static int read_answer(const struct greeting *g, struct qn_error *e)
{
    struct packet_head head;
    struct packet_reply reply;
    size_t n = g->receive.n;
    bool is_probe = g->hello->is_probe && n >= PACKET_HEAD_BYTES && !packet_read_head(&head, g->answer, n, 0, NULL) &&
                    head.kind == PACKET_HELLO;
    if (is_probe) return read_probe(g, e);
    int rc = packet_read_head(&head, g->answer, n, g->hello->group, e);
    if (!rc && head.kind != PACKET_REPLY) rc = error_set(e, QN_EDATA, "hosts: a packet of kind %d", head.kind);
    if (!rc) rc = packet_read_reply(&reply, packet_body(g->answer, n), 0, g->hello->limits.n_vocab, e);
    if (!rc && reply.outcome != STEP_DONE) rc = error_set(e, QN_EUNSUP, "hosts: %s", reply.text);
    return rc;
}

/* The answer is looked for first: a stage that refuses closes its link afterwards. */
int greeting_go_on(struct greeting *g, struct qn_error *e)
{
    bool done = false;
    if (!g->link || !g->receive.is_started) return error_set(e, QN_EIO, "hosts: nobody is being greeted");
    int rc = link_test(&g->receive, &done, e);
    if (!rc && done) return read_answer(g, e);
    if (!rc && g->send.is_started) rc = link_test(&g->send, &done, e);
    if (rc) return rc;
    uint64_t limit = STAGE_NS * (uint64_t)g->hello->n_stages; /* they get ready one after another */
    if (clock_ns() - g->begin_ns > limit)
        return error_set(e, QN_EUNSUP, "hosts: the stages (%d) were not ready within %llu s", g->hello->n_stages,
                         (unsigned long long)(limit / 1000000000));
    return error_set(e, QN_EBUSY, "hosts: the stages are not ready yet");
}

void greeting_deinit(struct greeting *g)
{
    if (!g->link) return;
    link_cancel(&g->send);
    link_cancel(&g->receive);
    mem_free(g->bytes);
    mem_free(g->answer);
    *g = (struct greeting){0};
}
