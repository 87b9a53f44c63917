/* SPDX-License-Identifier: MIT
 *
 * engine.c: makes an engine, and feeds one sequence to the forward pass. See engine.h.
 */
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "engine/budget.h"
#include "engine/core/stage.h"

void qn_engine_params_init(struct qn_engine_params *p)
{
    if (p) *p = (struct qn_engine_params){.size = sizeof *p, .n_sessions = 1, .kv = QN_KV_F16};
}

int qn_engine_n_ctx(const qn_engine *g) { return g ? g->n_ctx : 0; }

/* The system drops weights when memory is used up, not when it is reserved. So weights can use the room of the KV cache
 * while that is nearly empty. Because weights are read in turn, all of them are dropped before they are needed again,
 * even if only a few do not fit. */
static void warn_of_disk(const struct model *m, const struct qn_engine_params *p, const struct budget *b)
{
    struct kv_shape shape = budget_kv_shape(m, p->kv);
    uint64_t room = b->room + b->kv; /* with an empty KV cache */
    char when[64] = "";
    if (room >= b->weights)
        snprintf(when, sizeof when, " once the KV cache holds about %llu tokens",
                 (unsigned long long)((room - b->weights) / (kv_page_bytes(&shape) / (uint64_t)shape.page_slots)));
    log_at(LOG_WARN,
           "%.2f GB of weights, %.2f GB of memory left for them next to a full KV cache: %s from disk again for "
           "every token%s%s",
           1e-9 * (double)b->weights, 1e-9 * (double)b->room, p->lock_weights ? "the rest is read" : "they are read",
           when, p->lock_weights ? "" : " (--mlock keeps those that fit)");
}

/* Warns if not all weights fit, and locks those that do if the caller asked for it. Returns the bytes locked. */
static uint64_t place_weights(const struct model *m, const struct qn_engine_params *p, const struct budget *b)
{
    uint64_t keep = b->weights, locked = 0;
    if (b->room < b->weights) {
        keep = b->room - STREAM_BYTES;
        warn_of_disk(m, p, b);
    }
    if (!p->lock_weights) return 0;
    int error = weights_lock(m->weights, keep, budget_rows_only(m), &locked);
    if (error)
        log_at(LOG_WARN, "only %.2f of %.2f GB of weights are locked in memory: %s; the limit (ulimit -l) is %zu KB",
               1e-9 * (double)locked, 1e-9 * (double)keep, strerror(error), os_lock_limit() / 1024);
    return locked;
}

typedef struct kv_shape shape_fn(const struct model *m, enum kv_type type);

/* shape: not NULL for a head. Its buffers are those of the smallest pass, because no pass uses them. */
static int make(qn_engine **out, const qn_model *model, const struct qn_engine_params *params, shape_fn *head_shape,
                struct qn_error *e)
{
    struct qn_engine_params p;
    struct kernels kt;
    enum cpu_level level = CPU_REF;
    struct kv_shape shape;
    struct budget b = {0};
    int rc;
    if (!out || !model) return usage_null(e, __func__);
    if (params && (rc = usage_size(e, "engine", params->size, sizeof p))) return rc;
    const struct model *m = model->model;
    if (params)
        p = *params;
    else
        qn_engine_params_init(&p);
    if ((rc = budget_settle(&p, m, &level, e))) return rc;
    shape = budget_kv_shape(m, p.kv);
    if (head_shape) shape = head_shape(m, shape.type);
    if ((rc = head_shape ? budget_check_head(m, &shape, &p, &b, e) : budget_check(m, &p, &b, e))) return rc;
    struct qn_engine *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(e, "an engine", sizeof *g);
    hold_init(&g->hold);
    g->handle = model_hold(model);
    g->model = m;
    g->n_ctx = p.n_ctx;
    g->n_batch = p.n_batch;
    g->n_sessions = p.n_sessions;
    ledger_init(&g->ledger, p.memory_bytes);
    uint64_t weights = b.room < b.weights ? b.room : b.weights;
    if ((rc = ledger_take(&g->ledger, weights, "the weights", e))) goto fail;
    g->weight_bytes = weights;
    if ((rc = batch_init(&g->batch, p.n_batch, e))) goto fail;
    if ((rc = pool_new(&g->pool, p.n_threads, p.n_threads > 1, e))) goto fail;
    if ((rc = kv_pool_new(&g->kv, &shape, p.kv_tokens, b.n_states, b.n_windows, &g->ledger, e))) goto fail;
    kernels_init(&kt, level);
    if ((rc = forward_init(&g->forward, m, &kt, g->pool, head_shape ? 1 : p.n_batch, p.n_sessions, p.n_ctx, &g->ledger,
                           e)))
        goto fail;
    g->is_head = head_shape != NULL;
    g->forward.pass.is_streaming = g->is_head || b.room < b.weights;
    if (!g->is_head) g->locked_bytes = place_weights(m, &p, &b);
    *out = g;
    return 0;
fail:
    qn_engine_free(g);
    return rc;
}

int qn_engine_new(qn_engine **out, const qn_model *model, const struct qn_engine_params *params, struct qn_error *e)
{
    return make(out, model, params, NULL, e);
}

int engine_new_head(qn_engine **out, const qn_model *model, const struct qn_engine_params *params, shape_fn *shape,
                    struct qn_error *e)
{
    struct qn_engine_params p = *params;
    p.n_threads = 1; /* the layers need the CPUs */
    model->model->has_nextn = false;
    return make(out, model, &p, shape, e);
}

void engine_set_stage(struct qn_engine *g, const struct stage *stage) { g->stage = stage; }

void engine_make_room(struct qn_engine *g, size_t bytes)
{
    size_t left = g->ledger.budget - ledger_used(&g->ledger), missing = bytes > left ? bytes - left : 0;
    size_t floor = g->locked_bytes > STREAM_BYTES ? g->locked_bytes : STREAM_BYTES;
    size_t spare = g->weight_bytes > floor ? g->weight_bytes - floor : 0;
    if (missing > spare) missing = spare;
    ledger_give(&g->ledger, missing);
    g->weight_bytes -= missing;
}

static void free_engine(struct qn_engine *g)
{
    if (g->stage) g->stage->ops->close(g->stage->arg);
    forward_deinit(&g->forward);
    kv_pool_free(g->kv);
    pool_free(g->pool);
    ledger_give(&g->ledger, g->weight_bytes);
    assert(ledger_used(&g->ledger) == 0);
    batch_deinit(&g->batch);
    model_let_go(g->handle);
    mem_free(g);
}

void engine_let_go(struct qn_engine *g)
{
    if (g && hold_put(&g->hold)) free_engine(g);
}

void qn_engine_free(qn_engine *g)
{
    if (g && hold_give_up(&g->hold, __func__)) free_engine(g);
}

/* ---- one sequence ---- */

void engine_settle(struct qn_engine *g)
{
    void (*settle)(void *arg) = g->settle;
    g->settle = NULL;
    if (settle) settle(g->settle_arg);
}

static bool is_cancelled(const struct qn_engine *g)
{
    return g->watch && g->watch->is_cancelled && g->watch->is_cancelled(g->watch->arg);
}

/* Runs the engine's batch, whose rows continue the sequence m. QN_ECANCEL: g->watch cancelled it; m is unchanged. */
static int run_batch(struct qn_engine *g, struct kv_seq *m, float *logits, struct qn_error *e)
{
    struct pass *pass = &g->forward.pass;
    int rc = kv_seq_open(m, m->n_slots, m->n_slots + g->batch.n, e);
    if (rc) return rc;
    if (g->watch) {
        pass->is_cancelled = g->watch->is_cancelled;
        pass->cancel_arg = g->watch->arg;
    }
    bool done = !is_cancelled(g) && forward_run(&g->forward, &g->batch, &m, logits);
    pass->is_cancelled = NULL;
    if (!done) return error_set(e, QN_ECANCEL, "session: cancelled after %d tokens", m->n_slots);
    kv_seq_extend(m, m->n_slots + g->batch.n);
    if (g->watch && g->watch->progress) g->watch->progress(g->watch->arg, (size_t)m->n_slots, g->watch_total);
    return 0;
}

static int check_tokens(const struct qn_engine *g, const struct kv_seq *m, const qn_token *tokens, size_t n,
                        struct qn_error *e)
{
    if (n > (size_t)(g->n_ctx - m->n_slots))
        return error_set(e, QN_EFULL, "session: %zu tokens do not fit: the context is %d tokens, %d are used", n,
                         g->n_ctx, m->n_slots);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= g->model->hp.n_vocab)
            return error_set(e, QN_EUSAGE, "session: token %zu is %d, not in 0..%d", i, tokens[i],
                             g->model->hp.n_vocab - 1);
    return 0;
}

int engine_append(struct qn_engine *g, struct kv_seq *m, const qn_token *tokens, size_t n, float *logits,
                  struct qn_error *e)
{
    engine_settle(g);
    int rc = check_tokens(g, m, tokens, n, e);
    if (rc) return rc;
    if ((rc = kv_seq_reserve(m, m->n_slots + (int)n, e))) return rc;
    for (size_t done = 0; done < n;) {
        int rows = n - done < (size_t)g->n_batch ? (int)(n - done) : g->n_batch;
        batch_clear(&g->batch);
        for (int i = 0; i < rows; i++, done++) batch_add(&g->batch, tokens[done], m->n_slots + i, 0, done + 1 == n);
        if ((rc = run_batch(g, m, logits, e))) return rc;
    }
    return 0;
}

int engine_append_all(struct qn_engine *g, struct kv_seq *m, const qn_token *tokens, size_t n, int every,
                      float *scratch, engine_sink *sink, void *arg, struct qn_error *e)
{
    engine_settle(g);
    int rc = check_tokens(g, m, tokens, n, e);
    if (rc) return rc;
    if ((rc = kv_seq_reserve(m, m->n_slots + (int)n, e))) return rc;
    for (size_t done = 0; done < n;) {
        int rows = n - done < (size_t)g->n_batch ? (int)(n - done) : g->n_batch, n_want = 0;
        batch_clear(&g->batch);
        for (int i = 0; i < rows; i++, done++) {
            bool want = (m->n_slots + i) % every == 0;
            batch_add(&g->batch, tokens[done], m->n_slots + i, 0, want);
            n_want += want;
        }
        if ((rc = run_batch(g, m, scratch, e))) return rc;
        for (int i = 0; i < n_want; i++)
            if ((rc = sink(arg, scratch + (size_t)i * (size_t)g->model->hp.n_vocab, e))) return rc;
    }
    return 0;
}
