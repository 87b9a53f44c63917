/* SPDX-License-Identifier: MIT
 *
 * engine.c: making an engine, and feeding one sequence to the forward pass. See engine.h.
 */
#include "engine/engine.h"

#include <assert.h>
#include <string.h>

#include "base/os.h"
#include "kernel/cpu.h"

#define DEFAULT_CTX   4096
#define DEFAULT_BATCH 512

void qn_engine_params_init(struct qn_engine_params *p)
{
    *p = (struct qn_engine_params){.size = sizeof *p, .n_sessions = 1, .kv = QN_KV_F16};
}

int qn_engine_n_ctx(const qn_engine *g) { return g->n_ctx; }

/* Resolves the zeros and checks the ranges. */
static int settle(struct qn_engine_params *p, const struct model *m, enum cpu_level *level, struct qn_error *e)
{
    if (p->size != sizeof *p)
        return error_set(e, QN_EUSAGE, "engine: parameter struct of %zu bytes, %zu expected", p->size, sizeof *p);
    if (p->n_threads < 0 || p->n_threads > 1024)
        return error_set(e, QN_EUSAGE, "engine: %d threads, not 0..1024", p->n_threads);
    if (p->n_ctx < 0 || p->n_ctx > HP_MAX_CTX)
        return error_set(e, QN_EUSAGE, "engine: context of %d tokens, not 0..%d", p->n_ctx, HP_MAX_CTX);
    if (p->n_batch < 0 || p->n_batch > 65536)
        return error_set(e, QN_EUSAGE, "engine: batch of %d rows, not 0..65536", p->n_batch);
    if (p->n_sessions < 1 || p->n_sessions > 65536)
        return error_set(e, QN_EUSAGE, "engine: %d sessions, not 1..65536", p->n_sessions);
    if ((unsigned)p->kv > QN_KV_Q8_0) return error_set(e, QN_EUSAGE, "engine: unknown KV type %d", (int)p->kv);
    if (!p->n_threads) p->n_threads = os_n_cpus();
    if (!p->n_ctx) p->n_ctx = m->hp.n_ctx_train < DEFAULT_CTX ? m->hp.n_ctx_train : DEFAULT_CTX;
    if (!p->n_batch) p->n_batch = DEFAULT_BATCH;
    if (p->n_batch > p->n_ctx) p->n_batch = p->n_ctx;
    if (!p->memory_bytes) p->memory_bytes = os_memory_bytes();
    int l = p->cpu ? cpu_level_parse(p->cpu) : (int)cpu_best();
    char list[CPU_LIST_BYTES];
    if (l < 0)
        return error_set(e, QN_EUSAGE, "engine: unknown instruction set '%s' (this machine has %s)", p->cpu,
                         cpu_level_list(list));
    if (!cpu_has((enum cpu_level)l))
        return error_set(e, QN_EUNSUP, "engine: this machine has no %s (it has %s)", p->cpu, cpu_level_list(list));
    *level = (enum cpu_level)l;
    return 0;
}

static struct kv_shape kv_shape_of(const struct model *m, enum qn_kv kv)
{
    static const enum kv_type types[] = {[QN_KV_F16] = KV_F16, [QN_KV_F32] = KV_F32, [QN_KV_Q8_0] = KV_Q8_0};
    return (struct kv_shape){types[kv], m->hp.n_layer, m->hp.n_head_kv, m->hp.head_dim, KV_PAGE_SLOTS};
}

/* Slots of the KV pool: every session's context in whole pages. */
static int64_t pool_slots(const struct qn_engine_params *p)
{
    int64_t pages = (p->n_ctx + KV_PAGE_SLOTS - 1) / KV_PAGE_SLOTS;
    return pages * p->n_sessions * KV_PAGE_SLOTS;
}

/* Says no before anything is allocated, with all the numbers. */
static int check_budget(const struct model *m, const struct qn_engine_params *p, struct qn_error *e)
{
    struct kv_shape shape = kv_shape_of(m, p->kv);
    uint64_t weights = weights_tensor_bytes(m->weights);
    uint64_t kv = kv_page_bytes(&shape) * (uint64_t)(pool_slots(p) / KV_PAGE_SLOTS);
    uint64_t buffers = step_bytes(m, p->n_batch, p->n_threads) + session_bytes(m, p->n_ctx) * (uint64_t)p->n_sessions;
    uint64_t left = p->memory_bytes;
    bool fits = weights <= left && kv <= (left -= weights) && buffers <= left - kv; /* sums could wrap */
    if (pool_slots(p) > INT32_MAX)
        return error_set(e, QN_EUSAGE, "engine: %d sessions of %d tokens are %lld in sum, more than %d", p->n_sessions,
                         p->n_ctx, (long long)pool_slots(p), INT32_MAX);
    if (fits) return 0;
    return error_set(
        e, QN_ENOMEM,
        "engine: %llu bytes needed (weights %llu, KV cache %llu for %lld tokens, buffers %llu), the memory "
        "budget is %llu bytes",
        (unsigned long long)(weights + kv + buffers), (unsigned long long)weights, (unsigned long long)kv,
        (long long)pool_slots(p), (unsigned long long)buffers, (unsigned long long)p->memory_bytes);
}

static int alloc_batch(struct qn_engine *g, struct qn_error *e)
{
    size_t n = (size_t)g->n_batch;
    g->pos = mem_calloc(n, sizeof *g->pos);
    g->slot = mem_calloc(n, sizeof *g->slot);
    g->seq = mem_calloc(n, sizeof *g->seq);
    g->want = mem_calloc(n, sizeof *g->want);
    return g->pos && g->slot && g->seq && g->want ? 0 : error_nomem(e, "a batch", n * 13);
}

int qn_engine_new(qn_engine **out, const qn_model *model, const struct qn_engine_params *params, struct qn_error *e)
{
    const struct model *m = model->model;
    struct qn_engine_params p;
    struct kernels kt;
    enum cpu_level level = CPU_REF;
    struct kv_shape shape;
    int rc;
    if (params)
        p = *params;
    else
        qn_engine_params_init(&p);
    if ((rc = settle(&p, m, &level, e))) return rc;
    if ((rc = check_budget(m, &p, e))) return rc;
    struct qn_engine *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(e, "an engine", sizeof *g);
    g->model = m;
    g->n_ctx = p.n_ctx;
    g->n_batch = p.n_batch;
    ledger_init(&g->ledger, p.memory_bytes);
    if ((rc = ledger_take(&g->ledger, weights_tensor_bytes(m->weights), "the weights", e))) goto fail;
    g->weight_bytes = weights_tensor_bytes(m->weights);
    if ((rc = alloc_batch(g, e))) goto fail;
    if ((rc = pool_new(&g->pool, p.n_threads, p.n_threads > 1, e))) goto fail;
    shape = kv_shape_of(m, p.kv);
    if ((rc = kv_pool_new(&g->kv, &shape, (int)pool_slots(&p), &g->ledger, e))) goto fail;
    kernels_init(&kt, level);
    if ((rc = step_init(&g->step, m, &kt, g->pool, p.n_batch, p.n_ctx, &g->ledger, e))) goto fail;
    *out = g;
    return 0;
fail:
    qn_engine_free(g);
    return rc;
}

void qn_engine_free(qn_engine *g)
{
    if (!g) return;
    step_deinit(&g->step);
    kv_pool_free(g->kv);
    pool_free(g->pool);
    ledger_give(&g->ledger, g->weight_bytes);
    assert(ledger_used(&g->ledger) == 0);
    mem_free(g->pos);
    mem_free(g->slot);
    mem_free(g->seq);
    mem_free(g->want);
    mem_free(g);
}

/* ---- one sequence ---- */

/* Runs rows [m->n_slots, + n) of one sequence; g->want is set by the caller. */
static void run_chunk(struct qn_engine *g, struct memory *m, const qn_token *tokens, int n, float *logits)
{
    for (int i = 0; i < n; i++) {
        g->pos[i] = g->slot[i] = m->n_slots + i;
        g->seq[i] = 0;
    }
    const struct batch b = {n, tokens, g->pos, g->slot, g->seq, g->want};
    step_run(&g->step, &b, &m, logits);
    memory_extend(m, m->n_slots + n);
}

static int check_tokens(const struct qn_engine *g, const struct memory *m, const qn_token *tokens, size_t n,
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

int engine_append(struct qn_engine *g, struct memory *m, const qn_token *tokens, size_t n, float *logits,
                  struct qn_error *e)
{
    int rc = check_tokens(g, m, tokens, n, e);
    if (rc) return rc;
    if ((rc = memory_reserve(m, m->n_slots + (int)n, e))) return rc;
    for (size_t done = 0; done < n;) {
        int rows = n - done < (size_t)g->n_batch ? (int)(n - done) : g->n_batch;
        memset(g->want, 0, (size_t)rows);
        if (done + (size_t)rows == n) g->want[rows - 1] = 1;
        run_chunk(g, m, tokens + done, rows, logits);
        done += (size_t)rows;
    }
    return 0;
}

int engine_append_all(struct qn_engine *g, struct memory *m, const qn_token *tokens, size_t n, int every,
                      float *scratch, engine_sink *sink, void *arg, struct qn_error *e)
{
    int rc = check_tokens(g, m, tokens, n, e);
    if (rc) return rc;
    if ((rc = memory_reserve(m, m->n_slots + (int)n, e))) return rc;
    for (size_t done = 0; done < n;) {
        int rows = n - done < (size_t)g->n_batch ? (int)(n - done) : g->n_batch, n_want = 0;
        for (int i = 0; i < rows; i++) n_want += g->want[i] = (m->n_slots + i) % every == 0;
        run_chunk(g, m, tokens + done, rows, scratch);
        for (int i = 0; i < n_want; i++)
            if ((rc = sink(arg, scratch + (size_t)i * (size_t)g->model->hp.n_vocab, e))) return rc;
        done += (size_t)rows;
    }
    return 0;
}
