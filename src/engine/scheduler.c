/* SPDX-License-Identifier: MIT
 *
 * scheduler.c: the life of a scheduler, its queue, and admission. See scheduler.h.
 *
 * Requests are admitted when there are pages for their prompts; how their answers get more, and why that cannot
 * deadlock, is in room.c.
 *
 * The thread never waits for the disk while it can compute. A prefix on disk is read into the pages of a request that
 * was admitted already, but has no rows until the read has ended. New pages are written when requests end. The thread
 * looks after both between steps.
 *
 * The next request is one of the highest priority; among these, one of the identity with the least share; among these,
 * the one that came first. If it does not fit, all others wait for it, so smaller requests cannot overtake it for ever.
 * An answer that gave way to others goes on before requests of its priority are admitted.
 */
#include "engine/room.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/os.h"
#include "format/file/model_files.h"

#define DEFAULT_RUNNING 8
#define DEFAULT_QUEUED  64
#define SNAPSHOT_EVERY  4096     /* tokens: a large model reads them in seconds, a copy takes milliseconds */
#define END_WEIGHT      0.25     /* weight of the last request in the moving means */
#define POLL_NS         5000000u /* between two looks at the disk, when there is nothing else to do */
#define AHEAD_POLL_NS   1000000u /* the same, while it is read ahead, a piece of some 30 ms at a time */
#define MAX_RUNNING     4096
#define MAX_QUEUED      4096 /* a limit, because places in the queue are counted one by one */

/* ---- shares ---- */

void scheduler_charge(struct request *r, int rows)
{
    int expected = rows < r->n_expected ? rows : r->n_expected;
    r->n_expected -= expected;
    r->share->expected -= expected;
    r->share->served += rows;
}

static void expect(const struct qn_scheduler *s, struct request *r)
{
    double each = r->max_tokens < s->mean_answer ? r->max_tokens : s->mean_answer;
    int known = r->restore ? r->n_known : r->n_cached;
    r->n_expected = (int)r->p.n_prompt - known + (int)(each * r->p.n_answers);
    r->share->expected += r->n_expected;
}

/* ---- the end of a request ---- */

static double ms(uint64_t from_ns, uint64_t to_ns) { return to_ns > from_ns ? 1e-6 * (double)(to_ns - from_ns) : 0; }

static void count_end(struct qn_scheduler *s, const struct request *r, enum qn_finish why, uint64_t now)
{
    struct qn_scheduler_stats *st = &s->stats;
    st->n_done[why]++;
    if (!r->admitted_ns) return;
    st->n_prompt_tokens += (uint64_t)r->p.n_prompt;
    st->n_cached_tokens += (uint64_t)r->n_cached;
    st->n_generated_tokens += (uint64_t)r->n_generated;
    uint64_t since = s->last_end_ns > s->busy_since_ns ? s->last_end_ns : s->busy_since_ns;
    s->end_gap_s = pace_mean(s->end_gap_s, 1e-3 * ms(since, now), END_WEIGHT);
    s->last_end_ns = now;
}

/* Sends the last event and frees r, which is in no list any more and owns no other memory. */
static void tell_done(struct qn_scheduler *s, struct request *r, enum qn_finish why)
{
    uint64_t now = clock_ns(), admitted = r->admitted_ns ? r->admitted_ns : now;
    uint64_t answering = r->answering_ns ? r->answering_ns : now;
    struct qn_event ev = {.type = QN_EVENT_DONE, .token = -1, .finish = why};
    ev.usage = r->usage;
    ev.usage.n_prompt = (int)r->p.n_prompt;
    ev.usage.n_cached = r->n_cached;
    ev.usage.n_generated = r->n_generated;
    ev.timings = (struct qn_timings){ms(r->submitted_ns, admitted),
                                     ms(admitted, answering),
                                     ms(answering, now),
                                     r->paused_ms,
                                     r->miss,
                                     r->miss_position,
                                     r->miss_asked,
                                     r->miss_stored};
    if (why == QN_FINISH_ERROR) ev.error = &r->error;
    scheduler_charge(r, 0);
    r->share->expected -= r->n_expected;
    pthread_mutex_lock(&s->mutex);
    share_leave(r->share);
    count_end(s, r, why, now);
    pthread_mutex_unlock(&s->mutex);
    request_tell(r, &ev);
    masks_retire(s, r);
    request_free(r);
}

/* Takes a request out of the queue. With the mutex held. */
static void unlink_waiting(struct qn_scheduler *s, struct request **at)
{
    *at = (*at)->next;
    s->n_waiting--;
    s->is_full = false;
    s->patience_ns = 0; /* the next request's time begins when it does not fit */
}

static void end_waiting(struct qn_scheduler *s, struct request **at, enum qn_finish why)
{
    struct request *r = *at;
    pthread_mutex_lock(&s->mutex);
    unlink_waiting(s, at);
    pthread_mutex_unlock(&s->mutex);
    tell_done(s, r, why);
}

/* Takes the i-th running request out of the list. With the mutex held. */
static void unlink_running(struct qn_scheduler *s, int i)
{
    s->n_places_taken -= s->running[i]->p.n_answers;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (size_t)(s->n_running - i) * sizeof(struct request *));
}

static void end_running(struct qn_scheduler *s, int i, enum qn_finish why)
{
    struct request *r = s->running[i];
    reuse_abandon(s->reuse, r);
    for (int k = 0; k < r->n_started; k++) room_end_pause(s, r, k);
    for (int k = 0; k < r->p.n_answers; k++)
        if (r->answers[k].finish == QN_FINISH_NONE) request_finish_answer(r, k, why);
    for (int k = 0; k < r->n_started; k++) reuse_keep_answer(s->reuse, r, &r->answers[k]);
    if (r->n_generated) room_learn(s, r);
    drafts_close(s, r);
    request_release(r);
    s->is_unsaved = reuse_has_disk(s->reuse);
    s->patience_ns = 0; /* it leaves new pages, so the next request waits for the disk again */
    pthread_mutex_lock(&s->mutex);
    unlink_running(s, i);
    pthread_mutex_unlock(&s->mutex);
    s->is_full = false;
    tell_done(s, r, why);
}

/* Returns the reason why a running request has ended by itself, or QN_FINISH_NONE. It is the first answer's reason,
 * unless an answer failed. A request that no step would have rows of would never end, so it has failed, too. */
static enum qn_finish outcome(struct request *r)
{
    if (r->error.code) return QN_FINISH_ERROR;
    if (r->n_open == 0) return r->answers[0].finish;
    if (r->restore || request_has_rows(r) || request_is_paused(r)) return QN_FINISH_NONE;
    error_set(&r->error, QN_EUSAGE,
              "request: %d of %d answers are open, with nothing left to compute (an internal error)", r->n_open,
              r->p.n_answers);
    return QN_FINISH_ERROR;
}

/* Returns true if the model's file has changed, and makes that the error of all requests. */
static bool is_changed(struct qn_scheduler *s)
{
    pthread_mutex_lock(&s->mutex);
    struct qn_error changed = s->changed;
    pthread_mutex_unlock(&s->mutex);
    if (!changed.code) return false;
    reuse_give_up(s->reuse);
    for (struct request *r = s->waiting; r; r = r->next) r->error = changed;
    for (int i = 0; i < s->n_running; i++) s->running[i]->error = changed;
    return true;
}

static void end_some(struct qn_scheduler *s, bool is_stopping)
{
    bool are_lost = is_changed(s);
    uint64_t now = clock_ns(), stop = s->stop_ns;
    for (struct request **at = &s->waiting, *r; (r = *at);) {
        enum qn_finish why =
            are_lost || r->error.code ? QN_FINISH_ERROR : request_doom(r, now, is_stopping ? now : stop);
        if (why != QN_FINISH_NONE)
            end_waiting(s, at, why);
        else
            at = &r->next;
    }
    for (int i = 0; i < s->n_running;) {
        if (s->running[i]->n_away) { /* it ends when its rows are back */
            i++;
            continue;
        }
        enum qn_finish why = outcome(s->running[i]);
        if (why == QN_FINISH_NONE) why = request_doom(s->running[i], now, stop);
        if (why != QN_FINISH_NONE)
            end_running(s, i, why);
        else
            room_collect(s, s->running[i++]);
    }
}

/* ---- the queue ---- */

/* Moves submitted requests into the queue, after those of the same priority. With the mutex held. */
static void take_inbox(struct qn_scheduler *s)
{
    struct request *r;
    while ((r = s->inbox)) {
        struct request **at = &s->waiting;
        s->inbox = r->next;
        while (*at && (*at)->p.priority >= r->p.priority) at = &(*at)->next;
        r->next = *at;
        *at = r;
        r->share = share_enter(&s->shares, r->p.identity);
        s->is_full = false;
    }
    s->inbox_end = &s->inbox;
}

static void tell_places(struct qn_scheduler *s)
{
    int place = 0;
    for (struct request *r = s->waiting; r; r = r->next, place++) {
        if (r->place == place) continue;
        r->place = place;
        struct qn_event ev = {.type = QN_EVENT_QUEUED, .token = -1, .place = place};
        request_tell(r, &ev);
    }
}

/* Returns the link that points to the next request to admit. */
static struct request **next_in_line(struct qn_scheduler *s)
{
    struct request **best = &s->waiting;
    for (struct request **at = best; *at && (*at)->p.priority == (*best)->p.priority; at = &(*at)->next)
        if (share_key((*at)->share) < share_key((*best)->share)) best = at;
    return best;
}

/* ---- admission ---- */

/* Moves a request from the queue to the running ones, at once: qn_cancel() looks for it in both. */
static void enter(struct qn_scheduler *s, struct request **at)
{
    struct request *r = *at;
    struct qn_event ev = {.type = QN_EVENT_PREFILL, .token = -1, .n_done = r->n_cached, .n_total = (int)r->p.n_prompt};
    r->admitted_ns = clock_ns();
    pthread_mutex_lock(&s->mutex);
    unlink_waiting(s, at);
    if (s->n_running == 0) s->busy_since_ns = r->admitted_ns;
    s->running[s->n_running++] = r;
    s->n_places_taken += r->p.n_answers;
    pthread_mutex_unlock(&s->mutex);
    expect(s, r);
    r->answers[0].n_reached = r->n_cached;
    drafts_open(s, r, 0);
    if (!r->restore) reuse_count(s->reuse, r);
    request_tell(r, &ev);
}

/* Makes it an error if something should fit, but does not: see the beginning of room.c. */
static void check_fit(struct qn_scheduler *s, struct request *r, bool are_held)
{
    if (!room_is_quiet(s) || s->is_unsaved || are_held) return;
    error_set(&r->error, QN_ENOMEM, "request: nothing runs, and yet there is no room (an internal error)");
}

/* Admits the request that at points to. Returns false if it does not fit. */
static bool admit_one(struct qn_scheduler *s, struct request **at, bool are_held)
{
    struct request *r = *at;
    int rc = room_start(s, r, &r->error);
    if (rc == QN_EFULL) check_fit(s, r, are_held);
    if (rc == QN_EFULL && !r->error.code) return false;
    if (rc)
        end_waiting(s, at, QN_FINISH_ERROR);
    else
        enter(s, at);
    return true;
}

static bool resume_one(struct qn_scheduler *s, struct room_paused p, bool are_held)
{
    if (room_resume(s, p)) return true;
    check_fit(s, p.request, are_held);
    return false;
}

/* Lets answers that gave way go on, and admits requests, in one order. A request for which there is no place holds up
 * no paused answer, which has one. */
static void admit(struct qn_scheduler *s)
{
    while (!s->is_full) {
        bool are_held = reuse_holds_pages(s->reuse); /* these pages stay held until the next look at the disk */
        struct room_paused p = room_first_paused(s);
        struct request **at = s->waiting ? next_in_line(s) : NULL;
        if (!p.request && !at) break;
        bool has_place = at && s->n_places_taken + (*at)->p.n_answers <= s->n_places;
        bool fits;
        if (has_place && (!p.request || (*at)->p.priority > p.request->p.priority))
            fits = admit_one(s, at, are_held);
        else
            fits = p.request && resume_one(s, p, are_held);
        s->is_full = !fits;
        if (!fits) s->awaits_pages = are_held;
    }
}

/* ---- the thread ---- */

/* Returns false if the time came before a signal. */
static bool wait_until(struct qn_scheduler *s, uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    return pthread_cond_timedwait(&s->wake, &s->mutex, &t) != ETIMEDOUT;
}

/* Returns true if the next step has any rows. */
static bool has_rows(const struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++)
        if (request_has_rows(s->running[i])) return true;
    return false;
}

/* Returns true if there is nothing to do, except to wait for the disk. With the mutex held. */
static bool is_idle(const struct qn_scheduler *s)
{
    return !s->inbox && !s->errands && !s->is_disk_ready && !(s->changed.code && (s->n_running || s->waiting)) &&
           (s->is_full || !(s->waiting || s->stats.n_paused)) && (s->is_stalled || !has_rows(s)) &&
           !(s->is_stopping && s->n_waiting) && !away_has_steps(s);
}

/* Prepares for the next request, while there is none, in a step of about a millisecond: enters weights that are in
 * memory into the page table, and touches as much of the KV cache as what is on disk may take. That memory was counted
 * when the engine was made. Returns false if nothing is left. */
static bool prepare(struct qn_scheduler *s)
{
    if (!s->engine->forward.pass.is_streaming && warm_step(&s->warm)) return true;
    return kv_pool_touch(s->engine->kv, reuse_n_on_disk(s->reuse));
}

/* Sleeps until there is something to do, and sets *is_stopping. Returns false when the thread has to end. */
static bool await(struct qn_scheduler *s, bool *is_stopping)
{
    pthread_mutex_lock(&s->mutex);
    s->stats.n_pages_free = kv_pool_n_free(s->engine->kv);
    s->stats.kv_touched_bytes = kv_pool_touched_bytes(s->engine->kv);
    s->stats.n_states_free = kv_pool_n_free_states(s->engine->kv);
    s->stats.n_windows_free = kv_pool_n_free_windows(s->engine->kv);
    reuse_stats(s->reuse, &s->stats);
    while (is_idle(s)) {
        bool awaits_disk = s->is_unsaved || s->n_running || s->waiting;
        if (!awaits_disk && s->is_stopping) break;
        if (!awaits_disk && s->is_cold) {
            pthread_mutex_unlock(&s->mutex);
            s->is_cold = prepare(s);
            pthread_mutex_lock(&s->mutex);
            s->stats.kv_touched_bytes = kv_pool_touched_bytes(s->engine->kv);
        } else if (!awaits_disk && s->is_ahead) {
            pthread_mutex_unlock(&s->mutex);
            s->is_ahead = reuse_read_ahead(s->reuse);
            pthread_mutex_lock(&s->mutex);
            reuse_stats(s->reuse, &s->stats);
            if (s->is_ahead && is_idle(s)) wait_until(s, clock_ns() + AHEAD_POLL_NS);
        } else if (!awaits_disk)
            pthread_cond_wait(&s->wake, &s->mutex);
        else if (!wait_until(s, clock_ns() + POLL_NS))
            break;
    }
    take_inbox(s);
    *is_stopping = s->is_stopping;
    bool over = s->is_stopping && !s->n_waiting && !s->n_running && !s->is_unsaved && !s->errands;
    if (over) {
        s->is_ended = true;
        pthread_cond_broadcast(&s->end);
    }
    pthread_mutex_unlock(&s->mutex);
    return !over;
}

/* Moves the i-th running request back to the head of its priority in the queue, to be started again. */
static void wait_again(struct qn_scheduler *s, int i)
{
    struct request *r = s->running[i], **at = &s->waiting;
    drafts_close(s, r);
    request_release(r);
    r->share->expected -= r->n_expected;
    r->n_expected = 0;
    r->admitted_ns = 0;
    r->place = -1;
    while (*at && (*at)->p.priority > r->p.priority) at = &(*at)->next;
    pthread_mutex_lock(&s->mutex);
    unlink_running(s, i);
    r->next = *at;
    *at = r;
    s->n_waiting++;
    pthread_mutex_unlock(&s->mutex);
    s->is_full = false;
}

static void tend_restored(struct qn_scheduler *s)
{
    for (int i = s->n_running - 1; i >= 0; i--) {
        struct request *r = s->running[i];
        struct qn_event ev = {.type = QN_EVENT_PREFILL, .token = -1, .n_total = (int)r->p.n_prompt};
        if (!r->restore || !reuse_restored(s->reuse, r)) continue;
        if (r->avoids_disk) {
            wait_again(s, i);
            continue;
        }
        reuse_count(s->reuse, r);
        ev.n_done = r->n_cached;
        request_tell(r, &ev);
    }
}

/* Called by another thread: the files on disk can be entered into the tree. */
static void disk_is_ready(void *arg)
{
    struct qn_scheduler *s = arg;
    pthread_mutex_lock(&s->mutex);
    s->is_disk_ready = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
}

static void open_disk(struct qn_scheduler *s)
{
    pthread_mutex_lock(&s->mutex);
    bool is_ready = s->is_disk_ready;
    s->is_disk_ready = false;
    pthread_mutex_unlock(&s->mutex);
    if (!is_ready) return;
    reuse_open_disk(s->reuse);
    s->is_unsaved = s->is_cold = s->is_ahead = reuse_has_disk(s->reuse);
    s->is_full = false;
}

/* Takes over what the threads of the disk have read and written, and gives them the next job. */
static void tend_disk(struct qn_scheduler *s)
{
    bool is_new = false;
    open_disk(s);
    bool was_unsaved = s->is_unsaved;
    tend_restored(s);
    reuse_settle_ahead(s->reuse);
    if (was_unsaved) s->is_unsaved = reuse_save(s->reuse, &is_new);
    if (is_new || was_unsaved != s->is_unsaved) s->is_full = false;
    if (s->awaits_pages && !reuse_holds_pages(s->reuse)) s->awaits_pages = s->is_full = false;
    if (s->patience_ns && s->patience_ns != UINT64_MAX && clock_ns() >= s->patience_ns) {
        s->patience_ns = UINT64_MAX;
        s->is_full = false;
    }
}

static void run_step(struct qn_scheduler *s)
{
    if (s->around.begin) s->around.begin(s->around.arg);
    step_run(s);
    if (s->around.end) s->around.end(s->around.arg);
}

static void *thread_main(void *arg)
{
    struct qn_scheduler *s = arg;
    bool is_stopping;
    pthread_setname_np(pthread_self(), "scheduler");
    while (await(s, &is_stopping)) {
        s->is_stalled = false;
        scheduler_run_errands(s);
        tend_disk(s);
        end_some(s, is_stopping);
        tell_places(s);
        if (s->is_lost && !scheduler_mend(s)) continue;
        admit(s);
        if (!s->engine->stage) {
            if (has_rows(s)) run_step(s);
        } else if (has_rows(s) || away_has_steps(s))
            away_run(s);
    }
    return NULL;
}

/* ---- life ---- */

void qn_scheduler_params_init(struct qn_scheduler_params *p)
{
    if (!p) return;
    *p = (struct qn_scheduler_params){.size = sizeof *p, .draft = QN_DRAFT_DEFAULT};
    qn_wedlm_init(&p->wedlm);
}

int scheduler_settle(struct qn_scheduler_params *p, int n_batch, int n_states, struct qn_error *e)
{
    if (p->n_running < 0 || p->n_running > MAX_RUNNING)
        return error_set(e, QN_EUSAGE, "scheduler: %d running answers, not 0..%d", p->n_running, MAX_RUNNING);
    if (p->n_queued < 0 || p->n_queued > MAX_QUEUED)
        return error_set(e, QN_EUSAGE, "scheduler: %d queued requests, not 0..%d", p->n_queued, MAX_QUEUED);
    if ((unsigned)p->draft > QN_DRAFT_DEFAULT)
        return error_set(e, QN_EUSAGE, "scheduler: unknown drafter %d", (int)p->draft);
    if (p->draft == QN_DRAFT_DEFAULT) p->draft = QN_DRAFT_AUTO;
    if (p->n_prefill < 0) return error_set(e, QN_EUSAGE, "scheduler: %d prompt rows in a step", p->n_prefill);
    if (p->snapshot_every < 0)
        return error_set(e, QN_EUSAGE, "scheduler: %d tokens between copies of the state", p->snapshot_every);
    if (!p->n_running) {
        p->n_running = DEFAULT_RUNNING < n_batch ? DEFAULT_RUNNING : n_batch;
        if (n_states && p->n_running > n_states / 2) p->n_running = n_states / 2;
    }
    if (n_states && p->n_running >= n_states)
        return error_set(e, QN_ENOMEM,
                         "scheduler: %d running answers and one copy take %d recurrent states, the engine "
                         "has %d",
                         p->n_running, p->n_running + 1, n_states);
    if (!p->snapshot_every) p->snapshot_every = SNAPSHOT_EVERY;
    if (p->n_running > n_batch)
        return error_set(e, QN_EUSAGE, "scheduler: %d running answers, a step has only %d rows", p->n_running, n_batch);
    if (!p->n_queued) p->n_queued = DEFAULT_QUEUED;
    if (!p->n_prefill || p->n_prefill > n_batch) p->n_prefill = n_batch;
    return 0;
}

size_t scheduler_bytes(const struct model *m, int n_ctx, int n_places, int n_drafted)
{
    size_t n = (size_t)n_places, ctx = (size_t)n_ctx;
    return n * (sampler_bytes(m->hp.n_vocab, ctx) + ctx * 4) +
           (n + PROMPT_LOGPROB_ROWS + (size_t)n_drafted + 1) * (size_t)m->hp.n_vocab * sizeof(float);
}

/* Samplers and tokens are allocated when requests start, but are taken from the ledger for all places now. */
static int alloc(struct qn_scheduler *s, struct qn_error *e)
{
    const struct model *m = s->engine->model;
    int n_more = s->drafts.most + s->windows.most_logits;
    size_t n = (size_t)s->n_places, n_vocab = (size_t)m->hp.n_vocab, n_drawn = n + (size_t)n_more;
    size_t rows = n_drawn + PROMPT_LOGPROB_ROWS, bytes = scheduler_bytes(m, s->engine->n_ctx, s->n_places, n_more);
    engine_make_room(s->engine, bytes + scheduler_tree_bytes(kv_pool_n_pages(s->engine->kv)));
    int rc = ledger_take(&s->engine->ledger, bytes, "the scheduler", e);
    if (rc) return rc;
    s->bytes = bytes;
    s->running = mem_calloc(n, sizeof(struct request *));
    s->parts = mem_calloc(n, sizeof *s->parts);
    s->memories = mem_calloc(n, sizeof(struct kv_seq *));
    s->logits = mem_calloc(rows * n_vocab, sizeof *s->logits);
    s->drawn = mem_calloc(n_drawn, sizeof *s->drawn);
    s->work = mem_calloc(n_vocab, sizeof *s->work);
    s->scratch = mem_aligned(64, KERNEL_SCRATCH_BYTES);
    if (!s->running || !s->parts || !s->memories || !s->logits || !s->drawn || !s->work || !s->scratch)
        return error_nomem(e, "a scheduler", bytes);
    return 0;
}

int scheduler_new(qn_scheduler **out, qn_engine *g, const struct qn_scheduler_params *params,
                  const struct drafters_own *own, struct qn_error *e)
{
    struct qn_scheduler_params p;
    pthread_condattr_t monotonic;
    int rc;
    if (!out || !g) return usage_null(e, __func__);
    if (params && (rc = usage_size(e, "scheduler", params->size, sizeof p))) return rc;
    if (params)
        p = *params;
    else
        qn_scheduler_params_init(&p);
    if ((rc = scheduler_settle(&p, g->n_batch, kv_pool_n_states(g->kv), e))) return rc;
    if (atomic_exchange(&g->is_lent, true)) return error_set(e, QN_EUSAGE, "scheduler: the engine has one already");
    struct qn_scheduler *s = mem_calloc(1, sizeof *s);
    if (!s) {
        atomic_store(&g->is_lent, false);
        return error_nomem(e, "a scheduler", sizeof *s);
    }
    s->engine = g;
    hold_get(&g->hold);
    s->n_places = p.n_running;
    s->n_queued_max = p.n_queued;
    s->n_prefill = p.n_prefill;
    s->inbox_end = &s->inbox;
    s->stop_ns = UINT64_MAX;
    room_init(s);
    s->warm = (struct warm){.weights = g->model->weights, .is_gentle = true};
    s->is_cold = s->is_ahead = true;
    s->last_step_ns = clock_ns();
    pthread_mutex_init(&s->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* as clock_ns() */
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&s->end, NULL);
    engine_settle(g);
    if ((rc = drafts_init(s, &p, own, e))) goto fail;
    if ((rc = windows_init(s, &p, own, e))) goto fail;
    if ((rc = alloc(s, e))) goto fail;
    if ((rc = shares_init(&s->shares, p.n_running + p.n_queued, e))) goto fail;
    if ((rc = reuse_new(&s->reuse, g, &p, disk_is_ready, s, e))) goto fail;
    if ((rc = drafts_make(s, &p, e))) goto fail;
    reuse_stats(s->reuse, &s->stats); /* for callers that ask before the thread has run */
    if ((rc = os_thread_start(&s->thread, thread_main, s, "the scheduler", e))) goto fail;
    s->has_thread = true;
    *out = s;
    return 0;
fail:
    s->drafts.drafters.of[DRAFT_OWN] = NULL;
    qn_scheduler_free(s);
    return rc;
}

int qn_scheduler_new(qn_scheduler **out, qn_engine *g, const struct qn_scheduler_params *params, struct qn_error *e)
{
    return scheduler_new(out, g, params, NULL, e);
}

void qn_scheduler_stop(qn_scheduler *s, double grace_s)
{
    if (!s) return;
    uint64_t grace = grace_s > 0 ? grace_s < 1e9 ? (uint64_t)(grace_s * 1e9) : (uint64_t)1e18 : 0;
    uint64_t stop = clock_ns() + grace;
    pthread_mutex_lock(&s->mutex);
    s->is_stopping = true;
    if (stop < s->stop_ns) s->stop_ns = stop;
    pthread_cond_signal(&s->wake);
    while (!s->is_ended && !scheduler_check_thread(s, __func__, NULL)) pthread_cond_wait(&s->end, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

void qn_scheduler_free(qn_scheduler *s)
{
    struct qn_error why;
    if (!s) return;
    if (scheduler_check_thread(s, __func__, &why)) {
        log_at(LOG_ERROR, "%s: nothing is freed", why.msg);
        return;
    }
    if (s->has_thread) {
        qn_scheduler_stop(s, 0);
        pthread_join(s->thread, NULL);
    }
    masks_end(s);
    away_free(s);
    drafts_deinit(s);
    reuse_free(s->reuse);
    shares_deinit(&s->shares);
    ledger_give(&s->engine->ledger, s->bytes);
    pthread_cond_destroy(&s->end);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    mem_free(s->running);
    mem_free(s->parts);
    mem_free(s->memories);
    mem_free(s->logits);
    mem_free(s->heard);
    mem_free(s->drawn);
    mem_free(s->work);
    mem_free(s->scratch);
    atomic_store(&s->engine->is_lent, false);
    engine_let_go(s->engine);
    mem_free(s);
}

/* ---- from any thread ---- */

static int check_room(const struct qn_scheduler *s, const struct request *r, struct qn_error *e)
{
    if (r->p.n_answers > s->n_places)
        return error_set(e, QN_EUSAGE, "request: %d answers, at most %d are computed at once", r->p.n_answers,
                         s->n_places);
    return 0;
}

/* Returns the estimated seconds until there is room for another request: the mean time between the ends of two
 * requests, less the time since the last one, but at least a tenth of that mean. With the mutex held. */
static double retry_after(const struct qn_scheduler *s)
{
    double gap = s->end_gap_s > 0 ? s->end_gap_s : 1, waited = 1e-3 * ms(s->last_end_ns, clock_ns());
    return waited < 0.9 * gap ? gap - waited : 0.1 * gap;
}

static void set_changed(struct qn_scheduler *s, const struct qn_error *why)
{
    pthread_mutex_lock(&s->mutex);
    if (!s->changed.code) s->changed = *why;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
}

bool scheduler_lost_weights(struct qn_scheduler *s)
{
    const struct weights *w = s->engine->model->weights;
    struct qn_error why;
    unsigned n = map_n_lost();
    if (n == s->n_lost) return false;
    s->n_lost = n;
    if (!weights_are_lost(w)) return false; /* they belong to another model */
    error_set(&why, QN_EDATA, "the file became shorter, or its disk failed, while it was in use: '%s'",
              weights_path(w));
    set_changed(s, &why);
    return true;
}

int qn_scheduler_look(qn_scheduler *s, struct qn_error *e)
{
    struct qn_error why;
    if (!s) return usage_null(e, __func__);
    enum model_files_now now = model_files_look(weights_files(s->engine->model->weights), &why);
    pthread_mutex_lock(&s->mutex);
    if (s->changed.code) { /* a change that was seen stays, whatever the files are now */
        why = s->changed;
        now = MODEL_FILES_CHANGED;
    }
    pthread_mutex_unlock(&s->mutex);
    if (now != MODEL_FILES_CHANGED) return now == MODEL_FILES_REPLACED;
    set_changed(s, &why);
    if (e) *e = why;
    return QN_EDATA;
}

int qn_submit(qn_scheduler *s, const struct qn_request_params *p, uint64_t *id, double *retry_s, struct qn_error *e)
{
    struct request *r = NULL;
    if (!s || !p) return usage_null(e, __func__);
    int rc = request_new(&r, p, s->engine, e);
    if (!rc) rc = check_room(s, r, e);
    if (!rc) rc = drafts_check(s, p->draft, e);
    if (!rc) rc = windows_settle(s, r, p, e);
    if (!rc && qn_scheduler_look(s, e) < 0) rc = QN_EDATA;
    if (rc) goto fail;
    pthread_mutex_lock(&s->mutex);
    if (s->is_stopping)
        rc = error_set(e, QN_ECANCEL, "request: the scheduler is being stopped");
    else if (s->changed.code)
        rc = error_set(e, QN_EDATA, "%s", s->changed.msg);
    else if (s->n_waiting >= s->n_queued_max) {
        rc = error_set(e, QN_EBUSY, "request: %d requests wait already", s->n_waiting);
        s->stats.n_refused++;
        if (retry_s) *retry_s = retry_after(s);
    } else {
        r->id = ++s->last_id;
        if (id) *id = r->id;
        s->stats.n_submitted++;
        *s->inbox_end = r;
        s->inbox_end = &r->next;
        s->n_waiting++;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->mutex);
    if (!rc) return 0;
fail:
    request_free(r);
    return rc;
}

static bool cancel_in(struct request *list, uint64_t id)
{
    for (; list; list = list->next)
        if (list->id == id) {
            atomic_store_explicit(&list->is_cancelled, true, memory_order_relaxed);
            return true;
        }
    return false;
}

bool qn_cancel(qn_scheduler *s, uint64_t id)
{
    if (!s) return false;
    pthread_mutex_lock(&s->mutex);
    bool found = cancel_in(s->inbox, id) || cancel_in(s->waiting, id);
    for (int i = 0; i < s->n_running && !found; i++)
        if (s->running[i]->id == id) {
            atomic_store_explicit(&s->running[i]->is_cancelled, true, memory_order_relaxed);
            found = true;
        }
    pthread_mutex_unlock(&s->mutex);
    return found;
}

int qn_scheduler_stats(qn_scheduler *s, struct qn_scheduler_stats *out)
{
    if (!s || !out || out->size != sizeof *out) return QN_EUSAGE;
    struct qn_engine *g = s->engine;
    pthread_mutex_lock(&s->mutex);
    *out = s->stats;
    out->size = sizeof *out;
    out->n_queued = s->n_waiting;
    out->n_running = s->n_running;
    out->n_answers = s->n_places_taken;
    out->n_places = s->n_places;
    /* A request that was admitted after the last step has waited since its admission, not since that step. */
    uint64_t since = s->n_running && s->busy_since_ns > s->last_step_ns ? s->busy_since_ns : s->last_step_ns;
    out->idle_s = 1e-3 * ms(since, clock_ns());
    pthread_mutex_unlock(&s->mutex);
    out->budget_bytes = g->ledger.budget;
    out->used_bytes = ledger_used(&g->ledger);
    out->weight_bytes = g->weight_bytes;
    out->n_windows = kv_pool_n_windows(g->kv);
    out->window_bytes = kv_window_page_bytes(kv_pool_shape(g->kv)) * (uint64_t)out->n_windows;
    out->kv_bytes = kv_page_bytes(kv_pool_shape(g->kv)) * (uint64_t)kv_pool_n_pages(g->kv) + out->window_bytes;
    out->n_states = kv_pool_n_states(g->kv);
    out->state_bytes = kv_states_bytes(kv_pool_shape(g->kv), out->n_states);
    out->buffer_bytes = forward_buffer_bytes(&g->forward);
    out->scheduler_bytes = s->bytes + s->drafts.bytes;
    out->cache_bytes = out->used_bytes - out->weight_bytes - out->kv_bytes - out->state_bytes - out->buffer_bytes -
                       out->scheduler_bytes; /* nothing else takes bytes while a scheduler owns the engine */
    out->n_pages = kv_pool_n_pages(g->kv);
    out->page_tokens = kv_pool_shape(g->kv)->page_slots;
    return 0;
}
