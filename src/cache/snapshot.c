/* SPDX-License-Identifier: MIT
 *
 * snapshot.c: the list of snapshots by last use, and the states that they have.
 */
#include "cache/snapshot.h"

#include <assert.h>

static void unlist(struct snapshots *all, struct prefix_snapshot *s)
{
    *(s->newer ? &s->newer->older : &all->newest) = s->older;
    *(s->older ? &s->older->newer : &all->oldest) = s->newer;
}

static void list(struct snapshots *all, struct prefix_snapshot *s)
{
    s->newer = NULL;
    s->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = s;
    all->newest = s;
}

/* Frees the struct of a snapshot that has no node, no data and no place. */
static void discard(struct snapshots *all, struct prefix_snapshot *s)
{
    ledger_give(all->ledger, sizeof *s);
    mem_free(s);
}

static void unhang(struct prefix_snapshot *s)
{
    struct prefix_snapshot **at = &s->node->snapshots;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->node = NULL;
}

/* Frees the data of the snapshot that goes first. False: no snapshot can give up its data. */
static bool give_up_one(struct snapshots *all)
{
    struct prefix_snapshot *victim = NULL;
    for (struct prefix_snapshot *s = all->oldest; s && !(victim && victim->is_passing); s = s->newer)
        if (!s->n_holds && (!victim || s->is_passing)) victim = s;
    if (!victim) return false;
    unlist(all, victim);
    snapshots_put(all, victim->data);
    victim->data = NULL;
    if (!victim->place.file) snapshot_drop(all, victim);
    return true;
}

uint8_t *snapshots_get(struct snapshots *all)
{
    while (all->n_states == all->most)
        if (!give_up_one(all)) return NULL;
    uint8_t *state = kv_state_get(all->pool);
    all->n_states += state != NULL;
    return state;
}

void snapshots_put(struct snapshots *all, uint8_t *state)
{
    kv_state_put(all->pool, state);
    all->n_states--;
}

struct prefix_snapshot *snapshot_new(struct snapshots *all, struct prefix_node *node, int n_slots, struct qn_error *e)
{
    struct prefix_snapshot *s = NULL;
    if (ledger_take(all->ledger, sizeof *s, "a snapshot", e)) return NULL;
    if (!(s = mem_calloc(1, sizeof *s))) {
        ledger_give(all->ledger, sizeof *s);
        error_nomem(e, "a snapshot", sizeof *s);
        return NULL;
    }
    *s = (struct prefix_snapshot){.node = node, .next = node->snapshots, .n_slots = n_slots};
    node->snapshots = s;
    all->n++;
    return s;
}

struct prefix_snapshot *snapshot_at(const struct prefix_node *node, int n_slots)
{
    struct prefix_snapshot *s = node->snapshots;
    while (s && s->n_slots != n_slots) s = s->next;
    return s;
}

void snapshot_give(struct snapshots *all, struct prefix_snapshot *s, uint8_t *state)
{
    assert(!s->data);
    s->data = state;
    list(all, s);
}

void snapshot_give_unused(struct snapshots *all, struct prefix_snapshot *s, uint8_t *state)
{
    assert(!s->data);
    s->data = state;
    s->newer = all->oldest;
    s->older = NULL;
    *(all->oldest ? &all->oldest->older : &all->newest) = s;
    all->oldest = s;
}

void snapshot_use(struct snapshots *all, struct prefix_snapshot *s, uint64_t now)
{
    s->used_ns = now;
    if (!s->data) return;
    unlist(all, s);
    list(all, s);
}

void snapshot_drop(struct snapshots *all, struct prefix_snapshot *s)
{
    assert(!s->place.file);
    unhang(s);
    all->n--;
    if (s->data) unlist(all, s);
    if (s->n_holds) return;
    if (s->data) snapshots_put(all, s->data);
    discard(all, s);
}

void snapshot_hold(struct prefix_snapshot *s) { s->n_holds++; }

void snapshot_release(struct snapshots *all, struct prefix_snapshot *s)
{
    assert(s->n_holds > 0);
    if (--s->n_holds || s->node) return;
    if (s->data) snapshots_put(all, s->data);
    discard(all, s);
}
