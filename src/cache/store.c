/* SPDX-License-Identifier: MIT
 *
 * store.c: the files of the prefix cache that are known, and their expiry. See store.h and store_impl.h.
 *
 * A conversation grows at its end. So each turn writes one file with the pages that it added, and does not write the
 * pages before them again. A file repeats the tokens from the start of the sequence, which are 4 bytes each, while a
 * token's keys and values are 100 KB. So each file can be read without any other, and the tree can be built from the
 * files in any order. If the file with the pages before is gone, the nodes of those pages stay without data until they
 * are computed again.
 *
 * A file appears by rename, complete and synced, and is never changed. A kill leaves only temporary files, which the
 * next start removes. Files expire in the order of their modification times, which are set when they are used.
 *
 * A snapshot is a file of its own without pages, so that it can expire while the pages stay. Of a chain, only the first
 * snapshot (after the beginning that others may share) and the last two are kept on disk. Snapshots are entered after
 * all pages, because without its pages a snapshot is useless and is deleted.
 *
 * A page's window page is written with it, if the tree has it then. One that the tree gets later is not written: until
 * the process ends, it is in the pool, and after that, a lookup ends at another place.
 *
 * Files are not compressed, and pages that were only read are not written again.
 */
#include "cache/store_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

void store_log_dropped(const struct store *s, const char *name, const char *why)
{
    log_at(LOG_WARN, "cache: '%s/%s' dropped: %s", s->dir, name, why);
}

/* ---- files known ---- */

void store_file_add(struct store *s, struct store_file *f)
{
    f->prev = NULL;
    f->next = s->files;
    if (s->files) s->files->prev = f;
    s->files = f;
    s->stats.n_files++;
    s->stats.bytes += f->bytes;
}

/* Takes a file, to which the tree no longer refers, out of the list. */
void store_file_forget(struct store *s, struct store_file *f)
{
    assert(f->n_live == 0);
    *(f->prev ? &f->prev->next : &s->files) = f->next;
    if (f->next) f->next->prev = f->prev;
    s->stats.n_files--;
    s->stats.bytes -= f->bytes;
    mem_free(f);
}

/* Takes the places of the file's parts from the tree, the last first. This may free nodes, their parents, and their
 * snapshots, and then the files of these. */
void store_file_unplace(struct store *s, struct store_file *f)
{
    for (int i = f->n_parts - 1; i >= 0; i--) {
        struct stored_part was = f->parts[i];
        if (!was.node && !was.snapshot) continue;
        f->parts[i].node = NULL;
        f->parts[i].snapshot = NULL;
        f->n_live--;
        if (was.node)
            prefix_unplace(s->tree, was.node);
        else
            prefix_snapshot_unplace(s->tree, was.snapshot);
    }
}

void store_file_delete(struct store *s, struct store_file *f)
{
    store_file_unplace(s, f);
    unlinkat(s->dir_fd, f->name, 0);
    store_far_drop(s, f->name);
    store_file_forget(s, f);
}

/* The file's last use by the clock of this process, which the tree has. */
static uint64_t used_ns(const struct store_file *f)
{
    uint64_t used = 0;
    for (int i = 0; i < f->n_parts; i++) {
        const struct stored_part *p = &f->parts[i];
        uint64_t ns = 0;
        if (p->node)
            ns = p->node->used_ns;
        else if (p->snapshot)
            ns = p->snapshot->used_ns;
        if (ns > used) used = ns;
    }
    return used;
}

/* Deletes files until `bytes` more fit the budget, the least recently used first; only files that were used before
 * `before_ns` and are not needed. Returns the bytes that fit then. */
uint64_t store_make_room(struct store *s, uint64_t bytes, uint64_t before_ns)
{
    while (s->stats.bytes > s->stats.budget_bytes || bytes > s->stats.budget_bytes - s->stats.bytes) {
        struct store_file *oldest = NULL;
        uint64_t oldest_used = before_ns;
        for (struct store_file *f = s->files; f; f = f->next) {
            uint64_t used = f->needed || f == s->write_file ? UINT64_MAX : used_ns(f);
            if (used > oldest_used || used >= before_ns) continue;
            if (oldest && used == oldest_used && f->written_ns >= oldest->written_ns) continue;
            oldest = f;
            oldest_used = used;
        }
        if (!oldest) break;
        s->stats.n_expired++;
        store_file_delete(s, oldest);
    }
    return s->stats.bytes < s->stats.budget_bytes ? s->stats.budget_bytes - s->stats.bytes : 0;
}

struct store_file *store_file_new(const char *name, uint64_t bytes, uint32_t n_parts, struct qn_error *e)
{
    size_t size = sizeof(struct store_file) + n_parts * sizeof(struct stored_part);
    struct store_file *f = mem_calloc(1, size);
    if (!f) {
        error_nomem(e, "the list of stored pages", size);
        return NULL;
    }
    snprintf(f->name, sizeof f->name, "%s", name);
    f->bytes = bytes;
    return f;
}

struct store_file *store_find_file(const struct store *s, const char *name)
{
    struct store_file *f = s->files;
    while (f && strcmp(f->name, name) != 0) f = f->next;
    return f;
}

/* Notes which pages of the file have window pages there. */
void store_place_windows(struct store_file *f, const uint32_t *pages)
{
    int n_pages = (int)chain_n_pages(&f->head);
    for (int i = 0; i < (int)f->head.n_windows; i++) {
        struct stored_part *part = &f->parts[pages[i] - f->head.first_page];
        part->window = n_pages + i;
        if (part->node) prefix_place_window(part->node);
    }
}

/* ---- the tree's side ---- */

/* A longer page has replaced this one, or its chain was dropped. A file of which no part is used any more is deleted.
 */
void store_forget(void *arg, struct prefix_place place, bool dropped)
{
    struct store *s = arg;
    struct store_file *f = place.file;
    f->parts[place.index].node = NULL;
    f->parts[place.index].snapshot = NULL;
    f->is_dropped |= dropped;
    if (--f->n_live == 0 && f != s->write_file && !s->is_closing) store_file_delete(s, f);
}

/* A time for a file's last use, later than all times before, so that the order is right even if the clock stands still
 * or is set back. */
uint64_t store_next_time(struct store *s, struct store_file *f)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    s->last_ns = now > s->last_ns ? now : s->last_ns + 1000;
    return f->written_ns = s->last_ns;
}

void store_sweep(struct store *s)
{
    for (struct store_file *f = s->files; f;) {
        if (!f->is_dropped || f == s->write_file) {
            f = f->next;
            continue;
        }
        store_file_delete(s, f); /* this may delete other files, too */
        f = s->files;
    }
}

void store_stats(const struct store *s, struct store_stats *out) { *out = s->stats; }

/* ---- chains ---- */

/* The node's longest snapshot of less than `below` slots. */
struct prefix_snapshot *store_last_snapshot(const struct prefix_node *node, int below)
{
    struct prefix_snapshot *last = NULL;
    for (struct prefix_snapshot *x = node->snapshots; x; x = x->next)
        if (x->n_slots < below && (!last || x->n_slots > last->n_slots)) last = x;
    return last;
}

/* Lists the nodes of the chain that ends here. */
void store_chain_fill(struct store_chain *c, struct prefix_node *leaf)
{
    c->n = leaf->depth + 1;
    c->first = c->end = 0;
    c->state = NULL;
    for (struct prefix_node *node = leaf; node->parent; node = node->parent) c->nodes[node->depth] = node;
}

/* Room for the nodes of the longest chain. False: no memory. */
bool store_chain_alloc(const struct store *s, struct store_chain *c, struct qn_error *e)
{
    size_t longest = 1;
    for (struct prefix_node *leaf = NULL; (leaf = prefix_next_leaf(s->tree, leaf));)
        if ((size_t)leaf->depth >= longest) longest = (size_t)leaf->depth + 1;
    c->nodes = mem_calloc(longest, sizeof *c->nodes);
    if (!c->nodes) error_nomem(e, "a list of nodes", longest * sizeof *c->nodes);
    return c->nodes != NULL;
}
