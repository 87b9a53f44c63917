/* SPDX-License-Identifier: MIT
 *
 * kv_seq.c: the pages, the windows and the state of one sequence. See kv.h.
 */
#include "cache/kv.h"

#include <assert.h>
#include <string.h>

/* ---- sequences ---- */

int kv_seq_init(struct kv_seq *m, struct kv_pool *pool, int max_slots, struct qn_error *e)
{
    int max_pages = (max_slots + kv_pool_shape(pool)->page_slots - 1) / kv_pool_shape(pool)->page_slots;
    size_t n_entries = (size_t)max_pages * (kv_pool_shape(pool)->n_layer_win ? 2 : 1);
    uint8_t **pages = mem_calloc(n_entries, sizeof *pages);
    if (!pages) return error_nomem(e, "a sequence's page table", n_entries * sizeof *pages);
    uint8_t *state = NULL;
    if (kv_pool_shape(pool)->state_bytes) {
        state = kv_state_get(pool);
        if (!state) {
            mem_free(pages);
            return error_set(e, QN_ENOMEM, "kv: all %d recurrent states are in use", kv_pool_n_states(pool));
        }
        kv_state_clear(pool, state);
    }
    *m = (struct kv_seq){.pool = pool, .pages = pages, .max_pages = max_pages, .state = state};
    if (kv_pool_shape(pool)->n_layer_win) m->windows = pages + max_pages;
    return 0;
}

void kv_seq_deinit(struct kv_seq *m)
{
    if (!m->pool) return;
    kv_seq_truncate(m, 0);
    struct kv_pool *p = m->pool;
    if (m->state) kv_state_put(p, m->state);
    mem_free(m->pages);
    *m = (struct kv_seq){0};
}

int kv_seq_reserve(struct kv_seq *m, int n_slots, struct qn_error *e)
{
    struct kv_pool *p = m->pool;
    int slots = kv_pool_shape(p)->page_slots;
    int need = (n_slots + slots - 1) / slots;
    if (need > m->max_pages)
        return error_set(e, QN_ENOMEM, "kv: %d tokens do not fit a sequence of %d", n_slots, m->max_pages * slots);
    /* The page in which n_slots continues will be written to, so it must not be shared. */
    int last = m->n_slots / slots;
    int copy = last < m->n_pages && n_slots > m->n_slots && kv_page_n_refs(p, m->pages[last]) > 1;
    int fresh = need > m->n_pages ? need - m->n_pages : 0;
    if (fresh + copy > kv_pool_n_free(p))
        return error_set(e, QN_ENOMEM, "kv: %d more pages of %d tokens needed, %d of %d free", fresh + copy, slots,
                         kv_pool_n_free(p), kv_pool_n_pages(p));
    if (copy) kv_page_own(p, &m->pages[last]);
    while (m->n_pages < need) m->pages[m->n_pages++] = kv_page_get(p);
    return 0;
}

/* ---- windows ---- */

static void drop_window(struct kv_seq *m, int i)
{
    if (m->windows[i]) kv_page_unref(m->pool, m->windows[i]);
    m->windows[i] = NULL;
}

/* The first window page that is kept of a sequence that can be cut at n_slots: the one before those that it needs. */
static int first_kept(const struct kv_seq *m, int n_slots)
{
    int first = kv_window_first(kv_pool_shape(m->pool), n_slots);
    return first > 0 ? first - 1 : 0;
}

static bool is_pinned(const struct kv_seq *m, int i)
{
    for (int k = 0; k < m->n_pins; k++)
        if (i >= first_kept(m, m->pins[k]) && i * kv_pool_shape(m->pool)->page_slots < m->pins[k]) return true;
    return false;
}

static void drop_unseen(struct kv_seq *m)
{
    if (!m->windows) return;
    for (int end = first_kept(m, m->n_slots); m->n_dropped < end; m->n_dropped++)
        if (!is_pinned(m, m->n_dropped)) drop_window(m, m->n_dropped);
}

/* Drops the pins after more than n_slots slots. */
static void drop_pins(struct kv_seq *m, int n_slots)
{
    int kept = 0;
    for (int k = 0; k < m->n_pins; k++)
        if (m->pins[k] <= n_slots) m->pins[kept++] = m->pins[k];
    m->n_pins = kept;
    m->n_dropped = 0; /* pages that were pinned may not be needed any more */
}

void kv_seq_pin(struct kv_seq *m, int most)
{
    assert(most <= KV_PINS);
    if (!m->windows || most < 1) return;
    for (int k = 0; k < m->n_pins; k++)
        if (m->pins[k] == m->n_slots) return;
    if (m->n_pins == most) m->n_pins--;
    memmove(m->pins + 1, m->pins, (size_t)m->n_pins++ * sizeof *m->pins);
    m->pins[0] = m->n_slots;
    m->n_dropped = 0;
    drop_unseen(m);
}

/* The window page with the last slot in use, if others share it. */
static uint8_t **shared_window(const struct kv_seq *m)
{
    int slots = kv_pool_shape(m->pool)->page_slots;
    uint8_t **last = m->n_slots % slots ? &m->windows[m->n_slots / slots] : NULL;
    return last && *last && kv_page_n_refs(m->pool, *last) > 1 ? last : NULL;
}

int kv_seq_open(struct kv_seq *m, int from, int to, struct qn_error *e)
{
    struct kv_pool *p = m->pool;
    int slots = kv_pool_shape(p)->page_slots, end = (to + slots - 1) / slots;
    if (!m->windows || to <= from) return 0;
    assert(from >= 0 && end <= m->n_pages);
    uint8_t **shared = shared_window(m);
    int need = shared != NULL;
    for (int i = from / slots; i < end; i++) need += !m->windows[i];
    if (need > kv_pool_n_free_windows(p) && m->n_pins) {
        drop_pins(m, 0);
        drop_unseen(m);
        shared = shared_window(m);
    }
    if (need > kv_pool_n_free_windows(p))
        return error_set(e, QN_ENOMEM, "kv: %d more window pages of %d tokens needed, %d of %d free", need, slots,
                         kv_pool_n_free_windows(p), kv_pool_n_windows(p));
    if (shared) kv_page_own(p, shared);
    for (int i = from / slots; i < end; i++)
        if (!m->windows[i]) m->windows[i] = kv_window_page_get(p);
    return 0;
}

bool kv_seq_is_open(const struct kv_seq *m)
{
    int next = m->n_slots / kv_pool_shape(m->pool)->page_slots;
    return !m->windows || (next < m->n_pages && m->windows[next] && !shared_window(m));
}

int kv_seq_n_windows(const struct kv_seq *m)
{
    int n = 0;
    for (int i = 0; m->windows && i < m->n_pages; i++) n += m->windows[i] != NULL;
    return n;
}

int kv_seq_whole(const struct kv_seq *m, int n_slots)
{
    int slots = kv_pool_shape(m->pool)->page_slots;
    for (int i = m->windows ? (n_slots - 1) / slots : -1; i >= kv_window_first(kv_pool_shape(m->pool), n_slots); i--)
        if (!m->windows[i]) n_slots = i * slots;
    return n_slots;
}

void kv_seq_extend(struct kv_seq *m, int n_slots)
{
    assert(n_slots >= m->n_slots && n_slots <= m->n_pages * kv_pool_shape(m->pool)->page_slots);
    m->n_slots = n_slots;
    drop_unseen(m);
}

/* Drops the pages after those of the first n_slots slots. */
static void drop_pages(struct kv_seq *m, int n_slots)
{
    int slots = kv_pool_shape(m->pool)->page_slots;
    int keep = (n_slots + slots - 1) / slots;
    while (m->n_pages > keep) {
        kv_page_unref(m->pool, m->pages[--m->n_pages]);
        if (m->windows) drop_window(m, m->n_pages);
    }
}

void kv_seq_unreserve(struct kv_seq *m, int n_slots)
{
    assert(n_slots >= m->n_slots);
    drop_pages(m, n_slots);
}

static void drop_slots(struct kv_seq *m, int n_slots)
{
    assert(n_slots >= 0 && n_slots <= m->n_slots);
    drop_pages(m, n_slots);
    m->n_slots = n_slots;
    if (m->windows) drop_pins(m, n_slots);
}

void kv_seq_truncate(struct kv_seq *m, int n_slots)
{
    assert(kv_seq_whole(m, n_slots) == n_slots);
    if (m->state && n_slots < m->n_slots) {
        assert(n_slots == 0);
        kv_state_clear(m->pool, m->state);
    }
    drop_slots(m, n_slots);
}

void kv_seq_drop_front(struct kv_seq *m, int n_pages)
{
    assert(!m->state && !m->windows && n_pages * kv_pool_shape(m->pool)->page_slots <= m->n_slots);
    for (int i = 0; i < n_pages; i++) kv_page_unref(m->pool, m->pages[i]);
    memmove(m->pages, m->pages + n_pages, (size_t)(m->n_pages - n_pages) * sizeof *m->pages);
    m->n_pages -= n_pages;
    m->n_slots -= n_pages * kv_pool_shape(m->pool)->page_slots;
}

void kv_seq_set_state(struct kv_seq *m, const void *state) { kv_state_copy(m->pool, m->state, state); }

void kv_seq_restore(struct kv_seq *m, int n_slots, const void *state)
{
    drop_slots(m, n_slots);
    kv_seq_set_state(m, state);
}

void kv_seq_exchange(struct kv_seq *m, int n_slots, uint8_t **state)
{
    uint8_t *old = m->state;
    drop_slots(m, n_slots);
    m->state = *state;
    *state = old;
}

void kv_seq_attach(struct kv_seq *m, uint8_t *page, uint8_t *window, int n_slots)
{
    assert(m->n_pages < m->max_pages && n_slots > 0 && n_slots <= kv_pool_shape(m->pool)->page_slots);
    assert(m->n_slots == m->n_pages * kv_pool_shape(m->pool)->page_slots);
    kv_page_ref(m->pool, page);
    if (m->windows) {
        if (window) kv_page_ref(m->pool, window);
        m->windows[m->n_pages] = window;
    }
    m->pages[m->n_pages++] = page;
    m->n_slots += n_slots;
}

void kv_seq_fork(struct kv_seq *dst, const struct kv_seq *src)
{
    assert(dst->pool == src->pool && dst->n_pages == 0 && dst->max_pages >= src->n_pages);
    struct kv_pool *p = src->pool;
    int keep = (src->n_slots + kv_pool_shape(p)->page_slots - 1) / kv_pool_shape(p)->page_slots;
    for (int i = 0; i < keep; i++) {
        kv_page_ref(p, src->pages[i]);
        dst->pages[i] = src->pages[i];
        if (!src->windows || !src->windows[i]) continue;
        kv_page_ref(p, src->windows[i]);
        dst->windows[i] = src->windows[i];
    }
    dst->n_dropped = src->n_dropped;
    dst->n_pins = src->n_pins;
    memcpy(dst->pins, src->pins, sizeof dst->pins);
    dst->n_pages = keep;
    dst->n_slots = src->n_slots;
    if (src->state) kv_state_copy(p, dst->state, src->state);
}
