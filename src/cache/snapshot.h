/* SPDX-License-Identifier: MIT
 *
 * snapshot.h: the copies of recurrent states that the tree of prefixes keeps, and the order in which they are evicted.
 *
 * A snapshot is the state of a sequence as it was after a number of slots. A model whose state cannot be cut needs it
 * to continue from the beginning of a stored sequence. Its data is one of the pool's states (kv.h), of which all
 * snapshots together have a fixed number. A snapshot may lose its data and be on disk only. Of the tree, this module
 * knows only that snapshots hang on nodes.
 */
#ifndef QUERN_CACHE_SNAPSHOT_H
#define QUERN_CACHE_SNAPSHOT_H

#include "cache/prefix.h"

struct snapshots {
    struct kv_pool *pool;
    struct ledger *ledger;
    int most, n_states;                      /* states that they may have; that they have, including lent ones */
    int n, n_placed;                         /* snapshots; those on disk */
    struct prefix_snapshot *newest, *oldest; /* those with data, by last use */
};

/* A state with undefined contents. If none is free, the least recently used snapshot gives up its data: first those
 * that were taken on the way (is_passing), never those that are held. NULL: no state can be freed. */
uint8_t *snapshots_get(struct snapshots *all);
void snapshots_put(struct snapshots *all, uint8_t *state);

/* A new snapshot without data on a node; NULL: no memory. */
struct prefix_snapshot *snapshot_new(struct snapshots *all, struct prefix_node *node, int n_slots, struct qn_error *e);
struct prefix_snapshot *snapshot_at(const struct prefix_node *node, int n_slots); /* NULL: none */
void snapshot_give(struct snapshots *all, struct prefix_snapshot *s,
                   uint8_t *state); /* it has no data; takes it over */
/* The same, as the one that was used least recently. */
void snapshot_give_unused(struct snapshots *all, struct prefix_snapshot *s, uint8_t *state);
void snapshot_use(struct snapshots *all, struct prefix_snapshot *s, uint64_t now);
/* Takes the snapshot from its node. It has no place on disk any more. If it is held, it keeps its data until it is
 * released. */
void snapshot_drop(struct snapshots *all, struct prefix_snapshot *s);
void snapshot_hold(struct prefix_snapshot *s);
void snapshot_release(struct snapshots *all, struct prefix_snapshot *s);

#endif
