/* SPDX-License-Identifier: MIT
 *
 * runner.c: runs the steps of one stage. See runner.h.
 */
#include "cluster/runner.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "cluster/voices.h"

#define LAST_WORDS_NS 1000000000u
#define EXPECT        3           /* times the last wait for a packet is how long the next one is expected */
#define EXPECT_NS     1000000000u /* at most */
#define MOST_SLEEP_NS 1000000     /* of a pass that is made slower */
#define N_BUFFERS     LINK_WINDOW /* of packets that come: one is at work while the others arrive */
#define N_OUT         2           /* of packets that go: one is put together while the other is sent */

struct runner_out {
    struct packet_out packet;
    struct link_transfer send;
};

struct runner {
    struct runner_params p;
    struct forward forward;
    struct kv_pool *kv;
    struct kv_seq *places; /* [limits.n_seqs] the tables that were sent; their pages are not referenced */
    struct kv_seq **mems;  /* [limits.n_seqs] those of the present step */
    size_t bytes;          /* from the ledger: tables, packets and logits */
    struct step_packet step;
    float *logits;           /* [limits.n_logits or n_rows][n_vocab], in the last stage */
    qn_token *tokens;        /* [limits.n_rows], in the last stage */
    struct voices *voices;   /* there, unless p.draw chooses tokens */
    uint8_t *drawn;          /* [limits.n_rows] rows that voices draw from */
    int n_drawn;             /* tokens that they draw at most */
    struct stage_disk *disk; /* NULL: no files */
    uint64_t done_step;
    bool can_accept; /* the last packet's step was completed here: its rows may be cut or taken back */

    /* packets */
    size_t cap;
    uint8_t *buffer[N_BUFFERS];
    struct link_transfer receive[N_BUFFERS]; /* is_started: it has not come yet */
    int first, n_posted;                     /* the buffers that are being filled, or are full, in order */
    struct runner_out outs[N_OUT];
    int at_out;
    struct link *in, *out;
    const atomic_bool *stop;
    uint64_t gap_ns; /* how long the last packet was waited for: the next one may take as long */

    /* the pass in progress */
    uint64_t step_no;
    uint64_t unwanted; /* this step and those before it */
    int lost_rc;       /* the link failed meanwhile, because of `lost` */
    struct qn_error lost;
};

/* ---- making one ---- */

void runner_limits(struct step_limits *l, const struct model *m, int n_ctx)
{
    l->n_pages_each = (n_ctx + KV_PAGE_SLOTS - 1) / KV_PAGE_SLOTS;
    l->page_slots = KV_PAGE_SLOTS;
    l->n_embd = m->hp.n_embd;
    l->n_vocab = m->hp.n_vocab;
    l->window = m->hp.n_swa;
    l->rounds_rows = 0;
}

static int pay(struct runner *r, size_t bytes, const char *what, struct qn_error *e)
{
    int rc = ledger_take(r->p.ledger, bytes, what, e);
    if (!rc) r->bytes += bytes;
    return rc;
}

static int open_places(struct runner *r, struct qn_error *e)
{
    const struct step_limits *l = &r->p.limits;
    const struct kv_shape *shape = kv_pool_shape(r->kv);
    size_t n = (size_t)l->n_seqs, each = (size_t)l->n_pages_each * (shape->n_layer_win ? 2 : 1);
    int rc = pay(r, n * (sizeof *r->places + sizeof *r->mems + each * sizeof *r->places->pages), "page tables", e);
    if (rc) return rc;
    r->places = mem_calloc(n, sizeof *r->places);
    r->mems = mem_calloc(n, sizeof *r->mems);
    if (!r->places || !r->mems) return error_nomem(e, "a stage's sequences", n * sizeof *r->places);
    for (int i = 0; i < l->n_seqs; i++) {
        struct kv_seq *m = &r->places[i];
        *m = (struct kv_seq){.pool = r->kv, .max_pages = l->n_pages_each};
        m->pages = mem_calloc(each, sizeof *m->pages);
        if (!m->pages) return error_nomem(e, "a page table", each * sizeof *m->pages);
        if (shape->n_layer_win) m->windows = m->pages + l->n_pages_each;
    }
    return 0;
}

static int open_buffers(struct runner *r, struct qn_error *e)
{
    const struct step_limits *l = &r->p.limits;
    size_t rows = (size_t)l->n_rows;
    r->cap = step_packet_bytes(l);
    if (!r->cap) return error_set(e, QN_EUSAGE, "cluster: steps of %d rows are too large for packets", l->n_rows);
    size_t reply = packet_reply_bytes(l->n_rows, l->n_logits, l->n_vocab);
    if (!model_is_last(r->p.model) || reply < r->cap) reply = r->cap;
    if (reply > PACKET_MAX_BYTES)
        return error_set(e, QN_EUSAGE, "cluster: replies of %d rows of logits are too large for packets", l->n_logits);
    int rc = pay(r, N_BUFFERS * r->cap + N_OUT * reply, "packets", e);
    if (rc) return rc;
    for (int i = 0; i < N_BUFFERS; i++)
        if (!(r->buffer[i] = mem_alloc(r->cap))) return error_nomem(e, "a packet", r->cap);
    for (int i = 0; i < N_OUT; i++) {
        r->outs[i].packet = (struct packet_out){.p = mem_alloc(reply), .cap = reply};
        if (!r->outs[i].packet.p) return error_nomem(e, "a packet", reply);
    }
    if (!model_is_last(r->p.model)) return 0;
    size_t n_logits = l->n_logits ? (size_t)l->n_logits : rows;
    size_t row = (size_t)l->n_vocab * sizeof *r->logits;
    if ((rc = pay(r, n_logits * row + rows * (sizeof *r->tokens + sizeof *r->drawn), "logits", e))) return rc;
    r->logits = mem_alloc(n_logits * row);
    r->tokens = mem_calloc(rows, sizeof *r->tokens);
    r->drawn = mem_calloc(rows, sizeof *r->drawn);
    if (r->logits && r->tokens && r->drawn)
        return l->n_logits ? voices_new(&r->voices, l, r->p.kernels, r->p.ledger, e) : 0;
    return error_nomem(e, "a stage's logits", n_logits * row);
}

int runner_new(struct runner **out, const struct runner_params *p, struct qn_error *e)
{
    struct runner *r = mem_calloc(1, sizeof *r);
    if (!r) return error_nomem(e, "a stage", sizeof *r);
    assert((model_is_last(p->model) && !p->limits.n_logits) == (p->draw != NULL));
    r->p = *p;
    const struct step_limits *l = &p->limits;
    /* Layers with a window keep all slots where those of the whole model do. */
    struct kv_shape shape = l->n_windows ? forward_window_shape(p->model, p->kv) : forward_kv_shape(p->model, p->kv);
    int rc = kv_pool_new(&r->kv, &shape, l->n_pages * l->page_slots, l->n_states, l->n_windows, p->ledger, e);
    if (!rc)
        rc = forward_init(&r->forward, p->model, p->kernels, p->pool, l->n_rows, l->n_seqs, p->n_ctx, p->ledger, e);
    if (!rc && l->rounds_rows)
        rc = pay(r, (size_t)l->n_rows * (size_t)l->n_embd * sizeof(float), "rows that came rounded", e);
    if (!rc) rc = step_packet_init(&r->step, l, e);
    if (!rc) rc = open_places(r, e);
    if (!rc) rc = open_buffers(r, e);
    if (!rc && p->disk_dir)
        rc = stage_disk_new(&r->disk, p->disk_dir, r->kv, p->model->hp.layer_lo, p->model->hp.layer_hi, e);
    if (rc)
        runner_free(r);
    else
        *out = r;
    return rc;
}

void runner_free(struct runner *r)
{
    if (!r) return;
    stage_disk_free(r->disk);
    for (int i = 0; r->places && i < r->p.limits.n_seqs; i++) mem_free(r->places[i].pages);
    mem_free(r->places);
    mem_free(r->mems);
    mem_free(r->logits);
    mem_free(r->tokens);
    mem_free(r->drawn);
    voices_free(r->voices);
    for (int i = 0; i < N_BUFFERS; i++) mem_free(r->buffer[i]);
    for (int i = 0; i < N_OUT; i++) mem_free(r->outs[i].packet.p);
    ledger_give(r->p.ledger, r->bytes);
    step_packet_deinit(&r->step);
    forward_deinit(&r->forward);
    kv_pool_free(r->kv);
    mem_free(r);
}

/* ---- moves and tables ---- */

static void move(struct runner *r, const struct step_move *m)
{
    static const enum kv_kind kinds[] = {[MOVE_PAGE] = KV_PAGES, [MOVE_WINDOW] = KV_WINDOWS, [MOVE_STATE] = KV_STATES};
    const struct kv_shape *shape = kv_pool_shape(r->kv);
    const size_t bytes[] = {[MOVE_PAGE] = kv_page_bytes(shape),
                            [MOVE_WINDOW] = kv_window_page_bytes(shape),
                            [MOVE_STATE] = shape->state_bytes};
    if (m->what == MOVE_UNDO) {
        if (r->can_accept && r->forward.pass.can_stop) forward_take_back(&r->forward);
        r->can_accept = false;
        return;
    }
    if (!bytes[m->what]) return; /* this stage has none */
    uint8_t *to = kv_at(r->kv, kinds[m->what], m->to);
    if (m->from < 0)
        memset(to, 0, bytes[m->what]);
    else if (m->from != m->to)
        memcpy(to, kv_at(r->kv, kinds[m->what], m->from), bytes[m->what]);
}

static void set_table(struct runner *r, const struct step_table *t)
{
    struct kv_seq *m = &r->places[t->place];
    for (int i = t->n_kept; i < t->n_pages; i++) m->pages[i] = kv_at(r->kv, KV_PAGES, t->pages[i - t->n_kept]);
    for (int i = 0; m->windows && i < t->n_pages; i++) {
        int number = i < t->first_window ? -1 : t->windows[i - t->first_window];
        m->windows[i] = number < 0 ? NULL : kv_at(r->kv, KV_WINDOWS, number);
    }
    m->n_pages = t->n_pages;
    if (kv_pool_shape(r->kv)->state_bytes) m->state = kv_at(r->kv, KV_STATES, t->state);
}

/* The checks that step_packet_read() leaves: the tables go on from those that are here, and the rows' windows are
 * there.
 */
static int check_tables(const struct runner *r, struct qn_error *e)
{
    const struct step_limits *l = &r->p.limits;
    const struct batch *b = &r->step.batch;
    for (int i = 0; i < r->step.n_seqs; i++) {
        const struct step_table *t = &r->step.tables[i];
        if (t->n_kept > r->places[t->place].n_pages)
            return error_set(e, QN_EDATA, "cluster: a step keeps %d pages of sequence %d, which has %d", t->n_kept,
                             t->place, r->places[t->place].n_pages);
    }
    for (int k = 0; l->n_windows && k < b->n; k++) {
        const struct step_table *t = &r->step.tables[b->seq[k]];
        int from = b->slot[k] + 1 - l->window, first = from > 0 ? from / l->page_slots : 0;
        for (int i = first; i <= b->slot[k] / l->page_slots; i++)
            if (i < t->first_window || t->windows[i - t->first_window] < 0)
                return error_set(e, QN_EDATA, "cluster: row %d of a step has no window page %d", k, i);
    }
    return 0;
}

/* ---- packets that come ---- */

/* Keeps all buffers but one waiting for packets. */
static int expect(struct runner *r, struct qn_error *e)
{
    for (int rc; r->n_posted < N_BUFFERS - 1; r->n_posted++) {
        int at = (r->first + r->n_posted) % N_BUFFERS;
        if ((rc = link_irecv(r->in, &r->receive[at], r->buffer[at], r->cap, e))) return rc;
    }
    return 0;
}

/* Moves on what is under way, as far as that can be done now. Between two questions of a wait, and between pieces of a
 * pass. */
static int move_on(struct runner *r, struct qn_error *e)
{
    bool done = true;
    int rc;
    if (atomic_load(r->stop)) return error_set(e, QN_ECANCEL, "cluster: the stage was stopped");
    for (int i = 0; i < N_OUT; i++) /* the older one first */
        if (r->outs[(r->at_out + 1 + i) % N_OUT].send.is_started &&
            (rc = link_test(&r->outs[(r->at_out + 1 + i) % N_OUT].send, &done, e)))
            return rc;
    done = true;
    for (int i = 0; done && i < r->n_posted; i++) {
        struct link_transfer *t = &r->receive[(r->first + i) % N_BUFFERS];
        if (t->is_started && (rc = link_test(t, &done, e))) return rc;
    }
    return r->p.tend ? r->p.tend(r->p.tend_arg, e) : 0;
}

/* Returns a buffer for a packet, when the packet that it had has been sent. */
static int open_out(struct runner *r, struct packet_out **out, struct qn_error *e)
{
    struct patience wait;
    struct runner_out *o = &r->outs[(r->at_out + 1) % N_OUT];
    patience_reset(&wait);
    for (int rc; o->send.is_started; patience_wait(&wait))
        if ((rc = move_on(r, e))) return rc;
    r->at_out = (r->at_out + 1) % N_OUT;
    o->packet.n = 0;
    *out = &o->packet;
    return 0;
}

/* Sends what was put into the last buffer. */
static int send_on(struct runner *r, struct qn_error *e)
{
    struct runner_out *o = &r->outs[r->at_out];
    int rc = link_isend(r->out, &o->send, o->packet.p, o->packet.n, e);
    return rc ? rc : move_on(r, e);
}

/* Sends a packet as it came. */
static int pass_on(struct runner *r, const uint8_t *data, size_t n, struct qn_error *e)
{
    struct packet_out *out;
    int rc = open_out(r, &out, e);
    if (rc) return rc;
    packet_put(out, data, n);
    return send_on(r, e);
}

/* Between two pieces of a pass. */
static void tend_pass(void *arg)
{
    struct runner *r = arg;
    if (r->p.pulse) pulse_own_look(r->p.pulse, clock_ns());
    if (!r->lost_rc) r->lost_rc = move_on(r, &r->lost);
}

/* Whether a packet that has come says that the present step is not wanted. */
static bool look_for_cancel(struct runner *r)
{
    struct packet_head head;
    for (int i = 0; i < r->n_posted; i++) {
        int at = (r->first + i) % N_BUFFERS;
        if (r->receive[at].is_started) break;
        if (packet_read_head(&head, r->buffer[at], r->receive[at].n, r->p.group, NULL)) continue;
        if (head.kind == PACKET_CANCEL && head.step > r->unwanted) r->unwanted = head.step;
    }
    return r->unwanted >= r->step_no;
}

/* The same: whether the pass ends. Anything but a cancellation stays where it is until it is over. */
static bool is_unwanted(void *arg)
{
    struct runner *r = arg;
    tend_pass(r);
    return r->lost_rc || look_for_cancel(r);
}

/* ---- steps ---- */

static int write_rows(struct runner *r, struct qn_error *e)
{
    const struct step_limits *l = &r->p.limits;
    struct packet_out *out;
    int rc = open_out(r, &out, e);
    if (rc) return rc;
    packet_begin(out, PACKET_STEP, r->p.group, r->step_no);
    step_packet_put(out, &r->step, l->n_windows > 0, r->step.batch.n ? l->n_embd : 0);
    for (int i = 0; i < r->step.batch.n; i++) step_packet_put_row(out, l, forward_row(&r->forward, i));
    packet_end(out);
    return send_on(r, e);
}

/* What voices have drawn, and the logits of the other rows. */
static int write_drawn(struct runner *r, struct packet_out *out, int n_wanted, struct qn_error *e)
{
    const struct step_packet *s = &r->step;
    const size_t row = (size_t)r->p.limits.n_vocab;
    int n_logits = n_wanted;
    for (int i = 0; i < s->batch.n; i++) n_logits -= r->drawn[i];
    packet_begin_drawn(out, r->p.group, r->step_no, s->times, s->n_times, 0, n_logits);
    uint32_t n = (uint32_t)voices_draw(r->voices, s, r->logits, out);
    memcpy(out->p + PACKET_HEAD_BYTES + 8 + 4 * (size_t)s->n_times, &n, sizeof n);
    const float *logits = r->logits;
    for (int i = 0; i < s->batch.n; i++) {
        if (!s->batch.want_logits[i]) continue;
        if (!r->drawn[i]) packet_put(out, logits, row * sizeof *logits);
        logits += row;
    }
    packet_end(out);
    return send_on(r, e);
}

static int write_result(struct runner *r, struct qn_error *e)
{
    const struct step_packet *s = &r->step;
    struct packet_out *out;
    int n = 0, rc = open_out(r, &out, e);
    if (rc) return rc;
    for (int i = 0; i < s->batch.n; i++) n += s->batch.want_logits[i];
    if (r->n_drawn) return write_drawn(r, out, n, e);
    if (r->p.limits.n_logits) {
        packet_reply_logits(out, r->p.group, r->step_no, s->times, s->n_times, r->logits, n, r->p.limits.n_vocab);
        return send_on(r, e);
    }
    if (n) r->p.draw(r->p.draw_arg, r->logits, n, r->tokens);
    packet_reply_tokens(out, r->p.group, r->step_no, s->times, s->n_times, r->tokens, n);
    return send_on(r, e);
}

/* Makes a pass as slow as it has to be. */
static void take_time(struct runner *r, uint64_t t0)
{
    uint64_t least = r->p.least_ns ? t0 + r->p.least_ns(r->p.least_arg, r->step.batch.n) : 0, now;
    while ((now = clock_ns()) < least) {
        uint64_t left = least - now;
        nanosleep(&(struct timespec){.tv_nsec = left > MOST_SLEEP_NS ? MOST_SLEEP_NS : (long)left}, NULL);
        if (is_unwanted(r)) return;
    }
}

/* Returns false if the pass was abandoned. */
static bool run(struct runner *r)
{
    struct pass *pass = &r->forward.pass;
    struct step_packet *s = &r->step;
    uint64_t t0 = clock_ns();
    if (r->p.pulse) pulse_own_begin(r->p.pulse, t0);
    for (int i = 0; i < s->n_seqs; i++) r->mems[i] = &r->places[s->tables[i].place];
    pass->is_cancelled = s->can_cancel ? is_unwanted : NULL;
    pass->tend = s->can_cancel ? NULL : tend_pass;
    pass->cancel_arg = r;
    r->can_accept =
        (!s->can_cancel || !is_unwanted(r)) && forward_run_stage(&r->forward, &s->batch, r->mems, s->rows, r->logits);
    pass->is_cancelled = NULL;
    pass->tend = NULL;
    if (r->p.pulse) pulse_own_end(r->p.pulse, clock_ns(), r->can_accept);
    r->done_step = r->step_no;
    if (r->can_accept) take_time(r, t0);
    if (s->n_times < STAGE_MOST) s->times[s->n_times++] = (uint32_t)((clock_ns() - t0) / 1000);
    return r->can_accept;
}

/* Later stages are told the moves and tables of a step that this one has abandoned, because the next packet goes on
 * from them. */
static int abandon(struct runner *r, struct qn_error *e)
{
    struct packet_out *out;
    int rc = 0;
    r->step.batch.n = r->step.n_draws = 0;
    if (!model_is_last(r->p.model)) rc = write_rows(r, e);
    if (!rc) rc = open_out(r, &out, e);
    if (rc) return rc;
    packet_reply_failure(out, r->p.group, r->step_no, STEP_ABANDONED, "");
    return send_on(r, e);
}

/* A packet without rows brings moves and tables, and has no reply. */
static int do_step(struct runner *r, struct packet_in in, struct qn_error *e)
{
    int rc = step_packet_read(&r->step, &r->p.limits, in, !model_is_first(r->p.model), e);
    if (!rc) rc = check_tables(r, e);
    r->n_drawn = 0;
    if (!rc && r->voices) rc = voices_prepare(r->voices, &r->step, r->drawn, &r->n_drawn, e);
    if (rc) return rc;
    for (int i = 0; i < r->step.n_moves; i++) move(r, &r->step.moves[i]);
    for (int i = 0; i < r->step.n_seqs; i++) set_table(r, &r->step.tables[i]);
    r->can_accept = false;
    if (r->step.batch.n && !run(r)) return abandon(r, e);
    if (!model_is_last(r->p.model)) return write_rows(r, e);
    return r->step.batch.n ? write_result(r, e) : 0;
}

static int do_accept(struct runner *r, const uint8_t *data, size_t n, struct qn_error *e)
{
    const int32_t *counts;
    int n_counts, rc = packet_read_accept(&counts, &n_counts, packet_body(data, n), r->step.n_seqs, PASS_MAX_HELD, e);
    if (rc) return rc;
    if (!r->can_accept || r->done_step != r->step_no || n_counts != r->step.n_seqs)
        return error_set(e, QN_EDATA, "cluster: %d counts of rows that stay, after a step of %d sequences", n_counts,
                         r->can_accept ? r->step.n_seqs : 0);
    if (kv_pool_shape(r->kv)->state_bytes) forward_accept(&r->forward, counts);
    r->can_accept = false;
    return model_is_last(r->p.model) ? 0 : pass_on(r, data, n, e);
}

/* An order about files; every stage adds its answer to a question. */
static int do_order(struct runner *r, const uint8_t *data, size_t n, struct qn_error *e)
{
    struct packet_out *out;
    struct disk_order o;
    int rc = disk_order_read(&o, packet_body(data, n), &r->p.limits, e);
    if (rc) return rc;
    if (o.op != DISK_ASK) {
        if (r->disk) stage_disk_do(r->disk, &o);
        return model_is_last(r->p.model) ? 0 : pass_on(r, data, n, e);
    }
    stage_disk_ask(r->disk, o.number, &o.is_busy, &o.n_good);
    if ((rc = open_out(r, &out, e))) return rc;
    if (model_is_last(r->p.model))
        packet_reply_asked(out, r->p.group, r->step_no, o.is_busy, o.n_good);
    else
        disk_order_put(out, r->p.group, r->step_no, &o);
    return send_on(r, e);
}

static int handle(struct runner *r, const uint8_t *data, size_t n, struct qn_error *e)
{
    struct packet_head head;
    int rc = packet_read_head(&head, data, n, r->p.group, e);
    if (rc) return rc;
    r->step_no = head.step;
    switch (head.kind) {
    case PACKET_STEP: return do_step(r, packet_body(data, n), e);
    case PACKET_ACCEPT: return do_accept(r, data, n, e);
    case PACKET_DISK: return do_order(r, data, n, e);
    case PACKET_CANCEL: /* later stages may be at steps before this one */
        if (head.step > r->unwanted) r->unwanted = head.step;
        return model_is_last(r->p.model) ? 0 : pass_on(r, data, n, e);
    default: /* a reply of an earlier stage is the reply of all */ return pass_on(r, data, n, e);
    }
}

/* Waits for the next packet. The buffers take turns, so the packet stays while it is handled. */
static int receive(struct runner *r, const uint8_t **data, size_t *n, struct qn_error *e)
{
    struct patience wait;
    const struct link_transfer *t = &r->receive[r->first];
    int rc = r->lost_rc;
    if (rc && e) *e = r->lost;
    if (rc) return rc;
    patience_reset(&wait);
    patience_expect(&wait, EXPECT * r->gap_ns < EXPECT_NS ? EXPECT * r->gap_ns : EXPECT_NS);
    patience_usually(&wait, r->gap_ns);
    for (; t->is_started; patience_wait(&wait)) /* one that came during a pass is there */
        if ((rc = move_on(r, e))) return rc;
    r->gap_ns = patience_ns(&wait);
    *data = r->buffer[r->first];
    *n = t->n;
    r->first = (r->first + 1) % N_BUFFERS;
    r->n_posted--;
    return expect(r, e);
}

/* The last words of a stage that cannot go on. */
static void refuse(struct runner *r, const char *why)
{
    struct packet_out *out;
    struct patience wait;
    if (open_out(r, &out, NULL)) return;
    packet_reply_failure(out, r->p.group, r->step_no, STEP_FAILED, why);
    int rc = send_on(r, NULL);
    patience_reset(&wait);
    for (bool done = false; !rc && !done; patience_wait(&wait)) {
        if (!r->outs[r->at_out].send.is_started || patience_ns(&wait) > LAST_WORDS_NS) break;
        rc = link_test(&r->outs[r->at_out].send, &done, NULL);
        if (!rc && r->p.tend) rc = r->p.tend(r->p.tend_arg, NULL);
        if (atomic_load(r->stop)) rc = QN_ECANCEL;
    }
}

int runner_serve(struct runner *r, struct link *in, struct link *out, const atomic_bool *stop, struct qn_error *e)
{
    const uint8_t *data = NULL;
    size_t n = 0;
    struct qn_error why = {0};
    r->in = in;
    r->out = out;
    r->stop = stop;
    int rc = expect(r, &why);
    while (!rc && !(rc = receive(r, &data, &n, &why)))
        if ((rc = handle(r, data, n, &why)) == QN_EDATA || rc == QN_ENOMEM) refuse(r, why.msg);
    for (int i = 0; i < N_BUFFERS; i++) link_cancel(&r->receive[i]);
    for (int i = 0; i < N_OUT; i++) link_cancel(&r->outs[i].send);
    if (e) *e = why;
    return rc;
}
