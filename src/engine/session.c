/* SPDX-License-Identifier: MIT
 *
 * session.c: one timeline of tokens, and the keys, values, state and logits that were computed for it.
 *
 * Invariant: memory holds the keys and values of tokens[0 .. memory.n_slots). At most the last token, if it was just
 * drawn, is not evaluated yet. `ready` means that `logits` belong to the whole timeline. A token is evaluated only when
 * its successor or its logits are needed, so the last token of an answer costs nothing.
 *
 * Keys and values can be cut after any slot, but a recurrent state cannot. So a session of a model with such a state
 * keeps copies of it: where sync() ended, with the logits, so that the same prompt costs nothing the next time, and at
 * some places before. If the timeline is cut, it goes back to the longest copy that is short enough, or to its
 * beginning. A new copy replaces the oldest one. The number of copies is the session's part of the engine's states,
 * which may be none.
 *
 * In the same way, a session of a model with windows (cache/kv.h) pins the windows at such places.
 */
#include <string.h>

#include "engine/budget.h"
#include "engine/session_drafts.h"

#ifndef SNAPSHOT_EVERY      /* a test makes it smaller */
#define SNAPSHOT_EVERY 2048 /* tokens between copies in a long sync() */
#endif

/* ---- copies of the state ---- */

/* Drops the copies of states after more than n slots. */
static void drop_snapshots(struct qn_session *s, int n)
{
    int kept = 0;
    for (int i = 0; i < s->n_snapshots; i++) {
        if (s->snapshots[i].n_slots <= n)
            s->snapshots[kept++] = s->snapshots[i];
        else
            kv_state_put(s->engine->kv, s->snapshots[i].state);
    }
    s->n_snapshots = kept;
}

static void take_snapshot(struct qn_session *s, bool has_logits)
{
    struct session_copy new = {s->memory.n_slots, NULL, has_logits};
    if (!s->max_snapshots) return;
    for (int i = 0; i < s->n_snapshots; i++)
        if (s->snapshots[i].n_slots == new.n_slots) new.state = s->snapshots[i].state; /* this copy is the same */
    if (!new.state) {
        if (s->n_snapshots == s->max_snapshots) kv_state_put(s->engine->kv, s->snapshots[--s->n_snapshots].state);
        if (!(new.state = kv_state_get(s->engine->kv))) return;
        kv_state_copy(s->engine->kv, new.state, s->memory.state);
        memmove(s->snapshots + 1, s->snapshots, (size_t)s->n_snapshots++ * sizeof new);
        s->snapshots[0] = new;
    }
    if (!has_logits) return;
    for (int i = 0; i < s->n_snapshots; i++) s->snapshots[i].has_logits = s->snapshots[i].n_slots == new.n_slots;
    memcpy(s->kept_logits, s->logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->logits);
}

/* s has no copies yet, and room for as many as `from` has. */
static void copy_snapshots(struct qn_session *s, const struct qn_session *from)
{
    for (int i = 0; i < from->n_snapshots; i++) {
        struct session_copy *new = &s->snapshots[s->n_snapshots];
        *new = from->snapshots[i];
        if (!(new->state = kv_state_get(s->engine->kv))) return;
        kv_state_copy(s->engine->kv, new->state, from->snapshots[i].state);
        if (new->has_logits)
            memcpy(s->kept_logits, from->kept_logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->kept_logits);
        s->n_snapshots++;
    }
}

/* Drops all evaluated tokens except the first n. If there is no copy of the state after n tokens, or not the window
 * before them, it goes back further.
 * Returns how many evaluated tokens are left. */
static size_t cut(struct qn_session *s, size_t n)
{
    const struct session_copy *best = NULL;
    if (!s->memory.state) n = (size_t)kv_seq_whole(&s->memory, (int)n);
    if (!s->memory.state || n == (size_t)s->memory.n_slots) {
        kv_seq_truncate(&s->memory, (int)n);
        return n;
    }
    drop_snapshots(s, (int)n);
    for (int i = 0; i < s->n_snapshots; i++)
        if (!best || s->snapshots[i].n_slots > best->n_slots) best = &s->snapshots[i];
    if (best)
        kv_seq_restore(&s->memory, best->n_slots, best->state);
    else
        kv_seq_truncate(&s->memory, 0);
    return (size_t)s->memory.n_slots;
}

/* Goes back to the first n evaluated tokens, if there is a copy of the state with their logits. Otherwise false. */
static bool go_back(struct qn_session *s, size_t n)
{
    for (int i = 0; i < s->n_snapshots; i++) {
        if (s->snapshots[i].n_slots != (int)n || !s->snapshots[i].has_logits) continue;
        cut(s, n);
        memcpy(s->logits, s->kept_logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->logits);
        return true;
    }
    return false;
}

/* ---- life ---- */

/* Only the scheduler's thread may compute on the engine of a scheduler. */
int session_check_engine(const struct qn_engine *g, struct qn_error *e)
{
    if (!atomic_load(&g->is_lent)) return 0;
    return error_set(e, QN_EUSAGE, "session: its engine belongs to a scheduler");
}

static int alloc_session(struct qn_session **out, struct qn_engine *g, struct qn_error *e)
{
    size_t n_vocab = (size_t)g->model->hp.n_vocab;
    int rc = session_check_engine(g, e);
    if (rc) return rc;
    struct qn_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "a session", sizeof *s);
    s->engine = g;
    hold_get(&g->hold);
    rc = ledger_take(&g->ledger, session_bytes(g->model, g->n_ctx), "a session", e);
    if (rc) goto fail;
    s->bytes = session_bytes(g->model, g->n_ctx);
    if ((rc = kv_seq_init(&s->memory, g->kv, g->n_ctx, e))) goto fail;
    s->tokens = mem_calloc((size_t)g->n_ctx, sizeof *s->tokens);
    s->logits = mem_calloc(n_vocab, sizeof *s->logits);
    if (s->memory.state) s->kept_logits = mem_calloc(n_vocab, sizeof *s->logits);
    if (!s->tokens || !s->logits || (s->memory.state && !s->kept_logits)) {
        rc = error_nomem(e, "a session", (size_t)g->n_ctx * sizeof *s->tokens + n_vocab * sizeof *s->logits);
        goto fail;
    }
    int spare = s->memory.state ? (kv_pool_n_states(g->kv) - g->n_sessions) / g->n_sessions : 0;
    s->max_snapshots = spare < SESSION_SNAPSHOTS ? spare : SESSION_SNAPSHOTS;
    int n_windows = kv_pool_n_windows(g->kv) / g->n_sessions / (kv_window_pages(kv_pool_shape(g->kv)) + 1);
    s->max_pins = n_windows > KV_PINS ? KV_PINS : n_windows - 1; /* one is the window before the next token */
    *out = s;
    return 0;
fail:
    qn_session_free(s);
    return rc;
}

int session_new(struct qn_session **out, struct qn_engine *g, const struct qn_sampling *sampling, struct qn_error *e)
{
    struct qn_sampling def;
    struct qn_session *s = NULL;
    qn_sampling_init(&def);
    int rc = alloc_session(&s, g, e);
    if (rc) return rc;
    rc = sampler_new(&s->sampler, sampling ? sampling : &def, g->model->hp.n_vocab, &g->forward.pass.kt, e);
    if (!rc) rc = sampler_reserve(s->sampler, (size_t)g->n_ctx, e);
    if (rc) {
        qn_session_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

int qn_session_new(qn_session **out, qn_engine *g, const struct qn_sampling *sampling, struct qn_error *e)
{
    return out && g ? session_new(out, g, sampling, e) : usage_null(e, __func__);
}

void qn_session_free(qn_session *s)
{
    if (!s) return;
    session_drafts_free(s);
    drop_snapshots(s, 0);
    kv_seq_deinit(&s->memory);
    sampler_free(s->sampler);
    ledger_give(&s->engine->ledger, s->bytes);
    mem_free(s->tokens);
    mem_free(s->logits);
    mem_free(s->kept_logits);
    engine_let_go(s->engine);
    mem_free(s);
}

size_t qn_session_tokens(const qn_session *s, const qn_token **tokens)
{
    if (tokens) *tokens = s ? s->tokens : NULL;
    return s ? s->n_tokens : 0;
}

/* Evaluates the tokens that are not in memory yet. */
int session_catch_up(struct qn_session *s, struct qn_error *e)
{
    size_t done = (size_t)s->memory.n_slots;
    if (s->ready) return 0;
    int rc = engine_append(s->engine, &s->memory, s->tokens + done, s->n_tokens - done, s->logits, e);
    if (rc) return rc;
    session_drafts_read(s);
    s->ready = true;
    return 0;
}

static void keep_place(struct qn_session *s, bool has_logits)
{
    if (s->memory.state) take_snapshot(s, has_logits);
    kv_seq_pin(&s->memory, s->max_pins);
}

/* The same for many tokens: keeps copies of the state on the way. */
static int catch_up_far(struct qn_session *s, struct qn_error *e)
{
    int rc = 0;
    while ((s->memory.state || s->memory.windows) && !rc) {
        size_t done = (size_t)s->memory.n_slots, n = SNAPSHOT_EVERY - done % SNAPSHOT_EVERY;
        if (s->n_tokens - done <= n) break;
        rc = engine_append(s->engine, &s->memory, s->tokens + done, n, s->logits, e);
        if (!rc) keep_place(s, false);
    }
    if (!rc) rc = session_catch_up(s, e);
    if (!rc) keep_place(s, true);
    return rc;
}

/* Makes the timeline the sampler's history. */
static void retell(struct qn_session *s)
{
    sampler_reset(s->sampler);
    for (size_t i = 0; i < s->n_tokens; i++) sampler_accept(s->sampler, s->tokens[i]);
}

void session_restored(struct qn_session *s)
{
    session_drafts_restart(s);
    s->ready = true;
    retell(s);
    keep_place(s, true);
}

static int sync(struct qn_session *s, const qn_token *tokens, size_t n, size_t *n_kept, struct qn_error *e)
{
    int rc;
    engine_settle(s->engine);
    size_t same = 0, evaluated = (size_t)s->memory.n_slots;
    if (n == 0) return error_set(e, QN_EUSAGE, "session: no tokens: the model needs at least one to begin with");
    if (n > (size_t)s->engine->n_ctx)
        return error_set(e, QN_EFULL, "session: %zu tokens do not fit a context of %d", n, s->engine->n_ctx);
    if (n == s->n_tokens && !memcmp(tokens, s->tokens, n * sizeof *tokens)) { /* the timeline does not change */
        rc = session_catch_up(s, e);
        if (!rc && n_kept) *n_kept = evaluated;
        return rc;
    }
    while (same < n && same < evaluated && s->tokens[same] == tokens[same]) same++;
    s->ready = same == n && go_back(s, n);
    if (!s->ready) same = cut(s, same < n ? same : n - 1); /* the last token is evaluated again for its logits */
    bool goes_on = n >= s->n_tokens && !memcmp(tokens, s->tokens, s->n_tokens * sizeof *tokens);
    memmove(s->tokens, tokens, n * sizeof *tokens);
    s->n_tokens = n;
    if (!goes_on) session_drafts_restart(s);
    rc = catch_up_far(s, e);
    if (rc) { /* `logits` do not belong to the tokens that are left, so the last of them is evaluated again */
        size_t left = (size_t)s->memory.n_slots;
        s->n_tokens = left ? cut(s, left - 1) + 1 : 0;
        session_drafts_restart(s);
        retell(s);
        return rc;
    }
    retell(s);
    if (n_kept) *n_kept = same;
    return 0;
}

void qn_prefill_init(struct qn_prefill *p)
{
    if (p) *p = (struct qn_prefill){.size = sizeof *p};
}

int qn_session_sync_with(qn_session *s, const qn_token *tokens, size_t n, const struct qn_prefill *p, size_t *n_kept,
                         struct qn_error *e)
{
    int rc;
    if (!s) return usage_null(e, __func__);
    if (p && (rc = usage_size(e, "prefill", p->size, sizeof *p))) return rc;
    if ((rc = usage_array(e, __func__, "tokens", tokens, n)) || (rc = session_check_engine(s->engine, e))) return rc;
    s->engine->watch = p;
    s->engine->watch_total = n;
    rc = sync(s, tokens, n, n_kept, e);
    s->engine->watch = NULL;
    return rc;
}

int qn_session_sync(qn_session *s, const qn_token *tokens, size_t n, size_t *n_kept, struct qn_error *e)
{
    return qn_session_sync_with(s, tokens, n, NULL, n_kept, e);
}

int qn_session_set_sampling(qn_session *s, const struct qn_sampling *sampling, struct qn_error *e)
{
    struct sampler *new = NULL;
    struct qn_sampling def;
    if (!s) return usage_null(e, __func__);
    qn_sampling_init(&def);
    int rc =
        sampler_new(&new, sampling ? sampling : &def, s->engine->model->hp.n_vocab, &s->engine->forward.pass.kt, e);
    if (!rc) rc = sampler_reserve(new, (size_t)s->engine->n_ctx, e);
    if (rc) {
        sampler_free(new);
        return rc;
    }
    sampler_free(s->sampler);
    s->sampler = new;
    retell(s);
    return 0;
}

/* Makes the logits that follow the timeline. */
static int evaluate(struct qn_session *s, struct qn_error *e)
{
    bool is_next = s->n_tokens == (size_t)s->memory.n_slots + 1;
    return s->drafts && is_next && !s->ready ? session_drafts_pass(s, e) : session_catch_up(s, e);
}

static const float *next_logits(const struct qn_session *s)
{
    const float *ahead = session_drafts_logits(s);
    return ahead ? ahead : s->logits;
}

int qn_session_set_draft(qn_session *s, enum qn_draft draft, const qn_model *model, struct qn_error *e)
{
    int rc;
    if (!s) return usage_null(e, __func__);
    if (!qn_draft_name(draft)) return error_set(e, QN_EUSAGE, "session: no drafts of kind %d", (int)draft);
    if ((rc = session_check_engine(s->engine, e))) return rc;
    return session_drafts_set(s, draft, model, NULL, e);
}

int qn_session_usage(const qn_session *s, struct qn_usage *out, struct qn_error *e)
{
    if (!s || !out) return usage_null(e, __func__);
    const struct draft_seqs none = {0}, *d = s->drafts ? &s->drafts->seqs : &none;
    *out = (struct qn_usage){.n_passes = d->n_passes, .n_drafted = d->n_drafted, .n_accepted = d->n_accepted};
    return 0;
}

int qn_session_step(qn_session *s, qn_token *token, struct qn_error *e)
{
    qn_token t;
    int rc;
    if (!s || !token) return usage_null(e, __func__);
    if ((rc = session_check_engine(s->engine, e))) return rc;
    if (s->n_tokens == 0) return error_set(e, QN_EUSAGE, "session: nothing to continue: sync some tokens first");
    if (s->n_tokens == (size_t)s->engine->n_ctx)
        return error_set(e, QN_EFULL, "session: the context of %d tokens is full", s->engine->n_ctx);
    rc = evaluate(s, e);
    if (rc) return rc;
    session_drafts_draw(s);
    if ((rc = sampler_pick(s->sampler, next_logits(s), s->n_tokens, &t, e))) return rc;
    s->tokens[s->n_tokens++] = t;
    s->ready = false;
    sampler_accept(s->sampler, t);
    session_drafts_drawn(s);
    *token = t;
    return 0;
}

int qn_session_logits(qn_session *s, const float **logits, struct qn_error *e)
{
    int rc;
    if (!s || !logits) return usage_null(e, __func__);
    if ((rc = session_check_engine(s->engine, e))) return rc;
    if (s->n_tokens == 0) return error_set(e, QN_EUSAGE, "session: no tokens, so no logits");
    rc = evaluate(s, e);
    if (!rc) *logits = next_logits(s);
    return rc;
}

int qn_session_fork(qn_session **out, const qn_session *from, struct qn_error *e)
{
    struct qn_session *s = NULL;
    if (!out || !from) return usage_null(e, __func__);
    int rc = alloc_session(&s, from->engine, e);
    if (rc) return rc;
    engine_settle(from->engine); /* `from` may be ahead */
    rc = sampler_clone(&s->sampler, from->sampler, e);
    if (rc) {
        qn_session_free(s);
        return rc;
    }
    kv_seq_fork(&s->memory, &from->memory);
    copy_snapshots(s, from);
    memcpy(s->tokens, from->tokens, from->n_tokens * sizeof *s->tokens);
    memcpy(s->logits, from->logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->logits);
    s->n_tokens = from->n_tokens;
    s->ready = from->ready;
    *out = s;
    return 0;
}
