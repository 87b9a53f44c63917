/* SPDX-License-Identifier: MIT
 *
 * pipeline.c: steps as packets, and what the stages answer. See pipeline.h.
 */
#include "cluster/pipeline.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "cluster/patience.h"
#include "cluster/voices.h"
#include "model/forward.h"

/* A place for a table in the stages. */
struct pipeline_place {
    const struct kv_seq *owner; /* whose table was sent last; only compared, because it may be gone */
    int32_t *pages;             /* [n_pages_each] that table */
    int n_pages;
    uint64_t used; /* the step that used it last */
};

/* A step that is under way. */
struct pipeline_step {
    uint64_t no, since_ns;
    int n_wanted, n_drawn; /* rows that want logits; tokens that are drawn at most */
    uint8_t *is_drawn;     /* [n_wanted] of [n_rows]: tokens are drawn from that row */
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
    uint32_t *draws;               /* [step_draw_numbers()] */
    int *numbers;                  /* [n_rows] the step's number of each sequence of the batch; -1: it has no rows */
    int *seqs;                     /* [n_seqs] the other way round */
    int32_t *counts;               /* [n_seqs] */
    uint64_t step_no;

    struct pipeline_step steps[STAGE_STEPS]; /* [n_steps] the oldest first */
    int n_steps;
    uint64_t unwanted; /* the stages were told that this step and those before it are not wanted */
    uint64_t told_ns;  /* when the last reply came */
    uint64_t usual_ns; /* that the head waited for it */

    struct packet_out out;
    struct link_transfer send, receive;
    size_t in_cap;
    uint8_t *in[STAGE_STEPS + 2]; /* [depth + 2] replies: as many as can come while the head does something else */
    size_t n_in[STAGE_STEPS + 2]; /* their bytes */
    int first, n_come;            /* those that have come, in order; the next one is being filled */
    bool is_asked, is_answered;   /* DISK_ASK was sent, and its answer was taken: */
    uint32_t is_busy, n_good;
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
    p->draws = mem_calloc(step_draw_numbers(l) + 1, sizeof *p->draws);
    for (int i = 0; i < p->p.depth; i++)
        if (!(p->steps[i].is_drawn = mem_calloc((size_t)l->n_rows, 1)))
            return error_nomem(e, "the rows of a step", (size_t)l->n_rows);
    if (!p->draws || !p->places || !p->lists || !p->numbers || !p->seqs || !p->counts)
        return error_nomem(e, "the tables of stages", 2 * n * each * sizeof *p->lists);
    for (size_t i = 0; i < n; i++)
        if (!(p->places[i].pages = mem_calloc(each, sizeof *p->places->pages)))
            return error_nomem(e, "a page table", each * sizeof *p->places->pages);
    return 0;
}

static int n_in(const struct pipeline *p) { return p->p.depth + 2; }

static int open_packets(struct pipeline *p, struct qn_error *e)
{
    const struct step_limits *l = &p->p.limits;
    p->out.cap = step_packet_bytes(l);
    if (!p->out.cap) return error_set(e, QN_EUSAGE, "cluster: steps of %d rows are too large for packets", l->n_rows);
    p->in_cap = packet_reply_bytes(l->n_rows, l->n_logits, l->n_vocab);
    p->out.p = mem_alloc(p->out.cap);
    if (!p->out.p) return error_nomem(e, "a packet", p->out.cap);
    for (int i = 0; i < n_in(p); i++)
        if (!(p->in[i] = mem_alloc(p->in_cap))) return error_nomem(e, "a packet", p->in_cap);
    return 0;
}

/* A receive is under way all the time, because a stage may say at any time that it cannot go on. */
static int listen_on(struct pipeline *p)
{
    if (p->n_come == n_in(p) || p->receive.is_started) return 0;
    uint8_t *to = p->in[(p->first + p->n_come) % n_in(p)];
    return p->rc = link_irecv(p->p.from_last, &p->receive, to, p->in_cap, &p->broken);
}

int pipeline_new(struct pipeline **out, const struct pipeline_params *params, struct qn_error *e)
{
    struct pipeline *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "a pipeline", sizeof *p);
    p->p = *params;
    if (p->p.depth < 1) p->p.depth = 1;
    assert(p->p.depth <= STAGE_STEPS);
    struct step_limits written = p->p.limits;
    written.rounds_rows = 0; /* the head's steps have no residual rows */
    int rc = step_packet_init(&p->step, &written, e);
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
    mem_free(p->draws);
    for (int i = 0; i < p->p.depth; i++) mem_free(p->steps[i].is_drawn);
    mem_free(p->moves);
    mem_free(p->out.p);
    for (int i = 0; i < n_in(p); i++) mem_free(p->in[i]);
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

/* Whether it is a reply to the oldest step under way. A stage that failed may be behind it. */
static int check_step(struct pipeline *p, const struct packet_head *head, const struct packet_reply *reply)
{
    if (reply->outcome == STEP_FAILED) return error_set(&p->broken, QN_EIO, "a stage: %s", reply->text);
    if (reply->outcome == STEP_ASKED)
        return p->is_asked ? 0 : error_set(&p->broken, QN_EDATA, "cluster: an answer about files, which nobody asked");
    if (!p->n_steps)
        return error_set(&p->broken, QN_EDATA, "cluster: a reply to step %llu, which no step waits for",
                         (unsigned long long)head->step);
    if (head->step == p->steps[0].no) return 0;
    return error_set(&p->broken, QN_EDATA, "cluster: a reply to step %llu instead of step %llu",
                     (unsigned long long)head->step, (unsigned long long)p->steps[0].no);
}

/* Reads the oldest packet that came. */
static int read_reply(struct pipeline *p, struct packet_reply *reply)
{
    const struct step_limits *l = &p->p.limits;
    struct packet_head head;
    const uint8_t *data = p->in[p->first];
    size_t n = p->n_in[p->first];
    int most = l->n_logits ? l->n_logits : l->n_rows;
    p->rc = packet_read_head(&head, data, n, p->p.group, &p->broken);
    if (!p->rc && head.kind != PACKET_REPLY)
        p->rc = error_set(&p->broken, QN_EDATA, "cluster: a packet of kind %d instead of a reply", head.kind);
    if (!p->rc) p->rc = packet_read_reply(reply, packet_body(data, n), most, l->n_vocab, &p->broken);
    if (!p->rc) p->rc = check_step(p, &head, reply);
    return p->rc;
}

/* Gives back the buffer of the oldest packet. */
static int drop_reply(struct pipeline *p)
{
    p->first = (p->first + 1) % n_in(p);
    p->n_come--;
    return listen_on(p);
}

/* Moves on what is under way, as far as that can be done now. The first stage may take a packet only after this end has
 * taken a reply, so neither is waited for alone. */
static int move_on(struct pipeline *p)
{
    bool done = false;
    if (p->rc) return p->rc;
    if (p->receive.is_started) p->rc = link_test(&p->receive, &done, &p->broken);
    if (done) {
        p->n_in[(p->first + p->n_come++) % n_in(p)] = p->receive.n;
        p->told_ns = clock_ns();
        listen_on(p);
    }
    if (!p->rc && p->send.is_started) p->rc = link_test(&p->send, &done, &p->broken);
    return p->rc;
}

/* Takes the answer to DISK_ASK, if it is the oldest packet that came. */
static int take_answer(struct pipeline *p)
{
    struct packet_reply reply;
    uint32_t outcome = 0;
    if (!p->n_come || p->n_in[p->first] < PACKET_HEAD_BYTES + sizeof outcome) return p->rc;
    memcpy(&outcome, p->in[p->first] + PACKET_HEAD_BYTES, sizeof outcome);
    if (p->rc || outcome != STEP_ASKED || read_reply(p, &reply)) return p->rc;
    p->is_asked = false;
    p->is_answered = true;
    p->is_busy = reply.is_busy;
    p->n_good = reply.n_good;
    return drop_reply(p);
}

/* The reason before its consequence: a stage that fails says why, and closes its links. */
static int fail_for_reason(struct pipeline *p)
{
    for (struct packet_reply reply; p->n_come; p->n_come--, p->first = (p->first + 1) % n_in(p)) {
        const uint8_t *data = p->in[p->first];
        size_t n = p->n_in[p->first];
        struct packet_head head;
        if (packet_read_head(&head, data, n, p->p.group, NULL) || head.kind != PACKET_REPLY) continue;
        if (packet_read_reply(&reply, packet_body(data, n), p->p.limits.n_rows, p->p.limits.n_vocab, NULL)) continue;
        if (reply.outcome == STEP_FAILED) p->rc = error_set(&p->broken, QN_EIO, "a stage: %s", reply.text);
    }
    return p->rc;
}

static int late(struct pipeline *p, const char *what, uint64_t step)
{
    return p->rc = error_set(&p->broken, QN_EIO, "cluster: %s step %llu within %llu ms", what, (unsigned long long)step,
                             (unsigned long long)(p->p.deadline_ns / 1000000));
}

/* What came while no step was under way, or before the next one is sent, can only be a failure. */
static int check_idle(struct pipeline *p)
{
    struct packet_reply reply;
    if (take_answer(p)) return p->rc;
    if (p->n_come > p->n_steps + p->is_asked && !read_reply(p, &reply))
        p->rc = error_set(&p->broken, QN_EDATA, "cluster: a reply to a step before the step was sent");
    return p->rc;
}

/* Waits until the last packet has been sent: then the next one may be put together. */
static int open_out(struct pipeline *p)
{
    struct patience wait;
    patience_reset(&wait);
    while (!move_on(p) && !check_idle(p) && p->send.is_started) {
        if (patience_ns(&wait) > p->p.deadline_ns) return late(p, "the first stage did not take", p->step_no);
        patience_wait(&wait);
    }
    return p->rc ? fail_for_reason(p) : 0;
}

/* Begins to send p->out. */
static int send_out(struct pipeline *p)
{
    if ((p->rc = link_isend(p->p.to_first, &p->send, p->out.p, p->out.n, &p->broken))) return fail_for_reason(p);
    return move_on(p) ? fail_for_reason(p) : 0;
}

static int check_rows(struct pipeline *p, const struct packet_reply *reply)
{
    const struct pipeline_step *s = &p->steps[0];
    enum step_outcome good = s->n_drawn ? STEP_DRAWN : p->p.limits.n_logits ? STEP_LOGITS : STEP_DONE;
    int n = s->n_wanted;
    for (int i = 0; i < s->n_wanted; i++) n -= s->is_drawn[i];
    if (reply->outcome == STEP_ABANDONED || (reply->outcome == good && reply->n_tokens == n)) return 0;
    return p->rc = error_set(&p->broken, QN_EDATA, "cluster: step %llu ended with outcome %d and %d rows instead of %d",
                             (unsigned long long)s->no, reply->outcome, reply->n_tokens, n);
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

static int send_moves(struct pipeline *p, const struct step_packet *s)
{
    if (open_out(p)) return p->rc;
    packet_begin(&p->out, PACKET_STEP, p->p.group, p->step_no);
    step_packet_put(&p->out, s, p->p.limits.n_windows > 0, 0);
    packet_end(&p->out);
    return send_out(p);
}

/* Sends moves in packets of their own, until `left` or fewer are left. */
static int send_early(struct pipeline *p, int left, int *sent)
{
    struct step_packet moves = {0};
    for (*sent = 0; p->n_moves - *sent > left; *sent += moves.n_moves) {
        int n = p->n_moves - *sent, most = p->p.limits.n_moves;
        moves.moves = p->moves + *sent;
        moves.n_moves = n < most ? n : most;
        if (send_moves(p, &moves)) return p->rc;
    }
    return 0;
}

/* Sends the step with the last of the moves; those that it has no room for go ahead in packets of their own. */
static int send_step(struct pipeline *p)
{
    int sent, n = p->n_moves;
    if (send_early(p, p->p.limits.n_moves, &sent)) return p->rc;
    p->step.n_moves = n - sent;
    p->step.moves = p->step.n_moves ? p->moves + sent : NULL;
    p->n_moves = 0;
    return send_moves(p, &p->step);
}

/* Writes the draws for which there is room, and marks their rows. A row is drawn from by all of its answers, or none.
 */
static void put_draws(struct pipeline *p, struct pipeline_step *s, const struct stage_step *in)
{
    size_t cap = step_draw_numbers(&p->p.limits), n = 0;
    memset(s->is_drawn, 0, (size_t)p->p.limits.n_rows);
    s->n_wanted = s->n_drawn = 0;
    for (int i = 0, end; i < in->n_draws; i = end) {
        const struct stage_draw *first = &in->draws[i];
        size_t more = n, k = 1;
        int n_tokens = 0;
        for (end = i; end < in->n_draws && in->draws[end].row == first->row; end++, more += k) {
            if (k) k = voices_put(p->draws + more, cap - more, &in->draws[end], p->p.limits.n_vocab);
            n_tokens += in->draws[end].n;
        }
        for (int d = i; d < end; d++) *in->draws[d].is_put = k > 0;
        if (!k) continue;
        n = more;
        s->n_drawn += n_tokens;
        memset(s->is_drawn + first->row, 1, (size_t)first->n);
    }
    for (int i = 0; i < in->batch->n; i++) /* of the rows that want logits only; the place is never after i */
        if (in->batch->want_logits[i]) s->is_drawn[s->n_wanted++] = s->is_drawn[i];
    p->step.draws = p->draws;
    p->step.n_draws = (int)n;
}

int pipeline_start(struct pipeline *p, const struct stage_step *in, bool can_cancel, struct qn_error *e)
{
    struct pipeline_step *s = &p->steps[p->n_steps];
    const struct batch *b = in->batch;
    assert(b->n >= 1 && b->n <= p->p.limits.n_rows && p->n_steps < p->p.depth);
    if (p->rc) return fail(p, e);
    p->step_no++;
    put_batch(p, b, in->mem);
    put_draws(p, s, in);
    /* States are copied only before passes with several rows of a sequence (states.h), and every stage has to be able
     * to go back. */
    p->step.can_cancel = can_cancel && (!p->p.limits.n_states || b->n > p->step.n_seqs);
    if (send_step(p)) return fail(p, e);
    s->no = p->step_no;
    s->since_ns = clock_ns();
    p->n_steps++;
    return 0;
}

static void copy_rows(void *to, const void *from, int n, size_t bytes)
{
    if (n && to) memcpy(to, from, (size_t)n * bytes);
}

/* Takes the tokens that were drawn, and puts the logits of other rows in their places. */
static int take_drawn(struct pipeline *p, const struct pipeline_step *s, const struct packet_reply *reply,
                      struct stage_result *out)
{
    const size_t row = (size_t)p->p.limits.n_vocab;
    const float *logits = reply->logits;
    struct packet_in in = {reply->drawn, 4 * (size_t)reply->n_drawn};
    if ((p->rc = voices_read(out->drawn, s->n_drawn, in, p->p.limits.n_vocab, &p->broken))) return p->rc;
    for (int i = 0; i < s->n_wanted; i++) {
        if (s->is_drawn[i]) continue;
        copy_rows(out->logits + row * (size_t)i, logits, 1, row * sizeof *logits);
        logits += row;
    }
    return 0;
}

/* Takes the oldest reply. */
static int take(struct pipeline *p, struct stage_result *out, struct qn_error *e)
{
    struct packet_reply reply;
    if (read_reply(p, &reply) || check_rows(p, &reply)) return fail(p, e);
    struct pipeline_step step = p->steps[0];
    uint64_t no = step.no;
    if (reply.outcome == STEP_DRAWN && take_drawn(p, &step, &reply, out)) return fail(p, e);
    memmove(p->steps, p->steps + 1, (size_t)--p->n_steps * sizeof *p->steps);
    p->steps[p->n_steps] = step; /* for its list of rows */
    out->n_times = reply.n_times;
    out->n_logits = reply.logits ? reply.n_tokens : 0;
    copy_rows(out->times, reply.times, reply.n_times, sizeof *reply.times);
    if (reply.outcome == STEP_DONE) copy_rows(out->tokens, reply.tokens, reply.n_tokens, sizeof *reply.tokens);
    if (reply.outcome == STEP_LOGITS)
        copy_rows(out->logits, reply.logits, reply.n_tokens, (size_t)p->p.limits.n_vocab * sizeof *reply.logits);
    if (drop_reply(p)) return fail(p, e);
    if (reply.outcome != STEP_ABANDONED) return 0;
    if (no == p->step_no) remember(p, (struct step_move){.what = MOVE_UNDO});
    return error_set(e, QN_ECANCEL, "cluster: step %llu was cancelled", (unsigned long long)no);
}

int pipeline_finish(struct pipeline *p, bool (*is_needed)(void *arg), void *arg, struct stage_result *out,
                    struct qn_error *e)
{
    struct patience wait;
    patience_reset(&wait);
    patience_expect(&wait, p->p.deadline_ns); /* a step is under way */
    patience_usually(&wait, p->usual_ns);
    assert(p->rc || p->n_steps);
    while (!move_on(p) && !take_answer(p) && !p->n_come) {
        uint64_t since = p->told_ns > p->steps[0].since_ns ? p->told_ns : p->steps[0].since_ns;
        if (is_needed && is_needed(arg)) return error_set(e, QN_EBUSY, "cluster: the stages are at work");
        if (clock_ns() - since > p->p.deadline_ns) late(p, "no stage answered", p->steps[0].no);
        patience_wait(&wait);
    }
    if (p->rc) {
        fail_for_reason(p);
        return fail(p, e);
    }
    p->usual_ns = patience_ns(&wait);
    return take(p, out, e);
}

int pipeline_cancel(struct pipeline *p, struct qn_error *e)
{
    if (p->rc) return fail(p, e);
    if (!p->n_steps || p->unwanted == p->step_no) return 0;
    if (open_out(p)) return fail(p, e);
    packet_begin(&p->out, PACKET_CANCEL, p->p.group, p->step_no);
    packet_end(&p->out);
    p->unwanted = p->step_no;
    return send_out(p) ? fail(p, e) : 0;
}

int pipeline_run(struct pipeline *p, const struct batch *b, struct kv_seq *const *mem, bool (*is_cancelled)(void *arg),
                 void *arg, qn_token *tokens, float *logits, struct qn_error *e)
{
    struct stage_result out = {.tokens = tokens, .logits = logits};
    int rc = pipeline_start(p, &(struct stage_step){b, mem, NULL, 0}, is_cancelled != NULL, e);
    if (rc) return rc;
    if (!p->step.can_cancel) is_cancelled = NULL;
    while ((rc = pipeline_finish(p, is_cancelled, arg, &out, e)) == QN_EBUSY) {
        is_cancelled = NULL;
        if ((rc = pipeline_cancel(p, e))) return rc;
    }
    return rc;
}

int pipeline_accept(struct pipeline *p, const int32_t *n_accepted, struct qn_error *e)
{
    const struct batch *b = &p->step.batch;
    assert(!p->n_steps);
    if (p->rc || open_out(p)) return fail(p, e);
    memset(p->counts, 0, (size_t)p->step.n_seqs * sizeof *p->counts);
    for (int i = 0; i < b->n; i++)
        if (b->held[i]) p->counts[b->seq[i]] = n_accepted[p->seqs[b->seq[i]]];
    packet_accept(&p->out, p->p.group, p->step_no, p->counts, p->step.n_seqs);
    return send_out(p) ? fail(p, e) : 0;
}

int pipeline_order(struct pipeline *p, const struct disk_order *o, struct qn_error *e)
{
    bool touches_pages = o->op == DISK_WRITE || o->op == DISK_READ;
    int sent;
    assert(o->op != DISK_ASK || !p->is_asked);
    if (p->rc || (touches_pages && send_early(p, 0, &sent))) return fail(p, e);
    if (touches_pages) p->n_moves = 0;
    if (open_out(p)) return fail(p, e);
    disk_order_put(&p->out, p->p.group, p->step_no, o);
    if (o->op == DISK_ASK) p->is_asked = true;
    if (o->op == DISK_ASK) p->is_answered = false;
    return send_out(p) ? fail(p, e) : 0;
}

int pipeline_answer(struct pipeline *p, uint32_t *is_busy, uint32_t *n_good, struct qn_error *e)
{
    if (!p->rc && !move_on(p)) take_answer(p);
    if (p->rc) return fail_for_reason(p), fail(p, e);
    if (!p->is_answered) return error_set(e, QN_EBUSY, "cluster: the stages have not answered yet");
    *is_busy = p->is_busy;
    *n_good = p->n_good;
    return 0;
}

int pipeline_round(struct pipeline *p, uint64_t *ns, struct qn_error *e)
{
    struct patience wait;
    uint32_t is_busy, n_good;
    uint64_t since = clock_ns();
    int rc = pipeline_order(p, &(struct disk_order){.op = DISK_ASK}, e);
    patience_reset(&wait);
    patience_expect(&wait, p->p.deadline_ns);
    for (; !rc && (rc = pipeline_answer(p, &is_busy, &n_good, e)) == QN_EBUSY; rc = 0) {
        if (patience_ns(&wait) > p->p.deadline_ns) return late(p, "no stage answered after", p->step_no), fail(p, e);
        patience_wait(&wait);
    }
    *ns = clock_ns() - since;
    return rc;
}
