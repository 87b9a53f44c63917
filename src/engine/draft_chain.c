/* SPDX-License-Identifier: MIT
 *
 * draft_chain.c: the proposals of a draft model: which rows its passes have, and where the chains end. See
 * draft_model.h.
 *
 * The first pass of a call reads what is new. After it, the sequences whose last token was read have a chain each, and
 * every further pass makes the chains longer by one token.
 */
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "engine/core/pace.h"
#include "engine/draft_model_impl.h"

#define FEW 64 /* new tokens that are read at once: those of a proposal, of a short prompt, of a pause */

/* Reading a long prompt for the first time. If it takes as long as a few steps of the target, it pays after a few more.
 * Otherwise the answer may end before it pays, so it must cost next to nothing. */
#define SOON       4          /* steps of the target */
#define SOON_PART  0.25       /* of a step's time */
#define SLOW_PART  (1.0 / 64) /* the same */
#define LEAST_SOON 4          /* rows: more than the token that a step brings */
#define LEAST_SLOW 32         /* rows: a pass with fewer spends its time on reading weights */
#define MOST_STEP  1.0        /* seconds between calls that count as a step */
#define IDLE       4          /* usual steps: a longer time between calls was not spent on a step */
#define ROW_WEIGHT 0.25       /* weight of the last pass in the mean of row_s, and of the last step in that of step_s */

/* ---- what a sequence holds ---- */

/* Forgets everything about a sequence. It keeps its place in the list. */
static void forget(struct draft_seq *s)
{
    kv_seq_truncate(&s->memory, 0);
    s->n_known = s->n_seen = s->n_proposed = 0;
    s->n_copied = -1;
}

/* Goes back to the first n slots, or further if it has to. */
static void go_back(struct draft_seq *s, int n)
{
    if (!s->copy) {
        kv_seq_truncate(&s->memory, kv_seq_whole(&s->memory, n));
    } else if (s->n_copied >= 0 && s->n_copied <= n) {
        kv_seq_exchange(&s->memory, s->n_copied, &s->copy);
        s->n_copied = -1;
    } else {
        forget(s);
    }
}

/* Compares what was proposed with what came. At least the last token is then left to be read. */
static void compare(struct draft_seq *s, const struct draft *p)
{
    int n = s->n_known, end = s->memory.n_slots;
    while (n < end && n < p->n_tokens - 1 && s->proposed[n - s->n_known] == p->tokens[n]) n++;
    if (n < end) go_back(s, n);
    s->n_known = s->memory.n_slots;
    s->n_seen = s->n_proposed = 0;
}

/* The target has no new token, because its step was abandoned: the last proposal still holds. */
static bool repeat(const struct draft_seq *s, struct draft *p)
{
    if (s->n_seen != p->n_tokens) return false;
    p->n = s->n_proposed < s->most ? s->n_proposed : s->most;
    memcpy(p->proposed, s->proposed, (size_t)p->n * sizeof *p->proposed);
    memcpy(p->sureness, s->sureness, (size_t)p->n);
    return true;
}

static int n_new(const struct draft *p)
{
    const struct draft_seq *s = p->seq;
    return p->n_tokens - s->memory.n_slots;
}

/* Whether the draft model knows the next n tokens. If it does not, it can never continue the sequence. */
static bool is_known(const struct draft_model *d, const struct draft *p, int n)
{
    struct draft_seq *s = p->seq;
    for (int i = s->memory.n_slots; n-- > 0; i++)
        s->is_foreign |= p->tokens[i] < 0 || p->tokens[i] >= d->model->hp.n_vocab;
    if (s->is_foreign) forget(s);
    return !s->is_foreign;
}

/* ---- room ---- */

/* Takes the place in the cache from the sequence that nobody wanted proposals for the longest. False: there is none. */
static bool evict(const struct draft_model *d)
{
    struct draft_seq *oldest = NULL;
    for (struct draft_seq *s = d->open; s; s = s->next)
        if (s->used < d->n_calls && s->memory.n_pages && (!oldest || s->used < oldest->used)) oldest = s;
    if (oldest) forget(oldest);
    return oldest != NULL;
}

/* Makes slots up to n_slots writable. False: there is no room, and the sequence is forgotten. */
static bool reserve(const struct draft_model *d, struct draft_seq *s, int n_slots)
{
    while (kv_seq_reserve(&s->memory, n_slots, NULL) || kv_seq_open(&s->memory, s->memory.n_slots, n_slots, NULL)) {
        if (evict(d)) continue;
        forget(s);
        return false;
    }
    return true;
}

/* Returns true if a sequence that is far behind can be read to its end. If it is begun without that, two of them could
 * take the pages from each other for ever. */
static bool has_room(const struct draft_model *d, const struct draft_seq *s, int n_slots)
{
    int slots = kv_pool_shape(d->kv)->page_slots, free = kv_pool_n_free(d->kv);
    for (const struct draft_seq *o = d->open; o; o = o->next)
        if (o->used < d->n_calls) free += o->memory.n_pages;
    return (n_slots + slots - 1) / slots - s->memory.n_pages <= free;
}

/* ---- a pass ---- */

static void clear(struct draft_model *d)
{
    batch_clear(&d->batch);
    d->n_parts = 0;
}

/* Adds n rows of a sequence's new tokens. The last one has logits if it is the sequence's last token. */
static void add_new(struct draft_model *d, struct draft *p, int n)
{
    struct draft_seq *s = p->seq;
    int from = s->memory.n_slots;
    d->memories[d->n_parts] = &s->memory;
    d->parts[d->n_parts] = (struct draft_part){.draft = p, .n = n, .chance = 1};
    for (int i = from; i < from + n; i++) batch_add(&d->batch, p->tokens[i], i, d->n_parts, i == p->n_tokens - 1);
    d->n_parts++;
}

/* Runs the batch. False: some of the weights could not be read, so nothing that the pass computed is worth anything. */
static bool run(struct draft_model *d)
{
    forward_run(&d->forward, &d->batch, d->memories, d->logits);
    for (int i = 0; i < d->n_parts; i++) kv_seq_extend(d->memories[i], d->memories[i]->n_slots + d->parts[i].n);
    unsigned n_lost = map_n_lost();
    if (n_lost == d->n_lost) return true;
    d->n_lost = n_lost;
    d->is_lost = weights_are_lost(d->model->weights);
    if (d->is_lost)
        log_at(LOG_WARN, "the draft model cannot be used any more: its file became shorter, or its disk failed: '%s'",
               weights_path(d->model->weights));
    return !d->is_lost;
}

/* Drops the parts that have no logits; the rows of logits are in the order of the others. */
static void keep_read(struct draft_model *d)
{
    int n = 0;
    for (int i = 0; i < d->n_parts; i++) {
        struct draft_seq *s = d->parts[i].draft->seq;
        s->n_known = s->memory.n_slots;
        if (s->n_known != d->parts[i].draft->n_tokens) continue;
        s->n_seen = s->n_known;
        d->parts[n++] = d->parts[i];
    }
    d->n_parts = n;
}

/* ---- picking ---- */

/* Members of the team pick tokens of every nth part. */
static void pick(void *arg, int ith, int nth)
{
    struct draft_model *d = arg;
    const struct kernels *k = &d->forward.pass.kt;
    void *scratch = d->forward.pass.scratch + (size_t)ith * KERNEL_SCRATCH_BYTES;
    int n = d->model->hp.n_vocab;
    for (int i = ith; i < d->n_parts; i += nth) {
        float *logits = d->logits + (size_t)i * (size_t)n;
        d->parts[i].token = k->argmax(logits, n, scratch);
        d->parts[i].p = 1 / k->softmax_exp(logits, n, logits, scratch); /* of the largest; NaN if there is a NaN */
    }
}

/* Adds the picked token to a chain. False: the chain ends before it. */
static bool grow(const struct draft_model *d, struct draft_part *c)
{
    struct draft *p = c->draft;
    c->chance *= (double)c->p;
    if (p->instead) c->token = p->instead[p->n];
    bool is_sure = p->instead ||
                   (c->token >= 0 && c->token < d->target->model->hp.n_vocab && c->chance >= (double)d->params.least);
    p->is_unsure = p->n == 0 && !is_sure;
    if (!is_sure) return false;
    p->proposed[p->n] = c->token;
    p->sureness[p->n++] = draft_class(c->p);
    return true;
}

/* Whether the chain goes on after its last token. */
static bool goes_on(const struct draft_model *d, const struct draft_part *c)
{
    const struct draft_seq *s = c->draft->seq;
    return c->draft->n < s->most && !vocab_is_eog(d->model->vocab, c->token);
}

/* Takes the tokens of a pass, and leaves the parts of chains that go on. */
static void take(struct draft_model *d)
{
    int n = 0;
    if (d->n_parts > 1)
        pool_run(d->target->pool, pick, d);
    else
        pick(d, 0, 1);
    for (int i = 0; i < d->n_parts; i++)
        if (grow(d, &d->parts[i]) && goes_on(d, &d->parts[i])) d->parts[n++] = d->parts[i];
    d->n_parts = n;
}

/* ---- chains ---- */

/* Members of the team copy recurrent states, a share of each. */
static void copy_states(void *arg, int ith, int nth)
{
    struct draft_model *d = arg;
    size_t bytes = kv_pool_shape(d->kv)->state_bytes, part = act_round64(bytes / (size_t)nth + 1);
    size_t lo = part * (size_t)ith, hi = lo + part < bytes ? lo + part : bytes;
    for (int i = 0; i < d->n_parts && lo < hi; i++) {
        const struct draft_seq *s = d->parts[i].draft->seq;
        memcpy(s->copy + lo, s->memory.state + lo, hi - lo);
    }
}

/* The chains begin: from now on the sequences hold what was only proposed. */
static void begin_chains(struct draft_model *d)
{
    if (!kv_pool_shape(d->kv)->state_bytes || !d->n_parts) return;
    pool_run(d->target->pool, copy_states, d);
    for (int i = 0; i < d->n_parts; i++) {
        struct draft_seq *s = d->parts[i].draft->seq;
        s->n_copied = s->memory.n_slots;
    }
}

/* A row of each chain's last token. */
static void gather_chains(struct draft_model *d)
{
    batch_clear(&d->batch);
    for (int i = 0; i < d->n_parts; i++) {
        struct draft *p = d->parts[i].draft;
        struct draft_seq *s = p->seq;
        d->parts[i].n = 1;
        d->memories[i] = &s->memory;
        batch_add(&d->batch, p->proposed[p->n - 1], s->memory.n_slots, i, true);
    }
}

/* ---- reading what is new ---- */

/* Returns the rows of this call for sequences that are far behind: for one that is read soon, and for the others. */
static int rows_for(struct draft_model *d, const struct draft *p, double step_s)
{
    if (d->params.piece) return d->params.piece;
    if (!(d->row_s > 0)) return LEAST_SLOW; /* the first time, to measure it */
    int soon = (int)(step_s * SOON_PART / d->row_s);
    if (n_new(p) * d->row_s <= SOON * step_s) return soon < LEAST_SOON ? LEAST_SOON : soon;
    return d->saved_rows >= LEAST_SLOW ? (int)d->saved_rows : 0;
}

/* The time of the target's step: since the last call, unless nobody asked for so long that the scheduler was idle. */
static double step_time(struct draft_model *d, double since_s)
{
    double s = since_s < MOST_STEP ? since_s : MOST_STEP;
    if (d->step_s > 0 && s > IDLE * d->step_s) return d->step_s;
    d->step_s = d->step_s > 0 ? pace_mean(d->step_s, s, ROW_WEIGHT) : s;
    return s;
}

static void save_rows(struct draft_model *d, double step_s)
{
    if (d->row_s > 0) d->saved_rows += step_s * SLOW_PART / d->row_s;
    if (d->saved_rows > 2 * LEAST_SLOW) d->saved_rows = 2 * LEAST_SLOW;
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* Adds the sequences that are read to their end: those with few new tokens. */
static void gather_few(struct draft_model *d, struct draft *drafts, int n)
{
    for (int i = 0; i < n; i++) {
        struct draft *p = &drafts[i];
        struct draft_seq *s = p->seq;
        if (!s->most || n_new(p) > FEW || n_new(p) > d->batch.cap - d->batch.n) continue;
        if (is_known(d, p, n_new(p)) && reserve(d, s, p->n_tokens + s->most - 1)) add_new(d, p, n_new(p));
    }
}

/* Adds pieces of the others, without their last tokens. Returns their rows. */
static int gather_far(struct draft_model *d, struct draft *drafts, int n, double step_s)
{
    int before = d->batch.n, rows = d->batch.cap - before;
    save_rows(d, step_s);
    for (int i = 0; i < n && rows > 0; i++) {
        struct draft *p = &drafts[i];
        struct draft_seq *s = p->seq;
        if (!s->most || n_new(p) <= FEW || !has_room(d, s, p->n_tokens)) continue;
        int most = smaller(rows_for(d, p, step_s), rows), piece = smaller(n_new(p) - 1, most);
        if (piece < 1 || !is_known(d, p, piece) || !reserve(d, s, s->memory.n_slots + piece)) continue;
        add_new(d, p, piece);
        rows = most - piece;
    }
    return d->batch.n - before;
}

/* ---- a call ---- */

/* Decides how many tokens each sequence may have, and compares what was proposed before. */
static void begin(struct draft_model *d, struct draft *drafts, int n)
{
    d->n_calls++;
    for (int i = 0; i < n; i++) {
        struct draft *p = &drafts[i];
        struct draft_seq *s = p->seq;
        p->n = s->most = 0;
        p->is_unsure = false;
        if (!p->most || d->is_lost || s->is_foreign || i >= d->params.n_places) continue;
        if (p->n_tokens > s->max_slots) {
            forget(s);
            continue;
        }
        s->used = d->n_calls;
        s->most = smaller(p->most, s->max_slots - p->n_tokens + 1);
        if (repeat(s, p))
            s->most = 0;
        else
            compare(s, p);
    }
}

static void learn(struct draft_model *d, int n_far, double seconds)
{
    if (n_far < LEAST_SLOW / 2) return;
    d->saved_rows = 0;
    d->row_s = pace_mean(d->row_s, seconds / d->batch.n, ROW_WEIGHT);
}

/* Keeps the proposals, to be compared with what comes. */
static void end(const struct draft_model *d, struct draft *drafts, int n)
{
    for (int i = 0; i < n; i++) {
        struct draft *p = &drafts[i];
        struct draft_seq *s = p->seq;
        if (d->is_lost) p->n = 0;
        if (!p->n) continue;
        s->n_seen = p->n_tokens;
        s->n_proposed = p->n;
        memcpy(s->proposed, p->proposed, (size_t)p->n * sizeof *p->proposed);
        memcpy(s->sureness, p->sureness, (size_t)p->n);
    }
}

void draft_model_propose(struct drafter *base, struct draft *drafts, int n)
{
    struct draft_model *d = (struct draft_model *)base;
    uint64_t t0 = clock_ns();
    double step_s = d->last_end_ns ? step_time(d, 1e-9 * (double)(t0 - d->last_end_ns)) : 0;
    begin(d, drafts, n);
    clear(d);
    gather_few(d, drafts, n);
    int n_far = gather_far(d, drafts, n, step_s);
    if (d->n_parts && run(d)) {
        learn(d, n_far, 1e-9 * (double)(clock_ns() - t0));
        keep_read(d);
        take(d);
        begin_chains(d);
        while (d->n_parts) {
            gather_chains(d);
            if (!run(d)) break;
            take(d);
        }
    }
    end(d, drafts, n);
    d->last_end_ns = clock_ns();
}
