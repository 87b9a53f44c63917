/* SPDX-License-Identifier: MIT
 *
 * account.c: predicts and measures a forward pass, operation by operation. See account.h.
 */
#include "cli/measure/account.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"
#include "kernel/cost/cost.h"

#define OPS_PER_LAYER 20

/* A batch of n rows after `depth` slots, the last n_logits of which want logits. */
static int make_batch(struct batch *b, int n, int depth, int n_logits, int n_vocab, struct qn_error *e)
{
    int rc = batch_init(b, n, e);
    for (int i = 0; i < n && !rc; i++) {
        qn_token token = (qn_token)(rng_u64(1, 0, (uint64_t)i) % (uint64_t)n_vocab);
        batch_add(b, token, depth + i, 0, i >= n - n_logits);
    }
    return rc;
}

static int alloc_ops(struct trace *t, const struct model *m, struct qn_error *e)
{
    t->cap = m->hp.n_layer * OPS_PER_LAYER + 8;
    t->ops = mem_calloc((size_t)t->cap, sizeof *t->ops);
    return t->ops ? 0 : error_nomem(e, "a trace", (size_t)t->cap * sizeof *t->ops);
}

static void add_up(struct account *a)
{
    a->bytes = a->macs_int8 = a->macs_f32 = a->n_experts = 0;
    for (int i = 0; i < a->n; i++) {
        a->bytes += a->ops[i].bytes;
        a->macs_int8 += a->ops[i].macs_int8;
        a->macs_f32 += a->ops[i].macs_f32;
        a->n_experts += (uint64_t)a->ops[i].n_experts;
    }
}

/* Scales an operation whose bytes all belong to experts. */
static void scale_experts(struct trace_op *op, double factor)
{
    op->bytes = (uint64_t)((double)op->bytes * factor + 0.5);
    op->n_experts = (int)(op->n_experts * factor + 0.5);
}

void account_scale_experts(struct account *a, double factor)
{
    for (int i = 0; i < a->n; i++)
        if (a->ops[i].n_experts) scale_experts(&a->ops[i], factor);
    add_up(a);
}

int account_cost(struct account *a, const struct model *m, enum kv_type kv, int n_rows, int depth, int n_logits,
                 struct qn_error *e)
{
    struct kernels kt;
    struct ledger l;
    struct pool *pool = NULL;
    struct kv_pool *kvp = NULL;
    struct kv_seq mem = {0}, *mems = &mem;
    struct forward forward = {0};
    struct trace t = {0};
    struct batch b = {0};
    float *logits = NULL; /* [n_logits][n_vocab], never written */
    size_t logits_bytes = (size_t)n_logits * (size_t)m->hp.n_vocab * sizeof *logits;
    struct kv_shape shape = forward_kv_shape(m, kv);
    int rc;
    ledger_init(&l, SIZE_MAX); /* this takes address space only: nothing is written */
    kernels_init_cost(&kt);
    if ((rc = pool_new(&pool, 1, 0, e))) goto done;
    if ((rc = kv_pool_new(&kvp, &shape, depth + n_rows, 1, 0, &l, e))) goto done;
    if ((rc = kv_seq_init(&mem, kvp, depth + n_rows, e))) goto done;
    if ((rc = kv_seq_reserve(&mem, depth + n_rows, e))) goto done;
    if ((rc = forward_init(&forward, m, &kt, pool, n_rows, 1, depth + n_rows, &l, e))) goto done;
    if ((rc = make_batch(&b, n_rows, depth, n_logits, m->hp.n_vocab, e))) goto done;
    if ((rc = alloc_ops(&t, m, e))) goto done;
    logits = mem_alloc(logits_bytes);
    if (!logits) {
        rc = error_nomem(e, "logits", logits_bytes);
        goto done;
    }
    forward.pass.trace = &t;
    forward_run(&forward, &b, &mems, logits);
    *a = (struct account){.ops = t.ops, .n = t.n};
    add_up(a);
    t.ops = NULL;
done:
    mem_free(t.ops);
    mem_free(logits);
    batch_deinit(&b);
    forward_deinit(&forward);
    kv_seq_deinit(&mem);
    kv_pool_free(kvp);
    pool_free(pool);
    return rc;
}

int account_fill(struct kv_seq *m, int depth, struct qn_error *e)
{
    const struct kv_shape *shape = kv_pool_shape(m->pool);
    size_t page_bytes = kv_page_bytes(shape), machine = os_memory_bytes();
    if ((size_t)m->max_pages > machine / page_bytes)
        return error_set(e, QN_ENOMEM, "the keys and values of %lld tokens are %llu bytes, this machine has %zu left",
                         (long long)m->max_pages * KV_PAGE_SLOTS,
                         (unsigned long long)page_bytes * (unsigned)m->max_pages, machine);
    int rc = kv_seq_reserve(m, depth, e);
    if (!rc) rc = kv_seq_open(m, kv_window_first(shape, depth) * shape->page_slots, depth, e);
    if (rc) return rc;
    for (int i = 0; i < m->n_pages; i++) memset(m->pages[i], 0x11, page_bytes);
    for (int i = 0; m->windows && i < m->n_pages; i++)
        if (m->windows[i]) memset(m->windows[i], 0x11, kv_window_page_bytes(shape));
    kv_seq_extend(m, depth);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* Runs the batch once; with t, operation by operation. */
static uint64_t run_once(struct qn_engine *g, const struct batch *b, struct kv_seq *mem, float *logits, struct trace *t)
{
    if (t) t->n = 0;
    g->forward.pass.trace = t;
    uint64_t start = clock_ns();
    forward_run(&g->forward, b, &mem, logits);
    g->forward.pass.trace = NULL;
    return clock_ns() - start;
}

int account_measure(struct account *a, struct qn_engine *g, int n_rows, int depth, int reps, struct qn_error *e)
{
    struct kv_seq mem = {0};
    struct batch b = {0};
    struct trace t = {0};
    float *logits = NULL;
    uint64_t *times = NULL; /* [ops + 1][reps], the last row for whole passes */
    int rc;
    if ((rc = kv_seq_init(&mem, g->kv, g->n_ctx, e))) goto done;
    if ((rc = account_fill(&mem, depth, e))) goto done;
    if ((rc = kv_seq_reserve(&mem, depth + n_rows, e))) goto done;
    if ((rc = kv_seq_open(&mem, depth, depth + n_rows, e))) goto done;
    if ((rc = make_batch(&b, n_rows, depth, 1, g->model->hp.n_vocab, e))) goto done;
    if ((rc = alloc_ops(&t, g->model, e))) goto done;
    logits = mem_calloc((size_t)g->model->hp.n_vocab, sizeof *logits);
    times = mem_calloc((size_t)(a->n + 1) * (size_t)reps, sizeof *times);
    if (!logits || !times) {
        rc = error_nomem(e, "measurements", (size_t)(a->n + 1) * (size_t)reps * sizeof *times);
        goto done;
    }
    run_once(g, &b, &mem, logits, NULL); /* brings the file's pages into memory */
    for (int i = 0; i < reps; i++) {
        times[(size_t)a->n * (size_t)reps + (size_t)i] = run_once(g, &b, &mem, logits, NULL);
        run_once(g, &b, &mem, logits, &t);
        for (int o = 0; o < t.n && o < a->n; o++) times[(size_t)o * (size_t)reps + (size_t)i] = t.ops[o].ns;
    }
    for (int o = 0; o < t.n && o < a->n; o++)
        if (a->ops[o].n_experts) scale_experts(&a->ops[o], (double)t.ops[o].n_experts / a->ops[o].n_experts);
    add_up(a);
    for (int o = 0; o < a->n; o++) a->ops[o].ns = median(times + (size_t)o * (size_t)reps, reps);
    a->ns = median(times + (size_t)a->n * (size_t)reps, reps);
done:
    mem_free(t.ops);
    mem_free(times);
    mem_free(logits);
    batch_deinit(&b);
    kv_seq_deinit(&mem);
    return rc;
}

int account_time(struct qn_engine *g, int n_rows, int depth, int reps, uint64_t *ns, struct qn_error *e)
{
    struct kv_seq mem = {0};
    struct batch b = {0};
    size_t bytes = (size_t)n_rows * (size_t)g->model->hp.n_vocab * sizeof(float);
    float *logits = mem_alloc(bytes);
    uint64_t *times = mem_calloc((size_t)reps, sizeof *times);
    int rc = logits && times ? kv_seq_init(&mem, g->kv, g->n_ctx, e) : error_nomem(e, "measurements", bytes);
    if (!rc) rc = account_fill(&mem, depth, e);
    if (!rc) rc = kv_seq_reserve(&mem, depth + n_rows, e);
    if (!rc) rc = kv_seq_open(&mem, depth, depth + n_rows, e);
    if (!rc) rc = make_batch(&b, n_rows, depth, n_rows, g->model->hp.n_vocab, e);
    if (!rc) run_once(g, &b, &mem, logits, NULL); /* brings the file's pages into memory */
    for (int i = 0; i < reps && !rc; i++) times[i] = run_once(g, &b, &mem, logits, NULL);
    if (!rc) *ns = median(times, reps);
    batch_deinit(&b);
    kv_seq_deinit(&mem);
    mem_free(logits);
    mem_free(times);
    return rc;
}

void account_deinit(struct account *a)
{
    mem_free(a->ops);
    *a = (struct account){0};
}
