/* SPDX-License-Identifier: MIT
 *
 * runner.c: runs the steps of one stage. See runner.h.
 */
#include "cluster/runner.h"

#include <assert.h>
#include <string.h>

#define N_BUFFERS 2 /* of packets that come: one is at work while the next arrives */

struct runner {
    struct runner_params p;
    struct forward forward;
    struct kv_pool *kv;
    struct kv_seq *places; /* [limits.n_seqs] the tables that were sent; their pages are not referenced */
    struct kv_seq **mems;  /* [limits.n_seqs] those of the present step */
    struct step_packet step;
    float *logits;    /* [limits.n_logits or n_rows][n_vocab], in the last stage */
    qn_token *tokens; /* [limits.n_rows], in the last stage */
    uint64_t done_step;
    bool can_accept; /* the last packet's step was completed here: its rows may be cut or taken back */

    /* packets */
    size_t cap;
    uint8_t *buffer[N_BUFFERS];
    struct packet_out reply;
    struct link *in, *out;
    struct link_transfer receive, send;
    int next; /* the buffer that is being filled */
    const atomic_bool *stop;

    /* the pass in progress */
    uint64_t step_no;
    bool is_cancelled;
    int lost_rc; /* the link failed meanwhile, because of `lost` */
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
}

static int open_places(struct runner *r, struct qn_error *e)
{
    const struct step_limits *l = &r->p.limits;
    const struct kv_shape *shape = kv_pool_shape(r->kv);
    size_t n = (size_t)l->n_seqs, each = (size_t)l->n_pages_each;
    r->places = mem_calloc(n, sizeof *r->places);
    r->mems = mem_calloc(n, sizeof *r->mems);
    if (!r->places || !r->mems) return error_nomem(e, "a stage's sequences", n * sizeof *r->places);
    for (int i = 0; i < l->n_seqs; i++) {
        struct kv_seq *m = &r->places[i];
        *m = (struct kv_seq){.pool = r->kv, .max_pages = l->n_pages_each};
        m->pages = mem_calloc(each * (shape->n_layer_win ? 2 : 1), sizeof *m->pages);
        if (!m->pages) return error_nomem(e, "a page table", each * sizeof *m->pages);
        if (shape->n_layer_win) m->windows = m->pages + each;
    }
    return 0;
}

static int open_buffers(struct runner *r, struct qn_error *e)
{
    const struct step_limits *l = &r->p.limits;
    size_t rows = (size_t)l->n_rows;
    r->cap = step_packet_bytes(l);
    if (!r->cap) return error_set(e, QN_EUSAGE, "cluster: steps of %d rows are too large for packets", l->n_rows);
    for (int i = 0; i < N_BUFFERS; i++)
        if (!(r->buffer[i] = mem_alloc(r->cap))) return error_nomem(e, "a packet", r->cap);
    size_t reply = packet_reply_bytes(l->n_rows, l->n_logits, l->n_vocab);
    if (!model_is_last(r->p.model) || reply < r->cap) reply = r->cap;
    if (reply > PACKET_MAX_BYTES)
        return error_set(e, QN_EUSAGE, "cluster: replies of %d rows of logits are too large for packets", l->n_logits);
    r->reply = (struct packet_out){.p = mem_alloc(reply), .cap = reply};
    if (!r->reply.p) return error_nomem(e, "a packet", reply);
    if (!model_is_last(r->p.model)) return 0;
    size_t n_logits = l->n_logits ? (size_t)l->n_logits : rows;
    r->logits = mem_alloc(n_logits * (size_t)l->n_vocab * sizeof *r->logits);
    r->tokens = mem_calloc(rows, sizeof *r->tokens);
    if (r->logits && r->tokens) return 0;
    return error_nomem(e, "a stage's logits", n_logits * (size_t)l->n_vocab * sizeof *r->logits);
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
    if (!rc) rc = step_packet_init(&r->step, l, e);
    if (!rc) rc = open_places(r, e);
    if (!rc) rc = open_buffers(r, e);
    if (rc)
        runner_free(r);
    else
        *out = r;
    return rc;
}

void runner_free(struct runner *r)
{
    if (!r) return;
    for (int i = 0; r->places && i < r->p.limits.n_seqs; i++) mem_free(r->places[i].pages);
    mem_free(r->places);
    mem_free(r->mems);
    mem_free(r->logits);
    mem_free(r->tokens);
    for (int i = 0; i < N_BUFFERS; i++) mem_free(r->buffer[i]);
    mem_free(r->reply.p);
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

static int expect(struct runner *r, struct qn_error *e)
{
    return link_irecv(r->in, &r->receive, r->buffer[r->next], r->cap, e);
}

/* Between two questions of a wait. */
static int must_stop(struct runner *r, struct qn_error *e)
{
    if (atomic_load(r->stop)) return error_set(e, QN_ECANCEL, "cluster: the stage was stopped");
    return r->p.tend ? r->p.tend(r->p.tend_arg, e) : 0;
}

/* Sends the reply buffer, and waits until it has been sent. */
static int send_on(struct runner *r, struct qn_error *e)
{
    struct patience wait;
    int rc = link_isend(r->out, &r->send, r->reply.p, r->reply.n, e);
    patience_reset(&wait);
    for (bool done = false; !rc && !done;) {
        if ((rc = link_test(&r->send, &done, e)) || done) break;
        if ((rc = must_stop(r, e))) {
            link_cancel(&r->send);
            return rc;
        }
        patience_wait(&wait);
    }
    return rc;
}

/* Sends a packet as it came. */
static int pass_on(struct runner *r, const uint8_t *data, size_t n, struct qn_error *e)
{
    r->reply.n = 0;
    packet_put(&r->reply, data, n);
    return send_on(r, e);
}

/* Between two pieces of a pass: whether the packet that comes next ends it. Anything else stays where it is until the
 * pass is over. */
static bool is_unwanted(void *arg)
{
    struct runner *r = arg;
    struct packet_head head;
    bool done;
    if (r->is_cancelled) return true;
    if ((r->lost_rc = must_stop(r, &r->lost))) return r->is_cancelled = true;
    if (!r->receive.is_started) return false;
    if ((r->lost_rc = link_test(&r->receive, &done, &r->lost))) return r->is_cancelled = true;
    if (!done) return false;
    if (packet_read_head(&head, r->buffer[r->next], r->receive.n, r->p.group, NULL)) return false;
    r->is_cancelled = head.kind == PACKET_CANCEL && head.step == r->step_no;
    return r->is_cancelled;
}

/* ---- steps ---- */

static void write_rows(struct runner *r)
{
    const struct step_limits *l = &r->p.limits;
    packet_begin(&r->reply, PACKET_STEP, r->p.group, r->step_no);
    step_packet_put(&r->reply, &r->step, l->n_windows > 0, r->step.batch.n ? l->n_embd : 0);
    for (int i = 0; i < r->step.batch.n; i++)
        packet_put(&r->reply, forward_row(&r->forward, i), (size_t)l->n_embd * sizeof(float));
    packet_end(&r->reply);
}

static void write_result(struct runner *r)
{
    int n = 0;
    for (int i = 0; i < r->step.batch.n; i++) n += r->step.batch.want_logits[i];
    if (r->p.limits.n_logits) {
        packet_reply_logits(&r->reply, r->p.group, r->step_no, r->logits, n, r->p.limits.n_vocab);
        return;
    }
    if (n) r->p.draw(r->p.draw_arg, r->logits, n, r->tokens);
    packet_reply_tokens(&r->reply, r->p.group, r->step_no, r->tokens, n);
}

static bool run(struct runner *r)
{
    struct pass *pass = &r->forward.pass;
    for (int i = 0; i < r->step.n_seqs; i++) r->mems[i] = &r->places[r->step.tables[i].place];
    r->is_cancelled = false;
    pass->is_cancelled = r->step.can_cancel ? is_unwanted : NULL;
    pass->cancel_arg = r;
    r->can_accept = forward_run_stage(&r->forward, &r->step.batch, r->mems, r->step.rows, r->logits);
    pass->is_cancelled = NULL;
    r->done_step = r->step_no;
    return r->can_accept;
}

/* Later stages are told the moves and tables of a step that this one has abandoned, because the next packet goes on
 * from them. */
static int abandon(struct runner *r, struct qn_error *e)
{
    int rc = 0;
    r->step.batch.n = 0;
    if (!model_is_last(r->p.model)) {
        write_rows(r);
        rc = send_on(r, e);
    }
    packet_reply_failure(&r->reply, r->p.group, r->step_no, STEP_ABANDONED, "");
    return rc ? rc : send_on(r, e);
}

/* A packet without rows brings moves and tables, and has no reply. */
static int do_step(struct runner *r, struct packet_in in, struct qn_error *e)
{
    int rc = step_packet_read(&r->step, &r->p.limits, in, !model_is_first(r->p.model), e);
    if (!rc) rc = check_tables(r, e);
    if (rc) return rc;
    for (int i = 0; i < r->step.n_moves; i++) move(r, &r->step.moves[i]);
    for (int i = 0; i < r->step.n_seqs; i++) set_table(r, &r->step.tables[i]);
    r->can_accept = false;
    if (r->step.batch.n && !run(r)) return abandon(r, e);
    if (!model_is_last(r->p.model))
        write_rows(r);
    else if (r->step.batch.n)
        write_result(r);
    else
        return 0;
    return send_on(r, e);
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

static int handle(struct runner *r, const uint8_t *data, size_t n, struct qn_error *e)
{
    struct packet_head head;
    int rc = packet_read_head(&head, data, n, r->p.group, e);
    if (rc) return rc;
    r->step_no = head.step;
    switch (head.kind) {
    case PACKET_STEP: return do_step(r, packet_body(data, n), e);
    case PACKET_ACCEPT: return do_accept(r, data, n, e);
    case PACKET_CANCEL: /* too late here, but perhaps not for a later stage */
        return model_is_last(r->p.model) || r->is_cancelled ? 0 : pass_on(r, data, n, e);
    default: /* a reply of an earlier stage is the reply of all */ return pass_on(r, data, n, e);
    }
}

/* Waits for the next packet. The buffers take turns, so the packet stays while it is handled. */
static int receive(struct runner *r, const uint8_t **data, size_t *n, struct qn_error *e)
{
    struct patience wait;
    int rc = r->lost_rc;
    if (rc && e) *e = r->lost;
    if (rc) return rc;
    patience_reset(&wait);
    /* A packet that came during a pass is done already. */
    for (bool done = !r->receive.is_started; !done;) {
        if ((rc = link_test(&r->receive, &done, e))) return rc;
        if (done) break;
        if ((rc = must_stop(r, e))) return rc;
        patience_wait(&wait);
    }
    *data = r->buffer[r->next];
    *n = r->receive.n;
    r->next = (r->next + 1) % N_BUFFERS;
    return expect(r, e);
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
    while (!rc && !(rc = receive(r, &data, &n, &why))) {
        if ((rc = handle(r, data, n, &why)) != QN_EDATA) continue;
        packet_reply_failure(&r->reply, r->p.group, r->step_no, STEP_FAILED, why.msg);
        send_on(r, NULL);
    }
    link_cancel(&r->receive);
    if (e) *e = why;
    return rc;
}
