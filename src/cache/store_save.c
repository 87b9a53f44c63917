/* SPDX-License-Identifier: MIT
 *
 * store_save.c: writes what the prefix cache has in memory only to files. See store.h.
 */
#include "cache/store_impl.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"

#define FILE_BYTES ((uint64_t)256 << 20) /* of pages in one file, about: as many as one call of store_save writes */

#define LAST_STATES 2 /* of a chain: after the answer, and before it, because a template may change the answer */

/* ---- saving ---- */

/* Whether the node is in the pool and not on disk. A running sequence still writes into its last page. */
static bool is_unsaved(const struct store *s, const struct prefix_node *node)
{
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    bool is_open =
        shape->state_bytes && node->n < shape->page_slots && node->page && kv_page_n_refs(s->pool, node->page) > 1;
    return node->page && !node->place.file && !is_open;
}

/* Whether the pages up to the i-th are on disk. */
static bool are_placed(const struct store_chain *c, int i)
{
    while (i >= 0 && c->nodes[i]->place.file) i--;
    return i < 0;
}

/* The first run of pages that are in the pool and not on disk; 0: there is none. */
static int find_run(const struct store *s, struct store_chain *c)
{
    uint64_t most = FILE_BYTES / store_page_bytes(s);
    int i = 0;
    while (i < c->n && !is_unsaved(s, c->nodes[i])) i++;
    c->first = i;
    while (i < c->n && is_unsaved(s, c->nodes[i]) && (uint64_t)(i - c->first) < (most ? most : 1)) i++;
    c->end = i;
    return c->end > c->first;
}

/* Walks the chain's snapshots from its end. Deletes the files of those that are not to be kept on disk, in the part of
 * the chain that no other shares. Returns a snapshot that is to be written; NULL: none. */
static struct prefix_snapshot *find_state(struct store *s, const struct store_chain *c)
{
    struct prefix_snapshot *first = NULL, *found = NULL;
    bool is_own = true;
    int n = 0;
    for (int i = 0; i < c->n && !first; i++)
        for (struct prefix_snapshot *x = c->nodes[i]->snapshots; x; x = x->next)
            if (!first || x->n_slots < first->n_slots) first = x;
    for (int i = c->n - 1; i >= 0; i--) {
        if (c->nodes[i]->child && c->nodes[i]->child->next) is_own = false;
        int below = INT_MAX;
        for (struct prefix_snapshot *x; (x = store_last_snapshot(c->nodes[i], below));) {
            below = x->n_slots;
            bool is_wanted = n++ < LAST_STATES || x == first;
            struct store_file *f = x->place.file;
            if (is_wanted && x->data && !f && !found && are_placed(c, i)) found = x;
            if (!is_wanted && is_own && f && f->n_parts == 1) store_file_delete(s, f);
        }
    }
    return found;
}

static void fill_head(const struct store *s, const struct store_chain *c, struct chain_head *h)
{
    const struct prefix_node *last = c->nodes[c->end - 1];
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    int n = c->state ? c->state->n_slots : last->depth * shape->page_slots + last->n;
    uint32_t n_windows = 0;
    for (int i = c->first; i < c->end; i++) n_windows += c->nodes[i]->window != NULL;
    *h = (struct chain_head){
        .key = prefix_root(last)->key,
        .shape = *shape,
        .page_bytes = kv_page_bytes(shape),
        .n_tokens = (uint32_t)n,
        .first_page = (uint32_t)c->first,
        .n_windows = n_windows,
        .has_state = c->state != NULL,
    };
    memcpy(h->model, s->model, sizeof h->model);
}

/* A name that no file has. */
static void new_name(const struct store *s, char name[CHAIN_NAME_BYTES])
{
    struct stat st;
    do snprintf(name, CHAIN_NAME_BYTES, "%016" PRIx64 ".kv", rng_seed_from_os());
    while (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
}

static void set_needed(const struct store_chain *c, bool needed)
{
    for (int i = 0; i < c->n; i++)
        if (c->nodes[i]->place.file) ((struct store_file *)c->nodes[i]->place.file)->needed = needed;
}

/* Sets the times of the chain's files, those at its end first, so that they expire first. */
static void set_times(struct store *s, const struct store_chain *c)
{
    const void *last = NULL;
    for (int i = c->n - 1; i >= 0; i--) {
        struct store_file *f = c->nodes[i]->place.file;
        if (f && f != last) {
            uint64_t ns = store_next_time(s, f);
            struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
            if (f == s->write_file)
                s->write->time_ns = ns; /* the file does not exist yet */
            else
                utimensat(s->dir_fd, f->name, (struct timespec[2]){t, t}, AT_SYMLINK_NOFOLLOW);
        }
        last = f;
    }
}

/* Lists the file's parts as if they were written. */
static void place_parts(struct store *s, const struct store_chain *c)
{
    struct store_file *f = s->write_file;
    struct chain_write *w = s->write;
    uint32_t *windows = chain_index_windows(&f->head, w->index);
    f->n_parts = (int)chain_n_parts(&f->head);
    f->n_live = c->state ? 1 : (int)chain_n_pages(&f->head);
    if (c->state) {
        w->parts[0] = c->state->data;
        f->parts[0].snapshot = s->write_snapshot = c->state;
        prefix_snapshot_hold(s->tree, c->state);
        prefix_snapshot_place(s->tree, c->state, (struct prefix_place){.file = f});
        w->time_ns = store_next_time(s, f);
        return;
    }
    for (int i = 0, next = f->n_live; i < f->n_live; i++) {
        struct prefix_node *node = c->nodes[c->first + i];
        w->parts[i] = node->page;
        f->parts[i].node = node;
        prefix_place(s->tree, node, (struct prefix_place){.file = f, .index = i});
        if (!node->window) continue;
        w->parts[next++] = node->window;
        *windows++ = (uint32_t)(c->first + i);
    }
    for (int i = 0; i < f->n_parts; i++) kv_page_ref(s->pool, w->parts[i]);
    store_place_windows(f, chain_index_windows(&f->head, w->index));
}

/* Enters the file into the list and the tree as if it were written, and gives it to the writing thread. */
static int begin_write(struct store *s, const struct store_chain *c, struct qn_error *e)
{
    struct chain_head h;
    char name[CHAIN_NAME_BYTES];
    fill_head(s, c, &h);
    new_name(s, name);
    struct store_file *f = store_file_new(name, chain_file_bytes(&h) + store_far_bytes(s, &h), chain_n_parts(&h), e);
    struct chain_write *w = f ? chain_write_new(&h, e) : NULL;
    if (!w) {
        mem_free(f);
        return QN_ENOMEM;
    }
    qn_token *tokens = chain_index_tokens(w->index);
    for (int i = 0, left = (int)h.n_tokens; i < c->end; i++, tokens += h.shape.page_slots, left -= h.shape.page_slots)
        memcpy(tokens, c->nodes[i]->tokens, (size_t)(left < c->nodes[i]->n ? left : c->nodes[i]->n) * sizeof *tokens);
    memcpy(w->name, name, sizeof w->name);
    w->dir = s->dir;
    f->head = h;
    store_file_add(s, f);
    s->write = w;
    s->write_file = f;
    place_parts(s, c);
    set_times(s, c);
    worker_post(s->writer, &w->job);
    store_far_write(s);
    return 1;
}

static int save_chain(struct store *s, struct prefix_node *leaf, struct store_chain *c, struct qn_error *e)
{
    uint64_t page_bytes = store_page_bytes(s);
    struct chain_head h;
    store_chain_fill(c, leaf);
    if (!find_run(s, c)) {
        if (!(c->state = find_state(s, c))) return 0;
        c->first = c->end = c->state->node->depth + 1;
    }
    fill_head(s, c, &h);
    set_needed(c, true);
    uint64_t bytes = chain_file_bytes(&h) + store_far_bytes(s, &h),
             fits = store_make_room(s, bytes, c->nodes[c->end - 1]->used_ns);
    set_needed(c, false);
    if (c->state) return fits < bytes ? 0 : begin_write(s, c, e);
    if (fits < bytes) { /* the beginning of the run is better than nothing */
        uint64_t over = (bytes - fits + page_bytes - 1) / page_bytes;
        c->end = over < (uint64_t)(c->end - c->first) ? c->end - (int)over : c->first;
    }
    return c->end > c->first ? begin_write(s, c, e) : 0;
}

int store_save(struct store *s, struct qn_error *e)
{
    struct prefix_stats stats;
    struct store_chain c;
    int rc = 0;
    assert(!s->write);
    prefix_stats(s->tree, &stats);
    if (stats.n_unsaved == 0 && stats.n_states == 0) return 0;
    if (!store_chain_alloc(s, &c, e)) return QN_ENOMEM;
    for (struct prefix_node *leaf = NULL; !rc && (leaf = prefix_next_leaf(s->tree, leaf));)
        rc = save_chain(s, leaf, &c, e);
    mem_free(c.nodes);
    return rc;
}

bool store_is_saving(const struct store *s) { return s->write != NULL; }

int store_settle(struct store *s, bool wait, struct qn_error *e)
{
    struct chain_write *w = s->write;
    struct store_file *f = s->write_file;
    if (!w) return 0;
    if (wait) worker_wait(s->writer, &w->job);
    if (!worker_is_done(s->writer, &w->job) || !store_far_is_written(s)) return 0;
    int rc = w->rc;
    if (!rc && s->far_failed) rc = error_set(&w->error, QN_EIO, "a stage has not written '%s'", w->name);
    s->far_failed = false;
    s->write = NULL;
    s->write_file = NULL;
    const uint64_t *sums = chain_index_sums(&w->head, w->index);
    for (int i = 0; i < f->n_parts; i++) {
        f->parts[i].sum = sums[i];
        if (!s->write_snapshot) kv_page_unref(s->pool, w->parts[i]);
    }
    if (s->write_snapshot) prefix_snapshot_release(s->tree, s->write_snapshot);
    s->write_snapshot = NULL;
    if (rc) {
        if (e) *e = w->error;
        store_file_delete(s, f); /* if only syncing the directory failed, the file exists */
    } else if (f->n_live == 0 || f->is_dropped) {
        store_file_delete(s, f);
    }
    chain_write_free(w);
    return rc ? rc : 1;
}
