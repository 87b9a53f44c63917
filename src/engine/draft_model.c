/* SPDX-License-Identifier: MIT
 *
 * draft_model.c: the life of a draft model and of its sequences, and the memory that they take. See draft_model.h.
 */
#include "engine/draft_model_impl.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "engine/budget.h"

/* Of two small trained models, 44 held-out questions, chains of at most 8 tokens: those that end at this
 * probability brought 4.42 tokens a pass with 4,109 guesses, those that do not end 4.51 with 5,507. */
#define LEAST 0.3f

void draft_model_params_init(struct draft_model_params *p) { *p = (struct draft_model_params){.least = LEAST}; }

/* ---- vocabulary ---- */

static struct str text_of(const struct vocab *v, qn_token id)
{
    return vocab_has_text(v, id) ? vocab_token_text(v, id) : (struct str){"", 0};
}

int draft_model_check(const struct qn_model *draft, const struct qn_model *target, struct qn_error *e)
{
    const struct vocab *d = draft->model->vocab, *t = target->model->vocab;
    int n = vocab_n_tokens(d) > vocab_n_tokens(t) ? vocab_n_tokens(d) : vocab_n_tokens(t);
    for (qn_token id = 0; id < n; id++) {
        struct str a = text_of(d, id), b = text_of(t, id);
        if (a.n == b.n && !memcmp(a.p, b.p, a.n)) continue;
        return error_set(e, QN_EUSAGE,
                         "draft model: token %d is '%.*s' in '%s' and '%.*s' in '%s'; a draft model needs the same "
                         "vocabulary as the model it drafts for",
                         id, (int)(a.n < 40 ? a.n : 40), a.p, draft->name, (int)(b.n < 40 ? b.n : 40), b.p,
                         target->name);
    }
    return 0;
}

/* ---- memory ---- */

/* What a draft model takes. */
struct need {
    struct kv_shape shape;
    int n_ctx, n_rows, n_threads, n_windows, n_states;
    int64_t n_pages;
    uint64_t weights, kv, others; /* bytes */
};

static int64_t pages_of(int64_t n_tokens) { return (n_tokens + KV_PAGE_SLOTS - 1) / KV_PAGE_SLOTS; }

/* Sets the pages, and what follows from their number. */
static void set_pages(struct need *q, const struct model *m, int64_t n_pages, int n_places, enum qn_kv kv)
{
    struct budget b = {0};
    struct qn_engine_params p = {.n_ctx = q->n_ctx,
                                 .n_batch = q->n_rows,
                                 .n_threads = q->n_threads,
                                 .n_sessions = n_places,
                                 .kv_tokens = (int)(n_pages * KV_PAGE_SLOTS),
                                 .kv = kv};
    budget_count(m, &p, &b, NULL); /* without a limit for states it cannot fail */
    q->n_pages = n_pages;
    q->n_windows = b.n_windows;
    q->weights = b.weights;
    q->kv = b.kv;
}

/* p: of the target's engine, settled. */
static struct need need_of(const struct model *m, const struct qn_engine_params *p, int n_places)
{
    size_t n = (size_t)n_places, logits = n * (size_t)m->hp.n_vocab * sizeof(float);
    struct need q = {.shape = budget_kv_shape(m, p->kv), .n_threads = p->n_threads};
    q.n_ctx = p->n_ctx < m->hp.n_ctx_train ? p->n_ctx : m->hp.n_ctx_train;
    q.n_rows = n_places + DRAFT_MODEL_ROWS;
    q.n_states = q.shape.state_bytes ? 2 * n_places : 0;
    q.others = logits + n * (sizeof(struct draft_part) + sizeof(struct draft_seq) + sizeof(struct kv_seq *));
    int64_t most = pages_of(q.n_ctx) * n_places, all = pages_of(p->kv_tokens);
    set_pages(&q, m, most < all ? most : all, n_places, p->kv);
    return q;
}

static uint64_t bytes_of(const struct need *q, const struct model *m)
{
    return q->weights + q->kv + kv_states_bytes(&q->shape, q->n_states) + q->others +
           forward_bytes(m, q->n_rows, 0, q->n_threads);
}

uint64_t draft_model_bytes(const struct model *draft, const struct qn_engine_params *target, int n_places)
{
    struct need q = need_of(draft, target, n_places);
    return bytes_of(&q, draft);
}

/* Takes pages away until the KV cache has half of the memory that is free without it; the other half is for what grows
 * with use. */
static void spare(struct need *q, const struct model *m, const struct ledger *l, int n_places, enum qn_kv kv)
{
    uint64_t left = l->budget - ledger_used(l), rest = bytes_of(q, m) - q->kv,
             room = left > rest ? (left - rest) / 2 : 0;
    while (q->n_pages > 1 && q->kv > room) {
        int64_t fits = (int64_t)((uint64_t)q->n_pages * room / q->kv);
        set_pages(q, m, fits < q->n_pages ? (fits > 1 ? fits : 1) : q->n_pages - 1, n_places, kv);
    }
}

static enum qn_kv kv_of(const struct qn_engine *g)
{
    static const enum qn_kv types[] = {[KV_F16] = QN_KV_F16, [KV_F32] = QN_KV_F32, [KV_Q8_0] = QN_KV_Q8_0};
    return types[kv_pool_shape(g->kv)->type];
}

static struct need settle(const struct draft_model *d)
{
    const struct qn_engine *g = d->target;
    struct qn_engine_params p = {.n_ctx = g->n_ctx,
                                 .n_threads = pool_n_threads(g->pool),
                                 .kv_tokens = kv_pool_n_pages(g->kv) * kv_pool_shape(g->kv)->page_slots,
                                 .kv = kv_of(g)};
    struct need q = need_of(d->model, &p, d->params.n_places);
    if (d->params.n_pages)
        set_pages(&q, d->model, d->params.n_pages, d->params.n_places, p.kv);
    else
        spare(&q, d->model, &g->ledger, d->params.n_places, p.kv);
    if (d->handle == g->handle) q.weights = 0; /* they are the same pages of the same file */
    return q;
}

/* ---- life ---- */

static int take(struct draft_model *d, size_t *taken, size_t bytes, const char *what, struct qn_error *e)
{
    int rc = ledger_take(&d->target->ledger, bytes, what, e);
    if (!rc) *taken = bytes;
    return rc;
}

static int alloc(struct draft_model *d, const struct need *q, struct qn_error *e)
{
    size_t n = (size_t)d->params.n_places;
    int rc = batch_init(&d->batch, q->n_rows, e);
    if (rc) return rc;
    d->parts = mem_calloc(n, sizeof *d->parts);
    d->memories = mem_calloc(n, sizeof(struct kv_seq *));
    d->logits = mem_calloc(n * (size_t)d->model->hp.n_vocab, sizeof *d->logits);
    return d->parts && d->memories && d->logits ? 0 : error_nomem(e, "a draft model", q->others);
}

static int set_up(struct draft_model *d, struct qn_error *e)
{
    struct qn_engine *g = d->target;
    struct need q = settle(d);
    int rc = take(d, &d->weight_bytes, q.weights, "the draft model's weights", e);
    if (!rc) rc = take(d, &d->other_bytes, q.others, "the draft model's logits", e);
    if (!rc) rc = alloc(d, &q, e);
    if (!rc)
        rc = kv_pool_new(&d->kv, &q.shape, (int)(q.n_pages * KV_PAGE_SLOTS), q.n_states, q.n_windows, &g->ledger, e);
    if (!rc)
        rc = forward_init(&d->forward, d->model, &g->forward.pass.kt, g->pool, q.n_rows, 0, q.n_ctx, &g->ledger, e);
    d->n_ctx = q.n_ctx;
    if (!rc && !d->params.n_pages && q.n_pages * KV_PAGE_SLOTS < q.n_ctx)
        log_at(LOG_WARN, "memory for %lld tokens of the draft model's cache: sequences beyond have no drafts",
               (long long)q.n_pages * KV_PAGE_SLOTS);
    return rc;
}

static void close_seq(struct drafter *base, void *seq)
{
    struct draft_model *d = (struct draft_model *)base;
    struct draft_seq *s = seq;
    if (!s) return;
    if (s->copy) kv_state_put(d->kv, s->copy);
    kv_seq_deinit(&s->memory);
    *s->link = s->next;
    if (s->next) s->next->link = s->link;
    mem_free(s);
}

static int open_seq(struct drafter *base, uint64_t identity, int max_tokens, void **seq, struct qn_error *e)
{
    struct draft_model *d = (struct draft_model *)base;
    (void)identity; /* sequences share nothing */
    struct draft_seq *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "a drafted sequence", sizeof *s);
    s->n_copied = -1;
    s->max_slots = max_tokens < d->n_ctx ? max_tokens : d->n_ctx;
    s->next = d->open;
    s->link = &d->open;
    if (s->next) s->next->link = &s->next;
    d->open = s;
    int rc = kv_seq_init(&s->memory, d->kv, s->max_slots, e);
    if (!rc && s->memory.state && !(s->copy = kv_state_get(d->kv)))
        rc = error_set(e, QN_ENOMEM, "draft model: all %d recurrent states are in use", kv_pool_n_states(d->kv));
    if (rc)
        close_seq(base, s);
    else
        *seq = s;
    return rc;
}

static void free_draft_model(struct drafter *base)
{
    struct draft_model *d = (struct draft_model *)base;
    if (!d) return;
    assert(!d->open);
    forward_deinit(&d->forward);
    kv_pool_free(d->kv);
    batch_deinit(&d->batch);
    mem_free(d->parts);
    mem_free(d->memories);
    mem_free(d->logits);
    ledger_give(&d->target->ledger, d->weight_bytes + d->other_bytes);
    model_let_go(d->handle);
    mem_free(d);
}

static const struct drafter_type type = {
    .name = "model",
    .open = open_seq,
    .close = close_seq,
    .propose = draft_model_propose,
    .free = free_draft_model,
};

int draft_model_new(struct drafter **out, struct qn_engine *target, const struct qn_model *draft,
                    const struct draft_model_params *p, struct qn_error *e)
{
    int rc = draft_model_check(draft, target->handle, e);
    if (rc) return rc;
    struct draft_model *d = mem_calloc(1, sizeof *d);
    if (!d) return error_nomem(e, "a draft model", sizeof *d);
    *d = (struct draft_model){.base = {&type}, .target = target, .model = draft->model, .params = *p};
    d->handle = model_hold(draft);
    d->n_lost = map_n_lost();
    if ((rc = set_up(d, e))) {
        free_draft_model(&d->base);
        return rc;
    }
    *out = &d->base;
    return 0;
}
