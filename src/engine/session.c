/* SPDX-License-Identifier: MIT
 *
 * session.c: one timeline of tokens and what has been computed for it.
 *
 * Invariant: memory holds the keys and values of tokens[0 .. memory.n_slots); at most the last
 * token is not evaluated yet (one that was just drawn), and `ready` says that `logits` belong
 * to the whole timeline. A token is evaluated when something after it is wanted, so the last
 * token of an answer costs nothing.
 */
#include <string.h>

#include "decode/sampler.h"
#include "engine/engine.h"

struct qn_session {
    struct qn_engine *engine; /* borrowed */
    struct memory memory;
    struct sampler *sampler;
    qn_token *tokens; /* [n_ctx] */
    size_t n_tokens;
    float *logits; /* [n_vocab] */
    bool ready;
    size_t bytes; /* taken from the ledger */
};

size_t session_bytes(const struct model *m, int n_ctx)
{
    size_t n_vocab = (size_t)m->hp.n_vocab, n = (size_t)n_ctx;
    return sizeof(struct qn_session) + n * sizeof(qn_token) + n_vocab * sizeof(float) + sampler_bytes(m->hp.n_vocab, n);
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
    if (!s->tokens || !s->logits) {
        rc = error_nomem(e, "a session", (size_t)g->n_ctx * sizeof *s->tokens + n_vocab * sizeof *s->logits);
        goto fail;
    }
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
    memory_deinit(&s->memory);
    sampler_free(s->sampler);
    ledger_give(&s->engine->ledger, s->bytes);
    mem_free(s->tokens);
    mem_free(s->logits);
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

/* The sampler looks back at the timeline and nothing else. */
static void retell(struct qn_session *s)
{
    sampler_reset(s->sampler);
    for (size_t i = 0; i < s->n_tokens; i++) sampler_accept(s->sampler, s->tokens[i]);
}

/* Forgets all but the first n evaluated tokens, or all of them: a recurrent state cannot be cut. What is left. */
static size_t cut(struct qn_session *s, size_t n)
{
    if (s->memory.state && n < (size_t)s->memory.n_slots) n = 0;
    memory_truncate(&s->memory, (int)n);
    return n;
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
    if (same == n) same = n - 1; /* the last row is computed again for its logits */
    same = cut(s, same);
    memmove(s->tokens, tokens, n * sizeof *tokens);
    s->n_tokens = n;
    s->ready = false;
    int rc = catch_up(s, e);
    if (rc) { /* what is left ends where `logits` do not: its last token is to be evaluated again */
        s->n_tokens = (size_t)s->memory.n_slots;
        if (s->n_tokens) cut(s, s->n_tokens - 1);
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
    memcpy(s->tokens, from->tokens, from->n_tokens * sizeof *s->tokens);
    memcpy(s->logits, from->logits, (size_t)s->engine->model->hp.n_vocab * sizeof *s->logits);
    s->n_tokens = from->n_tokens;
    s->ready = from->ready;
    *out = s;
    return 0;
}
