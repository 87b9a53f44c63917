/* SPDX-License-Identifier: MIT
 *
 * prefix_impl.h: the struct of a tree of prefixes, and what its parts use of each other: prefix.c (nodes, tables,
 * eviction, listing), prefix_add.c (insertion), prefix_find.c (lookup) and prefix_snapshot.c. For these only.
 */
#ifndef QUERN_CACHE_PREFIX_IMPL_H
#define QUERN_CACHE_PREFIX_IMPL_H

#include "cache/snapshot.h"

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
    bool has_states, has_windows;
    uint64_t n_window_uses; /* ever */
    struct snapshots snapshots;
    struct ghost ghosts[N_GHOSTS]; /* a ring */
    uint64_t n_ghosts;             /* ever */
    uint64_t n_ids;                /* ever */
    struct prefix_backing backing;
    struct prefix_stats stats;
};

/* The number of equal tokens at the start of both. */
static inline int prefix_n_same(const qn_token *a, const qn_token *b, int n)
{
    int i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* ---- prefix.c: hashes and tables ---- */

uint64_t prefix_hash_key(const struct prefix *p, const struct prefix_key *key); /* of a root */
uint64_t prefix_hash_tokens(uint64_t parent, const qn_token *tokens, int n);    /* of a node; parent: its hash */
void prefix_table_add(struct prefix *p, struct prefix_node *node);              /* a root or a full node */
struct prefix_node *prefix_find_root(const struct prefix *p, const struct prefix_key *key); /* NULL: there is none */
/* The full child with exactly these tokens; NULL: there is none. */
struct prefix_node *prefix_find_full(const struct prefix *p, const struct prefix_node *parent, const qn_token *tokens);
/* Room for n more entries, and for chains of max_path nodes. */
int prefix_reserve_tables(struct prefix *p, size_t n, size_t max_path, struct qn_error *e);

/* ---- prefix.c: nodes ---- */

struct prefix_node *prefix_node_new(struct prefix *p, struct qn_error *e); /* not linked yet; NULL: no memory */
void prefix_node_free(struct prefix *p, struct prefix_node *node);
void prefix_link_child(struct prefix *p, struct prefix_node *parent, struct prefix_node *node);
/* Marks a node and then its parents as used; now 0: their times stay. */
void prefix_touch(struct prefix *p, struct prefix_node *node, uint64_t now);
void prefix_set_page(struct prefix *p, struct prefix_node *node, uint8_t *page);   /* takes over a reference */
void prefix_drop_page(struct prefix *p, struct prefix_node *node);                 /* and its window page */
struct prefix_place prefix_drop_place(struct prefix *p, struct prefix_node *node); /* returns the place it had */
/* Drops the snapshots of a node without data: they are of no use without the keys and values before them. */
void prefix_drop_lone_snapshots(struct prefix *p, struct prefix_node *node, bool dropped);
/* Called after a node lost its page or place. If it has neither and no children, it is taken out of the tree, and so
 * are then its parents. Returns `next`, or the first newer node that is still there. */
struct prefix_node *prefix_prune(struct prefix *p, struct prefix_node *node, struct prefix_node *next);

/* ---- prefix_find.c ---- */

/* Fills p->path with the nodes that hold the longest beginning of the tokens; returns their number. */
int prefix_walk(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                struct prefix_match *match);

#endif
