/* SPDX-License-Identifier: MIT
 *
 * prefix.h: a tree of KV pages, in which computed sequences are found by their tokens.
 *
 * A node is one full or partly filled page: its tokens, a counted reference to the page, and the place of a copy on
 * disk, if there is one. The path from a root to a node is a sequence. Sequences that begin alike share nodes, so a
 * conversation is one chain, however many turns it has. Each root belongs to a 128-bit key, which the caller hashes
 * from the owner and from everything that keys and values depend on (model, KV type, rope settings). Nothing is shared
 * between keys. Children are found by a hash, and then their tokens are compared.
 *
 * If sequences have a recurrent state, pages are useless without the state after them. A lookup then ends where a
 * snapshot was taken, which is a copy of the state after some slots of a node.
 *
 * If layers have windows (kv.h), a node may have a window page, too. A lookup then ends where the window pages of all
 * slots that the next row can see are there. Window pages are evicted without their pages.
 *
 * Only sequences whose positions are their slots may be stored. Like the pool, this is not thread-safe.
 */
#ifndef QUERN_CACHE_PREFIX_H
#define QUERN_CACHE_PREFIX_H

#include <stdbool.h>

#include "cache/kv.h"

struct prefix;

struct prefix_key {
    uint64_t word[2];
    uint64_t
        owner; /* lists are by owner; it is also compared, so that equal words never lead to another owner's root */
};

/* The place of a copy of a page (or state) outside of the pool: part `index` of a file of the backing. No file: there
 * is no copy. */
struct prefix_place {
    void *file;
    int index;
    bool has_window; /* the file has the window page of this page, too */
};

/* A copy of a state. It hangs on the node whose page has its last slot. Read by store.c; written by snapshot.c and
 * prefix.c. */
struct prefix_snapshot {
    struct prefix_node *node;              /* NULL: it was taken from the tree, but is held */
    struct prefix_snapshot *next;          /* of the same node */
    struct prefix_snapshot *newer, *older; /* by last use: those with data */
    int n_slots;                           /* from the sequence's start; at least 1 */
    uint8_t *data;                         /* one of the pool's states; NULL: only on disk */
    struct prefix_place place;
    uint64_t used_ns; /* clock of the last use; 0 = not since it was read from disk */
    int n_holds;      /* users that need the data to stay */
    bool is_passing;  /* taken on the way, where no message or answer ends */
};

/* Read by store.c; written only by prefix.c. Invariants: only full nodes have children; of two siblings, neither begins
 * with all tokens of the other; a node whose data is lost, without a page and a place, has children. */
struct prefix_node {
    struct prefix_node *parent; /* NULL: a root, which has no tokens */
    struct prefix_node *child;  /* the newest; its siblings follow by next */
    struct prefix_node *next, *prev;
    struct prefix_node *newer, *older; /* by last use; a parent is newer than its children */
    struct prefix_node *bucket;        /* the next full node (or root) in the same bucket */
    struct prefix_key key;             /* a root's */
    uint64_t hash;                     /* a root's or a full node's: of the key and all tokens up to its end */
    uint64_t used_ns;                  /* clock of the last use; 0 = not since it was read from disk */
    uint64_t id;                       /* of the chain whose end this node is or was */
    int depth;                         /* nodes between the root and this one; a root has -1 */
    int n;                             /* tokens, at least 1 */
    uint8_t *page;                     /* NULL: not in the pool */
    uint8_t *window;                   /* its window page; NULL: it has none */
    uint64_t window_use;               /* number of the window page's last use */
    bool is_passing;                   /* the window page was kept on the way, where no message or answer ends */
    struct prefix_place place;
    struct prefix_snapshot *snapshots;
    qn_token tokens[]; /* [page_slots] */
};

/* The keeper of the copies. Its functions do not change the tree. */
struct prefix_backing {
    void *arg;
    /* No node (or snapshot) refers to this copy any more. dropped: it must never be found again. */
    void (*forget)(void *arg, struct prefix_place place, bool dropped);
};

/* The reason for which a lookup ended. */
enum prefix_miss {
    PREFIX_ALL,     /* none: everything was found */
    PREFIX_NOTHING, /* nothing is stored under this key */
    PREFIX_DIFFERS, /* all stored sequences continue with another token */
    PREFIX_ENDS,    /* the stored sequence ends here */
    PREFIX_EVICTED, /* the next page was stored, but has been evicted */
    PREFIX_NO_ROOM, /* the next page is on disk, and there is no memory to read it */
    PREFIX_DAMAGED, /* the next page's copy on disk could not be used */
    PREFIX_STATE,   /* more is stored, but no snapshot of the state after it */
    PREFIX_WINDOW,  /* more is stored, but not the window before its end */
    PREFIX_N_MISS
};
const char *prefix_miss_name(enum prefix_miss m); /* one word, for timings */

struct prefix_match {
    int n_slots;  /* found and usable: with states, up to the last snapshot; with windows, up to the last whole one */
    int n_stored; /* found, usable or not */
    int n_placed; /* the number of n_slots' last pages that have to be read from disk, perhaps for their window pages */
    enum prefix_miss miss;
    qn_token asked, stored; /* PREFIX_DIFFERS: token n_slots of the request, and one that is stored */
    /* The one after n_slots; valid until the tree changes, unless it is held. NULL: sequences have no states, or
     * nothing was found. */
    struct prefix_snapshot *snapshot;
};

struct prefix_stats {
    int n_nodes, n_pages, n_placed;                /* now: nodes; nodes with a page in the pool; nodes on disk */
    int n_windows;                                 /* now: window pages */
    int n_snapshots, n_snapshots_placed, n_states; /* now: snapshots; those on disk; their states of the pool */
    size_t page_bytes, node_bytes;
    int n_unsaved;           /* pages in the pool that are not on disk */
    uint64_t n_asked, n_hit; /* tokens of all lookups */
    uint64_t n_evicted;      /* pages, ever */
};

/* A stored sequence that no other sequence continues. */
struct prefix_chain {
    struct prefix_key key;
    uint64_t id;                     /* stays the same while the chain grows; of two branches, the older one keeps it */
    int n_tokens, n_pages, n_placed; /* tokens from the start; pages in the pool; pages on disk */
    size_t bytes, own_bytes;         /* of pages in the pool; of those pages that no other chain shares */
    int n_counted, n_placed_counted; /* pages, each counted for only one of the chains that share it */
    int n_windows, n_windows_placed; /* window pages, as above */
    int n_windows_counted, n_windows_placed_counted;
    int n_states, n_states_placed; /* snapshots with data; on disk */
    int n_states_counted, n_states_placed_counted;
    uint64_t used_ns; /* clock_ns() of the last use, 0 = not since it was read from disk */
};

/* The memory of nodes is taken from the ledger. Snapshots have at most n_states of the pool's states. */
int prefix_new(struct prefix **out, struct kv_pool *pool, int n_states, struct ledger *l, struct qn_error *e);
void prefix_free(struct prefix *p);                                        /* after the backing was removed */
void prefix_set_backing(struct prefix *p, const struct prefix_backing *b); /* NULL: none; no node may have a place */

/* Finds the longest stored beginning of the n tokens. Attaches its pages that are in the pool, which are all but the
 * last n_placed ones, to `out` (initialised, empty, of the tree's pool) and shares them. If nothing has to be read from
 * disk, out gets the state, too; otherwise the state is not yet the one after out's last slot. */
void prefix_find(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, struct kv_seq *out,
                 struct prefix_match *match);
/* The same without pages and states that are only on disk. */
void prefix_find_here(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, struct kv_seq *out,
                      struct prefix_match *match);
/* Whether a part of it is only on disk. */
static inline bool prefix_is_on_disk(const struct prefix_match *m)
{
    return m->n_placed > 0 || (m->snapshot && !m->snapshot->data);
}
/* Returns what prefix_find would find, and changes nothing. */
void prefix_peek(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                 struct prefix_match *match);
/* The places on disk of the pages of that beginning, from page `first` on, up to the first page that is not on disk and
 * at most n_places. Returns their number. */
int prefix_places(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first,
                  struct prefix_place *places, int n_places);
/* Stores the first n slots of m, which hold the n tokens. Pages that are there already stay. On failure (QN_ENOMEM)
 * the tree is as it was. */
int prefix_insert(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const struct kv_seq *m,
                  struct qn_error *e);
/* The same in the middle of a prompt: window pages that are new to the tree are evicted before others. */
int prefix_insert_passing(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          const struct kv_seq *m, struct qn_error *e);
/* Frees up to n pages of the pool, the least recently used first and children before parents. A page that a sequence
 * holds is kept, because taking it from the tree would free nothing. saved_only: pages that are not on disk are kept,
 * too. Returns the number of freed pages. */
int prefix_evict(struct prefix *p, int n, bool saved_only);
/* Returns the pages that prefix_evict() could free now: those in the pool that no sequence holds. Counts up to `most`.
 */
int prefix_n_evictable(const struct prefix *p, int most);
/* The same for window pages: those that were kept on the way first, then the least recently used, those at the end of a
 * chain before those at its beginning. The nodes keep their pages. */
int prefix_evict_windows(struct prefix *p, int n);
int prefix_n_evictable_windows(const struct prefix *p, int most);
/* Takes a chain from the tree, except for nodes that other chains share, and its copies from the backing. */
void prefix_drop(struct prefix *p, struct prefix_node *leaf);

/* ---- snapshots, if sequences have states ---- */

/* Keeps a copy of the state after the n >= 1 tokens, which must be stored (otherwise QN_EUSAGE). is_passing: it was
 * taken on the way and is evicted before others. QN_ENOMEM: all states are held, or there is no memory; the tree is as
 * it was. */
int prefix_snapshot(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const uint8_t *state,
                    bool is_passing, struct qn_error *e);
/* A state for the caller to fill and pass to prefix_snapshot_take() or prefix_state_put(). NULL: all are held. */
uint8_t *prefix_state_get(struct prefix *p);
void prefix_state_put(struct prefix *p, uint8_t *state);
/* Like prefix_snapshot, with a state from prefix_state_get(), which is taken over, or put back if it is of no use. */
void prefix_snapshot_take(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          uint8_t *state);
/* Keeps the snapshot's data until it is released, even if the snapshot is taken from the tree. */
void prefix_snapshot_hold(struct prefix *p, struct prefix_snapshot *s);
void prefix_snapshot_release(struct prefix *p, struct prefix_snapshot *s);

void prefix_stats(const struct prefix *p, struct prefix_stats *out);
/* The next of the ends of all chains, the most recently used first. Begins and ends with NULL. */
struct prefix_node *prefix_next_leaf(const struct prefix *p, const struct prefix_node *leaf);
void prefix_chain(const struct prefix *p, const struct prefix_node *leaf, struct prefix_chain *out);

/* ---- for the backing ---- */

struct kv_pool *prefix_pool(const struct prefix *p);
/* Adds the nodes of a stored sequence without their pages. Those from page `first` on get the places (file, 0),
 * (file, 1), ... unless they have one. nodes[i] is the node that took (file, i), or NULL. Fails like prefix_insert. */
int prefix_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first, void *file,
                 struct prefix_node **nodes, struct qn_error *e);
void prefix_place(struct prefix *p, struct prefix_node *node, struct prefix_place place); /* it has none */
/* The node, which has a place and no page, gets the page that was read from there, and shares it. The order of use
 * stays as it is. */
void prefix_fill(struct prefix *p, struct prefix_node *node, uint8_t *page);
/* The same for its window page. The node has its page. */
void prefix_fill_window(struct prefix *p, struct prefix_node *node, uint8_t *window);
void prefix_place_window(struct prefix_node *node); /* its place has the window page, too */
/* The copy is gone. Frees the node, and then its parents, if no page, place or child is left. */
void prefix_unplace(struct prefix *p, struct prefix_node *node);
/* The same for snapshots. prefix_snapshot_graft adds the snapshot after n stored tokens; *out stays NULL if they are
 * not stored, or if that snapshot has a place already. */
int prefix_snapshot_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          struct prefix_place place, struct prefix_snapshot **out, struct qn_error *e);
void prefix_snapshot_place(struct prefix *p, struct prefix_snapshot *s, struct prefix_place place);
void prefix_snapshot_unplace(struct prefix *p, struct prefix_snapshot *s);
/* A state to fill and pass to prefix_snapshot_fill() or prefix_state_put(), for which no other snapshot has to give up
 * its own. NULL: none is free. */
uint8_t *prefix_state_get_free(struct prefix *p);
/* The snapshot, which has a place and no data, gets the state that was read from there, and owns it. It is the first to
 * be evicted. */
void prefix_snapshot_fill(struct prefix *p, struct prefix_snapshot *s, uint8_t *state);
const struct prefix_node *prefix_root(const struct prefix_node *node);

#endif
