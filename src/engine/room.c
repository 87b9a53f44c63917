/* SPDX-License-Identifier: MIT
 *
 * room.c: which requests and answers get pages. See room.h.
 *
 * No deadlock. A page that is not free belongs to a cached prefix, to an answer that runs, or to the disk's threads,
 * which give it back by themselves. Cached pages can be evicted, and answers can give way. So an answer that is left
 * alone gets every page, except those of the disk, for which it waits; and no answer needs more pages than the pool has
 * (request_new). An answer that shares the page that it writes to with the cache needs one more page for the copy; if
 * there is none, it gives way to itself, computes the tokens of that page again, and then shares no page that it writes
 * to.
 *
 * Window pages are got as they are needed, by room_grow() for the next row of each answer, and for more rows of a
 * prompt as far as there are some. They are evicted, and answers give way for them, in the same way. An answer alone
 * always gets them, because the pool has more than one needs (budget.c).
 *
 * No livelock. While anything can run, each step computes rows. Rows are computed again only after an answer gave way,
 * and that happens only when another answer has filled a page, or a request of higher priority is admitted. Both happen
 * a limited number of times: answers end, and an answer that goes on again gets all pages of its tokens at once, so it
 * needs no further page until it has made progress itself.
 *
 * Little is computed twice. An answer goes on, and a request is admitted, only if the pages also suffice for what the
 * running answers will probably still need: as many tokens as answers have on average, but at least half as many as
 * they have already. The youngest answers, which give way, have the fewest tokens, and other answers take the pages
 * that they leave only as they need them, the last ones first.
 */
#include "engine/room.h"

#include <limits.h>

#include "base/os.h"

#define FIRST_GUESS   1024 /* tokens of an answer; too few make answers give way (bench/storm) */
#define FIRST_GUESSES 4.0  /* how many answers that have ended it counts like */
#define FORGET        (1 / 16.0)

#define DISK_NS 2000000000u /* how long a request waits for pages to be saved, before they are evicted */

static int page_slots(const struct qn_scheduler *s) { return kv_pool_shape(s->engine->kv)->page_slots; }
static int n_free(const struct qn_scheduler *s) { return kv_pool_n_free(s->engine->kv); }

static int pages_of(const struct qn_scheduler *s, int n_slots)
{
    int slots = page_slots(s);
    return (n_slots + slots - 1) / slots;
}

/* Returns the window pages that a sequence of n_slots slots holds at most, with those of a pass of a few rows. */
static int windows_of(const struct qn_scheduler *s, int n_slots)
{
    const struct kv_shape *shape = kv_pool_shape(s->engine->kv);
    int n = pages_of(s, n_slots), most = kv_window_pages(shape) + 1;
    if (!shape->n_layer_win) return 0;
    return n < most ? n : most;
}

bool room_is_quiet(const struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->restore || request_has_rows(s->running[i])) return false;
    return true;
}

/* ---- what will be needed ---- */

void room_init(struct qn_scheduler *s)
{
    s->n_ended = FIRST_GUESSES;
    s->n_ended_tokens = FIRST_GUESSES * FIRST_GUESS;
    s->mean_answer = FIRST_GUESS;
}

void room_learn(struct qn_scheduler *s, const struct request *r)
{
    for (int k = 0; k < r->n_started; k++) {
        s->n_ended -= FORGET * s->n_ended - 1;
        s->n_ended_tokens -= FORGET * s->n_ended_tokens - (double)r->n_generated / r->n_started;
    }
}

/* Estimates the length of an answer. The tokens of those that run are counted too, because long answers end last, so
 * the first ones that end are too short a sample: this is the maximum likelihood for lifetimes of which some have not
 * ended yet (exponentially distributed ones). */
static void estimate(struct qn_scheduler *s)
{
    double n_tokens = s->n_ended_tokens;
    for (int i = 0; i < s->n_running; i++) n_tokens += s->running[i]->n_generated;
    s->mean_answer = n_tokens / s->n_ended;
}

/* Returns the tokens that an answer will probably still get before it ends, or its context rotates. */
static int expected(const struct qn_scheduler *s, const struct request *r, const struct answer *a)
{
    int n = request_n_answered(r, a), left = request_n_left(r, a);
    double more = (s->mean_answer > 1.5 * n ? s->mean_answer : 1.5 * n) - n;
    return more < left ? (int)more : left;
}

/* Returns the pages that an answer will probably take in addition to those of its present tokens. */
static int growth(const struct qn_scheduler *s, const struct request *r, const struct answer *a)
{
    int more = expected(s, r, a);
    return pages_of(s, a->n_tokens + more) - pages_of(s, a->n_tokens);
}

/* Returns the pages that the answers of a request will probably take, before its prompt is read. */
static int growth_of_all(const struct qn_scheduler *s, const struct request *r)
{
    const struct answer begin = {.n_tokens = (int)r->p.n_prompt, .n_dropped = r->n_dropped};
    int n = begin.n_tokens, all = pages_of(s, n + expected(s, r, &begin));
    return all - pages_of(s, n) + (r->max_tokens ? (r->p.n_answers - 1) * (all - n / page_slots(s)) : 0);
}

/* Returns the window pages that an answer does not hold, of those that it needs for n_slots slots. */
static int missing_windows(const struct qn_scheduler *s, const struct answer *a, int n_slots)
{
    int n = windows_of(s, n_slots) - kv_seq_n_windows(&a->memory);
    return n > 0 ? n : 0;
}

/* Returns the window pages that all that runs will probably take in addition to those that it holds. */
static int window_growth(const struct qn_scheduler *s)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        for (int k = 0; k < r->n_started; k++) {
            const struct answer *a = &r->answers[k];
            int more = expected(s, r, a);
            if (request_answer_runs(r, k)) n += missing_windows(s, a, a->n_tokens + more);
        }
    }
    return n;
}

/* The same for all that runs. */
static int growth_of_running(const struct qn_scheduler *s)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        if (request_is_reading(r)) {
            n += r->answers[0].is_paused ? 0 : growth_of_all(s, r);
            continue;
        }
        for (int k = 0; k < r->n_started; k++)
            if (request_answer_runs(r, k)) n += growth(s, r, &r->answers[k]);
    }
    return n;
}

/* ---- giving way ---- */

/* Returns true if an answer of a gives way before one of b, which was admitted before a. */
static bool gives_way_before(const struct request *a, const struct request *b)
{
    if (a->p.priority != b->p.priority) return a->p.priority < b->p.priority;
    return share_key(a->share) >= share_key(b->share);
}

/* Returns the running answer that gives way first. */
static struct room_paused first_to_give_way(const struct qn_scheduler *s)
{
    struct room_paused last = {0};
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        if (last.request && !gives_way_before(r, last.request)) continue;
        for (int k = 0; k < r->n_started; k++)
            if (request_answer_runs(r, k)) last = (struct room_paused){r, k};
    }
    return last;
}

/* Leaves what an answer holds to the cache. */
static void leave_to_cache(struct qn_scheduler *s, const struct request *r, struct answer *a)
{
    reuse_keep_answer(s->reuse, r, a);
    kv_seq_truncate(&a->memory, 0);
}

/* Pauses an answer that has left its pages. */
static void begin_pause(struct qn_scheduler *s, struct request *r, int k)
{
    struct answer *a = &r->answers[k];
    struct qn_event ev = {.type = QN_EVENT_PAUSE, .answer = k, .token = -1};
    a->is_paused = true;
    a->paused_ns = clock_ns();
    s->is_full = false;
    pthread_mutex_lock(&s->mutex);
    s->stats.n_pauses++;
    s->stats.n_paused++;
    pthread_mutex_unlock(&s->mutex);
    request_tell(r, &ev);
}

/* The state of an answer with rows that are away is not that of its slots, so nothing of it is kept. */
static void pause_answer(struct qn_scheduler *s, struct request *r, int k)
{
    if (away_drop(&r->answers[k]))
        kv_seq_truncate(&r->answers[k].memory, 0);
    else
        leave_to_cache(s, r, &r->answers[k]);
    begin_pause(s, r, k);
}

void room_lose(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        for (int k = 0; k < r->n_started; k++) {
            bool runs = request_answer_runs(r, k);
            kv_seq_truncate(&r->answers[k].memory, 0);
            if (runs) begin_pause(s, r, k);
        }
    }
    reuse_evict(s->reuse, INT_MAX);
}

void room_end_pause(struct qn_scheduler *s, struct request *r, int k)
{
    struct answer *a = &r->answers[k];
    if (!a->is_paused) return;
    a->paused_ms += 1e-6 * (double)(clock_ns() - a->paused_ns);
    if (a->paused_ms > r->paused_ms) r->paused_ms = a->paused_ms;
    a->is_paused = false;
    pthread_mutex_lock(&s->mutex);
    s->stats.n_paused--;
    pthread_mutex_unlock(&s->mutex);
}

void room_collect(struct qn_scheduler *s, struct request *r)
{
    for (int k = 0; k < r->n_started; k++) {
        struct answer *a = &r->answers[k];
        if (a->finish == QN_FINISH_NONE || !a->memory.n_pages) continue;
        leave_to_cache(s, r, a);
        s->is_full = false;
    }
}

/* ---- getting pages ---- */

/* Returns true if the next request should wait until pages are on disk, instead of evicting them unsaved. */
static bool is_worth_waiting(struct qn_scheduler *s)
{
    if (!s->is_unsaved) return false;
    if (!s->patience_ns) s->patience_ns = clock_ns() + DISK_NS;
    return s->patience_ns != UINT64_MAX;
}

/* Evicts cached pages until n are free. can_wait: rather waits than lose pages that are not on disk yet. */
static bool make_free(struct qn_scheduler *s, int n, bool can_wait)
{
    int missing = n - n_free(s);
    if (missing > 0) missing -= reuse_evict_saved(s->reuse, missing);
    if (missing > 0 && !(can_wait && is_worth_waiting(s))) missing -= reuse_evict(s->reuse, missing);
    return missing <= 0;
}

/* Returns the pages that an answer needs to hold n_slots slots. If it shares the page in which it goes on, it needs one
 * for a copy. */
static int missing_pages(const struct qn_scheduler *s, const struct kv_seq *m, int n_slots)
{
    return pages_of(s, n_slots) - m->n_pages + (m->n_slots % page_slots(s) != 0);
}

/* Reserves the slots of all tokens of an answer that has just attached what was found of it. If there is no page for
 * the copy of a shared page, the tokens of that page are computed again. is_new: the request is being admitted. Returns
 * false if there are not enough pages at present. */
static bool reserve(struct qn_scheduler *s, struct request *r, struct answer *a, bool is_new)
{
    struct kv_seq *m = &a->memory;
    int n = a->n_tokens + a->n_ahead;
    while (!make_free(s, missing_pages(s, m, n), is_new)) {
        int less = m->n_slots - m->n_slots % page_slots(s);
        if (less == m->n_slots) return false;
        bool is_cut = m->state || kv_seq_whole(m, less) < less;
        kv_seq_truncate(m, is_cut ? 0 : less);
        if (is_cut && is_new) /* goes back to an earlier copy of the state, or an earlier window */
            reuse_find(s->reuse, r, less);
        else if (is_cut)
            reuse_find_again(s->reuse, r, a, less);
        if (is_new) r->n_cached = m->n_slots;
    }
    return kv_seq_reserve(m, n, NULL) == 0;
}

/* The same for the window pages of an answer. */
static bool is_window_room(const struct qn_scheduler *s, const struct answer *a)
{
    int missing = missing_windows(s, a, a->n_tokens) - kv_pool_n_free_windows(s->engine->kv);
    if (!room_is_quiet(s)) missing += window_growth(s);
    return missing <= 0 || reuse_n_evictable_windows(s->reuse, missing) >= missing;
}

/* Returns true if there are `need` pages, and what will probably be needed beside them. Evicts nothing. */
static bool is_room(const struct qn_scheduler *s, const struct answer *a, int need, int more)
{
    if (kv_pool_n_windows(s->engine->kv) && !is_window_room(s, a)) return false;
    if (room_is_quiet(s))
        more = 0; /* something has to run */
    else
        more += growth_of_running(s);
    int missing = need + more - n_free(s);
    return missing <= 0 || reuse_n_evictable(s->reuse, missing) >= missing;
}

/* Lets answers of a lower priority give way until there is room. */
static bool find_room(struct qn_scheduler *s, const struct request *r, const struct answer *a, int need, int more)
{
    while (!is_room(s, a, need, more)) {
        struct room_paused p = first_to_give_way(s);
        if (!p.request || p.request->p.priority >= r->p.priority) return false;
        pause_answer(s, p.request, p.answer);
    }
    return true;
}

int room_start(struct qn_scheduler *s, struct request *r, struct qn_error *e)
{
    int n = (int)r->p.n_prompt;
    for (;;) {
        int rc = request_start(r, s->engine, e);
        if (rc) return rc;
        struct answer *a = &r->answers[0];
        reuse_find(s->reuse, r, answer_findable(r, a));
        int need = pages_of(s, n + a->n_ahead) - a->memory.n_pages;
        if (!find_room(s, r, a, need, growth_of_all(s, r)) || !reserve(s, r, a, true)) {
            request_release(r);
            return QN_EFULL;
        }
        if (reuse_restore(s->reuse, r)) return 0;
        request_release(r); /* starts again, without the disk */
    }
}

void room_fork(struct qn_scheduler *s, struct request *r)
{
    int n = (int)r->p.n_prompt;
    if (n % page_slots(s) == 0) return; /* each takes its own next page anyway */
    for (int k = 1; k < r->n_started; k++) {
        struct answer *a = &r->answers[k];
        if (!request_answer_runs(r, k)) continue; /* its first token was its last */
        if (!make_free(s, 1, false) || kv_seq_reserve(&a->memory, n + 1, NULL)) pause_answer(s, r, k);
    }
}

static bool has_page(const struct qn_scheduler *s, const struct answer *a)
{
    return a->n_tokens + a->n_ahead <= a->memory.n_pages * page_slots(s);
}

bool room_has_page(const struct qn_scheduler *s, const struct answer *a)
{
    return has_page(s, a) && kv_seq_is_open(&a->memory);
}

int room_open(struct qn_scheduler *s, struct answer *a, int n)
{
    struct kv_seq *m = &a->memory;
    int slots = page_slots(s), from = m->n_slots + a->n_away, least = a->n_away ? 0 : 1;
    if (!room_has_page(s, a)) return 0;
    while (n > least && !reuse_open(s->reuse, m, from, from + n)) {
        int less = (from + n - 1) / slots * slots - from; /* up to a page less */
        n = less > 0 ? less : least;
    }
    return n;
}

/* Returns how many of the pages of slots [from, to) are missing in a list of n pages, of which entries may be NULL. */
static int n_missing(uint8_t *const *pages, int n, int slots, int from, int to)
{
    int missing = 0;
    for (int i = from / slots; i <= (to - 1) / slots; i++) missing += i >= n || !pages[i];
    return missing;
}

int room_draft(struct qn_scheduler *s, struct answer *a, int n)
{
    struct kv_seq *m = &a->memory;
    int slots = page_slots(s), from = m->n_slots, to = a->n_tokens + n;
    int left = n_free(s) - s->n_places, left_windows = kv_pool_n_free_windows(s->engine->kv) - s->n_places;
    int here = slots - 1 - from % slots; /* rows on the page of the next row */
    if (n <= here) return n;
    bool is_room = n_missing(m->pages, m->n_pages, slots, from, to) <= left &&
                   (!m->windows || n_missing(m->windows, m->n_pages, slots, from, to) <= left_windows);
    if (!is_room || kv_seq_reserve(m, to, NULL) || kv_seq_open(m, from, to, NULL)) return here;
    return n;
}

void room_undraft(struct answer *a) { kv_seq_unreserve(&a->memory, a->n_tokens); }

/* Gets the window page of an answer's next slot, if it can be had at present. */
static bool open_next(struct qn_scheduler *s, struct answer *a)
{
    return reuse_open(s->reuse, &a->memory, a->memory.n_slots, a->memory.n_slots + 1);
}

/* Gives an answer the page of its next slot. It may have to give way itself. If a page can be had as soon as it is on
 * disk, the answer has no row in this step. */
static void grow(struct qn_scheduler *s, struct request *r, int k)
{
    struct answer *a = &r->answers[k];
    int n = a->n_tokens + a->n_ahead;
    while (request_answer_runs(r, k) && !room_has_page(s, a)) {
        if (has_page(s, a)) {
            if (open_next(s, a)) break;
            if (reuse_holds_pages(s->reuse)) break;
            struct room_paused p = first_to_give_way(s);
            pause_answer(s, p.request, p.answer);
        } else if (make_free(s, pages_of(s, n) - a->memory.n_pages, true)) {
            kv_seq_reserve(&a->memory, n, NULL); /* cannot fail: the pages are free, and the last one is its own */
        } else if (reuse_n_evictable(s->reuse, 1) > 0) {
            break;
        } else {
            struct room_paused p = first_to_give_way(s);
            pause_answer(s, p.request, p.answer);
        }
    }
}

void room_grow(struct qn_scheduler *s)
{
    estimate(s);
    for (int i = 0; i < s->n_running; i++)
        for (int k = 0; k < s->running[i]->n_started; k++) grow(s, s->running[i], k);
}

/* ---- going on ---- */

struct room_paused room_first_paused(const struct qn_scheduler *s)
{
    struct room_paused first = {0};
    for (int i = s->n_running - 1; i >= 0; i--) {
        struct request *r = s->running[i];
        if (first.request && !gives_way_before(first.request, r)) continue;
        for (int k = r->n_started - 1; k >= 0; k--)
            if (r->answers[k].is_paused) first = (struct room_paused){r, k};
    }
    return first;
}

bool room_resume(struct qn_scheduler *s, struct room_paused p)
{
    struct request *r = p.request;
    struct answer *a = &r->answers[p.answer];
    bool needs_all = request_is_reading(r) && (r->p.prompt_logprobs || r->p.pooling == QN_POOL_MEAN);
    int findable = answer_findable(r, a), most = needs_all && a->n_reached < findable ? a->n_reached : findable;
    int more = request_is_reading(r) ? growth_of_all(s, r) : growth(s, r, a);
    reuse_find_again(s->reuse, r, a, most);
    int need = pages_of(s, a->n_tokens + a->n_ahead) - a->memory.n_pages;
    if (!find_room(s, r, a, need, more) || !reserve(s, r, a, false)) {
        kv_seq_truncate(&a->memory, 0);
        return false;
    }
    room_end_pause(s, r, p.answer);
    if (a->n_reached > a->memory.n_slots) {
        pthread_mutex_lock(&s->mutex);
        s->stats.n_rows_again += (uint64_t)(a->n_reached - a->memory.n_slots);
        pthread_mutex_unlock(&s->mutex);
    }
    return true;
}

/* ---- rotating ---- */

void room_rotate(struct qn_scheduler *s, struct request *r, int k)
{
    struct answer *a = &r->answers[k];
    leave_to_cache(s, r, a);
    request_rotate(r, a);
    drafts_open_again(s, r, k);
    if (a->is_paused) return;
    reuse_find_again(s->reuse, r, a, a->n_tokens - 1);
    if (reserve(s, r, a, false)) return;
    kv_seq_truncate(&a->memory, 0);
    pause_answer(s, r, k);
}
