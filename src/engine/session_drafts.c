/* SPDX-License-Identifier: MIT
 *
 * session_drafts.c: see session_drafts.h.
 */
#include "engine/session_drafts.h"

#include <assert.h>
#include <string.h>

#include "base/inline/minmax.h"
#include "base/os.h"

/* ---- life ---- */

static void free_drafts(struct qn_engine *g, struct session_drafts *d)
{
    if (!d) return;
    drafters_close(&d->drafters, &d->seqs);
    drafters_deinit(&d->drafters);
    mem_free(d->logits);
    ledger_give(&g->ledger, d->bytes);
    mem_free(d);
}

static void open_sequence(struct qn_session *s, struct session_drafts *d)
{
    drafters_open(&d->drafters, &d->seqs, d->draft, 0, s->engine->n_ctx);
}

static int make(struct qn_session *s, struct session_drafts *d, const struct qn_model *model,
                const struct drafters_own *own, struct qn_error *e)
{
    struct qn_engine *g = s->engine;
    d->most = min_int(DRAFT_ROWS, g->n_batch - 1);
    d->memory = &s->memory;
    size_t bytes = ((size_t)d->most + 1) * (size_t)g->model->hp.n_vocab * sizeof *d->logits;
    int rc = drafters_init(&d->drafters, 1, own, e);
    if (!rc) engine_make_room(g, bytes);
    if (!rc && !(rc = ledger_take(&g->ledger, bytes, "the logits of drafts", e))) d->bytes = bytes;
    if (!rc && !(d->logits = mem_alloc(bytes))) rc = error_nomem(e, "the logits of drafts", bytes);
    return rc ? rc : drafters_make(&d->drafters, g, d->draft, model, e);
}

int session_drafts_set(struct qn_session *s, enum qn_draft draft, const struct qn_model *model,
                       const struct drafters_own *own, struct qn_error *e)
{
    struct session_drafts *d = NULL;
    engine_settle(s->engine);
    if (draft == QN_DRAFT_DEFAULT) draft = QN_DRAFT_AUTO;
    if (draft == QN_DRAFT_WEDLM)
        return error_set(e, QN_EUNSUP, "session: drafts by '%s', which only a scheduler has", qn_draft_name(draft));
    if (draft != QN_DRAFT_OFF) {
        if (!(d = mem_calloc(1, sizeof *d))) return error_nomem(e, "the drafts of a session", sizeof *d);
        d->draft = draft;
        int rc = make(s, d, model, own, e);
        if (rc) {
            d->drafters.of[DRAFT_OWN] = NULL;
            free_drafts(s->engine, d);
            return rc;
        }
        open_sequence(s, d);
    }
    session_drafts_free(s);
    s->drafts = d;
    return 0;
}

void session_drafts_free(struct qn_session *s)
{
    engine_settle(s->engine);
    free_drafts(s->engine, s->drafts);
    s->drafts = NULL;
}

void session_drafts_restart(struct qn_session *s)
{
    struct session_drafts *d = s->drafts;
    if (!d) return;
    struct draft_seqs before = d->seqs;
    drafters_close(&d->drafters, &d->seqs);
    open_sequence(s, d);
    d->seqs.n_passes = before.n_passes;
    d->seqs.n_drafted = before.n_drafted;
    d->seqs.n_accepted = before.n_accepted;
}

void session_drafts_read(struct qn_session *s)
{
    int n = s->engine->batch.n;
    if (s->drafts) drafters_absorb(&s->drafts->drafters, &s->drafts->seqs, 0, s->memory.n_slots - n, n);
}

/* ---- one pass ---- */

/* Returns how many of the proposed tokens become rows. */
static int propose(struct qn_session *s)
{
    struct drafters *d = &s->drafts->drafters;
    struct qn_engine *g = s->engine;
    int n = (int)s->n_tokens;
    d->n_offers = 0;
    drafters_offer(d, &s->drafts->seqs, s->tokens, n, g->n_ctx - n - 1, NULL);
    drafters_ask(d);
    drafters_share(d, drafters_limit(d, g, s->drafts->most));
    return d->plans[0].n_rows;
}

/* Makes n_rows slots after those in use writable. */
static int open_slots(struct kv_seq *m, int n_rows, struct qn_error *e)
{
    int rc = kv_seq_reserve(m, m->n_slots + n_rows, e);
    return rc ? rc : kv_seq_open(m, m->n_slots, m->n_slots + n_rows, e);
}

static void fill_batch(struct qn_session *s, const qn_token *drafts, int n)
{
    struct batch *b = &s->engine->batch;
    bool is_held = n && kv_pool_shape(s->engine->kv)->state_bytes;
    int from = s->memory.n_slots;
    batch_clear(b);
    batch_add(b, s->tokens[s->n_tokens - 1], from, 0, true);
    for (int i = 0; i < n; i++) batch_add(b, drafts[i], from + 1 + i, 0, true);
    for (int i = 0; i <= n && is_held; i++) b->held[i] = true;
}

/* What the last pass computed beyond the timeline is taken back, and the drafters are told. */
static void settle(void *arg)
{
    struct qn_session *s = arg;
    struct session_drafts *d = s->drafts;
    struct qn_engine *g = s->engine;
    int from = s->memory.n_slots, n_drafted = d->n_rows - 1;
    int32_t n_kept = d->row + s->ready;
    if (s->ready) memcpy(s->logits, session_drafts_logits(s), (size_t)g->model->hp.n_vocab * sizeof *s->logits);
    if (n_drafted && kv_pool_shape(g->kv)->state_bytes) forward_accept(&g->forward, &n_kept);
    kv_seq_extend(&s->memory, from + n_kept);
    kv_seq_unreserve(&s->memory, (int)s->n_tokens);
    drafters_absorb(&d->drafters, &d->seqs, 0, from, n_kept);
    drafters_compare(&d->drafters, &d->drafters.offers[0], s->tokens, (int)s->n_tokens);
    draft_control_took(&d->drafters.control, d->n_rows, n_drafted, d->seconds);
    d->seqs.n_passes++;
    d->seqs.n_drafted += n_drafted;
    d->seqs.n_accepted += n_kept - 1;
    d->n_rows = 0;
}

int session_drafts_pass(struct qn_session *s, struct qn_error *e)
{
    struct session_drafts *d = s->drafts;
    struct qn_engine *g = s->engine;
    assert(s->n_tokens == (size_t)s->memory.n_slots + 1);
    engine_settle(g);
    int n = propose(s), rc = open_slots(&s->memory, 1 + n, e);
    if (rc && n) {
        kv_seq_unreserve(&s->memory, (int)s->n_tokens);
        rc = open_slots(&s->memory, 1, e);
        n = 0;
    }
    if (rc) return rc;
    struct draft_offer *o = &d->drafters.offers[0];
    o->plans[o->kind].n_rows = n;
    fill_batch(s, o->proposed[o->kind], n);
    uint64_t t0 = clock_ns();
    forward_run(&g->forward, &g->batch, &d->memory, d->logits);
    d->seconds = 1e-9 * (double)(clock_ns() - t0);
    d->n_rows = n + 1;
    d->row = 0;
    g->settle = settle;
    g->settle_arg = s;
    s->ready = true;
    return 0;
}

const float *session_drafts_logits(const struct qn_session *s)
{
    const struct session_drafts *d = s->drafts;
    return d && d->n_rows ? d->logits + (size_t)d->row * (size_t)s->engine->model->hp.n_vocab : NULL;
}

void session_drafts_draw(struct qn_session *s)
{
    if (s->drafts) s->drafts->drawing_ns = clock_ns();
}

void session_drafts_drawn(struct qn_session *s)
{
    struct session_drafts *d = s->drafts;
    if (!d || !d->n_rows) return;
    const struct draft_offer *o = &d->drafters.offers[0];
    d->seconds += 1e-9 * (double)(clock_ns() - d->drawing_ns);
    d->row++;
    s->ready = d->row < d->n_rows && s->tokens[s->n_tokens - 1] == o->proposed[o->kind][d->row - 1];
    if (!s->ready) engine_settle(s->engine);
}
