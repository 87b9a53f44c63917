/* SPDX-License-Identifier: MIT
 *
 * prefix.c: the tree of stored prefixes: its nodes and tables, eviction, listing. See prefix.h and prefix_impl.h.
 *
 * Full nodes are found through one hash table for the whole tree. A node's hash is the hash of its tokens, seeded with
 * its parent's hash, so it depends on everything from the key on. A hit counts only after parent and tokens were
 * compared. The last, partly equal page of a request is compared with every child there, once for each request.
 *
 * A list has the nodes by last use. A use moves a node and then its parents to the front, so that a parent is always
 * newer than its children, and eviction from the old end takes children first.
 *
 * Everything that can fail, which is allocating nodes and room in the tables, is done before the tree is changed. Then
 * the list of new nodes is linked in. Lookups and evictions allocate nothing.
 *
 * Other modules decide when pages are evicted, written to disk or read from it. A file is only a pointer and an index
 * here.
 */
#include "cache/prefix_impl.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"

#ifndef PREFIX_HASH_BITS /* a test keeps fewer, so that different tokens collide everywhere */
#define PREFIX_HASH_BITS 64
#endif

static const char *const miss_names[PREFIX_N_MISS] = {"none", "nothing", "differs", "ends",  "evicted",
                                                      "room", "damaged", "state",   "window"};

const char *prefix_miss_name(enum prefix_miss m) { return miss_names[m]; }

static size_t node_bytes(const struct prefix *p)
{
    return sizeof(struct prefix_node) + (size_t)p->slots * sizeof(qn_token);
}

int prefix_new(struct prefix **out, struct kv_pool *pool, int n_states, struct ledger *l, struct qn_error *e)
{
    struct prefix *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "the prefix cache", sizeof *p);
    p->pool = pool;
    p->ledger = l;
    p->slots = kv_pool_shape(pool)->page_slots;
    p->seed = rng_seed_from_os(); /* clients choose the tokens, but must not be able to choose their buckets */
    p->id_seed = rng_seed_from_os();
    p->has_states = kv_pool_shape(pool)->state_bytes > 0;
    p->has_windows = kv_pool_shape(pool)->n_layer_win > 0;
    p->snapshots = (struct snapshots){.pool = pool, .ledger = l, .most = n_states};
    *out = p;
    return 0;
}

void prefix_set_backing(struct prefix *p, const struct prefix_backing *b)
{
    assert(p->stats.n_placed == 0);
    p->backing = b ? *b : (struct prefix_backing){0};
}

struct kv_pool *prefix_pool(const struct prefix *p) { return p->pool; }

/* ---- hashing ---- */

static uint64_t cut(uint64_t h) { return PREFIX_HASH_BITS == 64 ? h : h >> (64 - PREFIX_HASH_BITS); }

uint64_t prefix_hash_tokens(uint64_t parent, const qn_token *tokens, int n)
{
    return cut(hash_bytes(tokens, (size_t)n * sizeof *tokens, parent));
}

uint64_t prefix_hash_key(const struct prefix *p, const struct prefix_key *key)
{
    const uint64_t all[] = {key->word[0], key->word[1], key->owner};
    return cut(hash_bytes(all, sizeof all, p->seed));
}

static int same_key(const struct prefix_key *a, const struct prefix_key *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->owner == b->owner;
}

static struct prefix_node **bucket_of(const struct prefix *p, uint64_t hash)
{
    return &p->buckets[hash & (p->n_buckets - 1)];
}

void prefix_table_add(struct prefix *p, struct prefix_node *node)
{
    struct prefix_node **b = bucket_of(p, node->hash);
    node->bucket = *b;
    *b = node;
    p->n_hashed++;
}

static void table_remove(struct prefix *p, struct prefix_node *node)
{
    struct prefix_node **b = bucket_of(p, node->hash);
    while (*b != node) b = &(*b)->bucket;
    *b = node->bucket;
    p->n_hashed--;
}

struct prefix_node *prefix_find_root(const struct prefix *p, const struct prefix_key *key)
{
    uint64_t hash = prefix_hash_key(p, key);
    struct prefix_node *node = p->n_buckets ? *bucket_of(p, hash) : NULL;
    while (node && (node->parent || !same_key(&node->key, key))) node = node->bucket;
    return node;
}

struct prefix_node *prefix_find_full(const struct prefix *p, const struct prefix_node *parent, const qn_token *tokens)
{
    size_t bytes = (size_t)p->slots * sizeof *tokens;
    uint64_t hash = prefix_hash_tokens(parent->hash, tokens, p->slots);
    struct prefix_node *node = *bucket_of(p, hash);
    while (node && (node->parent != parent || memcmp(node->tokens, tokens, bytes))) node = node->bucket;
    return node;
}

/* Room for n more entries, and for chains of max_path nodes. */
int prefix_reserve_tables(struct prefix *p, size_t n, size_t max_path, struct qn_error *e)
{
    size_t n_buckets = p->n_buckets ? p->n_buckets : 64;
    while (n_buckets < p->n_hashed + n) n_buckets *= 2;
    if (max_path < p->max_path) max_path = p->max_path;
    if (n_buckets == p->n_buckets && max_path == p->max_path) return 0;
    struct prefix_node **buckets = mem_calloc(n_buckets, sizeof *buckets);
    struct prefix_node **path = buckets ? mem_calloc(max_path, sizeof *path) : NULL;
    size_t more = (n_buckets - p->n_buckets + max_path - p->max_path) * sizeof *path;
    int rc = path ? ledger_take(p->ledger, more, "the prefix cache", e) : error_nomem(e, "the prefix cache", more);
    if (rc) {
        mem_free(buckets);
        mem_free(path);
        return rc;
    }
    struct prefix_node **old = p->buckets;
    size_t n_old = p->n_buckets;
    p->buckets = buckets;
    p->n_buckets = n_buckets;
    p->n_hashed = 0;
    for (size_t i = 0; i < n_old; i++)
        for (struct prefix_node *node = old[i], *next; node; node = next) {
            next = node->bucket;
            prefix_table_add(p, node);
        }
    mem_free(old);
    mem_free(p->path);
    p->path = path;
    p->max_path = max_path;
    return 0;
}

/* ---- the list by last use ---- */

static void list_remove(struct prefix *p, struct prefix_node *node)
{
    *(node->newer ? &node->newer->older : &p->newest) = node->older;
    *(node->older ? &node->older->newer : &p->oldest) = node->newer;
}

static void list_push(struct prefix *p, struct prefix_node *node)
{
    node->newer = NULL;
    node->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = node;
    p->newest = node;
}

/* Marks a node and then its parents as used. */
void prefix_touch(struct prefix *p, struct prefix_node *node, uint64_t now)
{
    for (; node->parent; node = node->parent) {
        list_remove(p, node);
        list_push(p, node);
        if (now) node->used_ns = now;
    }
}

/* ---- nodes ---- */

struct prefix_node *prefix_node_new(struct prefix *p, struct qn_error *e)
{
    size_t bytes = node_bytes(p);
    if (ledger_take(p->ledger, bytes, "a node of the prefix cache", e)) return NULL;
    struct prefix_node *node = mem_calloc(1, bytes);
    if (node) return node;
    ledger_give(p->ledger, bytes);
    error_nomem(e, "a node of the prefix cache", bytes);
    return NULL;
}

void prefix_node_free(struct prefix *p, struct prefix_node *node)
{
    ledger_give(p->ledger, node_bytes(p));
    mem_free(node);
}

void prefix_set_page(struct prefix *p, struct prefix_node *node, uint8_t *page) /* takes over a reference */
{
    node->page = page;
    p->stats.n_pages++;
    p->stats.n_unsaved += !node->place.file;
}

static void drop_window(struct prefix *p, struct prefix_node *node)
{
    kv_page_unref(p->pool, node->window);
    node->window = NULL;
    p->stats.n_windows--;
}

void prefix_drop_page(struct prefix *p, struct prefix_node *node)
{
    if (node->window) drop_window(p, node);
    kv_page_unref(p->pool, node->page);
    node->page = NULL;
    p->stats.n_pages--;
    p->stats.n_unsaved -= !node->place.file;
}

/* Returns the place it had. */
struct prefix_place prefix_drop_place(struct prefix *p, struct prefix_node *node)
{
    struct prefix_place was = node->place;
    node->place = (struct prefix_place){0};
    p->stats.n_placed--;
    p->stats.n_unsaved += node->page != NULL;
    return was;
}

void prefix_link_child(struct prefix *p, struct prefix_node *parent, struct prefix_node *node)
{
    bool goes_on = parent->parent && !parent->child; /* a number reveals nothing about other owners' chains */
    node->id = goes_on ? parent->id : hash_bytes(&p->n_ids, sizeof p->n_ids, p->id_seed);
    p->n_ids += !goes_on;
    node->parent = parent;
    node->depth = parent->depth + 1;
    node->prev = NULL;
    node->next = parent->child;
    if (parent->child) parent->child->prev = node;
    parent->child = node;
    list_push(p, node);
    p->stats.n_nodes++;
}

static void add_ghost(struct prefix *p, const struct prefix_node *node)
{
    uint64_t parent = node->parent->hash;
    p->ghosts[p->n_ghosts++ % N_GHOSTS] =
        (struct ghost){parent, prefix_hash_tokens(parent, node->tokens, node->n), node->n};
}

/* Takes a snapshot from the tree; dropped: it must never be found again. */
static void drop_snapshot(struct prefix *p, struct prefix_snapshot *s, bool dropped)
{
    struct prefix_place was = s->place;
    s->place = (struct prefix_place){0};
    p->snapshots.n_placed -= was.file != NULL;
    snapshot_drop(&p->snapshots, s);
    if (was.file) p->backing.forget(p->backing.arg, was, dropped);
}

/* A snapshot is of no use if the keys and values before it are lost. */
void prefix_drop_lone_snapshots(struct prefix *p, struct prefix_node *node, bool dropped)
{
    while (!node->page && !node->place.file && node->snapshots) drop_snapshot(p, node->snapshots, dropped);
}

/* Called after a node lost its page or place. If it has neither and no children, it is taken out of the tree, and so
 * are then its parents. Returns `next`, or the first newer node that is still there. */
struct prefix_node *prefix_prune(struct prefix *p, struct prefix_node *node, struct prefix_node *next)
{
    prefix_drop_lone_snapshots(p, node, false);
    while (node && !node->child && !node->page && !node->place.file) {
        struct prefix_node *parent = node->parent;
        if (node == next) next = node->newer;
        if (!parent || node->n == p->slots) table_remove(p, node);
        if (parent) {
            add_ghost(p, node);
            *(node->prev ? &node->prev->next : &parent->child) = node->next;
            if (node->next) node->next->prev = node->prev;
            list_remove(p, node);
            p->stats.n_nodes--;
        }
        prefix_node_free(p, node);
        node = parent;
    }
    return next;
}

/* Chains are shortened from their ends. The order of last use ensures that, unless pages are passed over. */
static bool is_followed(const struct prefix_node *node)
{
    for (const struct prefix_node *c = node->child; c; c = c->next)
        if (c->page) return true;
    return false;
}

int prefix_evict(struct prefix *p, int n, bool saved_only)
{
    int freed = 0;
    for (struct prefix_node *node = p->oldest, *next; node && freed < n; node = next) {
        next = node->newer;
        if (!node->page || kv_page_n_refs(p->pool, node->page) > 1) continue;
        if (saved_only && (!node->place.file || is_followed(node))) continue;
        prefix_drop_page(p, node);
        next = prefix_prune(p, node, next);
        freed++;
    }
    p->stats.n_evicted += (uint64_t)freed;
    return freed;
}

int prefix_n_evictable(const struct prefix *p, int most)
{
    int n = 0;
    for (const struct prefix_node *node = p->oldest; node && n < most; node = node->newer)
        n += node->page && kv_page_n_refs(p->pool, node->page) == 1;
    return n;
}

/* Returns the window page that goes first; those that a sequence holds stay. NULL: there is none. The list begins with
 * the ends of chains. */
static struct prefix_node *first_window(const struct prefix *p)
{
    struct prefix_node *first = NULL;
    for (struct prefix_node *node = p->oldest; node; node = node->newer) {
        if (!node->window || kv_page_n_refs(p->pool, node->window) > 1) continue;
        bool is_sooner = !first || node->window_use < first->window_use;
        if (first && node->is_passing != first->is_passing) is_sooner = node->is_passing;
        if (is_sooner) first = node;
    }
    return first;
}

int prefix_evict_windows(struct prefix *p, int n)
{
    int freed = 0;
    for (struct prefix_node *node; freed < n && (node = first_window(p)); freed++) drop_window(p, node);
    return freed;
}

int prefix_n_evictable_windows(const struct prefix *p, int most)
{
    int n = 0;
    for (const struct prefix_node *node = p->oldest; node && n < most; node = node->newer)
        n += node->window && kv_page_n_refs(p->pool, node->window) == 1;
    return n;
}

void prefix_drop(struct prefix *p, struct prefix_node *leaf)
{
    for (struct prefix_node *node = leaf; node->parent; node = node->parent) {
        if (node->child && node->child->next) break; /* shared */
        if (node->page) prefix_drop_page(p, node);
        if (node->place.file) p->backing.forget(p->backing.arg, prefix_drop_place(p, node), true);
        prefix_drop_lone_snapshots(p, node, true);
    }
    prefix_prune(p, leaf, NULL);
}

void prefix_free(struct prefix *p)
{
    if (!p) return;
    assert(p->stats.n_placed == 0);
    for (struct prefix_node *node = p->oldest, *next; node; node = next) {
        next = node->newer;
        if (node->page) prefix_drop_page(p, node);
        next = prefix_prune(p, node, next);
    }
    assert(p->stats.n_nodes == 0 && p->n_hashed == 0 && p->snapshots.n == 0 && p->snapshots.n_states == 0);
    ledger_give(p->ledger, (p->n_buckets + p->max_path) * sizeof *p->path);
    mem_free(p->buckets);
    mem_free(p->path);
    mem_free(p);
}

/* ---- listing ---- */

void prefix_stats(const struct prefix *p, struct prefix_stats *out)
{
    *out = p->stats;
    out->page_bytes = (size_t)p->stats.n_pages * kv_page_bytes(kv_pool_shape(p->pool)) +
                      (size_t)p->stats.n_windows * kv_window_page_bytes(kv_pool_shape(p->pool));
    out->node_bytes = (size_t)p->stats.n_nodes * node_bytes(p);
    out->n_snapshots = p->snapshots.n;
    out->n_snapshots_placed = p->snapshots.n_placed;
    out->n_states = p->snapshots.n_states;
}

struct prefix_node *prefix_next_leaf(const struct prefix *p, const struct prefix_node *leaf)
{
    struct prefix_node *node = leaf ? leaf->older : p->newest;
    while (node && node->child) node = node->older;
    return node;
}

const struct prefix_node *prefix_root(const struct prefix_node *node)
{
    while (node->parent) node = node->parent;
    return node;
}

void prefix_chain(const struct prefix *p, const struct prefix_node *leaf, struct prefix_chain *out)
{
    size_t bytes = kv_page_bytes(kv_pool_shape(p->pool)), window = kv_window_page_bytes(kv_pool_shape(p->pool));
    bool alone = true,
         counts = true; /* alone: no other chain goes through this node; counts: it is counted for this chain */
    *out =
        (struct prefix_chain){.id = leaf->id, .n_tokens = leaf->depth * p->slots + leaf->n, .used_ns = leaf->used_ns};
    for (; leaf->parent; leaf = leaf->parent) {
        out->n_pages += leaf->page != NULL;
        out->n_placed += leaf->place.file != NULL;
        if (leaf->child && leaf->child->next) alone = false;
        if (alone && leaf->page) out->own_bytes += bytes + (leaf->window ? window : 0);
        out->n_windows += leaf->window != NULL;
        out->n_windows_placed += leaf->place.has_window;
        out->n_windows_counted += counts && leaf->window;
        out->n_windows_placed_counted += counts && leaf->place.has_window;
        out->n_counted += counts && leaf->page;
        out->n_placed_counted += counts && leaf->place.file;
        for (const struct prefix_snapshot *s = leaf->snapshots; s; s = s->next) {
            out->n_states += s->data != NULL;
            out->n_states_placed += s->place.file != NULL;
            out->n_states_counted += counts && s->data;
            out->n_states_placed_counted += counts && s->place.file;
        }
        if (leaf->next) counts = false; /* the nodes before are counted for the chain of the last child */
    }
    out->key = leaf->key;
    out->bytes = bytes * (size_t)out->n_pages + window * (size_t)out->n_windows;
}
