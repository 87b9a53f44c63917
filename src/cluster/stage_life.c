/* SPDX-License-Identifier: MIT
 *
 * stage_life.c: a stage from its start to its end. See stage_life.h.
 */
#include "cluster/stage_life.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"
#include "cluster/hello.h"
#include "cluster/link_socket.h"
#include "cluster/patience.h"
#include "cluster/relay.h"
#include "cluster/runner.h"
#include "cluster/stage_speed.h"
#include "engine/budget.h"
#include "model/load.h"

#define LAST_WORDS_NS 1000000000u /* how long a stage that cannot go on stays, until its reason has arrived */
#define FIRST_BYTES   (HELLO_BYTES > 1024 ? HELLO_BYTES : 1024) /* the first packet may be an earlier stage's reply */

_Static_assert(PACKET_HEAD_BYTES + 8 + PACKET_MAX_TEXT <= 1024, "a failure fits the first packet");

struct stage_life {
    struct stage_life_params p;
    struct model *model;
    struct kernels kernels;
    struct pool *pool;
    struct ledger ledger;
    struct runner *runner;
    struct relay relay;
    struct pulse_own pulse;
    struct hello hello;
    char disk_dir[PATH_MAX]; /* "": none */
    uint8_t *first;
    size_t n_first;
    uint32_t group;
    bool is_ready; /* it has agreed with the head */
};

static int tend(struct stage_life *r, struct qn_error *e)
{
    if (atomic_load(r->p.stop)) return error_set(e, QN_ECANCEL, "cluster: the stage was stopped");
    int rc = r->relay.data ? relay_tend(&r->relay, e) : 0;
    if (rc || !r->is_ready) return rc;
    uint64_t now = clock_ns(), need = pulse_own_need(&r->pulse);
    if (r->p.head) rc = link_socket_beat(r->p.head, now, need, e);
    if (!rc && r->p.beat) rc = beat_tend(r->p.beat, now, need, e);
    return rc;
}

static int tend_steps(void *arg, struct qn_error *e) { return tend(arg, e); }

/* Waits for a transfer. */
static int finish(struct stage_life *r, struct link_transfer *t, struct qn_error *e)
{
    struct patience wait;
    bool done = false;
    int rc = 0;
    patience_reset(&wait);
    while (!(rc = link_test(t, &done, e)) && !done && !(rc = tend(r, e))) patience_wait(&wait);
    if (!done) link_cancel(t);
    return rc;
}

static int send(struct stage_life *r, const void *p, size_t n, struct qn_error *e)
{
    struct link_transfer t;
    int rc = link_isend(r->p.out, &t, p, n, e);
    return rc ? rc : finish(r, &t, e);
}

static int receive_first(struct stage_life *r, struct qn_error *e)
{
    struct link_transfer t;
    if (!r->first && !(r->first = mem_alloc(FIRST_BYTES))) return error_nomem(e, "a packet", FIRST_BYTES);
    int rc = link_irecv(r->p.in, &t, r->first, FIRST_BYTES, e);
    if (!rc) rc = finish(r, &t, e);
    r->n_first = rc ? 0 : t.n;
    return rc;
}

static void lock_weights(const struct stage_life *r)
{
    uint64_t locked = 0;
    if (!r->p.locks_weights) return;
    int error = weights_lock(r->model->weights, r->ledger.budget - ledger_used(&r->ledger), budget_rows_only(r->model),
                             &locked);
    if (error)
        log_at(LOG_WARN, "%s: only %.2f GB of weights are locked in memory: %s; the limit (ulimit -l) is %zu KB",
               r->p.who, 1e-9 * (double)locked, strerror(error), os_lock_limit() / 1024);
}

static int n_threads(const struct stage_life *r) { return r->hello.n_threads ? r->hello.n_threads : r->p.n_threads; }

/* Fills in this host's entry of the probe, and passes it on. The threads that it needs end: those of the steps begin
 * when the stage is fenced in. */
static int answer_probe(struct stage_life *r, struct qn_error *e)
{
    struct hello_host own = {
        .memory_mb = (uint32_t)(r->ledger.budget >> 20), .lo = r->model->file_lo, .hi = r->model->file_hi};
    struct pool *team;
    int n = n_threads(r), rc = pool_new(&team, n, n > 1, e);
    if (rc) return rc;
    rc = stage_speed(&own.layer_ns, r->model, &r->kernels, team, e);
    pool_free(team);
    memcpy(r->first + PACKET_HEAD_BYTES + offsetof(struct hello, host) + (size_t)r->p.number * sizeof own, &own,
           sizeof own);
    return rc ? rc : send(r, r->first, r->n_first, e);
}

/* The layers that the head gives this stage. */
static int cut(struct stage_life *r, struct qn_error *e)
{
    const struct model *m = r->model;
    int lo = r->hello.cuts[r->p.number], hi = r->hello.cuts[r->p.number + 1];
    if (lo < m->file_lo || hi > m->file_hi)
        return error_set(e, QN_EDATA, "%s: the model's file has layers %d to %d, and the head gives layers %d to %d",
                         r->p.who, m->file_lo, m->file_hi - 1, lo, hi - 1);
    return model_cut(r->model, lo, hi, e);
}

static int make_runner(struct stage_life *r, struct qn_error *e)
{
    const struct hello *h = &r->hello;
    int rc = r->p.cache_dir ? stage_disk_folder(r->disk_dir, sizeof r->disk_dir, r->p.cache_dir, e) : 0;
    if (rc || (rc = cut(r, e)) || (rc = pool_prepare(&r->pool, n_threads(r), n_threads(r) > 1, e))) return rc;
    struct runner_params p = {.model = r->model,
                              .kernels = &r->kernels,
                              .pool = r->pool,
                              .ledger = &r->ledger,
                              .kv = (enum kv_type)h->kv,
                              .n_ctx = h->n_ctx,
                              .limits = h->limits,
                              .group = h->group,
                              .tend = tend_steps,
                              .tend_arg = r,
                              .pulse = &r->pulse,
                              .disk_dir = r->disk_dir[0] ? r->disk_dir : NULL};
    return runner_new(&r->runner, &p, e);
}

/* Reads the head's greeting and gets ready. */
static int greet(struct stage_life *r, struct qn_error *e)
{
    struct packet_head head;
    struct packet_in in = packet_body(r->first, r->n_first);
    int rc = packet_read_head(&head, r->first, r->n_first, 0, e);
    if (rc) return rc;
    if (head.kind != PACKET_HELLO)
        return error_set(e, QN_EDATA, "%s: a packet of kind %d instead of the first one", r->p.who, head.kind);
    if (in.n == sizeof r->hello) memcpy(&r->group, in.p + offsetof(struct hello, group), sizeof r->group);
    if ((rc = model_load_stage(&r->model, r->p.path, e))) return rc;
    if ((rc = hello_read(&r->hello, in, r->model, r->p.who, e))) return rc;
    if (r->p.number >= r->hello.n_stages)
        return error_set(e, QN_EDATA, "%s: the head knows only %d stages", r->p.who, r->hello.n_stages);
    kernels_init(&r->kernels, r->p.cpu);
    return r->hello.is_probe ? answer_probe(r, e) : make_runner(r, e);
}

/* Passes the greeting on, or answers it. */
static int pass_greeting(struct stage_life *r, struct qn_error *e)
{
    uint8_t bytes[64] __attribute__((aligned(4)));
    struct packet_out out = {.p = bytes, .cap = sizeof bytes};
    if (!model_is_last(r->model)) return send(r, r->first, r->n_first, e);
    packet_reply_tokens(&out, r->hello.group, 0, NULL, 0, NULL, 0);
    return send(r, out.p, out.n, e);
}

/* Lets the last packets arrive: t, or all that are relayed. */
static void linger(struct stage_life *r, struct link_transfer *t)
{
    struct patience wait;
    bool done = false;
    patience_reset(&wait);
    r->is_ready = false; /* a neighbour that is lost does not matter any more */
    while (patience_ns(&wait) < LAST_WORDS_NS && !done && !tend(r, NULL) && (!t || !link_test(t, &done, NULL)))
        patience_wait(&wait);
    if (t) link_cancel(t);
}

/* Tells the head why the stage cannot begin, or go on. */
static void refuse(struct stage_life *r, const struct qn_error *why)
{
    struct link_transfer t;
    struct qn_error named;
    uint8_t bytes[PACKET_HEAD_BYTES + 8 + PACKET_MAX_TEXT] __attribute__((aligned(4)));
    struct packet_out out = {.p = bytes, .cap = sizeof bytes};
    bool has_name = !strncmp(why->msg, r->p.who, strlen(r->p.who));
    if (!has_name) error_set(&named, why->code, "%s: %s", r->p.who, why->msg);
    packet_reply_failure(&out, r->group, 0, STEP_FAILED, has_name ? why->msg : named.msg);
    if (!link_isend(r->p.out, &t, out.p, out.n, NULL)) linger(r, &t);
}

static size_t relay_bytes(const struct hello *h)
{
    const struct step_limits *l = &h->limits;
    size_t n = packet_reply_bytes(l->n_rows, l->n_logits, l->n_vocab);
    return n > FIRST_BYTES ? n : FIRST_BYTES;
}

/* The largest packet that is relayed is known only from a greeting, which the first stage reads before any other. That
 * of a probe is small. */
static int start_relay(struct stage_life *r, struct qn_error *e)
{
    struct hello h;
    struct packet_in in = packet_body(r->first, r->n_first);
    if (!r->p.relay_from || r->n_first != HELLO_BYTES) return 0;
    memcpy(&h, in.p, sizeof h);
    if (h.limits.n_rows < 1 || h.limits.n_rows > 65536 || h.limits.n_logits < 1 || h.limits.n_logits > 65536 ||
        h.limits.n_vocab < 1 || relay_bytes(&h) > PACKET_MAX_BYTES)
        return error_set(e, QN_EDATA, "%s: replies to the head would be too large", r->p.who);
    size_t had = r->relay.cap, cap = relay_bytes(&h);
    if (cap <= had) return 0;
    int rc = ledger_take(&r->ledger, cap - had, "replies to the head", e);
    if (rc) return rc;
    return had ? relay_enlarge(&r->relay, cap, e) : relay_init(&r->relay, r->p.relay_from, r->p.in, cap, e);
}

static bool is_reply(const uint8_t *data, size_t n)
{
    uint16_t kind = 0;
    if (n >= PACKET_HEAD_BYTES) memcpy(&kind, data + 6, sizeof kind);
    return kind == PACKET_REPLY;
}

/* One round of greetings. An earlier stage may have failed instead: its reply is the reply of all. */
static int greet_once(struct stage_life *r, struct qn_error *e)
{
    int rc = receive_first(r, e);
    if (!rc) rc = start_relay(r, e);
    if (rc) return rc;
    if (is_reply(r->first, r->n_first)) {
        send(r, r->first, r->n_first, NULL);
        return error_set(e, QN_EIO, "%s: an earlier stage cannot begin", r->p.who);
    }
    if ((rc = greet(r, e))) refuse(r, e);
    return rc;
}

static int begin(struct stage_life *r, struct qn_error *e)
{
    int rc = greet_once(r, e);
    while (!rc && r->hello.is_probe) {
        model_free(r->model);
        r->model = NULL;
        rc = greet_once(r, e);
    }
    if (rc || (rc = pass_greeting(r, e))) return rc;
    lock_weights(r);
    if (r->p.fence) rc = r->p.fence(r->p.path, r->disk_dir[0] ? r->disk_dir : NULL, e);
    if (!rc) rc = pool_start(r->pool, e);
    if (rc) refuse(r, e);
    r->is_ready = !rc;
    return rc;
}

int stage_life_run(const struct stage_life_params *p, struct qn_error *e)
{
    struct stage_life r = {.p = *p};
    struct qn_error why = {0};
    ledger_init(&r.ledger, os_memory_bytes() / (size_t)(p->n_local > 0 ? p->n_local : 1));
    patience_be_exact();
    int rc = begin(&r, &why);
    if (!rc) rc = runner_serve(r.runner, p->in, p->out, p->stop, &why);
    if (r.p.beat && r.p.beat->is_late) refuse(&r, &why);
    if (rc != QN_ECANCEL) linger(&r, NULL);
    if (r.p.beat) beat_deinit(r.p.beat);
    relay_deinit(&r.relay);
    runner_free(r.runner);
    pool_free(r.pool);
    model_free(r.model);
    mem_free(r.first);
    if (rc && e) *e = why;
    return rc;
}
