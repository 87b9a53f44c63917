/* SPDX-License-Identifier: MIT
 *
 * session.c: one timeline of tokens and what has been computed for it.
 *
 * Invariant: memory holds the keys and values of tokens[0 .. memory.n_slots); at most the last
 * token is not evaluated yet (one that was just drawn), and `ready` says that `logits` belong
 * to the whole timeline. A token is evaluated when something after it is wanted, so the last
 * token of an answer costs nothing.
 *
 * Keys and values are forgotten from any slot on; a recurrent state is not. So a session of a model with one keeps
 * copies of it: where sync() ended, with the logits, so that the same prompt again costs nothing, and on the way there.
 * A timeline that is cut goes back to the last copy that is short enough, or to its beginning. The oldest copy makes
 * room; a session has as many as are its part of the engine's states, which may be none.
 */
#include <string.h>

#include "decode/sampler.h"
#include "engine/engine.h"

#define MAX_SNAPSHOTS 6
#ifndef SNAPSHOT_EVERY      /* a test takes them more often */
#define SNAPSHOT_EVERY 2048 /* tokens of a long sync() */
#endif

struct snapshot {
    int n_slots; /* 0: none */
    uint8_t *state;
    bool has_logits; /* below */
};

struct qn_session {
    struct qn_engine *engine; /* borrowed */
    struct memory memory;
    struct sampler *sampler;
    qn_token *tokens; /* [n_ctx] */
    size_t n_tokens;
    float *logits; /* [n_vocab] */
    bool ready;
    size_t bytes;                             /* taken from the ledger */
    struct snapshot snapshots[MAX_SNAPSHOTS]; /* the first n_snapshots, the newest first */
    int n_snapshots, max_snapshots;
    float *kept_logits; /* [n_vocab] of the one that has_logits */
};

/* ---- copies of the state ---- */

/* Forgets those behind the first n slots. */
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
    struct snapshot new = {s->memory.n_slots, NULL, has_logits};
    if (!s->max_snapshots) return;
    for (int i = 0; i < s->n_snapshots; i++)
        if (s->snapshots[i].n_slots == new.n_slots) new.state = s->snapshots[i].state; /* it is what it would become */
    if (!new.state) {
        if (s->n_snapshots == s->max_snapshots) kv_state_put(s->engine->kv, s->snapshots[--s->n_snapshots].state);
        if (!(new.state = kv_state_get(s->engine->kv))) return;
        memcpy(new.state, s->memory.state, kv_pool_shape(s->engine->kv)->state_bytes);
        memmove(s->snapshots + 1, s->snapshots, (size_t)s->n_snapshots++ * sizeof new);
        s->snapshots[0] = new;
    }
    if (!has_logits) return;
    for (int i = 0; i < s->n_snapshots; i++) s->snapshots[i].has_logits = s->snapshots[i].n_slots == new.n_slots;
    memcpy(s->kept_logits, s->logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->logits);
}

/* s has none yet, and room for as many. */
static void copy_snapshots(struct qn_session *s, const struct qn_session *from)
{
    for (int i = 0; i < from->n_snapshots; i++) {
        struct snapshot *new = &s->snapshots[s->n_snapshots];
        *new = from->snapshots[i];
        if (!(new->state = kv_state_get(s->engine->kv))) return;
        memcpy(new->state, from->snapshots[i].state, kv_pool_shape(s->engine->kv)->state_bytes);
        if (new->has_logits)
            memcpy(s->kept_logits, from->kept_logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->kept_logits);
        s->n_snapshots++;
    }
}

/* Forgets all but the first n evaluated tokens, and, where the state has no copy there, more. Returns how many are
 * left.
 */
static size_t cut(struct qn_session *s, size_t n)
{
    const struct snapshot *best = NULL;
    if (!s->memory.state || n == (size_t)s->memory.n_slots) {
        memory_truncate(&s->memory, (int)n);
        return n;
    }
    drop_snapshots(s, (int)n);
    for (int i = 0; i < s->n_snapshots; i++)
        if (!best || s->snapshots[i].n_slots > best->n_slots) best = &s->snapshots[i];
    if (best)
        memory_restore(&s->memory, best->n_slots, best->state);
    else
        memory_truncate(&s->memory, 0);
    return (size_t)s->memory.n_slots;
}

/* Goes back to the first n evaluated tokens, if there is a copy with their logits. */
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

size_t session_bytes(const struct model *m, int n_ctx)
{
    size_t n_vocab = (size_t)m->hp.n_vocab, n = (size_t)n_ctx;
    size_t logits = (m->hp.state_bytes ? 2 : 1) * n_vocab * sizeof(float);
    return sizeof(struct qn_session) + n * sizeof(qn_token) + logits + sampler_bytes(m->hp.n_vocab, n);
}

static int alloc_session(struct qn_session **out, struct qn_engine *g, struct qn_error *e)
{
    size_t n_vocab = (size_t)g->model->hp.n_vocab;
    struct qn_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "a session", sizeof *s);
    s->engine = g;
    int rc = ledger_take(&g->ledger, session_bytes(g->model, g->n_ctx), "a session", e);
    if (rc) goto fail;
    s->bytes = session_bytes(g->model, g->n_ctx);
    if ((rc = memory_init(&s->memory, g->kv, g->n_ctx, e))) goto fail;
    s->tokens = mem_calloc((size_t)g->n_ctx, sizeof *s->tokens);
    s->logits = mem_calloc(n_vocab, sizeof *s->logits);
    if (s->memory.state) s->kept_logits = mem_calloc(n_vocab, sizeof *s->logits);
    if (!s->tokens || !s->logits || (s->memory.state && !s->kept_logits)) {
        rc = error_nomem(e, "a session", (size_t)g->n_ctx * sizeof *s->tokens + n_vocab * sizeof *s->logits);
        goto fail;
    }
    int spare = s->memory.state ? (kv_pool_n_states(g->kv) - g->n_sessions) / g->n_sessions : 0;
    s->max_snapshots = spare < MAX_SNAPSHOTS ? spare : MAX_SNAPSHOTS;
    *out = s;
    return 0;
fail:
    qn_session_free(s);
    return rc;
}

int qn_session_new(qn_session **out, qn_engine *g, const struct qn_sampling *sampling, struct qn_error *e)
{
    struct qn_sampling def;
    struct qn_session *s = NULL;
    qn_sampling_init(&def);
    int rc = alloc_session(&s, g, e);
    if (rc) return rc;
    rc = sampler_new(&s->sampler, sampling ? sampling : &def, g->model->hp.n_vocab, &g->step.kt, e);
    if (!rc) rc = sampler_reserve(s->sampler, (size_t)g->n_ctx, e);
    if (rc) {
        qn_session_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void qn_session_free(qn_session *s)
{
    if (!s) return;
    drop_snapshots(s, 0);
    memory_deinit(&s->memory);
    sampler_free(s->sampler);
    ledger_give(&s->engine->ledger, s->bytes);
    mem_free(s->tokens);
    mem_free(s->logits);
    mem_free(s->kept_logits);
    mem_free(s);
}

size_t qn_session_tokens(const qn_session *s, const qn_token **tokens)
{
    *tokens = s->tokens;
    return s->n_tokens;
}

/* Evaluates the tokens that memory does not hold yet. */
static int catch_up(struct qn_session *s, struct qn_error *e)
{
    size_t done = (size_t)s->memory.n_slots;
    if (s->ready) return 0;
    int rc = engine_append(s->engine, &s->memory, s->tokens + done, s->n_tokens - done, s->logits, e);
    if (!rc) s->ready = true;
    return rc;
}

/* The same for many tokens, which leaves copies of the state. */
static int catch_up_far(struct qn_session *s, struct qn_error *e)
{
    int rc = 0;
    while (s->memory.state && !rc) {
        size_t done = (size_t)s->memory.n_slots, n = SNAPSHOT_EVERY - done % SNAPSHOT_EVERY;
        if (s->n_tokens - done <= n) break;
        rc = engine_append(s->engine, &s->memory, s->tokens + done, n, s->logits, e);
        if (!rc) take_snapshot(s, false);
    }
    if (!rc) rc = catch_up(s, e);
    if (!rc && s->memory.state) take_snapshot(s, true);
    return rc;
}

/* The sampler looks back at the timeline and nothing else. */
static void retell(struct qn_session *s)
{
    sampler_reset(s->sampler);
    for (size_t i = 0; i < s->n_tokens; i++) sampler_accept(s->sampler, s->tokens[i]);
}

int qn_session_sync(qn_session *s, const qn_token *tokens, size_t n, size_t *n_kept, struct qn_error *e)
{
    size_t same = 0, evaluated = (size_t)s->memory.n_slots;
    if (n == 0) return error_set(e, QN_EUSAGE, "session: no tokens: the model needs at least one to begin with");
    if (n > (size_t)s->engine->n_ctx)
        return error_set(e, QN_EFULL, "session: %zu tokens do not fit a context of %d", n, s->engine->n_ctx);
    if (n == s->n_tokens && !memcmp(tokens, s->tokens, n * sizeof *tokens)) { /* the timeline as it is */
        int rc = catch_up(s, e);
        if (!rc && n_kept) *n_kept = evaluated;
        return rc;
    }
    while (same < n && same < evaluated && s->tokens[same] == tokens[same]) same++;
    s->ready = same == n && go_back(s, n);
    if (!s->ready) same = cut(s, same < n ? same : n - 1); /* the last row is computed again for its logits */
    memmove(s->tokens, tokens, n * sizeof *tokens);
    s->n_tokens = n;
    int rc = catch_up_far(s, e);
    if (rc) { /* what is left ends where `logits` do not: its last token is to be evaluated again */
        size_t left = (size_t)s->memory.n_slots;
        s->n_tokens = left ? cut(s, left - 1) + 1 : 0;
        retell(s);
        return rc;
    }
    retell(s);
    if (n_kept) *n_kept = same;
    return 0;
}

int qn_session_step(qn_session *s, qn_token *token, struct qn_error *e)
{
    qn_token t;
    if (s->n_tokens == 0) return error_set(e, QN_EUSAGE, "session: nothing to continue: sync some tokens first");
    if (s->n_tokens == (size_t)s->engine->n_ctx)
        return error_set(e, QN_EFULL, "session: the context of %d tokens is full", s->engine->n_ctx);
    int rc = catch_up(s, e);
    if (!rc) rc = sampler_pick(s->sampler, s->logits, s->n_tokens, &t, e);
    if (rc) return rc;
    s->tokens[s->n_tokens++] = t;
    s->ready = false;
    sampler_accept(s->sampler, t);
    *token = t;
    return 0;
}

int qn_session_logits(qn_session *s, const float **logits, struct qn_error *e)
{
    if (s->n_tokens == 0) return error_set(e, QN_EUSAGE, "session: no tokens, so no logits");
    int rc = catch_up(s, e);
    if (!rc) *logits = s->logits;
    return rc;
}

int qn_session_fork(qn_session **out, const qn_session *from, struct qn_error *e)
{
    struct qn_session *s = NULL;
    int rc = alloc_session(&s, from->engine, e);
    if (rc) return rc;
    rc = sampler_clone(&s->sampler, from->sampler, e);
    if (rc) {
        qn_session_free(s);
        return rc;
    }
    memory_fork(&s->memory, &from->memory);
    copy_snapshots(s, from);
    memcpy(s->tokens, from->tokens, from->n_tokens * sizeof *s->tokens);
    memcpy(s->logits, from->logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->logits);
    s->n_tokens = from->n_tokens;
    s->ready = from->ready;
    *out = s;
    return 0;
}
