/* SPDX-License-Identifier: MIT
 *
 * prefix_snapshot.c: the snapshots of the tree of prefixes. See prefix.h.
 */
#include "cache/prefix_impl.h"

#include <assert.h>
#include <string.h>

#include "base/os.h"

/* ---- snapshots ---- */

/* The node for a snapshot after the n tokens; NULL: they are not stored. */
static struct prefix_node *snapshot_node(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                                         int *n_stored)
{
    struct prefix_match match;
    assert(p->has_states);
    int n_path = prefix_walk(p, key, tokens, n, &match);
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
        kv_state_copy(p->pool, copy, state);
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

uint8_t *prefix_state_get_free(struct prefix *p)
{
    return p->snapshots.n_states < p->snapshots.most ? snapshots_get(&p->snapshots) : NULL;
}

void prefix_snapshot_fill(struct prefix *p, struct prefix_snapshot *s, uint8_t *state)
{
    assert(s->place.file);
    snapshot_give_unused(&p->snapshots, s, state);
}

void prefix_snapshot_unplace(struct prefix *p, struct prefix_snapshot *s)
{
    s->place = (struct prefix_place){0};
    p->snapshots.n_placed--;
    if (!s->data) snapshot_drop(&p->snapshots, s);
}
