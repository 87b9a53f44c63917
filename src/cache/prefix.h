/* SPDX-License-Identifier: MIT
 *
 * prefix.h: what was computed before, found by its tokens: a tree whose unit is a KV page.
 *
 * A node is one full or partly filled page: its tokens, a counted reference to the page, and where a copy lies on
 * disk, if there is one. The way from a root to a node spells a sequence; sequences that begin alike share nodes, so a
 * conversation is one chain however many turns it has. Each root belongs to a 128-bit key that the caller hashes from
 * everything that decides what a token's keys and values are (model, KV type, rope settings) and whose they are:
 * nothing is shared between keys. Children are found by a hash, and then their tokens are compared.
 *
 * Where sequences have a recurrent state, pages are of no use without the state that stood behind them. So there a
 * lookup ends where a snapshot was taken: a copy of the state behind some slots of a node.
 *
 * Only sequences whose positions are their slots belong here. Not thread-safe, as the pool.
 */
#ifndef QUERN_CACHE_PREFIX_H
#define QUERN_CACHE_PREFIX_H

#include <stdbool.h>

#include "cache/kv.h"

struct prefix;

struct prefix_key {
    uint64_t word[2];
    uint64_t owner; /* whose it is: what lists go by; compared too, so that nobody meets another's by a word */
};

/* A copy of a page (or state) outside of the pool: the index-th of a file of the backing. No file: no copy. */
struct prefix_place {
    void *file;
    int index;
};

/* A copy of a state; on the node in whose page its last slot is. Read by store.c; written by snapshot.c and prefix.c.
 */
struct prefix_snapshot {
    struct prefix_node *node;              /* NULL: taken from the tree, but held */
    struct prefix_snapshot *next;          /* of the same node */
    struct prefix_snapshot *newer, *older; /* by last use: those with data */
    int n_slots;                           /* from the sequence's start; at least 1 */
    uint8_t *data;                         /* a state of the pool's; NULL: only on disk */
    struct prefix_place place;
    uint64_t used_ns; /* clock of the last use; 0 = not since it was read from disk */
    int n_holds;      /* who needs the data to stay */
    bool is_passing;  /* taken on the way, where nothing ends */
};

/* Read by store.c; written by prefix.c alone. Invariants: only full nodes have children; of two siblings neither
 * begins with all of the other; a node without a page and a place (its data is lost) has children. */
struct prefix_node {
    struct prefix_node *parent; /* NULL: a root, which has no tokens */
    struct prefix_node *child;  /* the newest; its siblings follow by next */
    struct prefix_node *next, *prev;
    struct prefix_node *newer, *older; /* by last use; a parent is newer than its children */
    struct prefix_node *bucket;        /* the next full node (or root) in the same bucket */
    struct prefix_key key;             /* a root's */
    uint64_t hash;                     /* a root's or a full node's: of the key and all tokens up to its end */
    uint64_t used_ns;                  /* clock of the last use; 0 = not since it was read from disk */
    uint64_t id;                       /* of the chain that this node was the end of */
    int depth;                         /* nodes between the root and this one; a root has -1 */
    int n;                             /* tokens, at least 1 */
    uint8_t *page;                     /* NULL: not in the pool */
    struct prefix_place place;
    struct prefix_snapshot *snapshots;
    qn_token tokens[]; /* [page_slots] */
};

/* Who keeps the copies. Does not change the tree when called. */
struct prefix_backing {
    void *arg;
    /* No node (or snapshot) refers to this copy any more. dropped: and nobody may ever find it again. */
    void (*forget)(void *arg, struct prefix_place place, bool dropped);
};

/* Why a lookup ended where it did. */
enum prefix_miss {
    PREFIX_ALL,     /* it did not: everything was found */
    PREFIX_NOTHING, /* nothing is stored under this key */
    PREFIX_DIFFERS, /* all that is stored goes on with another token */
    PREFIX_ENDS,    /* what is stored ends here */
    PREFIX_EVICTED, /* the next page was stored once */
    PREFIX_NO_ROOM, /* the next page is on disk, and there is no memory to read it */
    PREFIX_DAMAGED, /* the next page's copy on disk could not be used */
    PREFIX_STATE,   /* more is stored, but no snapshot of the state behind it */
    PREFIX_N_MISS
};
const char *prefix_miss_name(enum prefix_miss m); /* one word, for timings */

struct prefix_match {
    int n_slots;  /* found; with states: up to the last snapshot */
    int n_stored; /* found in any case */
    int n_placed; /* the last pages of n_slots: those that have to be read from disk */
    enum prefix_miss miss;
    qn_token asked, stored; /* PREFIX_DIFFERS: token n_slots of the request, and one that is stored */
    /* Of n_slots; valid until the tree changes, unless it is held. NULL: sequences have no states, or nothing was found
     */
    struct prefix_snapshot *snapshot;
};

struct prefix_stats {
    int n_nodes, n_pages, n_placed;                /* now: nodes; those in the pool; those on disk */
    int n_snapshots, n_snapshots_placed, n_states; /* now: snapshots; those on disk; states of the pool they have */
    size_t page_bytes, node_bytes;
    int n_unsaved;           /* of the pages in the pool: those that are not on disk */
    uint64_t n_asked, n_hit; /* tokens of all lookups */
    uint64_t n_evicted;      /* pages, ever */
};

/* One stored sequence that no other continues. */
struct prefix_chain {
    struct prefix_key key;
    uint64_t id;                     /* its own while it lasts and grows; of branches, the older one keeps it */
    int n_tokens, n_pages, n_placed; /* tokens from the start; pages in the pool; pages on disk */
    size_t bytes, own_bytes;         /* of pages in the pool; of these what no other chain shares */
    int n_counted, n_placed_counted; /* pages, each counted for just one of the chains that share it */
    int n_states, n_states_placed;   /* snapshots with data; on disk */
    int n_states_counted, n_states_placed_counted;
    uint64_t used_ns; /* clock_ns() of the last use, 0 = not since it was read from disk */
};

/* Nodes are taken from the ledger. Snapshots have at most n_states of the pool's states. */
int prefix_new(struct prefix **out, struct kv_pool *pool, int n_states, struct ledger *l, struct qn_error *e);
void prefix_free(struct prefix *p);                                        /* the backing must be gone */
void prefix_set_backing(struct prefix *p, const struct prefix_backing *b); /* NULL: none; no node may have a place */

/* Finds the longest stored beginning of the n tokens and attaches what of it is in the pool to `out` (initialised,
 * empty, of the tree's pool), sharing its pages: all but the last n_placed ones. The state is put there when nothing of
 * all this is on disk; else it is not behind out's last slot. */
void prefix_find(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, struct memory *out,
                 struct prefix_match *match);
/* The same without what is on disk alone. */
void prefix_find_here(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, struct memory *out,
                      struct prefix_match *match);
/* Whether some of it is on disk alone. */
static inline bool prefix_is_on_disk(const struct prefix_match *m)
{
    return m->n_placed > 0 || (m->snapshot && !m->snapshot->data);
}
/* What prefix_find would find; changes nothing. */
void prefix_peek(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                 struct prefix_match *match);
/* Where the pages of that beginning lie on disk, from page `first` on: as many of them as lie there one after another,
 * at most n_places. Returns how many. */
int prefix_places(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first,
                  struct prefix_place *places, int n_places);
/* Stores the first n slots of m, which hold the n tokens. Pages that are there already stay. On failure (QN_ENOMEM)
 * the tree is as it was. */
int prefix_insert(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const struct memory *m,
                  struct qn_error *e);
/* Frees up to n pages of the pool, the least recently used first and children before parents. A page that a sequence
 * holds is kept: that would free nothing. saved_only: so is one that is not on disk. Returns how many were freed. */
int prefix_evict(struct prefix *p, int n, bool saved_only);
/* Takes a chain from the tree, but for what others share, and its copies from the backing. */
void prefix_drop(struct prefix *p, struct prefix_node *leaf);

/* ---- snapshots, where sequences have states ---- */

/* Keeps a copy of the state behind the n >= 1 tokens, which must be stored (else QN_EUSAGE). is_passing: it is on the
 * way, and goes before others when room is needed. QN_ENOMEM, the tree as it was: all states are held, or no memory. */
int prefix_snapshot(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const uint8_t *state,
                    bool is_passing, struct qn_error *e);
/* A state to be filled, for prefix_snapshot_take() or prefix_state_put(). NULL: all are held. */
uint8_t *prefix_state_get(struct prefix *p);
void prefix_state_put(struct prefix *p, uint8_t *state);
/* As prefix_snapshot, of a state that was got: it is taken over, or put back where it is of no use. */
void prefix_snapshot_take(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          uint8_t *state);
/* Until it is released its data stays, even when the snapshot is taken from the tree. */
void prefix_snapshot_hold(struct prefix *p, struct prefix_snapshot *s);
void prefix_snapshot_release(struct prefix *p, struct prefix_snapshot *s);

void prefix_stats(const struct prefix *p, struct prefix_stats *out);
/* The ends of all chains, most recently used first; start with NULL. Ends with NULL. */
struct prefix_node *prefix_next_leaf(const struct prefix *p, const struct prefix_node *leaf);
void prefix_chain(const struct prefix *p, const struct prefix_node *leaf, struct prefix_chain *out);

/* ---- for the backing ---- */

struct kv_pool *prefix_pool(const struct prefix *p);
/* Adds the nodes of a stored sequence without their pages; those from page `first` on get the places (file, 0),
 * (file, 1), ... unless they have one. nodes[i] is the node that took (file, i), or NULL. As prefix_insert on failure.
 */
int prefix_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first, void *file,
                 struct prefix_node **nodes, struct qn_error *e);
void prefix_place(struct prefix *p, struct prefix_node *node, struct prefix_place place); /* it has none */
/* The copy is gone. The node is freed, and parents with it, when that leaves nothing to keep it for. */
void prefix_unplace(struct prefix *p, struct prefix_node *node);
/* The same for snapshots. prefix_snapshot_graft: of n tokens that are stored; *out stays NULL when they are not, or
 * when such a snapshot has a place. */
int prefix_snapshot_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          struct prefix_place place, struct prefix_snapshot **out, struct qn_error *e);
void prefix_snapshot_place(struct prefix *p, struct prefix_snapshot *s, struct prefix_place place);
void prefix_snapshot_unplace(struct prefix *p, struct prefix_snapshot *s);
const struct prefix_node *prefix_root(const struct prefix_node *node);

#endif
