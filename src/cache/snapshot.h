/* SPDX-License-Identifier: MIT
 *
 * snapshot.h: copies of recurrent states that the tree of prefixes keeps: which states they have, and which goes first.
 *
 * A snapshot is what makes the beginning of a sequence of use to a model whose state cannot be cut: the state as it was
 * behind so many slots. Its bytes are a state of the pool's (kv.h), of which all snapshots together have a fixed
 * number; a snapshot may have lost them and lie on disk alone. Knows the nodes only as what snapshots hang on.
 */
#ifndef QUERN_CACHE_SNAPSHOT_H
#define QUERN_CACHE_SNAPSHOT_H

#include "cache/prefix.h"

struct snapshots {
    struct kv_pool *pool;
    struct ledger *ledger;
    int most, n_states;                      /* states they may have; have, with those that were lent */
    int n, n_placed;                         /* snapshots; those on disk */
    struct prefix_snapshot *newest, *oldest; /* those with data, by last use */
};

/* A state, its contents anything; the data of the least recently used snapshots makes room. Those that stand nowhere in
 * particular go first, those that are held never. NULL: there may be no more. */
uint8_t *snapshots_get(struct snapshots *all);
void snapshots_put(struct snapshots *all, uint8_t *state);

/* A new snapshot without data on a node; NULL: no memory. */
struct prefix_snapshot *snapshot_new(struct snapshots *all, struct prefix_node *node, int n_slots, struct qn_error *e);
struct prefix_snapshot *snapshot_at(const struct prefix_node *node, int n_slots); /* NULL: none */
void snapshot_give(struct snapshots *all, struct prefix_snapshot *s,
                   uint8_t *state); /* it has no data; takes it over */
void snapshot_use(struct snapshots *all, struct prefix_snapshot *s, uint64_t now);
/* Takes it from its node. One that is held keeps its data until it is let go of. It has no place any more. */
void snapshot_drop(struct snapshots *all, struct prefix_snapshot *s);
void snapshot_hold(struct prefix_snapshot *s);
void snapshot_release(struct snapshots *all, struct prefix_snapshot *s);

#endif
