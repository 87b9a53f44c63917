/* SPDX-License-Identifier: MIT
 *
 * prefix.c: the tree of stored prefixes: lookup, insertion, eviction, listing.
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
#include "cache/prefix.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/inline/minmax.h"
#include "base/os.h"
#include "base/rng.h"
#include "cache/snapshot.h"

#ifndef PREFIX_HASH_BITS /* a test keeps fewer, so that different tokens collide everywhere */
#define PREFIX_HASH_BITS 64
#endif
#define N_GHOSTS 256

/* A freed node: enough to distinguish "evicted" from "never seen". Only the reason for a miss depends on it. */
struct ghost {
    uint64_t parent, hash; /* hashes: the parent's, its tokens' */
    int n;                 /* tokens; 0: no ghost */
};

struct prefix {
    struct kv_pool *pool;
    struct ledger *ledger;
    int slots;                    /* of a page */
    uint64_t seed, id_seed;       /* numbers that follow from the second are shown to clients */
    struct prefix_node **buckets; /* [n_buckets], a power of two */
    size_t n_buckets, n_hashed;
    struct prefix_node **path; /* [max_path], as long as the longest chain: a lookup's result */
    size_t max_path;
    struct prefix_node *newest, *oldest;
    bool has_states;
    struct snapshots snapshots;
    struct ghost ghosts[N_GHOSTS]; /* a ring */
    uint64_t n_ghosts;             /* ever */
    uint64_t n_ids;                /* ever */
    struct prefix_backing backing;
    struct prefix_stats stats;
};

static const char *const miss_names[PREFIX_N_MISS] = {"none",    "nothing", "differs", "ends",
                                                      "evicted", "room",    "damaged", "state"};

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

static uint64_t hash_tokens(uint64_t parent, const qn_token *tokens, int n)
{
    return cut(hash_bytes(tokens, (size_t)n * sizeof *tokens, parent));
}

static uint64_t hash_key(const struct prefix *p, const struct prefix_key *key)
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

static void table_add(struct prefix *p, struct prefix_node *node)
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

static struct prefix_node *find_root(const struct prefix *p, const struct prefix_key *key)
{
    uint64_t hash = hash_key(p, key);
    struct prefix_node *node = p->n_buckets ? *bucket_of(p, hash) : NULL;
    while (node && (node->parent || !same_key(&node->key, key))) node = node->bucket;
    return node;
}

static struct prefix_node *find_full(const struct prefix *p, const struct prefix_node *parent, const qn_token *tokens)
{
    size_t bytes = (size_t)p->slots * sizeof *tokens;
    uint64_t hash = hash_tokens(parent->hash, tokens, p->slots);
    struct prefix_node *node = *bucket_of(p, hash);
    while (node && (node->parent != parent || memcmp(node->tokens, tokens, bytes))) node = node->bucket;
    return node;
}

/* Room for n more entries, and for chains of max_path nodes. */
static int reserve_tables(struct prefix *p, size_t n, size_t max_path, struct qn_error *e)
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
            table_add(p, node);
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
static void touch(struct prefix *p, struct prefix_node *node, uint64_t now)
{
    for (; node->parent; node = node->parent) {
        list_remove(p, node);
        list_push(p, node);
        if (now) node->used_ns = now;
    }
}

/* ---- nodes ---- */

static struct prefix_node *node_new(struct prefix *p, struct qn_error *e)
{
    size_t bytes = node_bytes(p);
    if (ledger_take(p->ledger, bytes, "a node of the prefix cache", e)) return NULL;
    struct prefix_node *node = mem_calloc(1, bytes);
    if (node) return node;
    ledger_give(p->ledger, bytes);
    error_nomem(e, "a node of the prefix cache", bytes);
    return NULL;
}

static void node_free(struct prefix *p, struct prefix_node *node)
{
    ledger_give(p->ledger, node_bytes(p));
    mem_free(node);
}

static void set_page(struct prefix *p, struct prefix_node *node, uint8_t *page) /* takes over a reference */
{
    node->page = page;
    p->stats.n_pages++;
    p->stats.n_unsaved += !node->place.file;
}

static void drop_page(struct prefix *p, struct prefix_node *node)
{
    kv_page_unref(p->pool, node->page);
    node->page = NULL;
    p->stats.n_pages--;
    p->stats.n_unsaved -= !node->place.file;
}

/* Returns the place it had. */
static struct prefix_place drop_place(struct prefix *p, struct prefix_node *node)
{
    struct prefix_place was = node->place;
    node->place = (struct prefix_place){0};
    p->stats.n_placed--;
    p->stats.n_unsaved += node->page != NULL;
    return was;
}

static void link_child(struct prefix *p, struct prefix_node *parent, struct prefix_node *node)
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
    p->ghosts[p->n_ghosts++ % N_GHOSTS] = (struct ghost){parent, hash_tokens(parent, node->tokens, node->n), node->n};
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
static void drop_lone_snapshots(struct prefix *p, struct prefix_node *node, bool dropped)
{
    while (!node->page && !node->place.file && node->snapshots) drop_snapshot(p, node->snapshots, dropped);
}

/* Called after a node lost its page or place. If it has neither and no children, it is taken out of the tree, and so
 * are then its parents. Returns `next`, or the first newer node that is still there. */
static struct prefix_node *prune(struct prefix *p, struct prefix_node *node, struct prefix_node *next)
{
    drop_lone_snapshots(p, node, false);
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
        node_free(p, node);
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
        drop_page(p, node);
        next = prune(p, node, next);
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

void prefix_drop(struct prefix *p, struct prefix_node *leaf)
{
    for (struct prefix_node *node = leaf; node->parent; node = node->parent) {
        if (node->child && node->child->next) break; /* shared */
        if (node->page) drop_page(p, node);
        if (node->place.file) p->backing.forget(p->backing.arg, drop_place(p, node), true);
        drop_lone_snapshots(p, node, true);
    }
    prune(p, leaf, NULL);
}

void prefix_free(struct prefix *p)
{
    if (!p) return;
    assert(p->stats.n_placed == 0);
    for (struct prefix_node *node = p->oldest, *next; node; node = next) {
        next = node->newer;
        if (node->page) drop_page(p, node);
        next = prune(p, node, next);
    }
    assert(p->stats.n_nodes == 0 && p->n_hashed == 0 && p->snapshots.n == 0 && p->snapshots.n_states == 0);
    ledger_give(p->ledger, (p->n_buckets + p->max_path) * sizeof *p->path);
    mem_free(p->buckets);
    mem_free(p->path);
    mem_free(p);
}

/* ---- adding ---- */

static int n_same(const qn_token *a, const qn_token *b, int n)
{
    int i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* A child that begins with all of the k tokens, or all of whose tokens are a beginning of them. */
static struct prefix_node *related_child(const struct prefix *p, const struct prefix_node *parent,
                                         const qn_token *tokens, int k)
{
    struct prefix_node *c = k == p->slots ? find_full(p, parent, tokens) : NULL;
    if (c) return c;
    for (c = parent->child; c; c = c->next) {
        int both = min_int(k, c->n);
        if (both < p->slots && n_same(c->tokens, tokens, both) == both) return c;
    }
    return NULL;
}

/* The data of a new chain: pages, or a file with the pages from `first` on. */
struct chain_source {
    uint8_t *const *pages;
    void *file;
    int first;
    struct prefix_node **nodes;
};

/* Follows the path along existing nodes; returns their number. */
static int known_path(struct prefix *p, struct prefix_node *node, const qn_token *tokens, int n)
{
    int i = 0;
    for (int at = 0; node && at < n; at += p->slots) {
        int k = min_int(p->slots, n - at);
        struct prefix_node *c = related_child(p, node, tokens + at, k);
        if (!c) break;
        p->path[i++] = c;
        node = c->n == p->slots ? c : NULL; /* a partial node will be extended, and has no children */
    }
    return i;
}

/* A list of n nodes linked by next; NULL on failure. */
static struct prefix_node *new_nodes(struct prefix *p, int n, struct qn_error *e)
{
    struct prefix_node *list = NULL;
    for (int i = 0; i < n; i++) {
        struct prefix_node *node = node_new(p, e);
        if (!node) {
            while (list) {
                node = list->next;
                node_free(p, list);
                list = node;
            }
            return NULL;
        }
        node->next = list;
        list = node;
    }
    return list;
}

/* Gives the node more tokens than it has. Its page and place are too short now and are released. */
static void lengthen(struct prefix *p, struct prefix_node *node, const qn_token *tokens, int n)
{
    if (node->page) drop_page(p, node);
    if (node->place.file) p->backing.forget(p->backing.arg, drop_place(p, node), false);
    memcpy(node->tokens, tokens, (size_t)n * sizeof *tokens);
    node->n = n;
    if (n < p->slots) return;
    node->hash = hash_tokens(node->parent->hash, tokens, n);
    table_add(p, node);
}

/* Gives the index-th node of a chain the page or place of the source that it does not have. */
static void take(struct prefix *p, struct prefix_node *node, const qn_token *tokens, int n,
                 const struct chain_source *s, int index)
{
    if (node->n < n) lengthen(p, node, tokens, n);
    if (node->n > n) return;
    if (s->pages && !node->page) {
        kv_page_ref(p->pool, s->pages[index]);
        set_page(p, node, s->pages[index]);
    }
    if (s->file && index >= s->first && !node->place.file) {
        prefix_place(p, node, (struct prefix_place){s->file, index - s->first});
        s->nodes[index - s->first] = node;
    }
    drop_lone_snapshots(p, node, false);
}

static int add_chain(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                     const struct chain_source *s, uint64_t now, struct qn_error *e)
{
    int n_all = (n + p->slots - 1) / p->slots;
    struct prefix_node *root = find_root(p, key);
    int rc = reserve_tables(p, (size_t)n_all + 1, (size_t)n_all, e);
    if (rc) return rc;
    int n_known = known_path(p, root, tokens, n), n_new = n_all - n_known + !root;
    struct prefix_node *list = new_nodes(p, n_new, e);
    if (n_new && !list) return QN_ENOMEM;

    if (!root) {
        root = list;
        list = list->next;
        *root = (struct prefix_node){.key = *key, .hash = hash_key(p, key), .depth = -1};
        table_add(p, root);
    }
    for (int i = 0; i < n_all; i++) {
        if (i >= n_known) {
            struct prefix_node *node = list;
            list = list->next;
            link_child(p, i ? p->path[i - 1] : root, node);
            p->path[i] = node;
        }
        take(p, p->path[i], tokens + (size_t)i * (size_t)p->slots, min_int(p->slots, n - i * p->slots), s, i);
    }
    touch(p, p->path[n_all - 1], now);
    return 0;
}

int prefix_insert(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const struct kv_seq *m,
                  struct qn_error *e)
{
    assert(m->pool == p->pool && n <= m->n_slots);
    if (n == 0) return 0;
    return add_chain(p, key, tokens, n, &(struct chain_source){.pages = m->pages}, clock_ns(), e);
}

int prefix_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first, void *file,
                 struct prefix_node **nodes, struct qn_error *e)
{
    int n_pages = (n + p->slots - 1) / p->slots - first;
    assert(first >= 0 && n_pages > 0 && file);
    memset(nodes, 0, (size_t)n_pages * sizeof *nodes);
    return add_chain(p, key, tokens, n, &(struct chain_source){.file = file, .first = first, .nodes = nodes}, 0, e);
}

void prefix_place(struct prefix *p, struct prefix_node *node, struct prefix_place place)
{
    assert(!node->place.file && place.file && p->backing.forget);
    node->place = place;
    p->stats.n_placed++;
    p->stats.n_unsaved -= node->page != NULL;
}

void prefix_unplace(struct prefix *p, struct prefix_node *node)
{
    drop_place(p, node);
    prune(p, node, NULL);
}

/* ---- finding ---- */

/* The usable child that begins with the most of the k tokens. */
static struct prefix_node *best_child(const struct prefix *p, const struct prefix_node *parent, const qn_token *tokens,
                                      int k, int *same)
{
    struct prefix_node *best = k == p->slots ? find_full(p, parent, tokens) : NULL;
    *same = k;
    if (best && (best->page || best->place.file)) return best;
    best = NULL;
    *same = 0;
    for (struct prefix_node *c = parent->child; c; c = c->next) {
        int n = n_same(c->tokens, tokens, min_int(k, c->n));
        if (n <= *same || (!c->page && !c->place.file)) continue;
        *same = n;
        best = c;
    }
    return best;
}

/* Whether a freed child of `parent` had more than `same` of the k tokens. */
static int was_evicted(const struct prefix *p, uint64_t parent_hash, const struct prefix_node *parent,
                       const qn_token *tokens, int k, int same)
{
    for (const struct prefix_node *c = parent ? parent->child : NULL; c; c = c->next)
        if (!c->page && !c->place.file && n_same(c->tokens, tokens, min_int(k, c->n)) > same) return 1;
    for (int i = 0; i < N_GHOSTS; i++) {
        const struct ghost *g = &p->ghosts[i];
        if (g->n > same && g->n <= k && g->parent == parent_hash && g->hash == hash_tokens(parent_hash, tokens, g->n))
            return 1;
    }
    return 0;
}

/* Fills p->path with the nodes that hold the longest beginning of the tokens; returns their number. */
static int walk(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                struct prefix_match *match)
{
    struct prefix_node *node = find_root(p, key), *c = NULL;
    int n_path = 0, at = 0, k = 0, same = 0;
    *match = (struct prefix_match){.miss = PREFIX_ALL};
    for (; node && at < n; node = c, at += same, same = 0) {
        k = min_int(p->slots, n - at);
        c = best_child(p, node, tokens + at, k, &same);
        if (c) {
            p->path[n_path++] = c;
            if (match->n_placed || !c->page) match->n_placed++;
        }
        if (same < p->slots) break;
    }
    match->n_slots = at + same;
    if (match->n_slots >= n) return n_path;

    /* `node` is where the next page should have followed, c its child that has the first `same` tokens of it */
    match->asked = tokens[match->n_slots];
    if (!node) k = min_int(p->slots, n);
    if (was_evicted(p, node ? node->hash : hash_key(p, key), node, tokens + at, k, same)) {
        match->miss = PREFIX_EVICTED;
    } else if (!node) {
        match->miss = PREFIX_NOTHING;
    } else if (c ? same < c->n : node->child != NULL) {
        match->miss = PREFIX_DIFFERS;
        match->stored = c ? c->tokens[same] : node->child->tokens[0];
    } else {
        match->miss = PREFIX_ENDS;
    }
    return n_path;
}

/* The longest snapshot of at most n_slots slots, on the path or on another node that begins alike, which then replaces
 * the path's last node. is_here: snapshots that are only on disk do not count. */
static struct prefix_snapshot *longest_snapshot(const struct prefix *p, int n_path, const qn_token *tokens, int n_slots,
                                                bool is_here)
{
    struct prefix_snapshot *best = NULL;
    for (int i = n_path - 1; i >= 0 && !best; i--) {
        int at = i * p->slots;
        for (struct prefix_node *c = p->path[i]->parent->child; c; c = c->next) {
            if (!c->snapshots || !(c->page || (c->place.file && !is_here))) continue;
            int same = at + n_same(c->tokens, tokens + at, min_int(c->n, n_slots - at));
            for (struct prefix_snapshot *s = c->snapshots; s; s = s->next)
                if (s->n_slots <= same && (s->data || !is_here) && (!best || s->n_slots > best->n_slots)) best = s;
        }
        if (best) p->path[i] = best->node;
    }
    return best;
}

/* Cuts the path that walk() found to its usable part; returns the number of its nodes. */
static int cut_path(const struct prefix *p, int n_path, bool is_here, const qn_token *tokens,
                    struct prefix_match *match)
{
    match->n_stored = match->n_slots;
    if (is_here && match->n_placed) match->n_slots = (n_path - match->n_placed) * p->slots;
    if (p->has_states) {
        match->snapshot = longest_snapshot(p, n_path, tokens, match->n_slots, is_here);
        match->n_slots = match->snapshot ? match->snapshot->n_slots : 0;
    }
    if (match->n_slots < match->n_stored) {
        match->miss = p->has_states ? PREFIX_STATE : PREFIX_NO_ROOM;
        match->asked = tokens[match->n_slots];
    }
    n_path = (match->n_slots + p->slots - 1) / p->slots;
    match->n_placed = 0;
    for (int i = 0; i < n_path; i++) match->n_placed += match->n_placed || !p->path[i]->page;
    return n_path;
}

static void find(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, bool is_here,
                 struct kv_seq *out, struct prefix_match *match)
{
    int n_path = cut_path(p, walk(p, key, tokens, n, match), is_here, tokens, match);
    int n_here = n_path - match->n_placed;
    uint64_t now = clock_ns();
    assert(out->pool == p->pool && out->n_pages == 0 && n_path <= out->max_pages);
    if (n_path) touch(p, p->path[n_path - 1], now);
    for (int i = 0; i < n_here; i++)
        kv_seq_attach(out, p->path[i]->page, min_int(p->slots, match->n_slots - i * p->slots));
    p->stats.n_asked += (uint64_t)n;
    p->stats.n_hit += (uint64_t)match->n_slots;
    if (!match->snapshot) return;
    snapshot_use(&p->snapshots, match->snapshot, now);
    if (!prefix_is_on_disk(match)) kv_seq_set_state(out, match->snapshot->data);
}

void prefix_find(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, struct kv_seq *out,
                 struct prefix_match *match)
{
    find(p, key, tokens, n, false, out, match);
}

void prefix_find_here(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, struct kv_seq *out,
                      struct prefix_match *match)
{
    find(p, key, tokens, n, true, out, match);
}

int prefix_places(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first,
                  struct prefix_place *places, int n_places)
{
    struct prefix_match match;
    int n_path = walk(p, key, tokens, n, &match), i = 0;
    for (; first + i < n_path && i < n_places && p->path[first + i]->place.file; i++)
        places[i] = p->path[first + i]->place;
    return i;
}

void prefix_peek(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                 struct prefix_match *match)
{
    cut_path(p, walk(p, key, tokens, n, match), false, tokens, match);
}

/* ---- snapshots ---- */

/* The node for a snapshot after the n tokens; NULL: they are not stored. */
static struct prefix_node *snapshot_node(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                                         int *n_stored)
{
    struct prefix_match match;
    assert(p->has_states);
    int n_path = walk(p, key, tokens, n, &match);
    *n_stored = match.n_slots;
    return n > 0 && match.n_slots == n ? p->path[n_path - 1] : NULL;
}

/* The node's snapshot of n slots; if there is none, a new one without data and place. NULL: no memory. */
static struct prefix_snapshot *snapshot_of(struct prefix *p, struct prefix_node *node, int n, struct qn_error *e)
{
    struct prefix_snapshot *s = snapshot_at(node, n);
    return s ? s : snapshot_new(&p->snapshots, node, n, e);
}

int prefix_snapshot(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const uint8_t *state,
                    bool is_passing, struct qn_error *e)
{
    int n_stored;
    struct prefix_node *node = snapshot_node(p, key, tokens, n, &n_stored);
    if (!node) return error_set(e, QN_EUSAGE, "cache: a snapshot of %d tokens, %d are stored", n, n_stored);
    struct prefix_snapshot *s = snapshot_at(node, n);
    bool is_new = !s;
    if (!s || !s->data) {
        uint8_t *copy = snapshots_get(&p->snapshots);
        if (!copy) return error_set(e, QN_ENOMEM, "cache: all %d snapshots are in use", p->snapshots.most);
        s = snapshot_of(p, node, n,
                        e); /* a snapshot on disk stays; one with data may have been evicted for this state */
        if (!s) {
            snapshots_put(&p->snapshots, copy);
            return QN_ENOMEM;
        }
        memcpy(copy, state, kv_pool_shape(p->pool)->state_bytes);
        snapshot_give(&p->snapshots, s, copy);
    }
    s->is_passing = is_passing && (is_new || s->is_passing);
    snapshot_use(&p->snapshots, s, clock_ns());
    return 0;
}

uint8_t *prefix_state_get(struct prefix *p) { return snapshots_get(&p->snapshots); }
void prefix_state_put(struct prefix *p, uint8_t *state) { snapshots_put(&p->snapshots, state); }

void prefix_snapshot_take(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, uint8_t *state)
{
    int n_stored;
    struct prefix_node *node = snapshot_node(p, key, tokens, n, &n_stored);
    struct prefix_snapshot *s = node ? snapshot_of(p, node, n, NULL) : NULL;
    if (s && !s->data)
        snapshot_give(&p->snapshots, s, state);
    else
        snapshots_put(&p->snapshots, state);
    if (s) snapshot_use(&p->snapshots, s, clock_ns());
}

void prefix_snapshot_hold(struct prefix *p, struct prefix_snapshot *s)
{
    (void)p;
    snapshot_hold(s);
}

void prefix_snapshot_release(struct prefix *p, struct prefix_snapshot *s) { snapshot_release(&p->snapshots, s); }

int prefix_snapshot_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          struct prefix_place place, struct prefix_snapshot **out, struct qn_error *e)
{
    int n_stored;
    struct prefix_node *node = snapshot_node(p, key, tokens, n, &n_stored);
    if (!node) return 0;
    struct prefix_snapshot *s = snapshot_of(p, node, n, e);
    if (!s) return QN_ENOMEM;
    if (s->place.file) return 0;
    prefix_snapshot_place(p, s, place);
    *out = s;
    return 0;
}

void prefix_snapshot_place(struct prefix *p, struct prefix_snapshot *s, struct prefix_place place)
{
    assert(!s->place.file && place.file && p->backing.forget);
    s->place = place;
    p->snapshots.n_placed++;
}

void prefix_snapshot_unplace(struct prefix *p, struct prefix_snapshot *s)
{
    s->place = (struct prefix_place){0};
    p->snapshots.n_placed--;
    if (!s->data) snapshot_drop(&p->snapshots, s);
}

/* ---- listing ---- */

void prefix_stats(const struct prefix *p, struct prefix_stats *out)
{
    *out = p->stats;
    out->page_bytes = (size_t)p->stats.n_pages * kv_page_bytes(kv_pool_shape(p->pool));
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
    size_t bytes = kv_page_bytes(kv_pool_shape(p->pool));
    bool alone = true,
         counts = true; /* alone: no other chain goes through this node; counts: it is counted for this chain */
    *out =
        (struct prefix_chain){.id = leaf->id, .n_tokens = leaf->depth * p->slots + leaf->n, .used_ns = leaf->used_ns};
    for (; leaf->parent; leaf = leaf->parent) {
        out->n_pages += leaf->page != NULL;
        out->n_placed += leaf->place.file != NULL;
        if (leaf->child && leaf->child->next) alone = false;
        if (alone && leaf->page) out->own_bytes += bytes;
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
    out->bytes = bytes * (size_t)out->n_pages;
}
