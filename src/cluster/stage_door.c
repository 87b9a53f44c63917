/* SPDX-License-Identifier: MIT
 *
 * stage_door.c: passes packets between the head and stages on other hosts. See stage_door.h.
 */
#include "cluster/stage_door.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "cluster/hello.h"
#include "cluster/link_socket.h"
#include "cluster/patience.h"
#include "cluster/relay.h"

#define REFUSAL_BYTES (PACKET_HEAD_BYTES + 8 + PACKET_MAX_TEXT)

struct door {
    struct door_params p;
    struct relay down, up;
};

static int finish(struct link_transfer *t, struct qn_error *e)
{
    struct patience wait;
    bool done = false;
    int rc = 0;
    patience_reset(&wait);
    while (!(rc = link_test(t, &done, e)) && !done) patience_wait(&wait);
    return rc;
}

/* Passes one packet of at most cap bytes on, and leaves it in p. */
static int pass(struct link *from, struct link *to, uint8_t *p, size_t cap, size_t *n, struct qn_error *e)
{
    struct link_transfer t;
    int rc = link_irecv(from, &t, p, cap, e);
    if (!rc) rc = finish(&t, e);
    *n = rc ? 0 : t.n;
    if (!rc) rc = link_isend(to, &t, p, *n, e);
    return rc ? rc : finish(&t, e);
}

static int pass_hello(struct door *d, struct hello *h, uint8_t *p, struct qn_error *e)
{
    size_t n;
    int rc = pass(d->p.head, d->p.first, p, HELLO_BYTES, &n, e);
    if (!rc && n != HELLO_BYTES)
        rc = error_set(e, QN_EDATA, "the head's first packet has %zu bytes, not %zu", n, HELLO_BYTES);
    if (!rc) memcpy(h, p + PACKET_HEAD_BYTES, sizeof *h);
    return rc;
}

/* Passes probes and their answers on, and then the greeting, whose limits say how large the other packets may be. The
 * stages check it against their model. */
static int pass_greeting(struct door *d, struct hello *h, struct qn_error *e)
{
    size_t n, cap = HELLO_BYTES > REFUSAL_BYTES ? HELLO_BYTES : REFUSAL_BYTES;
    uint8_t *p = mem_alloc(cap);
    int rc = p ? pass_hello(d, h, p, e) : error_nomem(e, "a packet", cap);
    while (!rc && h->is_probe) {
        rc = pass(d->p.last, d->p.head, p, cap, &n, e);
        if (!rc) rc = pass_hello(d, h, p, e);
    }
    mem_free(p);
    return rc;
}

static int open_relays(struct door *d, const struct hello *h, struct qn_error *e)
{
    const struct step_limits *l = &h->limits;
    bool is_sane = l->n_rows >= 1 && l->n_rows <= 65536 && l->n_logits >= 0 && l->n_logits <= l->n_rows &&
                   l->n_vocab >= 1 && step_packet_bytes(l);
    size_t up = is_sane ? packet_reply_bytes(l->n_rows, l->n_logits, l->n_vocab) : 0;
    if (!is_sane || up > PACKET_MAX_BYTES) return error_set(e, QN_EDATA, "the head's packets would be too large");
    size_t down = step_packet_bytes(l), least = HELLO_BYTES > REFUSAL_BYTES ? HELLO_BYTES : REFUSAL_BYTES;
    int rc = relay_init(&d->down, d->p.head, d->p.first, down > least ? down : least, e);
    return rc ? rc : relay_init(&d->up, d->p.last, d->p.head, up > least ? up : least, e);
}

static int tend(struct door *d, struct qn_error *e)
{
    int rc = relay_tend(&d->down, e);
    if (!rc) rc = relay_tend(&d->up, e);
    uint64_t now = clock_ns();
    if (!rc) rc = link_socket_beat(d->p.head, now, 0, e);
    return rc ? rc : beat_tend(d->p.beat, now, 0, e);
}

/* Tells the head why nothing comes any more. */
static void say_why(struct door *d, const struct hello *h, const struct qn_error *why)
{
    uint8_t bytes[REFUSAL_BYTES] __attribute__((aligned(4)));
    struct packet_out out = {.p = bytes, .cap = sizeof bytes};
    struct link_transfer t;
    bool done;
    packet_reply_failure(&out, h->group, 0, STEP_FAILED, why->msg);
    if (!link_isend(d->p.head, &t, out.p, out.n, NULL) && !link_test(&t, &done, NULL)) link_cancel(&t);
}

int door_run(const struct door_params *p, struct qn_error *e)
{
    struct door d = {.p = *p};
    struct patience wait;
    struct hello h = {0};
    struct qn_error why = {0};
    uint64_t n_passed = 0;
    bool is_fenced = !p->fence;
    int rc = pass_greeting(&d, &h, &why);
    if (!rc) rc = open_relays(&d, &h, &why);
    patience_reset(&wait);
    while (!rc && !(rc = tend(&d, &why))) {
        if (d.down.n_passed + d.up.n_passed != n_passed) patience_reset(&wait);
        n_passed = d.down.n_passed + d.up.n_passed;
        if (!is_fenced && d.up.n_passed) { /* the stages have answered: all links are open */
            rc = p->fence(p->path, NULL, &why);
            is_fenced = true;
        }
        patience_wait(&wait);
    }
    if (p->beat->is_late) say_why(&d, &h, &why);
    beat_deinit(p->beat);
    relay_deinit(&d.down);
    relay_deinit(&d.up);
    if (e) *e = why;
    return rc;
}
