/* SPDX-License-Identifier: MIT
 *
 * test_prefix.c: the tree of stored prefixes: finding, sharing, replacing and evicting, failed allocations, and long
 * random histories that are compared with a plain list of sequences.
 *
 * It is built a second time with a hash of one bit (PREFIX_HASH_BITS), so that nearly everything collides. Then only
 * the reasons for a miss may differ.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prefix_world.h"

#ifdef PREFIX_HASH_BITS
#define COLLIDES 1
#else
#define COLLIDES 0
#endif

static qn_token t[MAX_SEQ], u[MAX_SEQ];

/* ---- finding ---- */

static void what_was_stored_is_found(void **state)
{
    (void)state;
    struct prefix_world w;
    struct prefix_match match;
    world_open(&w, 20, 0);
    count_up(t, 100, 0);
    assert_int_equal(request(&w, &key_a, t, 100), 0);
    check_tree(&w, 0);
    static const int lengths[] = {0, 1, 15, 16, 17, 32, 33, 99, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(find(&w, &key_a, t, lengths[i], &match), lengths[i]);
        assert_int_equal(match.miss, PREFIX_ALL);
        assert_int_equal(match.n_placed, 0);
        check_tree(&w, 0);
    }
    assert_int_equal(find(&w, &key_b, t, 100, &match), 0); /* another key shares nothing */
    assert_int_equal(match.miss, PREFIX_NOTHING);
    world_close(&w);
}

/* The words of a key are hashes, so another owner's may be equal. */
static void the_same_words_of_another_owner_share_nothing(void **state)
{
    (void)state;
    const struct prefix_key forged = {{key_a.word[0], key_a.word[1]}, key_a.owner + 1};
    struct prefix_world w;
    struct prefix_match match;
    world_open(&w, 20, 0);
    count_up(t, 100, 0);
    assert_int_equal(request(&w, &key_a, t, 100), 0);
    assert_int_equal(find(&w, &forged, t, 100, &match), 0);
    assert_int_equal(match.miss, PREFIX_NOTHING);
    assert_int_equal(request(&w, &forged, t, 50), 0);
    assert_int_equal(find(&w, &forged, t, 100, &match), 50); /* its own */
    assert_int_equal(find(&w, &key_a, t, 100, &match), 100);
    assert_int_equal(n_leaves(&w), 2);
    check_tree(&w, 0);
    world_close(&w);
}

static void a_miss_tells_why(void **state)
{
    (void)state;
    struct prefix_world w;
    struct prefix_match match;
    world_open(&w, 20, 0);
    count_up(t, 120, 0);
    request(&w, &key_a, t, 100);
    assert_int_equal(find(&w, &key_a, t, 120, &match), 100); /* in a page */
    assert_int_equal(match.miss, PREFIX_ENDS);
    assert_int_equal(match.asked, 100);
    request(&w, &key_a, t, 112);
    assert_int_equal(find(&w, &key_a, t, 120, &match), 112); /* at its edge */
    assert_int_equal(match.miss, PREFIX_ENDS);
    for (int at = 0; at < 112; at += 7) {
        count_up(u, 112, 0);
        u[at] = -7;
        assert_int_equal(find(&w, &key_a, u, 112, &match), at);
        assert_int_equal(match.miss, PREFIX_DIFFERS);
        assert_int_equal(match.asked, -7);
        assert_int_equal(match.stored, at);
    }
    assert_int_equal(prefix_evict(w.tree, 2, false), 2);
    if (!COLLIDES) {
        assert_int_equal(find(&w, &key_a, t, 112, &match), 80);
        assert_int_equal(match.miss, PREFIX_EVICTED);
        assert_int_equal(prefix_evict(w.tree, 100, false), 5);
        assert_int_equal(find(&w, &key_a, t, 112, &match), 0);
        assert_int_equal(match.miss, PREFIX_EVICTED);
        assert_int_equal(find(&w, &key_b, t, 112, &match), 0);
        assert_int_equal(match.miss, PREFIX_NOTHING);
        assert_int_equal(stats_of(&w).n_nodes, 0);
    }
    for (int i = 0; i < PREFIX_N_MISS; i++) assert_true(prefix_miss_name((enum prefix_miss)i)[0]);
    world_close(&w);
}

static void peeking_changes_nothing(void **state)
{
    (void)state;
    struct prefix_world w;
    struct prefix_match match;
    world_open(&w, 20, 0);
    count_up(t, 100, 0);
    request(&w, &key_a, t, 20);
    count_up(u, 100, 500);
    request(&w, &key_a, u, 20);
    prefix_peek(w.tree, &key_a, t, 20, &match);
    assert_int_equal(match.n_slots, 20);
    prefix_evict(w.tree, 2, false); /* t is still the older one */
    assert_int_equal(find(&w, &key_a, t, 20, &match), 0);
    assert_int_equal(find(&w, &key_a, u, 20, &match), 20);
    world_close(&w);
}

/* ---- sharing ---- */

static void a_conversation_is_one_chain(void **state)
{
    (void)state;
    struct prefix_world w;
    struct prefix_chain chain;
    world_open(&w, 40, 0);
    count_up(t, MAX_SEQ, 0);
    for (int turn = 1; turn <= 8; turn++) {
        assert_int_equal(request(&w, &key_a, t, 37 * turn), 37 * (turn - 1));
        check_tree(&w, 0);
        assert_int_equal(n_leaves(&w), 1);
        assert_int_equal(stats_of(&w).n_pages, (37 * turn + PAGE - 1) / PAGE);
    }
    prefix_chain(w.tree, prefix_next_leaf(w.tree, NULL), &chain);
    assert_int_equal(chain.n_tokens, 296);
    assert_int_equal(chain.n_pages, 19);
    assert_int_equal(chain.bytes, chain.own_bytes);
    assert_memory_equal(&chain.key, &key_a, sizeof key_a);
    world_close(&w);
}

static void branches_share_their_beginning(void **state)
{
    (void)state;
    struct prefix_world w;
    struct prefix_chain chain;
    size_t page = kv_page_bytes(&world_shape);
    world_open(&w, 40, 0);
    count_up(t, 100, 0);
    count_up(u, 100, 0);
    for (int i = 50; i < 100; i++) u[i] = 1000 + i;
    request(&w, &key_a, t, 100);
    assert_int_equal(request(&w, &key_a, u, 100), 50);
    check_tree(&w, 0);
    assert_int_equal(n_leaves(&w), 2);
    assert_int_equal(stats_of(&w).n_pages, 7 + 4); /* 3 full pages are common; the fourth was cut and copied */
    prefix_chain(w.tree, prefix_next_leaf(w.tree, NULL), &chain);
    assert_int_equal(chain.bytes, 7 * page);
    assert_int_equal(chain.own_bytes, 4 * page);
    assert_int_equal(request(&w, &key_a, t, 100), 100);
    assert_int_equal(request(&w, &key_a, u, 100), 100);
    world_close(&w);
}

static void a_shorter_request_changes_nothing(void **state)
{
    (void)state;
    struct prefix_world w;
    struct kv_seq m;
    world_open(&w, 40, 0);
    count_up(t, 100, 0);
    request(&w, &key_a, t, 60);
    struct prefix_stats before = stats_of(&w);
    sequence_open(&w, &m);
    assert_true(compute(&w, &m, t, 60));
    for (int n = 0; n <= 60; n++) {
        assert_int_equal(prefix_insert(w.tree, &key_a, t, n, &m, NULL), 0);
        assert_int_equal(stats_of(&w).n_pages, before.n_pages);
    }
    check_tree(&w, 4);
    kv_seq_deinit(&m);
    world_close(&w);
}

static void a_sequence_that_goes_on_does_not_write_into_the_tree(void **state)
{
    (void)state;
    struct prefix_world w;
    struct kv_seq m;
    struct prefix_match match;
    world_open(&w, 40, 0);
    count_up(t, 100, 0);
    count_up(u, 100, 0);
    for (int i = 20; i < 100; i++) u[i] = -i;
    sequence_open(&w, &m);
    compute(&w, &m, t, 25);
    assert_int_equal(prefix_insert(w.tree, &key_a, t, 25, &m, NULL), 0);
    kv_seq_truncate(&m, 20);
    compute(&w, &m, u, 60); /* in the page that the tree holds */
    assert_int_equal(find(&w, &key_a, t, 25, &match), 25);
    assert_int_equal(prefix_insert(w.tree, &key_a, u, 60, &m, NULL), 0);
    assert_int_equal(find(&w, &key_a, t, 25, &match), 25);
    assert_int_equal(find(&w, &key_a, u, 60, &match), 60);
    check_tree(&w, 0); /* all of m's pages are the tree's */
    kv_seq_deinit(&m);
    world_close(&w);
}

/* ---- eviction ---- */

static void the_least_recently_used_goes_first_and_from_its_end(void **state)
{
    (void)state;
    struct prefix_world w;
    struct prefix_match match;
    world_open(&w, 40, 0);
    for (int i = 0; i < 4; i++) {
        count_up(t, 48, 1000 * i);
        request(&w, &key_a, t, 48);
    }
    count_up(t, 48, 0);
    find(&w, &key_a, t, 48, &match); /* the first is the newest now: 1, 2, 3, 0 */
    for (int gone = 1; gone <= 12; gone++) {
        assert_int_equal(prefix_evict(w.tree, 1, false), 1);
        check_tree(&w, 0);
        for (int i = 0; i < 4; i++) {
            int order = (i + 3) % 4, lost = gone - 3 * order;
            count_up(t, 48, 1000 * i);
            prefix_peek(w.tree, &key_a, t, 48, &match);
            assert_int_equal(match.n_slots, 48 - 16 * (lost < 0 ? 0 : lost > 3 ? 3 : lost));
        }
    }
    assert_int_equal(prefix_evict(w.tree, 1, false), 0);
    world_close(&w);
}

static void what_a_sequence_uses_is_kept(void **state)
{
    (void)state;
    struct prefix_world w;
    struct kv_seq m;
    struct prefix_match match;
    world_open(&w, 10, 0);
    count_up(t, 100, 0);
    request(&w, &key_a, t, 96);
    sequence_open(&w, &m);
    prefix_find(w.tree, &key_a, t, 40, &m, &match); /* three of its six pages */
    assert_int_equal(prefix_evict(w.tree, 100, false), 3);
    check_tree(&w, 0);
    check_numbers(&m, t);
    assert_int_equal(find(&w, &key_a, t, 96, &match), 48);
    kv_seq_deinit(&m);
    assert_int_equal(prefix_evict(w.tree, 100, false), 3);
    world_close(&w);
}

/* Two runs of the same tokens: the tree has the first one's page, then the second one's that follows. */
static void a_page_above_one_in_use_can_go_and_come_back(void **state)
{
    (void)state;
    struct prefix_world w;
    struct kv_seq m;
    struct prefix_match match;
    world_open(&w, 10, 0);
    count_up(t, 100, 0);
    sequence_open(&w, &m);
    compute(&w, &m, t, 32);
    request(&w, &key_a, t, 16);
    assert_int_equal(prefix_insert(w.tree, &key_a, t, 32, &m, NULL), 0);
    check_tree(&w, 1);
    assert_int_equal(prefix_evict(w.tree, 100, false), 1); /* the first page only: the second is m's */
    check_tree(&w, 1);
    assert_int_equal(find(&w, &key_a, t, 32, &match), 0);
    if (!COLLIDES) assert_int_equal(match.miss, PREFIX_EVICTED);
    assert_int_equal(prefix_insert(w.tree, &key_a, t, 32, &m, NULL), 0);
    assert_int_equal(find(&w, &key_a, t, 32, &match), 32);
    check_tree(&w, 0);
    kv_seq_deinit(&m);
    world_close(&w);
}

/* Evicting a page also frees its empty parent, which is the node that eviction would look at next. */
static void an_empty_parent_goes_with_its_last_child(void **state)
{
    (void)state;
    struct prefix_world w;
    struct kv_seq m;
    world_open(&w, 10, 0);
    count_up(t, 100, 0);
    count_up(u, 100, 500);
    sequence_open(&w, &m);
    compute(&w, &m, t, 32);
    request(&w, &key_a, t, 16);
    assert_int_equal(prefix_insert(w.tree, &key_a, t, 32, &m, NULL), 0);
    assert_int_equal(prefix_evict(w.tree, 100, false), 1);
    kv_seq_deinit(&m);
    request(&w, &key_a, u, 32);
    assert_int_equal(stats_of(&w).n_nodes, 4);
    assert_int_equal(prefix_evict(w.tree, 2, false), 2);
    check_tree(&w, 0);
    assert_int_equal(stats_of(&w).n_nodes, 1);
    world_close(&w);
}

/* ---- snapshots ---- */

/* Stores the state after the first n tokens of t, if the tree has room for it. */
static int put_snapshot(const struct prefix_world *w, int n, bool is_passing, struct qn_error *e)
{
    uint8_t state[STATE_BYTES];
    make_state(t, n, state);
    return prefix_snapshot(w->tree, &key_a, t, n, state, is_passing, e);
}

static void a_lookup_ends_at_a_snapshot(void **state)
{
    (void)state;
    struct prefix_world w;
    struct qn_error e = {0};
    struct prefix_match match;
    world_open(&w, 20, 6);
    count_up(t, 100, 0);
    request(&w, &key_a, t, 40); /* with a snapshot of all 40 */
    assert_int_equal(put_snapshot(&w, 10, false, &e), 0);
    assert_int_equal(put_snapshot(&w, 16, false, &e), 0);
    assert_int_equal(put_snapshot(&w, 36, false, &e), 0);
    static const int found[][2] = {{1, 0},   {9, 0},   {10, 10}, {15, 10}, {16, 16},
                                   {35, 16}, {36, 36}, {39, 36}, {60, 40}};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        assert_int_equal(find(&w, &key_a, t, found[i][0], &match), found[i][1]);
        assert_int_equal(match.n_stored, found[i][0] < 40 ? found[i][0] : 40);
        assert_int_equal(match.miss, found[i][1] == found[i][0] ? PREFIX_ALL
                                     : found[i][0] == 60        ? PREFIX_ENDS
                                                                : PREFIX_STATE);
        check_tree(&w, 0);
    }
    request(&w, &key_a, t, 90); /* the partial page is replaced; its snapshots hold for the longer one */
    check_tree(&w, 0);
    memcpy(u, t, sizeof u);
    u[37] = -1;
    assert_int_equal(find(&w, &key_a, u, 90, &match), 36);
    assert_int_equal(match.n_stored, 37);
    assert_int_equal(request(&w, &key_a, u, 50), 36); /* and goes on from there */
    assert_int_equal(find(&w, &key_a, u, 60, &match), 50);
    assert_int_equal(put_snapshot(&w, 95, false, &e), QN_EUSAGE);
    assert_string_equal(e.msg, "cache: a snapshot of 95 tokens, 90 are stored");
    check_tree(&w, 0);
    world_close(&w);
}

/* If several sequences continue after some tokens of a page, one of them has the state after these tokens. */
static void a_snapshot_is_for_all_who_begin_alike(void **state)
{
    (void)state;
    struct prefix_world w;
    struct qn_error e = {0};
    struct prefix_match match;
    world_open(&w, 20, 8);
    for (int who = 0; who < 3; who++) {
        count_up(t, 60, 0);
        for (int i = 20; i < 60; i++) t[i] = 1000 * who + i;
        assert_int_equal(request(&w, &key_a, t, 30), who == 0 ? 0 : 20);
        if (who == 0) assert_int_equal(put_snapshot(&w, 20, false, &e), 0);
        assert_int_equal(find(&w, &key_a, t, 29, &match), 20);
        assert_int_equal(match.n_stored, 29);
        assert_int_equal(find(&w, &key_a, t, 60, &match), 30);
        check_tree(&w, 0);
    }
    world_close(&w);
}

static void snapshots_make_room_for_new_ones(void **state)
{
    (void)state;
    struct prefix_world w;
    struct qn_error e = {0};
    struct prefix_match match;
    world_open(&w, 20, 3);
    count_up(t, 100, 0);
    request(&w, &key_a, t, 40);
    assert_int_equal(put_snapshot(&w, 10, true, &e), 0);
    assert_int_equal(put_snapshot(&w, 30, false, &e), 0);
    assert_int_equal(put_snapshot(&w, 30, true, &e), 0); /* it is there, and stays what it was */
    assert_int_equal(stats_of(&w).n_states, 3);
    find(&w, &key_a, t, 40, &match);
    find(&w, &key_a, t, 10, &match);
    assert_int_equal(put_snapshot(&w, 20, false, &e), 0); /* for the one that was taken on the way */
    assert_int_equal(find(&w, &key_a, t, 10, &match), 0);
    assert_int_equal(put_snapshot(&w, 21, false, &e), 0); /* for the one that was used longest ago */
    assert_int_equal(find(&w, &key_a, t, 35, &match), 21);
    check_tree(&w, 0);
    prefix_peek(w.tree, &key_a, t, 40, &match); /* looking is no use */
    prefix_peek(w.tree, &key_a, t, 40, &match);
    struct prefix_snapshot *held = match.snapshot;
    assert_int_equal(held->n_slots, 40);
    prefix_snapshot_hold(w.tree, held);
    uint8_t *lent[2] = {prefix_state_get(w.tree), prefix_state_get(w.tree)};
    assert_true(lent[0] && lent[1] && !prefix_state_get(w.tree));
    assert_int_equal(put_snapshot(&w, 20, false, &e), QN_ENOMEM);
    assert_string_equal(e.msg, "cache: all 3 snapshots are in use");
    make_state(t, 20, lent[0]);
    prefix_snapshot_take(w.tree, &key_a, t, 20, lent[0]);
    prefix_snapshot_take(w.tree, &key_a, t, 90, lent[1]); /* so many are not stored */
    assert_int_equal(find(&w, &key_a, t, 35, &match), 20);
    assert_int_equal(prefix_evict(w.tree, 100, false), 3); /* with their pages */
    assert_int_equal(stats_of(&w).n_snapshots, 0);
    assert_int_equal(stats_of(&w).n_states, 1); /* the one that is held */
    uint8_t all[STATE_BYTES];
    make_state(t, 40, all);
    assert_memory_equal(held->data, all, sizeof all);
    prefix_snapshot_release(w.tree, held);
    check_tree(&w, 0);
    world_close(&w);
}

static void a_snapshot_that_fails_changes_nothing(void **state)
{
    (void)state;
    struct prefix_world w;
    struct qn_error e = {0};
    struct prefix_match match;
    world_open(&w, 20, 6);
    count_up(t, 100, 0);
    request(&w, &key_a, t, 40);
    mem_fault_set(1);
    assert_int_equal(put_snapshot(&w, 30, false, &e), QN_ENOMEM);
    mem_fault_set(0);
    size_t budget = w.ledger.budget;
    w.ledger.budget = ledger_used(&w.ledger);
    assert_int_equal(put_snapshot(&w, 30, false, &e), QN_ENOMEM);
    w.ledger.budget = budget;
    assert_int_equal(stats_of(&w).n_snapshots, 1);
    assert_int_equal(find(&w, &key_a, t, 39, &match), 0);
    check_tree(&w, 0);
    world_close(&w);
}

/* ---- failures ---- */

static void an_insertion_that_fails_changes_nothing(void **state)
{
    (void)state;
    for (int refuse_bytes = 0; refuse_bytes < 2; refuse_bytes++) {
        struct prefix_world w;
        struct kv_seq m;
        struct qn_error e = {0};
        world_open(&w, 60, 0);
        count_up(t, MAX_SEQ, 0);
        request(&w, &key_a, t, 40);
        sequence_open(&w, &m);
        assert_true(compute(&w, &m, t, MAX_SEQ));
        int n = 1;
        for (;; n++) {
            struct prefix_stats before = stats_of(&w), after;
            size_t budget = w.ledger.budget;
            if (refuse_bytes)
                w.ledger.budget = ledger_used(&w.ledger) + (size_t)n * 16;
            else
                mem_fault_set((uint64_t)n);
            int rc = prefix_insert(w.tree, n % 2 ? &key_a : &key_b, t, MAX_SEQ, &m, &e);
            mem_fault_set(0);
            w.ledger.budget = budget;
            if (!rc) break;
            assert_int_equal(rc, QN_ENOMEM);
            assert_true(e.msg[0]);
            after = stats_of(&w);
            assert_memory_equal(&before, &after, sizeof after);
            check_tree(&w, MAX_SEQ / PAGE);
        }
        assert_true(n > 20);
        kv_seq_deinit(&m);
        world_close(&w);
    }
    struct prefix *p = NULL;
    mem_fault_set(1);
    assert_int_equal(prefix_new(&p, NULL, 0, NULL, NULL), QN_ENOMEM);
    mem_fault_set(0);
}

static void lookups_and_eviction_allocate_nothing(void **state)
{
    (void)state;
    struct prefix_world w;
    struct kv_seq m;
    struct prefix_match match;
    world_open(&w, 60, 0);
    count_up(t, 200, 0);
    request(&w, &key_a, t, 200);
    sequence_open(&w, &m);
    uint64_t calls = mem_n_calls();
    prefix_find(w.tree, &key_a, t, 180, &m, &match);
    prefix_evict(w.tree, 60, false);
    assert_int_equal(mem_n_calls(), calls);
    kv_seq_deinit(&m);
    world_close(&w);
}

/* ---- random histories ---- */

#define N_KEPT 64

struct kept {
    const struct prefix_key *key;
    int n;
    qn_token tokens[MAX_SEQ];
};

static struct kept kept[N_KEPT];

static int n_common(const qn_token *a, const qn_token *b, int n)
{
    int i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Draws a sequence that often begins like an earlier one: it has few different tokens and a length near a page's edge.
 */
static void draw_sequence(uint64_t seed, uint64_t step, int n_kept, struct kept *out)
{
    uint64_t r = rng_u64(seed, 0, step);
    int shared = 0;
    out->key = r & 1 ? &key_a : &key_b;
    if (n_kept && (r & 14)) {
        const struct kept *from = &kept[(r >> 8) % (uint64_t)n_kept];
        out->key = from->key;
        shared = r & 16 ? from->n : (int)((r >> 20) % (uint64_t)(from->n + 1));
        memcpy(out->tokens, from->tokens, (size_t)shared * sizeof *out->tokens);
    }
    out->n = shared + (int)((r >> 40) % 50);
    if (r & 32) out->n = out->n / PAGE * PAGE;
    if (out->n > MAX_SEQ) out->n = MAX_SEQ;
    for (int i = shared; i < out->n; i++) out->tokens[i] = (qn_token)(rng_u64(seed, step, (uint64_t)i) % 3);
}

/* If n_pages is enough for all, exactly the longest common beginning is found. With snapshots, a beginning is found
 * only up to a snapshot. */
static void random_history(int n_pages, int n_snapshots, int n_steps, uint64_t seed)
{
    struct prefix_world w;
    struct kv_seq running[3] = {{0}};
    int n_kept = 0, enough = n_pages > 1000, n_hit = 0;
    world_open(&w, n_pages, n_snapshots);
    for (int step = 0; step < n_steps; step++) {
        struct kept *k = &kept[step % N_KEPT], next;
        struct prefix_match match;
        struct qn_error e = {0};
        draw_sequence(seed, (uint64_t)step, n_kept, &next);
        int longest = 0;
        for (int i = 0; i < n_kept; i++)
            if (kept[i].key == next.key) {
                int n = n_common(kept[i].tokens, next.tokens, next.n < kept[i].n ? next.n : kept[i].n);
                if (n > longest) longest = n;
            }
        struct kv_seq *m = &running[step % 3];
        kv_seq_deinit(m);
        sequence_open(&w, m);
        prefix_find(w.tree, next.key, next.tokens, next.n, m, &match);
        check_numbers(m, next.tokens);
        if (enough && n_kept == step) assert_int_equal(match.n_stored, longest);
        assert_true(n_snapshots ? match.n_slots <= match.n_stored : match.n_slots == match.n_stored);
        n_hit += match.n_slots > 0;
        assert_true(match.n_slots == next.n ? match.miss == PREFIX_ALL : match.miss != PREFIX_ALL);
        if (compute(&w, m, next.tokens, next.n)) {
            if (prefix_insert(w.tree, next.key, next.tokens, next.n, m, &e)) fail_msg("%s", e.msg);
            prefix_peek(w.tree, next.key, next.tokens, next.n, &match);
            if (enough) assert_int_equal(match.n_stored, next.n);
            if (n_snapshots && next.n) {
                assert_int_equal(prefix_snapshot(w.tree, next.key, next.tokens, next.n, m->state, step % 3 == 0, &e),
                                 0);
                prefix_peek(w.tree, next.key, next.tokens, next.n, &match);
                assert_int_equal(match.n_slots, next.n);
            }
        }
        if (!enough && rng_u64(seed, 1, (uint64_t)step) % 8 == 0) prefix_evict(w.tree, step % 5, false);
        *k = next;
        if (n_kept < N_KEPT) n_kept++;
        int held = 0; /* pages that running sequences hold and the tree does not */
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < running[i].n_pages; j++) {
                const struct prefix_node *x = prefix_next_leaf(w.tree, NULL);
                int seen = 0;
                while (x && x->newer) x = x->newer;
                for (; x && !seen; x = x->older) seen = x->page == running[i].pages[j];
                for (int a = 0; a < i && !seen; a++)
                    for (int b = 0; b < running[a].n_pages && !seen; b++)
                        seen = running[a].pages[b] == running[i].pages[j];
                held += !seen;
            }
        check_tree(&w, held);
    }
    if (!enough) assert_true(stats_of(&w).n_evicted > 100);
    assert_true(n_hit > n_steps / 20); /* or it was no test */
    for (int i = 0; i < 3; i++) kv_seq_deinit(&running[i]);
    world_close(&w);
}

static void matches_a_list_of_sequences(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) random_history(2000, seed % 2 ? 100 : 0, N_KEPT, seed);
}

static void stays_true_while_pages_are_evicted(void **state)
{
    (void)state;
    random_history(70, 0, 1500, 1);
    random_history(90, 0, 1500, 2);
    random_history(90, 100, 1500, 3);
    random_history(90, 7, 1500, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_stored_is_found),
        cmocka_unit_test(the_same_words_of_another_owner_share_nothing),
        cmocka_unit_test(a_miss_tells_why),
        cmocka_unit_test(peeking_changes_nothing),
        cmocka_unit_test(a_conversation_is_one_chain),
        cmocka_unit_test(branches_share_their_beginning),
        cmocka_unit_test(a_shorter_request_changes_nothing),
        cmocka_unit_test(a_sequence_that_goes_on_does_not_write_into_the_tree),
        cmocka_unit_test(the_least_recently_used_goes_first_and_from_its_end),
        cmocka_unit_test(what_a_sequence_uses_is_kept),
        cmocka_unit_test(a_page_above_one_in_use_can_go_and_come_back),
        cmocka_unit_test(an_empty_parent_goes_with_its_last_child),
        cmocka_unit_test(a_lookup_ends_at_a_snapshot),
        cmocka_unit_test(a_snapshot_is_for_all_who_begin_alike),
        cmocka_unit_test(snapshots_make_room_for_new_ones),
        cmocka_unit_test(a_snapshot_that_fails_changes_nothing),
        cmocka_unit_test(an_insertion_that_fails_changes_nothing),
        cmocka_unit_test(lookups_and_eviction_allocate_nothing),
        cmocka_unit_test(matches_a_list_of_sequences),
        cmocka_unit_test(stays_true_while_pages_are_evicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
