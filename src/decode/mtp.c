/* SPDX-License-Identifier: MIT
 *
 * mtp.c: guesses made with the block that predicts the token after the next one. See mtp.h.
 *
 * Sequences share passes: each pass has rows of all sequences that need one. Nothing is allocated after mtp_new().
 */
#include "decode/mtp.h"

#include <assert.h>
#include <string.h>

#include "base/inline/minmax.h"

#define MTP_ROWS 64 /* rows of a pass */

/* A sequence. */
struct mtp_seq {
    struct mtp_seq *next; /* of those that are free */
    struct kv_seq memory;
    int n_seen;  /* tokens before this place are in memory, or were passed over */
    int n_slots; /* slots of tokens; the slots after them belong to guesses, and are forgotten */
    float *hidden;
    int32_t place[MTP_KEPT]; /* row i of hidden belongs to the token here; -1: it is empty */
    float *fed;              /* [n_embd] the block's row of the last guess */
};

struct mtp {
    struct drafter base;
    struct nextn block;
    struct forward *forward;
    struct ledger *ledger;
    struct kv_pool *pool;
    struct region region; /* of rows and logits */
    size_t bytes;         /* of the region, in the ledger */
    int n_embd, n_vocab, n_seqs;
    struct mtp_seq *seqs, *free;

    /* the pass that is being put together */
    struct batch batch;
    struct kv_seq *memories[MTP_ROWS];
    const float *hidden[MTP_ROWS];
    struct draft *outs[MTP_ROWS]; /* the sequences of the rows that want logits */
    int n_memories, n_outs;
    int most_outs; /* one of each sequence, so that the output matrix is read once for all */
    float *logits; /* [most_outs][n_vocab] */
};

/* ---- buffers ---- */

static int guessed_tokens(const struct model *m) { return min_int(m->hp.n_vocab, MTP_VOCAB); }

/* Rows of a pass that want logits. */
static int outs_of_pass(int n_seqs) { return min_int(n_seqs, MTP_ROWS); }

static int rows_of_pass(const struct forward *f) { return min_int(f->max_rows, MTP_ROWS); }

/* Cuts the region, or measures it if base is NULL. */
static size_t cut(struct mtp *d, const struct model *m, int n_seqs, uint8_t *base)
{
    struct cutter c = {.base = base};
    size_t row = (size_t)m->hp.n_embd * sizeof(float);
    float *logits = cut_bytes(&c, (size_t)outs_of_pass(n_seqs) * (size_t)guessed_tokens(m) * sizeof *logits);
    for (int i = 0; i < n_seqs; i++) {
        float *hidden = cut_bytes(&c, MTP_KEPT * row), *fed = cut_bytes(&c, row);
        if (!base) continue;
        d->seqs[i].hidden = hidden;
        d->seqs[i].fed = fed;
    }
    if (base) d->logits = logits;
    return c.used;
}

static size_t kv_bytes(const struct model *m, enum kv_type kv, int n_seqs)
{
    struct kv_shape shape = nextn_kv_shape(m, kv);
    return kv_page_bytes(&shape) * (size_t)(MTP_SLOTS / shape.page_slots) * (size_t)n_seqs;
}

size_t mtp_bytes(const struct model *m, enum kv_type kv, int n_seqs)
{
    if (!m->has_nextn) return 0;
    return cut(NULL, m, n_seqs, NULL) + kv_bytes(m, kv, n_seqs) + nextn_bytes(m, MTP_ROWS);
}

static void mtp_free(struct drafter *base)
{
    struct mtp *d = (struct mtp *)base;
    if (!d) return;
    for (int i = 0; i < d->n_seqs; i++) kv_seq_deinit(&d->seqs[i].memory);
    kv_pool_free(d->pool);
    nextn_deinit(&d->block);
    batch_deinit(&d->batch);
    region_close(&d->region);
    ledger_give(d->ledger, d->bytes);
    mem_free(d->seqs);
    mem_free(d);
}

/* ---- sequences ---- */

static int mtp_open(struct drafter *base, uint64_t identity, int max_tokens, void **seq, struct qn_error *e)
{
    struct mtp *d = (struct mtp *)base;
    struct mtp_seq *s = d->free;
    (void)identity, (void)max_tokens;
    if (!s) return error_set(e, QN_ENOMEM, "mtp: all records of %d sequences are in use", d->n_seqs);
    d->free = s->next;
    s->n_seen = s->n_slots = 0;
    for (int i = 0; i < MTP_KEPT; i++) s->place[i] = -1;
    *seq = s;
    return 0;
}

static void mtp_close(struct drafter *base, void *seq)
{
    struct mtp *d = (struct mtp *)base;
    struct mtp_seq *s = seq;
    if (!s) return;
    kv_seq_truncate(&s->memory, 0);
    s->next = d->free;
    d->free = s;
}

/* The hidden row of the token at a place; NULL: it is not known. */
static float *hidden_at(const struct mtp *d, const struct mtp_seq *s, int place)
{
    if (place < 0 || s->place[place % MTP_KEPT] != place) return NULL;
    return s->hidden + (size_t)(place % MTP_KEPT) * (size_t)d->n_embd;
}

static void mtp_absorb(struct drafter *base, void *seq, int row, int from, int n)
{
    struct mtp *d = (struct mtp *)base;
    struct mtp_seq *s = seq;
    for (int i = max_int(0, n - MTP_KEPT); i < n; i++) {
        s->place[(from + i) % MTP_KEPT] = from + i;
        forward_hidden(d->forward, row + i, hidden_at(d, s, from + i));
    }
}

/* Makes room for n more slots: forgets the oldest pages. */
static void make_room(struct mtp_seq *s, int n)
{
    int slots = kv_pool_shape(s->memory.pool)->page_slots, over = s->memory.n_slots + n - MTP_SLOTS;
    if (over <= 0) return;
    kv_seq_drop_front(&s->memory, (over + slots - 1) / slots);
    s->n_slots = s->memory.n_slots;
}

/* ---- passes ---- */

/* Reads the guess of row i of those that wanted logits. */
static void read_guess(struct mtp *d, int i)
{
    const struct pass *p = &d->forward->pass;
    struct draft *draft = d->outs[i];
    struct mtp_seq *s = draft->seq;
    float *logits = d->logits + (size_t)i * (size_t)d->n_vocab;
    int best = p->kt.argmax(logits, d->n_vocab, p->scratch);
    float sum = p->kt.softmax_exp(logits, d->n_vocab, logits, p->scratch);
    if (draft->instead) best = draft->instead[draft->n];
    draft->proposed[draft->n] = best < 0 ? 0 : best;
    draft->sureness[draft->n] = draft_class(1 / sum);
    draft->n++;
    memcpy(s->fed, nextn_hidden(&d->block, i), (size_t)d->n_embd * sizeof *s->fed);
}

static void run_pass(struct mtp *d)
{
    if (d->batch.n) nextn_run(&d->block, &d->batch, d->memories, d->hidden, d->logits);
    for (int i = 0; i < d->n_outs; i++) read_guess(d, i);
    batch_clear(&d->batch);
    d->n_memories = d->n_outs = 0;
}

/* Adds a row: a token at a place of the draft's sequence, and the hidden row before it. is_asked: the token after it is
 * guessed. */
static void add_row(struct mtp *d, struct draft *draft, qn_token token, int place, const float *hidden, bool is_asked)
{
    struct mtp_seq *s = draft->seq;
    if (d->batch.n == d->batch.cap || (is_asked && d->n_outs == d->most_outs)) run_pass(d);
    int slot = s->memory.n_slots;
    int rc = kv_seq_reserve(&s->memory, slot + 1, NULL);
    assert(rc == 0); /* the pool has pages for all sequences */
    (void)rc;
    kv_seq_extend(&s->memory, slot + 1);
    if (!d->n_memories || d->memories[d->n_memories - 1] != &s->memory) d->memories[d->n_memories++] = &s->memory;
    d->hidden[d->batch.n] = hidden;
    batch_add(&d->batch, token, place, d->n_memories - 1, is_asked);
    d->batch.slot[d->batch.n - 1] = slot;
    if (is_asked) d->outs[d->n_outs++] = draft;
}

/* Rows of the tokens that are new since the last time, as far as their hidden rows are known, and of the last token,
 * after which comes the first guess. */
static void add_new_rows(struct mtp *d, struct draft *draft)
{
    struct mtp_seq *s = draft->seq;
    int last = draft->n_tokens - 1, from = max_int(min_int(s->n_seen, last), last - MTP_KEPT), n = 1;
    if (s->n_seen > last && s->n_slots) s->n_slots--; /* nothing is new: the last row is computed again */
    kv_seq_truncate(&s->memory, s->n_slots);
    for (int i = from; i < last; i++) n += hidden_at(d, s, i - 1) != NULL;
    make_room(s, n + draft->most);
    for (int i = from; i <= last; i++) {
        const float *hidden = hidden_at(d, s, i - 1);
        if (hidden || i == last) add_row(d, draft, draft->tokens[i], i, hidden, i == last);
    }
    s->n_slots = s->memory.n_slots;
    s->n_seen = draft->n_tokens;
}

static void mtp_propose(struct drafter *base, struct draft *drafts, int n)
{
    struct mtp *d = (struct mtp *)base;
    int most = 0;
    for (int i = 0; i < n; i++) {
        drafts[i].n = 0;
        most = max_int(most, drafts[i].most);
        if (drafts[i].most > 0 && drafts[i].n_tokens > 0) add_new_rows(d, &drafts[i]);
    }
    run_pass(d);
    for (int k = 1; k < most; k++) {
        for (int i = 0; i < n; i++) {
            struct draft *draft = &drafts[i];
            const struct mtp_seq *s = draft->seq;
            if (draft->most > k && draft->n == k)
                add_row(d, draft, draft->proposed[k - 1], draft->n_tokens + k - 1, s->fed, true);
        }
        run_pass(d);
    }
}

/* ---- the drafter ---- */

static const struct drafter_type mtp_type = {.name = "mtp",
                                             .open = mtp_open,
                                             .close = mtp_close,
                                             .absorb = mtp_absorb,
                                             .propose = mtp_propose,
                                             .free = mtp_free};

static int make_seqs(struct mtp *d, const struct model *m, enum kv_type kv, int n_seqs, struct qn_error *e)
{
    struct kv_shape shape = nextn_kv_shape(m, kv);
    int rc = kv_pool_new(&d->pool, &shape, n_seqs * MTP_SLOTS, 0, 0, d->ledger, e);
    if (rc) return rc;
    d->seqs = mem_calloc((size_t)n_seqs, sizeof *d->seqs);
    if (!d->seqs) return error_nomem(e, "the records of sequences", (size_t)n_seqs * sizeof *d->seqs);
    for (; d->n_seqs < n_seqs; d->n_seqs++) {
        struct mtp_seq *s = &d->seqs[d->n_seqs];
        if ((rc = kv_seq_init(&s->memory, d->pool, MTP_SLOTS, e))) return rc;
        s->next = d->free;
        d->free = s;
    }
    return 0;
}

/* Everything after the object itself. */
static int make(struct mtp *d, enum kv_type kv, int n_seqs, struct qn_error *e)
{
    static const char what[] = "the rows of the drafter mtp";
    const struct model *m = d->forward->pass.model;
    int rc = make_seqs(d, m, kv, n_seqs, e), n_rows = rows_of_pass(d->forward);
    if (rc) return rc;
    if ((rc = batch_init(&d->batch, n_rows, e))) return rc;
    if ((rc = nextn_init(&d->block, d->forward, n_rows, d->n_vocab, d->ledger, e))) return rc;
    size_t bytes = cut(d, m, n_seqs, NULL);
    if ((rc = ledger_take(d->ledger, bytes, what, e))) return rc;
    d->bytes = bytes;
    if ((rc = region_open(&d->region, bytes, bytes, what, e))) return rc;
    cut(d, m, n_seqs, d->region.data);
    return 0;
}

int mtp_new(struct drafter **out, struct forward *f, enum kv_type kv, int n_seqs, struct ledger *l, struct qn_error *e)
{
    const struct model *m = f->pass.model;
    if (!m->has_nextn)
        return error_set(e, QN_EUNSUP, "mtp: the model has no block that predicts the token after the next one");
    struct mtp *d = mem_calloc(1, sizeof *d);
    if (!d) return error_nomem(e, "the drafter mtp", sizeof *d);
    d->base.type = &mtp_type;
    d->forward = f;
    d->ledger = l;
    d->n_embd = m->hp.n_embd;
    d->n_vocab = guessed_tokens(m);
    d->most_outs = outs_of_pass(n_seqs);
    int rc = make(d, kv, n_seqs, e);
    if (rc) {
        mtp_free(&d->base);
        return rc;
    }
    *out = &d->base;
    return 0;
}
