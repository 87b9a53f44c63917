/* SPDX-License-Identifier: MIT
 *
 * store_read.c: reads pages, window pages and states from the files of the prefix cache: for a request, or ahead of
 * one. See store.h.
 */
#include "cache/store_impl.h"

#include <limits.h>
#include <string.h>

/* Whether all readers are done with it. */
bool store_is_read(struct store *s, struct store_read *r, bool wait)
{
    for (int i = 0; i < r->io.n_readers; i++) {
        const struct worker_job *job = &r->io.readers[i].job;
        if (wait) worker_wait(s->readers[i], job);
        if (!worker_is_done(s->readers[i], job)) return false;
    }
    return store_far_is_read(s, r);
}

/* ---- reading ---- */

static void fill_part(struct store_read *r, int i, struct prefix_place place, uint8_t *to)
{
    const struct store_file *f = place.file;
    r->parts[i] = (struct chain_part){.index = place.index,
                                      .offset = chain_part_offset(&f->head, (uint32_t)place.index),
                                      .bytes = chain_part_bytes(&f->head, (uint32_t)place.index),
                                      .sum = f->parts[place.index].sum,
                                      .to = to};
    memcpy(r->parts[i].name, f->name, sizeof f->name);
}

static struct prefix_place place_of_window(struct prefix_place page)
{
    const struct store_file *f = page.file;
    return (struct prefix_place){.file = page.file, .index = f->parts[page.index].window};
}

/* Sets the times of the files that are read, those at the end first, and lists the places of their pages. */
static void fill_read(struct store *s, struct store_read *r, const struct prefix_place *places, const struct kv_seq *m,
                      int first, const struct prefix_snapshot *snapshot)
{
    int n = r->n_pages;
    if (snapshot) {
        fill_part(r, n + r->n_windows, snapshot->place, r->state);
        r->parts[n + r->n_windows].time_ns = store_next_time(s, snapshot->place.file);
    }
    for (int i = n - 1; i >= 0; i--) {
        struct store_file *f = places[i].file;
        fill_part(r, i, places[i], m->pages[first + i]);
        if (i == 0 || places[i - 1].file != f) r->parts[i].time_ns = store_next_time(s, f);
    }
    for (int i = n - r->n_windows; i < n; i++) /* those of the last pages */
        fill_part(r, i + r->n_windows, place_of_window(places[i]), m->windows[first + i]);
    for (int i = 0; i < n + r->n_windows; i++) kv_page_ref(s->pool, r->parts[i].to);
}

static struct store_read *read_new(struct store *s, int n_pages, int n_windows, const struct prefix_snapshot *snapshot)
{
    int n = n_pages + n_windows + (snapshot != NULL);
    struct store_read *r = n ? mem_calloc(1, sizeof *r + (size_t)n * sizeof *r->parts) : NULL;
    if (!r) return NULL;
    chain_read_init(&r->io, s->dir_fd, r->parts, n, s->n_readers);
    r->n_pages = n_pages;
    r->n_windows = n_windows;
    if (!snapshot || (r->state = prefix_state_get(s->tree))) return r;
    mem_free(r);
    return NULL;
}

struct store_read *store_read(struct store *s, const struct prefix_key *key, const qn_token *tokens, int n,
                              const struct kv_seq *m, const struct prefix_snapshot *snapshot)
{
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    int first = (m->n_slots + shape->page_slots - 1) / shape->page_slots, room = m->n_pages - first;
    struct prefix_place *places = mem_calloc((size_t)room + 1, sizeof *places);
    if (!places) return NULL;
    int n_pages = prefix_places(s->tree, key, tokens, n, first, places, room);
    for (int i = 0; i < n_pages; i++)
        if (places[i].file == s->write_file) n_pages = i;
    int end = (n + shape->page_slots - 1) / shape->page_slots, n_windows = 0;
    bool is_all = first + n_pages == end, needs_all = shape->state_bytes || m->windows;
    for (int i = end - 1; m->windows && is_all && i >= first && i >= kv_window_first(shape, n); i--, n_windows++)
        if (!m->windows[i] || !places[i - first].has_window) is_all = false;
    struct store_read *r = needs_all && !is_all ? NULL : read_new(s, n_pages, n_windows, snapshot);
    if (r) {
        fill_read(s, r, places, m, first, snapshot);
        for (int i = 0; i < s->n_readers; i++) worker_post(s->readers[i], &r->io.readers[i].job);
        store_far_read(s, r);
    }
    mem_free(places);
    return r;
}

/* Passes the state to the caller, or puts it back. */
static void read_free(struct store *s, struct store_read *r)
{
    for (int i = 0; i < r->n_pages + r->n_windows; i++) kv_page_unref(s->pool, r->parts[i].to);
    if (r->state) prefix_state_put(s->tree, r->state);
    mem_free(r);
}

/* The file has a page that cannot be used. It may have been deleted already, to make room. */
static void damaged(struct store *s, const char *name, const struct qn_error *why)
{
    struct store_file *f = store_find_file(s, name);
    if (!f || why->code == QN_ECANCEL) return;
    store_log_dropped(s, name, why->msg);
    s->stats.n_dropped++;
    if (why->code == QN_EDATA)
        store_file_delete(s, f);
    else
        store_file_unplace(s, f); /* it may be readable later */
}

bool store_read_end(struct store *s, struct store_read *r, bool wait, int *n_pages, uint8_t **state,
                    enum prefix_miss *miss)
{
    const struct qn_error *why = NULL;
    if (!store_is_read(s, r, wait)) return false;
    int n = store_n_good(r, &why);
    *n_pages = n < r->n_pages ? n : r->n_pages;
    *state = NULL;
    if (n < r->io.n_parts) {
        damaged(s, r->parts[n].name, why);
        *miss = PREFIX_DAMAGED;
    } else {
        *state = r->state;
        r->state = NULL;
    }
    read_free(s, r);
    return true;
}

void store_read_cancel(struct store *s, struct store_read *r)
{
    atomic_store_explicit(&r->io.is_cancelled, true, memory_order_relaxed);
    r->next = s->given_up;
    s->given_up = r;
}

bool store_holds_pages(struct store *s)
{
    for (struct store_read **at = &s->given_up, *r; (r = *at);) {
        if (!store_is_read(s, r, false)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        read_free(s, r);
    }
    return store_settle_ahead(s) || s->given_up || s->write;
}

/* ---- reading ahead ---- */

#define AHEAD_BYTES  ((uint64_t)64 << 20) /* of one piece: a request waits for its end, about 30 ms */
#define AHEAD_CHAINS 64                   /* how many chains are looked at, the most recently used first */

/* Finds the first run of the chain's pages that are only on disk; 0: there is none, or what follows does not fit. */
static int find_missing(const struct store *s, struct store_chain *c)
{
    uint64_t most = AHEAD_BYTES / store_page_bytes(s) + 1;
    int i = 0;
    while (i < c->n && c->nodes[i]->page) i++;
    c->first = i;
    while (i < c->n && !c->nodes[i]->page && c->nodes[i]->place.file && c->nodes[i]->place.file != s->write_file) i++;
    c->end = i;
    if (c->end - c->first > kv_pool_n_free(s->pool)) return 0;
    if ((uint64_t)(c->end - c->first) > most) c->end = c->first + (int)most;
    return c->end - c->first;
}

/* The longest snapshot of the chain that is only on disk, if all of the chain's pages are in the pool. */
static struct prefix_snapshot *find_missing_state(const struct store *s, const struct store_chain *c)
{
    if (c->first < c->n) return NULL;
    for (int i = c->n - 1; i >= 0; i--) {
        int below = INT_MAX;
        for (struct prefix_snapshot *x; (x = store_last_snapshot(c->nodes[i], below)); below = x->n_slots)
            if (!x->data && x->place.file && x->place.file != s->write_file) return x;
    }
    return NULL;
}

static bool misses_window(const struct store *s, const struct prefix_node *node)
{
    return !node->window && node->place.has_window && node->place.file != s->write_file;
}

/* The number of window pages, of those that the next token needs, that are only on disk, if all of the chain's pages
 * are in the pool; 0: there are none, or they do not fit. */
static int find_missing_windows(const struct store *s, struct store_chain *c)
{
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    const struct prefix_node *leaf = c->nodes[c->n - 1];
    int n = 0;
    if (!shape->n_layer_win || c->first < c->n) return 0;
    c->first = kv_window_first(shape, leaf->depth * shape->page_slots + leaf->n);
    c->end = c->n;
    for (int i = c->first; i < c->end; i++) n += misses_window(s, c->nodes[i]);
    return n > kv_pool_n_free_windows(s->pool) ? 0 : n;
}

/* Gets memory and begins to read: the state; or else the n_windows window pages of the pages; or else the pages. As
 * many are free. NULL: no memory. */
static struct store_read *read_missing(struct store *s, const struct store_chain *c, int n_windows)
{
    int n = c->state ? 1 : n_windows ? n_windows : c->end - c->first;
    struct store_read *r = mem_calloc(1, sizeof *r + (size_t)n * sizeof *r->parts);
    if (!r) return NULL;
    chain_read_init(&r->io, s->dir_fd, r->parts, n, s->n_readers);
    if (c->state && !(r->state = prefix_state_get_free(s->tree))) {
        mem_free(r);
        return NULL;
    }
    if (c->state) fill_part(r, 0, c->state->place, r->state);
    for (int i = c->first; i < c->end && !c->state; i++) {
        struct prefix_place place = c->nodes[i]->place;
        if (n_windows && !misses_window(s, c->nodes[i])) continue;
        if (n_windows) place = place_of_window(place);
        fill_part(r, r->n_pages++, place, n_windows ? kv_window_page_get(s->pool) : kv_page_get(s->pool));
    }
    for (int i = 0; i < s->n_readers; i++) worker_post(s->readers[i], &r->io.readers[i].job);
    store_far_read(s, r);
    return r;
}

/* Gives a part that was read to the node or snapshot that still misses it. */
static void fill_missing(struct store *s, struct store_read *r, const struct chain_part *part)
{
    struct store_file *f = store_find_file(s, part->name);
    if (!f) return;
    const struct stored_part *p = &f->parts[part->index];
    if (p->node && !p->node->page) prefix_fill(s->tree, p->node, part->to);
    for (int i = 0; i < f->n_parts; i++) {
        bool is_its = part->index > 0 && f->parts[i].window == part->index;
        struct prefix_node *node = is_its ? f->parts[i].node : NULL;
        if (node && node->page && !node->window) prefix_fill_window(s->tree, node, part->to);
    }
    if (!p->snapshot || p->snapshot->data) return;
    prefix_snapshot_fill(s->tree, p->snapshot, r->state);
    r->state = NULL;
}

bool store_settle_ahead(struct store *s)
{
    struct store_read *r = s->ahead;
    const struct qn_error *why = NULL;
    if (!r) return false;
    if (!store_is_read(s, r, false)) return true;
    s->ahead = NULL;
    int n = store_n_good(r, &why);
    for (int i = 0; i < n; i++) fill_missing(s, r, &r->parts[i]);
    if (n < r->io.n_parts) damaged(s, r->parts[n].name, why);
    read_free(s, r);
    return false;
}

bool store_read_ahead(struct store *s)
{
    struct store_chain c;
    int n = 0;
    if (store_settle_ahead(s)) return true;
    if (s->far && !s->far->is_there(s->far->arg)) return true;
    if (!store_chain_alloc(s, &c, NULL)) return false;
    for (struct prefix_node *leaf = NULL; !s->ahead && n < AHEAD_CHAINS && (leaf = prefix_next_leaf(s->tree, leaf));
         n++) {
        int n_windows = 0;
        store_chain_fill(&c, leaf);
        bool is_missing =
            find_missing(s, &c) || (c.state = find_missing_state(s, &c)) || (n_windows = find_missing_windows(s, &c));
        if (is_missing) s->ahead = read_missing(s, &c, n_windows);
    }
    mem_free(c.nodes);
    return s->ahead != NULL;
}
