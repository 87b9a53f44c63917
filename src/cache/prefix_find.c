/* SPDX-License-Identifier: MIT
 *
 * prefix_find.c: finds the longest stored beginning of a sequence in the tree of prefixes. See prefix.h.
 */
#include "cache/prefix_impl.h"

#include <assert.h>
#include <string.h>

#include "base/inline/minmax.h"
#include "base/os.h"

/* ---- finding ---- */

/* The usable child that begins with the most of the k tokens. */
static struct prefix_node *best_child(const struct prefix *p, const struct prefix_node *parent, const qn_token *tokens,
                                      int k, int *same)
{
    struct prefix_node *best = k == p->slots ? prefix_find_full(p, parent, tokens) : NULL;
    *same = k;
    if (best && (best->page || best->place.file)) return best;
    best = NULL;
    *same = 0;
    for (struct prefix_node *c = parent->child; c; c = c->next) {
        int n = prefix_n_same(c->tokens, tokens, min_int(k, c->n));
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
        if (!c->page && !c->place.file && prefix_n_same(c->tokens, tokens, min_int(k, c->n)) > same) return 1;
    for (int i = 0; i < N_GHOSTS; i++) {
        const struct ghost *g = &p->ghosts[i];
        if (g->n > same && g->n <= k && g->parent == parent_hash &&
            g->hash == prefix_hash_tokens(parent_hash, tokens, g->n))
            return 1;
    }
    return 0;
}

/* Fills p->path with the nodes that hold the longest beginning of the tokens; returns their number. */
int prefix_walk(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                struct prefix_match *match)
{
    struct prefix_node *node = prefix_find_root(p, key), *c = NULL;
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
    if (was_evicted(p, node ? node->hash : prefix_hash_key(p, key), node, tokens + at, k, same)) {
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
            int same = at + prefix_n_same(c->tokens, tokens + at, min_int(c->n, n_slots - at));
            for (struct prefix_snapshot *s = c->snapshots; s; s = s->next)
                if (s->n_slots <= same && (s->data || !is_here) && (!best || s->n_slots > best->n_slots)) best = s;
        }
        if (best) p->path[i] = best->node;
    }
    return best;
}

/* Whether page i of the path can be read from disk, with its window page if that is needed. */
static bool is_on_disk(const struct prefix *p, int i, bool needs_window)
{
    const struct prefix_place *place = &p->path[i]->place;
    return place->file && (place->has_window || !needs_window);
}

/* Cuts a match to the most slots with a whole window. From the first page on that is not in the pool, everything has to
 * come from disk, also pages that are in the pool. If some page has no copy there, what ends before it is tried. */
static void cut_to_window(const struct prefix *p, int n_path, bool is_here, struct prefix_match *match)
{
    const struct kv_shape *shape = kv_pool_shape(p->pool);
    int n_here = 0;
    while (n_here < n_path && p->path[n_here]->page) n_here++;
    for (match->n_placed = 0; match->n_slots > 0;) {
        int i = (match->n_slots - 1) / p->slots, end = i + 1, first = kv_window_first(shape, match->n_slots);
        int here = first;
        while (here < end && here < n_here && p->path[here]->window) here++;
        here = min_int(here, n_here);
        while (i >= here && !is_here && is_on_disk(p, i, i >= first)) i--;
        match->n_placed = end - here;
        if (i < here) return;
        match->n_slots = i * p->slots;
    }
    match->n_placed = 0;
}

/* Cuts the path that prefix_walk() found to its usable part; returns the number of its nodes. */
static int cut_path(const struct prefix *p, int n_path, bool is_here, const qn_token *tokens,
                    struct prefix_match *match)
{
    match->n_stored = match->n_slots;
    if (p->has_windows) {
        cut_to_window(p, n_path, is_here, match);
        if (match->n_slots == match->n_stored) return n_path;
        match->miss = PREFIX_WINDOW;
        match->asked = tokens[match->n_slots];
        return (match->n_slots + p->slots - 1) / p->slots;
    }
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
    int n_path = cut_path(p, prefix_walk(p, key, tokens, n, match), is_here, tokens, match);
    int n_here = n_path - match->n_placed;
    uint64_t now = clock_ns();
    assert(out->pool == p->pool && out->n_pages == 0 && n_path <= out->max_pages);
    if (n_path) prefix_touch(p, p->path[n_path - 1], now);
    int first = kv_window_first(kv_pool_shape(p->pool), match->n_slots) - 1; /* one is spare */
    p->n_window_uses++;
    for (int i = 0; i < n_here; i++) {
        struct prefix_node *node = p->path[i];
        uint8_t *window = i >= first ? node->window : NULL;
        if (window) node->window_use = p->n_window_uses;
        kv_seq_attach(out, node->page, window, min_int(p->slots, match->n_slots - i * p->slots));
    }
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
    int n_path = prefix_walk(p, key, tokens, n, &match), i = 0;
    for (; first + i < n_path && i < n_places && p->path[first + i]->place.file; i++)
        places[i] = p->path[first + i]->place;
    return i;
}

void prefix_peek(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                 struct prefix_match *match)
{
    cut_path(p, prefix_walk(p, key, tokens, n, match), false, tokens, match);
}
