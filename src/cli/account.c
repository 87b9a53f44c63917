/* SPDX-License-Identifier: MIT
 *
 * account.c: predicting and measuring a forward pass, operation by operation. See account.h.
 */
#include "cli/account.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"
#include "kernel/cost/cost.h"

#define OPS_PER_LAYER 20

/* The batch of an account: rows behind `depth` slots. */
struct rows_batch {
    struct batch b;
    int32_t *ints; /* token, pos, slot, seq: [4][n] */
    uint8_t *want;
};

/* The last n_logits of the n rows want logits. */
static int make_batch(struct rows_batch *r, int n, int depth, int n_logits, int n_vocab, struct qn_error *e)
{
    r->ints = mem_calloc((size_t)n, 4 * sizeof *r->ints);
    r->want = mem_calloc((size_t)n, 1);
    if (!r->ints || !r->want) return error_nomem(e, "a batch", (size_t)n * 17);
    int32_t *token = r->ints, *pos = token + n, *slot = pos + n, *seq = slot + n;
    for (int i = 0; i < n; i++) {
        token[i] = (int32_t)(rng_u64(1, 0, (uint64_t)i) % (uint64_t)n_vocab);
        pos[i] = slot[i] = depth + i;
        seq[i] = 0;
    }
    memset(r->want + n - n_logits, 1, (size_t)n_logits);
    r->b = (struct batch){n, token, pos, slot, seq, r->want, NULL};
    return 0;
}

static void free_batch(struct rows_batch *r)
{
    mem_free(r->ints);
    mem_free(r->want);
}

static int alloc_ops(struct trace *t, const struct model *m, struct qn_error *e)
{
    t->cap = m->hp.n_layer * OPS_PER_LAYER + 8;
    t->ops = mem_calloc((size_t)t->cap, sizeof *t->ops);
    return t->ops ? 0 : error_nomem(e, "a trace", (size_t)t->cap * sizeof *t->ops);
}

static void add_up(struct account *a)
{
    a->bytes = a->macs_int8 = a->macs_f32 = 0;
    for (int i = 0; i < a->n; i++) {
        a->bytes += a->ops[i].bytes;
        a->macs_int8 += a->ops[i].macs_int8;
        a->macs_f32 += a->ops[i].macs_f32;
    }
}

int account_cost(struct account *a, const struct model *m, enum kv_type kv, int n_rows, int depth, int n_logits,
                 struct qn_error *e)
{
    struct kernels kt;
    struct ledger l;
    struct pool *pool = NULL;
    struct kv_pool *kvp = NULL;
    struct memory mem = {0}, *mems = &mem;
    struct step step = {0};
    struct trace t = {0};
    struct rows_batch r = {0};
    float *logits = NULL; /* [n_logits][n_vocab], never written */
    size_t logits_bytes = (size_t)n_logits * (size_t)m->hp.n_vocab * sizeof *logits;
    struct kv_shape shape = step_kv_shape(m, kv);
    int rc;
    ledger_init(&l, SIZE_MAX); /* address space only: nothing of it is written */
    kernels_init_cost(&kt);
    if ((rc = pool_new(&pool, 1, 0, e))) goto done;
    if ((rc = kv_pool_new(&kvp, &shape, depth + n_rows, 1, &l, e))) goto done;
    if ((rc = memory_init(&mem, kvp, depth + n_rows, e))) goto done;
    if ((rc = memory_reserve(&mem, depth + n_rows, e))) goto done;
    if ((rc = step_init(&step, m, &kt, pool, n_rows, 1, depth + n_rows, &l, e))) goto done;
    if ((rc = make_batch(&r, n_rows, depth, n_logits, m->hp.n_vocab, e))) goto done;
    if ((rc = alloc_ops(&t, m, e))) goto done;
    logits = mem_alloc(logits_bytes);
    if (!logits) {
        rc = error_nomem(e, "logits", logits_bytes);
        goto done;
    }
    step.trace = &t;
    step_run(&step, &r.b, &mems, logits);
    *a = (struct account){.ops = t.ops, .n = t.n};
    add_up(a);
    t.ops = NULL;
done:
    mem_free(t.ops);
    mem_free(logits);
    free_batch(&r);
    step_deinit(&step);
    memory_deinit(&mem);
    kv_pool_free(kvp);
    pool_free(pool);
    return rc;
}

int account_fill(struct memory *m, int depth, struct qn_error *e)
{
    size_t page_bytes = kv_page_bytes(kv_pool_shape(m->pool)), machine = os_memory_bytes();
    if ((size_t)m->max_pages > machine / page_bytes)
        return error_set(e, QN_ENOMEM, "the keys and values of %lld tokens are %llu bytes, this machine has %zu left",
                         (long long)m->max_pages * KV_PAGE_SLOTS,
                         (unsigned long long)page_bytes * (unsigned)m->max_pages, machine);
    int rc = memory_reserve(m, depth, e);
    if (rc) return rc;
    for (int i = 0; i < m->n_pages; i++) memset(m->pages[i], 0x11, page_bytes);
    memory_extend(m, depth);
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
static uint64_t run_once(struct qn_engine *g, const struct rows_batch *r, struct memory *mem, float *logits,
                         struct trace *t)
{
    if (t) t->n = 0;
    g->step.trace = t;
    uint64_t start = clock_ns();
    step_run(&g->step, &r->b, &mem, logits);
    g->step.trace = NULL;
    return clock_ns() - start;
}

int account_measure(struct account *a, struct qn_engine *g, int n_rows, int depth, int reps, struct qn_error *e)
{
    struct memory mem = {0};
    struct rows_batch r = {0};
    struct trace t = {0};
    float *logits = NULL;
    uint64_t *times = NULL; /* [ops + 1][reps], the last row for whole passes */
    int rc;
    if ((rc = memory_init(&mem, g->kv, g->n_ctx, e))) goto done;
    if ((rc = account_fill(&mem, depth, e))) goto done;
    if ((rc = memory_reserve(&mem, depth + n_rows, e))) goto done;
    if ((rc = make_batch(&r, n_rows, depth, 1, g->model->hp.n_vocab, e))) goto done;
    if ((rc = alloc_ops(&t, g->model, e))) goto done;
    logits = mem_calloc((size_t)g->model->hp.n_vocab, sizeof *logits);
    times = mem_calloc((size_t)(a->n + 1) * (size_t)reps, sizeof *times);
    if (!logits || !times) {
        rc = error_nomem(e, "measurements", (size_t)(a->n + 1) * (size_t)reps * sizeof *times);
        goto done;
    }
    run_once(g, &r, &mem, logits, NULL); /* warms the file's pages */
    for (int i = 0; i < reps; i++) {
        times[(size_t)a->n * (size_t)reps + (size_t)i] = run_once(g, &r, &mem, logits, NULL);
        run_once(g, &r, &mem, logits, &t);
        for (int o = 0; o < t.n && o < a->n; o++) times[(size_t)o * (size_t)reps + (size_t)i] = t.ops[o].ns;
    }
    for (int o = 0; o < a->n; o++) a->ops[o].ns = median(times + (size_t)o * (size_t)reps, reps);
    a->ns = median(times + (size_t)a->n * (size_t)reps, reps);
done:
    mem_free(t.ops);
    mem_free(times);
    mem_free(logits);
    free_batch(&r);
    memory_deinit(&mem);
    return rc;
}

void account_deinit(struct account *a)
{
    mem_free(a->ops);
    *a = (struct account){0};
}
