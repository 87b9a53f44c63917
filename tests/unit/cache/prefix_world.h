/* SPDX-License-Identifier: MIT
 *
 * prefix_world.h: a pool, a tree and a simulated engine, for the tests of the prefix cache and of its store.
 *
 * The engine "computes" for each slot a number that depends on all tokens up to it, as real keys and values do. So a
 * page that is found for another beginning or in another order, or is not found, shows as a wrong number. In a world
 * with snapshots, the last slot's number fills the state, which is checked whenever a sequence is.
 */
#ifndef TEST_PREFIX_WORLD_H
#define TEST_PREFIX_WORLD_H

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "cache/prefix.h"

#define PAGE    16
#define MAX_SEQ 400

/* 1 layer, 1 KV head, 2 dims: a page is 256 bytes, 128 of keys, which are never written, and 16 values of 8 bytes: the
 * slots' numbers */
static const struct kv_shape world_shape = {KV_F32, 1, 1, 2, 2, PAGE, 0, 0, 0};
#define STATE_BYTES 200
#define SEQUENCES   8 /* the most that have a state at the same time */
static const struct kv_shape state_shape = {KV_F32, 1, 1, 2, 2, PAGE, STATE_BYTES, 0, 0};
static const struct prefix_key key_a = {{1, 2}, 7}, key_b = {{1, 3}, 8};

struct prefix_world {
    struct ledger ledger;
    struct kv_pool *pool;
    struct prefix *tree;
    int n_pages;
    /* Reads what of the n tokens is on disk into m, which has its pages; returns the slots that m has then. NULL: no
     * disk. */
    int (*restore)(const struct prefix_world *w, const struct prefix_key *key, const qn_token *tokens, int n,
                   struct kv_seq *m, struct prefix_match *match);
    void *arg;
};

/* n_snapshots 0: sequences have no state. */
static inline void world_open(struct prefix_world *w, int n_pages, int n_snapshots)
{
    const struct kv_shape *shape = n_snapshots ? &state_shape : &world_shape;
    struct qn_error e = {0};
    *w = (struct prefix_world){.n_pages = n_pages};
    ledger_init(&w->ledger, (size_t)1 << 40);
    if (kv_pool_new(&w->pool, shape, n_pages * PAGE, SEQUENCES + n_snapshots, 0, &w->ledger, &e)) fail_msg("%s", e.msg);
    if (prefix_new(&w->tree, w->pool, n_snapshots, &w->ledger, &e)) fail_msg("%s", e.msg);
}

static inline void world_close(struct prefix_world *w)
{
    prefix_free(w->tree);
    assert_int_equal(kv_pool_n_free(w->pool), w->n_pages);
    kv_pool_free(w->pool);
    assert_int_equal(ledger_used(&w->ledger), 0);
}

static inline uint64_t *slot_number(const struct kv_seq *m, int s)
{
    return (uint64_t *)m->pages[s / PAGE] + 16 + s % PAGE;
}

static inline uint64_t number_of(const qn_token *tokens, int s)
{
    return hash_bytes(tokens, ((size_t)s + 1) * sizeof *tokens, 0);
}

/* The state after n slots. */
static inline void make_state(const qn_token *tokens, int n, uint8_t state[STATE_BYTES])
{
    uint64_t number = n ? number_of(tokens, n - 1) : 0;
    for (size_t i = 0; i < STATE_BYTES; i += sizeof number) memcpy(state + i, &number, sizeof number);
}

static inline void check_state(const struct kv_seq *m, const qn_token *tokens)
{
    uint8_t state[STATE_BYTES];
    make_state(tokens, m->n_slots, state);
    if (m->state && memcmp(m->state, state, sizeof state) != 0)
        fail_msg("the state of %d slots is another's", m->n_slots);
}

static inline void check_numbers(const struct kv_seq *m, const qn_token *tokens)
{
    for (int s = 0; s < m->n_slots; s++)
        if (*slot_number(m, s) != number_of(tokens, s)) fail_msg("slot %d of %d is another's", s, m->n_slots);
    check_state(m, tokens);
}

static inline void sequence_open(const struct prefix_world *w, struct kv_seq *m)
{
    assert_int_equal(kv_seq_init(m, w->pool, MAX_SEQ, NULL), 0);
}

/* Like the engine: shares pages that are in the pool. For those on disk, it frees pages, reads into them, and gives
 * them to the tree as far as they were read correctly. */
static inline void find_all(const struct prefix_world *w, const struct prefix_key *key, const qn_token *tokens, int n,
                            struct kv_seq *m, struct prefix_match *match)
{
    prefix_find(w->tree, key, tokens, n, m, match);
    assert_int_equal(m->n_slots<match->n_slots, match->n_placed> 0);
    if (!prefix_is_on_disk(match)) return;
    bool has_pages = true;
    while (w->restore && has_pages && kv_seq_reserve(m, match->n_slots, NULL))
        has_pages = prefix_evict(w->tree, 1, false) > 0;
    if (w->restore && has_pages) kv_seq_extend(m, w->restore(w, key, tokens, n, m, match));
    if (m->state && m->n_slots < match->n_slots) { /* without all, the state is not there */
        kv_seq_deinit(m);
        sequence_open(w, m);
        prefix_find_here(w->tree, key, tokens, n, m, match);
    }
    if (!w->restore || !has_pages) return;
    assert_int_equal(prefix_insert(w->tree, key, tokens, m->n_slots / PAGE * PAGE, m, NULL), 0);
}

/* Computes those of the n tokens that m does not hold yet. 0: the pool has no free page even after eviction. */
static inline int compute(const struct prefix_world *w, struct kv_seq *m, const qn_token *tokens, int n)
{
    int from = m->n_slots;
    while (kv_seq_reserve(m, n, NULL))
        if (!prefix_evict(w->tree, 1, false)) return 0;
    for (int s = from; s < n; s++) *slot_number(m, s) = number_of(tokens, s);
    kv_seq_extend(m, n);
    if (m->state) make_state(tokens, n, m->state);
    return 1;
}

static inline int find(const struct prefix_world *w, const struct prefix_key *key, const qn_token *tokens, int n,
                       struct prefix_match *match)
{
    struct kv_seq m;
    sequence_open(w, &m);
    find_all(w, key, tokens, n, &m, match);
    assert_true(m.n_slots <= match->n_slots && m.n_slots <= n);
    int n_found = m.n_slots;
    check_numbers(&m, tokens);
    kv_seq_deinit(&m);
    return n_found;
}

/* One request: uses the stored beginning, and computes and stores the rest. Returns the number of tokens found. */
static inline int request(const struct prefix_world *w, const struct prefix_key *key, const qn_token *tokens, int n)
{
    struct kv_seq m;
    struct prefix_match match;
    struct qn_error e = {0};
    sequence_open(w, &m);
    find_all(w, key, tokens, n, &m, &match);
    int n_found = m.n_slots;
    check_numbers(&m, tokens);
    if (compute(w, &m, tokens, n)) {
        if (prefix_insert(w->tree, key, tokens, n, &m, &e)) fail_msg("%s", e.msg);
        if (m.state && n && prefix_snapshot(w->tree, key, tokens, n, m.state, false, &e)) fail_msg("%s", e.msg);
    }
    kv_seq_deinit(&m);
    return n_found;
}

static inline struct prefix_stats stats_of(const struct prefix_world *w)
{
    struct prefix_stats s;
    prefix_stats(w->tree, &s);
    return s;
}

static inline int n_leaves(const struct prefix_world *w)
{
    int n = 0;
    for (const struct prefix_node *leaf = NULL; (leaf = prefix_next_leaf(w->tree, leaf));) n++;
    return n;
}

static inline void count_up(qn_token *tokens, int n, int from)
{
    for (int i = 0; i < n; i++) tokens[i] = from + i;
}

static inline void check_node(const struct prefix_node *node)
{
    const struct prefix_node *x;
    assert_true(node->n >= 1 && node->n <= PAGE);
    assert_int_equal(node->depth, node->parent->depth + 1);
    assert_true(!node->child || node->n == PAGE);
    assert_true(node->page || node->place.file || node->child);
    assert_true(!node->snapshots || node->page || node->place.file);
    if (node->parent->parent) { /* parents are newer */
        for (x = node->newer; x && x != node->parent; x = x->newer) {
        }
        assert_non_null(x);
        assert_true(node->parent->used_ns >= node->used_ns);
    }
    for (x = node->parent->child; x; x = x->next) { /* none begins with another */
        int both = x->n < node->n ? x->n : node->n;
        assert_ptr_equal(x->parent, node->parent);
        if (x != node) assert_true(memcmp(x->tokens, node->tokens, (size_t)both * sizeof *x->tokens) != 0);
    }
}

/* Every invariant of the tree, seen through its list; `held`: pages that only sequences hold. */
static inline void check_tree(const struct prefix_world *w, int held)
{
    const struct prefix_node *node = prefix_next_leaf(w->tree, NULL);
    struct prefix_stats s = stats_of(w);
    int n_nodes = 0, n_pages = 0, n_placed = 0, n_unsaved = 0, n_snapshots = 0, n_states = 0, n_states_placed = 0;
    while (node && node->newer) node = node->newer;
    for (; node; node = node->older) {
        check_node(node);
        n_nodes++;
        n_pages += node->page != NULL;
        n_placed += node->place.file != NULL;
        n_unsaved += node->page && !node->place.file;
        for (const struct prefix_snapshot *x = node->snapshots; x; x = x->next) {
            assert_ptr_equal(x->node, node);
            assert_true(x->data || x->place.file);
            assert_true(x->n_slots > node->depth * PAGE && x->n_slots <= node->depth * PAGE + node->n);
            n_snapshots++;
            n_states += x->data != NULL;
            n_states_placed += x->place.file != NULL;
        }
    }
    assert_int_equal(s.n_snapshots, n_snapshots);
    assert_int_equal(s.n_states, n_states);
    assert_int_equal(s.n_snapshots_placed, n_states_placed);
    assert_int_equal(s.n_nodes, n_nodes);
    assert_int_equal(s.n_pages, n_pages);
    assert_int_equal(s.n_placed, n_placed);
    assert_int_equal(s.n_unsaved, n_unsaved);
    assert_int_equal(kv_pool_n_free(w->pool), w->n_pages - n_pages - held);
}

#endif
