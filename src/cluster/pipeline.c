/* SPDX-License-Identifier: MIT
 *
 * pipeline.c: steps as packets, and what the stages answer. See pipeline.h.
 */
#include "cluster/pipeline.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/patience.h"
#include "model/forward.h"

/* A place for a table in the stages. */
struct pipeline_place {
    const struct kv_seq *owner; /* whose table was sent last; only compared, because it may be gone */
    int32_t *pages;             /* [n_pages_each] that table */
    int n_pages;
    uint64_t used; /* the step that used it last */
};

struct pipeline {
    struct pipeline_params p;
    int rc; /* why no further step can be run */
    struct qn_error broken;

    struct step_move *moves; /* [n_moves] since the last step */
    int n_moves, moves_cap;

    struct pipeline_place *places; /* [limits.n_seqs] */
    struct step_packet step;       /* the last step */
    int32_t *lists;                /* [n_seqs][2][n_pages_each] what its tables point to */
    int *numbers;                  /* [n_rows] the step's number of each sequence of the batch; -1: it has no rows */
    int *seqs;                     /* [n_seqs] the other way round */
    int32_t *counts;               /* [n_seqs] */
    uint64_t step_no;

    struct packet_out out;
    size_t in_cap;
    uint8_t *in;
    struct link_transfer send, receive;
};

/* ---- what happens to pages and states between steps ---- */

static void remember(struct pipeline *p, struct step_move m)
{
    if (p->n_moves == p->moves_cap) {
        int cap = p->moves_cap ? 2 * p->moves_cap : 64;
        struct step_move *more = mem_realloc(p->moves, (size_t)cap * sizeof *more);
        if (!more) {
            p->rc = error_nomem(&p->broken, "the list of copied pages", (size_t)cap * sizeof *more);
            return;
        }
        p->moves = more;
        p->moves_cap = cap;
    }
    p->moves[p->n_moves++] = m;
}

static void copied(void *arg, enum kv_kind kind, int to, int from)
{
    static const uint32_t what[] = {[KV_PAGES] = MOVE_PAGE, [KV_WINDOWS] = MOVE_WINDOW, [KV_STATES] = MOVE_STATE};
    remember(arg, (struct step_move){what[kind], to, from});
}

/* ---- making one ---- */

struct kv_shape pipeline_kv_shape(const struct model *m, enum kv_type type)
{
    struct kv_shape s = forward_window_shape(m, type);
    s.n_layer = s.n_head_kv = 1;
    s.head_dim = s.head_dim_v = 1;
    if (s.n_layer_win) s.n_layer_win = 1;
    if (s.state_bytes) s.state_bytes = 64;
    return s;
}

static int open_tables(struct pipeline *p, struct qn_error *e)
{
    const struct step_limits *l = &p->p.limits;
    size_t n = (size_t)l->n_seqs, each = (size_t)l->n_pages_each;
    p->places = mem_calloc(n, sizeof *p->places);
    p->lists = mem_calloc(2 * n * each, sizeof *p->lists);
    p->numbers = mem_calloc((size_t)l->n_rows, sizeof *p->numbers);
    p->seqs = mem_calloc(n, sizeof *p->seqs);
    p->counts = mem_calloc(n, sizeof *p->counts);
    if (!p->places || !p->lists || !p->numbers || !p->seqs || !p->counts)
        return error_nomem(e, "the tables of stages", 2 * n * each * sizeof *p->lists);
    for (size_t i = 0; i < n; i++)
        if (!(p->places[i].pages = mem_calloc(each, sizeof *p->places->pages)))
            return error_nomem(e, "a page table", each * sizeof *p->places->pages);
    return 0;
}

static int open_packets(struct pipeline *p, struct qn_error *e)
{
    const struct step_limits *l = &p->p.limits;
    p->out.cap = step_packet_bytes(l);
    if (!p->out.cap) return error_set(e, QN_EUSAGE, "cluster: steps of %d rows are too large for packets", l->n_rows);
    p->in_cap = packet_reply_bytes(l->n_rows, l->n_logits, l->n_vocab);
    p->out.p = mem_alloc(p->out.cap);
    p->in = mem_alloc(p->in_cap);
    return p->out.p && p->in ? 0 : error_nomem(e, "a packet", p->out.cap);
}

/* A receive is under way all the time, because a stage may say at any time that it cannot go on. */
static int listen_on(struct pipeline *p)
{
    return p->rc = link_irecv(p->p.from_last, &p->receive, p->in, p->in_cap, &p->broken);
}

int pipeline_new(struct pipeline **out, const struct pipeline_params *params, struct qn_error *e)
{
    struct pipeline *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "a pipeline", sizeof *p);
    p->p = *params;
    int rc = step_packet_init(&p->step, &p->p.limits, e);
    if (!rc) rc = open_tables(p, e);
    if (!rc) rc = open_packets(p, e);
    if (!rc && (rc = listen_on(p)) && e) *e = p->broken;
    if (rc) {
        pipeline_free(p);
        return rc;
    }
    kv_pool_watch(p->p.kv, &(struct kv_watch){copied, p});
    *out = p;
    return 0;
}

void pipeline_free(struct pipeline *p)
{
    if (!p) return;
    link_cancel(&p->send);
    link_cancel(&p->receive);
    kv_pool_watch(p->p.kv, &(struct kv_watch){0});
    for (int i = 0; p->places && i < p->p.limits.n_seqs; i++) mem_free(p->places[i].pages);
    mem_free(p->places);
    mem_free(p->lists);
    mem_free(p->numbers);
    mem_free(p->seqs);
    mem_free(p->counts);
    mem_free(p->moves);
    mem_free(p->out.p);
    mem_free(p->in);
    step_packet_deinit(&p->step);
    mem_free(p);
}

/* ---- packets ---- */

static int fail(struct pipeline *p, struct qn_error *e)
{
    link_cancel(&p->send);
    link_cancel(&p->receive);
    if (e) *e = p->broken;
    return p->rc;
}

static int late(struct pipeline *p, const char *what)
{
    return error_set(&p->broken, QN_EIO, "cluster: %s step %llu within %llu ms", what, (unsigned long long)p->step_no,
                     (unsigned long long)(p->p.deadline_ns / 1000000));
}

/* The step that is under way, or the last one, is over. A stage that failed may be behind it. */
static int check_step(struct pipeline *p, const struct packet_head *head, const struct packet_reply *reply)
{
    if (reply->outcome == STEP_FAILED) return error_set(&p->broken, QN_EIO, "a stage: %s", reply->text);
    if (head->step == p->step_no) return 0;
    return error_set(&p->broken, QN_EDATA, "cluster: a reply to step %llu instead of step %llu",
                     (unsigned long long)head->step, (unsigned long long)p->step_no);
}

/* Reads the packet that came. */
static int take_reply(struct pipeline *p, struct packet_reply *reply)
{
    const struct step_limits *l = &p->p.limits;
    struct packet_head head;
    int most = l->n_logits ? l->n_logits : l->n_rows;
    p->rc = packet_read_head(&head, p->in, p->receive.n, p->p.group, &p->broken);
    if (!p->rc && head.kind != PACKET_REPLY)
        p->rc = error_set(&p->broken, QN_EDATA, "cluster: a packet of kind %d instead of a reply", head.kind);
    if (!p->rc) p->rc = packet_read_reply(reply, packet_body(p->in, p->receive.n), most, l->n_vocab, &p->broken);
    if (!p->rc) p->rc = check_step(p, &head, reply);
    return p->rc;
}

/* Nothing is expected, but a stage may have failed. */
static int look_for_failure(struct pipeline *p)
{
    struct packet_reply reply;
    bool done;
    if ((p->rc = link_test(&p->receive, &done, &p->broken)) || !done || take_reply(p, &reply)) return p->rc;
    return p->rc = error_set(&p->broken, QN_EDATA, "cluster: a reply to step %llu before the step was sent",
                             (unsigned long long)p->step_no);
}

/* Sends p->out, which has no reply, or only a later one, and waits until it has been sent. */
static int send_out(struct pipeline *p)
{
    struct patience wait;
    patience_reset(&wait);
    if ((p->rc = link_isend(p->p.to_first, &p->send, p->out.p, p->out.n, &p->broken))) return p->rc;
    for (bool done = false; !done;) {
        /* The reason before its consequence: a stage that fails closes its links. */
        if (look_for_failure(p)) return p->rc;
        if ((p->rc = link_test(&p->send, &done, &p->broken)) || done) return p->rc;
        if (patience_ns(&wait) > p->p.deadline_ns) return p->rc = late(p, "the first stage did not take");
        patience_wait(&wait);
    }
    return 0;
}

static int check_rows(struct pipeline *p, const struct packet_reply *reply)
{
    int n_wanted = 0, n = reply->n_tokens;
    enum step_outcome good = p->p.limits.n_logits ? STEP_LOGITS : STEP_DONE;
    for (int i = 0; i < p->step.batch.n; i++) n_wanted += p->step.batch.want_logits[i];
    if (reply->outcome == STEP_ABANDONED || (reply->outcome == good && n == n_wanted)) return 0;
    return p->rc = error_set(&p->broken, QN_EDATA, "cluster: step %llu ended with outcome %d and %d rows instead of %d",
                             (unsigned long long)p->step_no, reply->outcome, n, n_wanted);
}

/* Sends the step, waits for the reply, and tells the stages once if the step is cancelled. */
static int await_reply(struct pipeline *p, bool (*is_cancelled)(void *arg), void *arg, struct packet_reply *reply)
{
    struct patience wait;
    patience_reset(&wait);
    if ((p->rc = link_isend(p->p.to_first, &p->send, p->out.p, p->out.n, &p->broken))) return p->rc;
    /* The first stage may take a packet only after this end has taken the reply, so neither is waited for alone. */
    for (bool done = false, told = false, is_sent = false;;) {
        if (!done && ((p->rc = link_test(&p->receive, &done, &p->broken)) || (done && take_reply(p, reply))))
            return p->rc;
        if (!is_sent && (p->rc = link_test(&p->send, &is_sent, &p->broken))) return p->rc;
        if (done && is_sent) return check_rows(p, reply);
        if (!done && is_sent && p->step.can_cancel && !told && is_cancelled(arg)) {
            packet_begin(&p->out, PACKET_CANCEL, p->p.group, p->step_no);
            packet_end(&p->out);
            told = true;
            is_sent = false;
            if ((p->rc = link_isend(p->p.to_first, &p->send, p->out.p, p->out.n, &p->broken))) return p->rc;
        }
        if (patience_ns(&wait) > p->p.deadline_ns) return p->rc = late(p, "no stage answered");
        patience_wait(&wait);
    }
}

/* ---- steps ---- */

/* A place that no other sequence of this step has: the one that the sequence had before, or the one that was used
 * longest ago. */
static int find_place(const struct pipeline *p, const struct kv_seq *m)
{
    int best = -1;
    for (int i = 0; i < p->p.limits.n_seqs; i++) {
        const struct pipeline_place *at = &p->places[i];
        if (at->used == p->step_no) continue;
        if (at->owner == m) return i;
        if (best < 0 || at->used < p->places[best].used) best = i;
    }
    assert(best >= 0);
    return best;
}

/* The table of the step's sequence number i, which is m. Its first row has slot first_slot. */
static void put_table(struct pipeline *p, int i, const struct kv_seq *m, int first_slot)
{
    struct kv_pool *kv = p->p.kv;
    size_t each = (size_t)p->p.limits.n_pages_each;
    int32_t *pages = p->lists + 2 * each * (size_t)i, *windows = pages + each;
    int number = find_place(p, m), n_kept = 0;
    struct pipeline_place *at = &p->places[number];
    struct step_table *t = &p->step.tables[i];
    for (int k = 0; k < m->n_pages; k++) {
        int page = kv_number(kv, KV_PAGES, m->pages[k]);
        if (n_kept == k && k < at->n_pages && at->pages[k] == page) n_kept++;
        pages[k] = at->pages[k] = page;
        windows[k] = m->windows && m->windows[k] ? kv_number(kv, KV_WINDOWS, m->windows[k]) : -1;
    }
    at->owner = m;
    at->n_pages = m->n_pages;
    at->used = p->step_no;
    *t = (struct step_table){.place = number, .n_pages = m->n_pages, .n_kept = n_kept, .pages = pages + n_kept};
    t->state = m->state ? kv_number(kv, KV_STATES, m->state) : -1;
    t->first_window = m->windows ? kv_window_first(kv_pool_shape(kv), first_slot) : 0;
    t->windows = windows + t->first_window;
}

/* Copies the batch, with the step's numbers of its sequences, and writes their tables. */
static void put_batch(struct pipeline *p, const struct batch *b, struct kv_seq *const *mem)
{
    struct step_packet *s = &p->step;
    s->n_seqs = 0;
    batch_clear(&s->batch);
    for (int i = 0; i < p->p.limits.n_rows; i++) p->numbers[i] = -1;
    for (int i = 0; i < b->n; i++) {
        assert(b->seq[i] >= 0 && b->seq[i] < p->p.limits.n_rows);
        int *number = &p->numbers[b->seq[i]];
        if (*number < 0) {
            assert(s->n_seqs < p->p.limits.n_seqs);
            p->seqs[s->n_seqs] = b->seq[i];
            *number = s->n_seqs++;
            put_table(p, *number, mem[b->seq[i]], b->slot[i]);
        }
        batch_add(&s->batch, b->token[i], b->pos[i], *number, b->want_logits[i]);
        s->batch.slot[i] = b->slot[i];
        s->batch.held[i] = b->held[i];
    }
}

/* Writes the step with the last of the moves; those that it has no room for go ahead in packets of their own. */
static int write_step(struct pipeline *p)
{
    const int most = p->p.limits.n_moves, n = p->n_moves;
    const bool has_windows = p->p.limits.n_windows > 0;
    struct step_packet moves = {0};
    int sent = 0;
    for (; n - sent > most && !p->rc; sent += most) {
        moves.moves = p->moves + sent;
        moves.n_moves = most;
        packet_begin(&p->out, PACKET_STEP, p->p.group, p->step_no);
        step_packet_put(&p->out, &moves, has_windows, 0);
        packet_end(&p->out);
        send_out(p);
    }
    p->n_moves = 0;
    if (p->rc) return p->rc;
    p->step.n_moves = n - sent;
    p->step.moves = p->step.n_moves ? p->moves + sent : NULL;
    packet_begin(&p->out, PACKET_STEP, p->p.group, p->step_no);
    step_packet_put(&p->out, &p->step, has_windows, 0);
    packet_end(&p->out);
    return 0;
}

static void copy_rows(void *to, const void *from, int n, size_t bytes)
{
    if (n) memcpy(to, from, (size_t)n * bytes);
}

int pipeline_run(struct pipeline *p, const struct batch *b, struct kv_seq *const *mem, bool (*is_cancelled)(void *arg),
                 void *arg, qn_token *tokens, float *logits, struct qn_error *e)
{
    struct packet_reply reply;
    assert(b->n >= 1 && b->n <= p->p.limits.n_rows);
    if (p->rc) return fail(p, e);
    p->step_no++;
    put_batch(p, b, mem);
    /* States are copied only before passes with several rows of a sequence (states.h), and every stage has to be able
     * to go back. */
    p->step.can_cancel = is_cancelled && (!p->p.limits.n_states || b->n > p->step.n_seqs);
    if (write_step(p) || await_reply(p, is_cancelled, arg, &reply)) return fail(p, e);
    if (reply.outcome == STEP_DONE) copy_rows(tokens, reply.tokens, reply.n_tokens, sizeof *tokens);
    if (reply.outcome == STEP_LOGITS)
        copy_rows(logits, reply.logits, reply.n_tokens, (size_t)p->p.limits.n_vocab * sizeof *logits);
    if (listen_on(p)) return fail(p, e);
    if (reply.outcome == STEP_ABANDONED) {
        remember(p, (struct step_move){.what = MOVE_UNDO});
        return error_set(e, QN_ECANCEL, "cluster: step %llu was cancelled", (unsigned long long)p->step_no);
    }
    return 0;
}

int pipeline_accept(struct pipeline *p, const int32_t *n_accepted, struct qn_error *e)
{
    const struct batch *b = &p->step.batch;
    if (p->rc) return fail(p, e);
    memset(p->counts, 0, (size_t)p->step.n_seqs * sizeof *p->counts);
    for (int i = 0; i < b->n; i++)
        if (b->held[i]) p->counts[b->seq[i]] = n_accepted[p->seqs[b->seq[i]]];
    packet_accept(&p->out, p->p.group, p->step_no, p->counts, p->step.n_seqs);
    return send_out(p) ? fail(p, e) : 0;
}
