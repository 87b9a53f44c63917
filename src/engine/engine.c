/* SPDX-License-Identifier: MIT
 *
 * engine.c: making an engine, and feeding one sequence to the forward pass. See engine.h.
 */
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "engine/scheduler.h"
#include "kernel/cpu.h"

#define DEFAULT_CTX   4096
#define DEFAULT_BATCH 512
/* Copies of recurrent states: without a word about them, and where there is hardly any memory. */
#define DEFAULT_SNAPSHOTS 16
#define LEAST_SNAPSHOTS   2
/* Memory without which weights cannot be streamed from disk: what the system reads ahead for each thread, and what the
 * budget does not count (vocabulary, page tables, the program itself). */
#define STREAM_BYTES ((uint64_t)256 << 20)

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
    return step_kv_shape(m, types[kv]);
}

/* Slots of the KV pool: every session's context in whole pages. */
static int64_t pool_slots(const struct qn_engine_params *p)
{
    int64_t pages = (p->n_ctx + KV_PAGE_SLOTS - 1) / KV_PAGE_SLOTS;
    return pages * p->n_sessions * KV_PAGE_SLOTS;
}

/* ---- the budget ---- */

struct budget {
    uint64_t weights; /* bytes that every token reads */
    uint64_t kv, buffers;
    uint64_t states; /* bytes of the n_states recurrent states */
    int n_states;
    uint64_t room; /* of the budget, for weights */
};

static void set_states(struct budget *b, const struct kv_shape *shape, int n)
{
    b->n_states = n;
    b->states = kv_states_bytes(shape, n);
}

/* As many states as were asked for, or what is usual. */
static int count_states(const struct kv_shape *shape, const struct qn_engine_params *p, struct budget *b,
                        struct qn_error *e)
{
    uint64_t each = kv_states_bytes(shape, 1), least = kv_states_bytes(shape, p->n_sessions + 1);
    if (!each) return 0;
    if (p->state_bytes && p->state_bytes < least)
        return error_set(e, QN_ENOMEM,
                         "engine: %llu bytes for recurrent states: the model's takes %llu, one for each of %d sessions "
                         "and one copy are %llu",
                         (unsigned long long)p->state_bytes, (unsigned long long)each, p->n_sessions,
                         (unsigned long long)least);
    uint64_t n = p->state_bytes ? p->state_bytes / each : (uint64_t)p->n_sessions + DEFAULT_SNAPSHOTS;
    set_states(b, shape, n < INT32_MAX ? (int)n : INT32_MAX);
    return 0;
}

/* Leaves half of what would be free to others. */
static void spare_states(const struct kv_shape *shape, const struct qn_engine_params *p, struct budget *b)
{
    uint64_t each = kv_states_bytes(shape, 1), least = (uint64_t)p->n_sessions + LEAST_SNAPSHOTS;
    uint64_t others = b->weights + b->kv + b->buffers + least * each;
    uint64_t more = p->memory_bytes > others && each ? (p->memory_bytes - others) / 2 / each : 0;
    if (each && !p->state_bytes && (uint64_t)b->n_states > least + more) set_states(b, shape, (int)(least + more));
}

/* The embedding table, when it is nothing else: a token reads one row of it. */
static const struct tensor *rows_only(const struct model *m)
{
    return m->token_embd != m->output ? m->token_embd : NULL;
}

/* The context that fits `room` bytes of KV cache, in whole pages. */
static int64_t ctx_that_fits(const struct model *m, const struct qn_engine_params *p, enum qn_kv kv, uint64_t room)
{
    struct kv_shape shape = kv_shape_of(m, kv);
    return (int64_t)(room / ((uint64_t)p->n_sessions * kv_page_bytes(&shape))) * KV_PAGE_SLOTS;
}

/* The same, with buffers for batches of one row. */
static int64_t ctx_beside_one_row(const struct model *m, const struct qn_engine_params *p, uint64_t floor)
{
    uint64_t rest =
        floor + step_bytes(m, 1, p->n_sessions, p->n_threads) + session_bytes(m, p->n_ctx) * (uint64_t)p->n_sessions;
    return p->memory_bytes > rest ? ctx_that_fits(m, p, p->kv, p->memory_bytes - rest) : 0;
}

static int refuse(const struct model *m, const struct qn_engine_params *p, const struct budget *b, uint64_t floor,
                  struct qn_error *e)
{
    char advice[160] = "";
    uint64_t rest = b->buffers + floor + b->states;
    char states[64] = "";
    if (b->states) snprintf(states, sizeof states, "recurrent states %llu, ", (unsigned long long)b->states);
    int64_t fits = p->memory_bytes > rest ? ctx_that_fits(m, p, p->kv, p->memory_bytes - rest) : 0;
    int64_t fits_q8 = p->memory_bytes > rest ? ctx_that_fits(m, p, QN_KV_Q8_0, p->memory_bytes - rest) : 0;
    if (fits_q8 > fits)
        snprintf(advice, sizeof advice, "; %lld tokens of context would fit (--ctx), %lld with --kv q8_0",
                 (long long)fits, (long long)fits_q8);
    else if (fits > 0)
        snprintf(advice, sizeof advice, "; %lld tokens of context would fit (--ctx)", (long long)fits);
    else if ((fits = ctx_beside_one_row(m, p, floor + b->states)) > 0)
        snprintf(advice, sizeof advice, "; %lld tokens of context would fit with --batch 1", (long long)fits);
    else
        snprintf(advice, sizeof advice, "; no context is short enough for that");
    return error_set(
        e, QN_ENOMEM,
        "engine: %llu bytes needed (weights %llu, KV cache %llu for %lld tokens, %sbuffers %llu), the memory "
        "budget is %llu bytes%s",
        (unsigned long long)(rest + b->kv), (unsigned long long)floor, (unsigned long long)b->kv,
        (long long)pool_slots(p), states, (unsigned long long)b->buffers, (unsigned long long)p->memory_bytes, advice);
}

/* Fills all but the room. */
static int count_budget(const struct model *m, const struct qn_engine_params *p, struct budget *b, struct qn_error *e)
{
    struct kv_shape shape = kv_shape_of(m, p->kv);
    const struct tensor *rare = rows_only(m);
    if (pool_slots(p) > INT32_MAX)
        return error_set(e, QN_EUSAGE, "engine: %d sessions of %d tokens are %lld in sum, more than %d", p->n_sessions,
                         p->n_ctx, (long long)pool_slots(p), INT32_MAX);
    b->weights = weights_tensor_bytes(m->weights) - (rare ? rare->bytes : 0);
    b->kv = kv_page_bytes(&shape) * (uint64_t)(pool_slots(p) / KV_PAGE_SLOTS);
    b->buffers =
        step_bytes(m, p->n_batch, p->n_sessions, p->n_threads) + session_bytes(m, p->n_ctx) * (uint64_t)p->n_sessions;
    return count_states(&shape, p, b, e);
}

/* Of the weights, what there has to be room for. */
static uint64_t floor_of(const struct budget *b) { return b->weights < STREAM_BYTES ? b->weights : STREAM_BYTES; }

/* Says no before anything is allocated, with all the numbers. */
static int check_budget(const struct model *m, const struct qn_engine_params *p, struct budget *b, struct qn_error *e)
{
    struct kv_shape shape = kv_shape_of(m, p->kv);
    int rc = count_budget(m, p, b, e);
    if (rc) return rc;
    spare_states(&shape, p, b);
    uint64_t floor = floor_of(b), left = p->memory_bytes;
    bool fits = floor <= left && b->kv <= (left -= floor) && b->states <= (left -= b->kv) &&
                b->buffers <= (left -= b->states); /* sums could wrap */
    if (!fits) return refuse(m, p, b, floor, e);
    b->room = left - b->buffers + floor;
    return 0;
}

int qn_engine_plan(struct qn_engine_plan *out, const qn_model *model, const struct qn_engine_params *engine,
                   const struct qn_scheduler_params *scheduler, struct qn_error *e)
{
    const struct model *m = model->model;
    struct qn_engine_params p;
    struct qn_scheduler_params s;
    struct budget b = {0};
    enum cpu_level level;
    int rc;
    if (out->size != sizeof *out)
        return error_set(e, QN_EUSAGE, "engine: result struct of %zu bytes, %zu expected", out->size, sizeof *out);
    qn_engine_params_init(&p);
    qn_scheduler_params_init(&s);
    if (engine) p = *engine;
    if (scheduler) s = *scheduler;
    if ((rc = settle(&p, m, &level, e)) || (rc = count_budget(m, &p, &b, e))) return rc;
    if ((rc = scheduler_settle(&s, p.n_batch, b.n_states, e))) return rc;
    uint64_t rest = b.kv + b.buffers + scheduler_bytes(m, p.n_ctx, s.n_running) +
                    scheduler_tree_bytes((int)(pool_slots(&p) / KV_PAGE_SLOTS));
    out->n_ctx = p.n_ctx;
    struct kv_shape shape = kv_shape_of(m, p.kv);
    out->bytes = b.weights + b.states + rest;
    p.memory_bytes = 0;
    spare_states(&shape, &p, &b);
    out->least_bytes = floor_of(&b) + b.states + rest;
    return 0;
}

/* The system drops weights when memory is used up, not when it is promised: while the KV cache is nearly empty, its
 * room is theirs. Read in turn, all of them are dropped before they come round again, however few do not fit. */
static void warn_of_disk(const struct model *m, const struct qn_engine_params *p, const struct budget *b)
{
    struct kv_shape shape = kv_shape_of(m, p->kv);
    uint64_t room = b->room + b->kv; /* with an empty KV cache */
    char when[64] = "";
    if (room >= b->weights)
        snprintf(when, sizeof when, " once the KV cache holds about %llu tokens",
                 (unsigned long long)((room - b->weights) / (kv_page_bytes(&shape) / (uint64_t)shape.page_slots)));
    log_at(LOG_WARN,
           "%.2f GB of weights, %.2f GB of memory left for them beside a full KV cache: %s from disk again for "
           "every token%s%s",
           1e-9 * (double)b->weights, 1e-9 * (double)b->room, p->lock_weights ? "the rest is read" : "they are read",
           when, p->lock_weights ? "" : " (--mlock keeps those that fit)");
}

/* Says what becomes of the weights, and locks them when asked to; bytes that are locked. */
static uint64_t place_weights(const struct model *m, const struct qn_engine_params *p, const struct budget *b)
{
    uint64_t keep = b->weights, locked = 0;
    if (b->room < b->weights) {
        keep = b->room - STREAM_BYTES;
        warn_of_disk(m, p, b);
    }
    if (!p->lock_weights) return 0;
    int error = weights_lock(m->weights, keep, rows_only(m), &locked);
    if (error)
        log_at(LOG_WARN, "only %.2f of %.2f GB of weights are locked in memory: %s; the limit (ulimit -l) is %zu KB",
               1e-9 * (double)locked, 1e-9 * (double)keep, strerror(error), os_lock_limit() / 1024);
    return locked;
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
    struct budget b = {0};
    int rc;
    if (params)
        p = *params;
    else
        qn_engine_params_init(&p);
    if ((rc = settle(&p, m, &level, e))) return rc;
    if ((rc = check_budget(m, &p, &b, e))) return rc;
    struct qn_engine *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(e, "an engine", sizeof *g);
    g->model = m;
    g->n_ctx = p.n_ctx;
    g->n_batch = p.n_batch;
    g->n_sessions = p.n_sessions;
    ledger_init(&g->ledger, p.memory_bytes);
    uint64_t weights = b.room < b.weights ? b.room : b.weights;
    if ((rc = ledger_take(&g->ledger, weights, "the weights", e))) goto fail;
    g->weight_bytes = weights;
    if ((rc = alloc_batch(g, e))) goto fail;
    if ((rc = pool_new(&g->pool, p.n_threads, p.n_threads > 1, e))) goto fail;
    shape = kv_shape_of(m, p.kv);
    if ((rc = kv_pool_new(&g->kv, &shape, (int)pool_slots(&p), b.n_states, &g->ledger, e))) goto fail;
    kernels_init(&kt, level);
    if ((rc = step_init(&g->step, m, &kt, g->pool, p.n_batch, p.n_sessions, p.n_ctx, &g->ledger, e))) goto fail;
    g->step.is_streaming = b.room < b.weights;
    g->locked_bytes = place_weights(m, &p, &b);
    *out = g;
    return 0;
fail:
    qn_engine_free(g);
    return rc;
}

void engine_make_room(struct qn_engine *g, size_t bytes)
{
    size_t left = g->ledger.budget - ledger_used(&g->ledger), missing = bytes > left ? bytes - left : 0;
    size_t floor = g->locked_bytes > STREAM_BYTES ? g->locked_bytes : STREAM_BYTES;
    size_t spare = g->weight_bytes > floor ? g->weight_bytes - floor : 0;
    if (missing > spare) missing = spare;
    ledger_give(&g->ledger, missing);
    g->weight_bytes -= missing;
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
    const struct batch b = {n, tokens, g->pos, g->slot, g->seq, g->want, NULL};
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
