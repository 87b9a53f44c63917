/* SPDX-License-Identifier: MIT
 *
 * budget.c: counts the memory that an engine would take, before any of it is allocated.
 */
#include "engine/budget.h"

#include <stdio.h>

#include "base/os.h"
#include "engine/session.h"
#include "model/load.h"

/* The context if the caller does not ask for one: at most, and if memory is short. */
#define DEFAULT_CTX   32768
#define LEAST_CTX     4096
#define DEFAULT_BATCH 512
/* Copies of recurrent states: when the caller does not ask for a number, and the least when memory is short. */
#define DEFAULT_SNAPSHOTS 16
#define LEAST_SNAPSHOTS   2
/* Windows that are kept where sequences can be continued, besides those of the sessions: for each session, and in
 * addition. */
#define KEPT_WINDOWS_EACH 2
#define KEPT_WINDOWS      2

/* The output matrix may be the same tensor; then every token reads all of it, where it computes logits. */
const struct tensor *budget_rows_only(const struct model *m)
{
    return m->token_embd != m->output || !model_is_last(m) ? m->token_embd : NULL;
}

static uint64_t rare_bytes(const struct model *m)
{
    const struct tensor *rare = budget_rows_only(m);
    return rare && (model_is_first(m) || m->has_nextn) ? rare->bytes : 0;
}

/* Returns the bytes that every token reads. */
static uint64_t weight_bytes(const struct model *m) { return weights_tensor_bytes(m->weights) - rare_bytes(m); }

uint64_t budget_part_weights(const struct model *part) { return model_part_bytes(part) - rare_bytes(part); }

static int64_t whole_pages(int64_t n_tokens) { return (n_tokens + KV_PAGE_SLOTS - 1) / KV_PAGE_SLOTS * KV_PAGE_SLOTS; }

static int64_t clamp(int64_t x, int64_t least, int64_t most) { return x < least ? least : x > most ? most : x; }

/* Returns the number of window pages for a cache of n_pages pages: those of all sessions, each with one page more for
 * the rows of a pass, those that a whole batch opens, and the ones that are kept. A page needs one window page at most,
 * unless a session is copying it. */
static int64_t count_windows(const struct kv_shape *shape, const struct qn_engine_params *p, int64_t n_pages)
{
    int64_t n_batch = p->n_batch ? p->n_batch : DEFAULT_BATCH, n = p->n_sessions, each = kv_window_pages(shape) + 1;
    int64_t all = ((1 + KEPT_WINDOWS_EACH) * n + KEPT_WINDOWS) * each + n_batch / shape->page_slots + 1;
    if (!shape->n_layer_win) return 0;
    return all < n_pages + n ? all : n_pages + n;
}

/* Returns how many pages fit `room` bytes, with their window pages. */
static uint64_t pages_that_fit(const struct kv_shape *shape, const struct qn_engine_params *p, uint64_t room)
{
    uint64_t page = kv_page_bytes(shape), window = kv_window_page_bytes(shape), most = INT32_MAX;
    if (!page) return most;
    uint64_t n_windows = (uint64_t)count_windows(shape, p, INT32_MAX), n_sessions = (uint64_t)p->n_sessions;
    uint64_t few = room > n_sessions * window ? (room - n_sessions * window) / (page + window) : 0;
    if (few + n_sessions <= n_windows) return few < most ? few : most;
    uint64_t many = (room - n_windows * window) / page;
    return many < most ? many : most;
}

int64_t budget_tokens_that_fit(const struct model *m, const struct qn_engine_params *p, uint64_t bytes)
{
    struct kv_shape shape = budget_kv_shape(m, p->kv);
    return (int64_t)pages_that_fit(&shape, p, bytes) * KV_PAGE_SLOTS;
}

/* A quarter of the memory, and half of what the weights leave of it. */
int64_t budget_usual_tokens(const struct model *m, const struct qn_engine_params *p, uint64_t memory, uint64_t weights)
{
    uint64_t left = memory > weights ? memory - weights : 0;
    return budget_tokens_that_fit(m, p, left / 2 < memory / 4 ? left / 2 : memory / 4);
}

/* Sets the context and the tokens of the KV cache: those that were asked for, or as many as there is room for. */
static int settle_ctx(struct qn_engine_params *p, const struct model *m, int64_t room, struct qn_error *e)
{
    int64_t n = p->n_sessions;
    int64_t most = m->hp.n_ctx_train < DEFAULT_CTX ? m->hp.n_ctx_train : DEFAULT_CTX;
    int64_t least = most < LEAST_CTX ? most : LEAST_CTX;
    int64_t all = p->kv_tokens;
    if (!p->n_ctx && all < 0) all = clamp(room, n * whole_pages(least), n * whole_pages(most));
    if (!p->n_ctx) p->n_ctx = (int)clamp(all ? all : room / n, all > 0 ? 1 : least, most);
    if (all <= 0) all = n * whole_pages(p->n_ctx);
    all = whole_pages(all);
    if (all > INT32_MAX)
        return error_set(e, QN_EUSAGE, "engine: %d sessions of %d tokens are %lld in sum, more than %d", p->n_sessions,
                         p->n_ctx, (long long)all, INT32_MAX);
    p->kv_tokens = (int)all;
    return 0;
}

static int check_ranges(const struct qn_engine_params *p, struct qn_error *e)
{
    if (p->n_threads < 0 || p->n_threads > 1024)
        return error_set(e, QN_EUSAGE, "engine: %d threads, not 0..1024", p->n_threads);
    if (p->n_ctx < 0 || p->n_ctx > HP_MAX_CTX)
        return error_set(e, QN_EUSAGE, "engine: context of %d tokens, not 0..%d", p->n_ctx, HP_MAX_CTX);
    if (p->n_batch < 0 || p->n_batch > 65536)
        return error_set(e, QN_EUSAGE, "engine: batch of %d rows, not 0..65536", p->n_batch);
    if (p->n_sessions < 1 || p->n_sessions > 65536)
        return error_set(e, QN_EUSAGE, "engine: %d sessions, not 1..65536", p->n_sessions);
    if ((unsigned)p->kv > QN_KV_Q8_0) return error_set(e, QN_EUSAGE, "engine: unknown KV type %d", (int)p->kv);
    if (p->kv_tokens < -1)
        return error_set(e, QN_EUSAGE, "engine: %d tokens in the KV cache, not -1 or more", p->kv_tokens);
    return 0;
}

/* Replaces zeros by the defaults, except in the context. */
static int settle_others(struct qn_engine_params *p, enum cpu_level *level, struct qn_error *e)
{
    if (!p->n_threads) p->n_threads = os_n_cpus();
    if (!p->n_batch) p->n_batch = DEFAULT_BATCH;
    if (p->n_batch > p->n_ctx) p->n_batch = p->n_ctx;
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

int budget_settle_for(struct qn_engine_params *p, const struct model *m, int64_t room, enum cpu_level *level,
                      struct qn_error *e)
{
    int rc = check_ranges(p, e);
    if (!rc) rc = settle_ctx(p, m, room, e);
    return rc ? rc : settle_others(p, level, e);
}

int budget_settle(struct qn_engine_params *p, const struct model *m, enum cpu_level *level, struct qn_error *e)
{
    int rc = check_ranges(p, e);
    if (rc) return rc;
    if (!p->memory_bytes) p->memory_bytes = os_memory_bytes();
    return budget_settle_for(p, m, budget_usual_tokens(m, p, p->memory_bytes, weight_bytes(m)), level, e);
}

struct kv_shape budget_kv_shape(const struct model *m, enum qn_kv kv)
{
    static const enum kv_type types[] = {[QN_KV_F16] = KV_F16, [QN_KV_F32] = KV_F32, [QN_KV_Q8_0] = KV_Q8_0};
    return forward_window_shape(m, types[kv]);
}

static void set_states(struct budget *b, const struct kv_shape *shape, int n)
{
    b->n_states = n;
    b->states = kv_states_bytes(shape, n);
}

/* Sets the number of states: the one that was asked for, or the default. */
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

/* Half of the memory that would be free stays free for other uses. */
void budget_spare_states(const struct kv_shape *shape, const struct qn_engine_params *p, struct budget *b)
{
    uint64_t each = kv_states_bytes(shape, 1), least = (uint64_t)p->n_sessions + LEAST_SNAPSHOTS;
    uint64_t others = b->weights + b->kv + b->buffers + least * each;
    uint64_t more = p->memory_bytes > others && each ? (p->memory_bytes - others) / 2 / each : 0;
    if (each && !p->state_bytes && (uint64_t)b->n_states > least + more) set_states(b, shape, (int)(least + more));
}

/* Returns how many tokens of context fit a KV cache of `room` bytes, in whole pages. */
static int64_t ctx_that_fits(const struct model *m, const struct qn_engine_params *p, enum qn_kv kv, uint64_t room)
{
    struct kv_shape shape = budget_kv_shape(m, kv);
    return (int64_t)(pages_that_fit(&shape, p, room) / (uint64_t)p->n_sessions) * KV_PAGE_SLOTS;
}

/* The same, with buffers for batches of one row. */
static int64_t ctx_beside_one_row(const struct model *m, const struct qn_engine_params *p, uint64_t floor)
{
    uint64_t rest =
        floor + forward_bytes(m, 1, p->n_sessions, p->n_threads) + session_bytes(m, p->n_ctx) * (uint64_t)p->n_sessions;
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
        (long long)p->kv_tokens, states, (unsigned long long)b->buffers, (unsigned long long)p->memory_bytes, advice);
}

static uint64_t kv_bytes(const struct kv_shape *shape, const struct qn_engine_params *p, int n_windows)
{
    return kv_page_bytes(shape) * (uint64_t)(p->kv_tokens / KV_PAGE_SLOTS) +
           kv_window_page_bytes(shape) * (uint64_t)n_windows;
}

/* Sets all fields except room. */
int budget_count(const struct model *m, const struct qn_engine_params *p, struct budget *b, struct qn_error *e)
{
    struct kv_shape shape = budget_kv_shape(m, p->kv);
    b->weights = weight_bytes(m);
    b->n_windows = (int)count_windows(&shape, p, p->kv_tokens / KV_PAGE_SLOTS);
    b->kv = kv_bytes(&shape, p, b->n_windows);
    b->buffers = forward_bytes(m, p->n_batch, p->n_sessions, p->n_threads) +
                 session_bytes(m, p->n_ctx) * (uint64_t)p->n_sessions;
    return count_states(&shape, p, b, e);
}

uint64_t budget_floor(const struct budget *b) { return b->weights < STREAM_BYTES ? b->weights : STREAM_BYTES; }

/* Refuses before anything is allocated. */
int budget_check(const struct model *m, const struct qn_engine_params *p, struct budget *b, struct qn_error *e)
{
    struct kv_shape shape = budget_kv_shape(m, p->kv);
    int rc = budget_count(m, p, b, e);
    if (rc) return rc;
    budget_spare_states(&shape, p, b);
    uint64_t floor = budget_floor(b), left = p->memory_bytes;
    bool fits = floor <= left && b->kv <= (left -= floor) && b->states <= (left -= b->kv) &&
                b->buffers <= (left -= b->states); /* sums could wrap */
    if (!fits) return refuse(m, p, b, floor, e);
    b->room = left - b->buffers + floor;
    return 0;
}

/* The layers' part is elsewhere: no weights, and buffers for passes of one row. */
int budget_check_head(const struct model *m, const struct kv_shape *head, const struct qn_engine_params *p,
                      struct budget *b, struct qn_error *e)
{
    int rc = budget_count(m, p, b, e);
    if (rc) return rc;
    b->weights = 0;
    b->kv = kv_bytes(head, p, b->n_windows);
    b->buffers =
        forward_bytes(m, 1, p->n_sessions, p->n_threads) + session_bytes(m, p->n_ctx) * (uint64_t)p->n_sessions;
    if (b->n_states) set_states(b, head, b->n_states);
    uint64_t all = b->kv + b->buffers + b->states;
    if (all > p->memory_bytes)
        return error_set(e, QN_ENOMEM,
                         "engine: %llu bytes needed here for %d sessions of %d tokens whose layers are elsewhere, the "
                         "memory budget is %llu bytes",
                         (unsigned long long)all, p->n_sessions, p->n_ctx, (unsigned long long)p->memory_bytes);
    b->room = p->memory_bytes - all;
    return 0;
}

size_t session_bytes(const struct model *m, int n_ctx)
{
    size_t n_vocab = (size_t)m->hp.n_vocab, n = (size_t)n_ctx;
    size_t logits = (m->hp.state_bytes ? 2 : 1) * n_vocab * sizeof(float);
    return sizeof(struct qn_session) + n * sizeof(qn_token) + logits + sampler_bytes(m->hp.n_vocab, n);
}
