/* SPDX-License-Identifier: MIT
 *
 * test_window_pages.c: window pages in sequences, in the tree of prefixes, and on disk.
 *
 * As in prefix_world.h, a simulated engine "computes" for each slot a number that depends on all tokens up to it, in
 * the page and in the window page. Whenever a sequence could go on, all numbers that its next row would see are
 * checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store_home.h"

#define WINDOW   40 /* 2.5 pages */
#define ROWS     32 /* of a pass */
#define N_CUTS   3
#define N_TOKENS 300

static const struct kv_shape shape = {KV_F32, 1, 1, 2, 2, PAGE, 0, 1, WINDOW};

struct daemon {
    struct ledger ledger;
    struct kv_pool *pool;
    struct prefix *tree;
    struct store *store; /* NULL: none */
    int n_pages, n_windows;
};

static void start(struct daemon *d, int n_pages, int n_windows, bool has_disk)
{
    struct qn_error e = {0};
    *d = (struct daemon){.n_pages = n_pages, .n_windows = n_windows};
    ledger_init(&d->ledger, (size_t)1 << 40);
    assert_int_equal(kv_pool_new(&d->pool, &shape, n_pages * PAGE, 0, n_windows, &d->ledger, &e), 0);
    assert_int_equal(prefix_new(&d->tree, d->pool, 0, &d->ledger, &e), 0);
    if (has_disk && open_store(&d->store, ROOMY, d->tree, this_model, &e)) fail_msg("%s", e.msg);
}

static void end(struct daemon *d)
{
    struct qn_error e;
    while (d->store && save_one(d->store, &e) > 0) {
    }
    store_close(d->store);
    prefix_free(d->tree);
    assert_int_equal(kv_pool_n_free(d->pool), d->n_pages);
    assert_int_equal(kv_pool_n_free_windows(d->pool), d->n_windows);
    kv_pool_free(d->pool);
    assert_int_equal(ledger_used(&d->ledger), 0);
}

static uint64_t *window_number(const struct kv_seq *m, int s)
{
    return (uint64_t *)m->windows[s / PAGE] + 16 + s % PAGE;
}

/* Everything that the row after m's slots sees. */
static void check_seen(const struct kv_seq *m, const qn_token *tokens)
{
    int n = m->n_slots, first = n + 1 > WINDOW ? n + 1 - WINDOW : 0;
    for (int s = 0; s < n; s++)
        if (*slot_number(m, s) != number_of(tokens, s)) fail_msg("slot %d of %d is another's", s, n);
    for (int s = first; s < n; s++)
        if (!m->windows[s / PAGE] || *window_number(m, s) != number_of(tokens, s))
            fail_msg("slot %d of %d is another's in the window", s, n);
}

static void reserve(const struct daemon *d, struct kv_seq *m, int n)
{
    while (kv_seq_reserve(m, n, NULL)) assert_true(prefix_evict(d->tree, 1, false) > 0);
}

static void open_slots(const struct daemon *d, struct kv_seq *m, int from, int to)
{
    while (kv_seq_open(m, from, to, NULL)) assert_true(prefix_evict_windows(d->tree, 1) > 0);
}

/* Computes the tokens after m's slots, up to n, in passes. */
static void compute_to(const struct daemon *d, struct kv_seq *m, const qn_token *tokens, int n)
{
    reserve(d, m, n);
    while (m->n_slots < n) {
        int from = m->n_slots, to = n - from < ROWS ? n : from + ROWS;
        check_seen(m, tokens);
        open_slots(d, m, from, to);
        for (int s = from; s < to; s++) *slot_number(m, s) = *window_number(m, s) = number_of(tokens, s);
        kv_seq_extend(m, to);
        assert_true(kv_seq_n_windows(m) <= kv_window_pages(&shape) + m->n_pins * kv_window_pages(&shape));
    }
    check_seen(m, tokens);
}

static void init(const struct daemon *d, struct kv_seq *m)
{
    assert_int_equal(kv_seq_init(m, d->pool, MAX_SEQ, NULL), 0);
}

/* Reads what is on disk. Returns false if the sequence has to begin again without the disk. */
static bool read_disk(const struct daemon *d, const qn_token *tokens, const struct prefix_match *match,
                      struct kv_seq *m)
{
    int n_pages = 0, n = match->n_slots, from = kv_window_first(&shape, n) * PAGE;
    uint8_t *state;
    enum prefix_miss why = PREFIX_ALL;
    reserve(d, m, n);
    open_slots(d, m, from > m->n_slots ? from : m->n_slots, n);
    struct store_read *r = store_read(d->store, &key_a, tokens, n, m, NULL);
    if (!r) return false;
    assert_true(store_read_end(d->store, r, true, &n_pages, &state, &why));
    if (why != PREFIX_ALL || m->n_slots + n_pages * PAGE < n) return false;
    kv_seq_extend(m, n);
    return true;
}

/* Attaches the longest stored beginning of the n tokens; returns its slots. */
static int find_begin(const struct daemon *d, const qn_token *tokens, int n, struct kv_seq *m)
{
    struct prefix_match match;
    init(d, m);
    prefix_find(d->tree, &key_a, tokens, n, m, &match);
    if (prefix_is_on_disk(&match) && !read_disk(d, tokens, &match, m)) {
        kv_seq_deinit(m);
        init(d, m);
        prefix_find_here(d->tree, &key_a, tokens, n, m, &match);
        assert_int_equal(match.n_placed, 0);
    }
    assert_int_equal(m->n_slots, match.n_slots);
    assert_true(match.n_slots == match.n_stored || match.miss == PREFIX_WINDOW);
    check_seen(m, tokens);
    return m->n_slots;
}

static void keep(const struct daemon *d, const qn_token *tokens, int n, const struct kv_seq *m, bool is_passing)
{
    int rc = (is_passing ? prefix_insert_passing : prefix_insert)(d->tree, &key_a, tokens, n, m, NULL);
    assert_int_equal(rc, 0);
}

/* A request with cuts, at which whole pages are kept. Returns what was found of it. */
static int ask(const struct daemon *d, const qn_token *tokens, int n, const int cuts[N_CUTS])
{
    struct kv_seq m;
    int n_found = find_begin(d, tokens, n - 1, &m);
    for (int i = 0; i < N_CUTS; i++) {
        if (cuts[i] <= m.n_slots || cuts[i] >= n) continue;
        compute_to(d, &m, tokens, cuts[i]);
        keep(d, tokens, cuts[i] / PAGE * PAGE, &m, i == 1);
    }
    compute_to(d, &m, tokens, n);
    keep(d, tokens, n, &m, false);
    kv_seq_deinit(&m);
    return n_found;
}

static const int no_cuts[N_CUTS];

/* ---- sequences ---- */

static void a_long_sequence_holds_its_window_only(void **state)
{
    (void)state;
    struct daemon d;
    struct kv_seq m;
    start(&d, 20, kv_window_pages(&shape) + ROWS / PAGE, false);
    init(&d, &m);
    for (int n = 1; n <= N_TOKENS; n++) {
        reserve(&d, &m, n);
        assert_true(n % PAGE == 1 || kv_seq_is_open(&m));
        compute_to(&d, &m, t, n);
    }
    assert_int_equal(kv_seq_whole(&m, N_TOKENS), N_TOKENS);
    assert_int_equal(kv_seq_whole(&m, N_TOKENS - PAGE), N_TOKENS - PAGE); /* the spare page */
    assert_int_equal(kv_seq_whole(&m, N_TOKENS / 2), 0);
    kv_seq_truncate(&m, N_TOKENS - PAGE);
    compute_to(&d, &m, t, N_TOKENS);
    kv_seq_deinit(&m);
    end(&d);
}

static void the_last_of_two_forks_frees_a_window_page(void **state)
{
    (void)state;
    struct daemon d;
    struct kv_seq m, f;
    qn_token other[N_TOKENS];
    start(&d, 60, 20, false);
    init(&d, &m);
    init(&d, &f);
    compute_to(&d, &m, t, 100);
    int held = kv_seq_n_windows(&m);
    kv_seq_fork(&f, &m);
    assert_int_equal(kv_pool_n_free_windows(d.pool), 20 - held); /* they share all */
    memcpy(other, t, sizeof other);
    for (int i = 100; i < N_TOKENS; i++) other[i] = 7;
    assert_false(kv_seq_is_open(&f)); /* it goes on in a shared page */
    compute_to(&d, &f, other, N_TOKENS);
    check_seen(&m, t);
    assert_int_equal(kv_pool_n_free_windows(d.pool), 20 - held - kv_seq_n_windows(&f));
    compute_to(&d, &m, t, N_TOKENS);
    check_seen(&f, other);
    assert_int_equal(kv_pool_n_free_windows(d.pool), 20 - kv_seq_n_windows(&m) - kv_seq_n_windows(&f));
    kv_seq_deinit(&m);
    kv_seq_deinit(&f);
    end(&d);
}

static void a_pin_is_a_place_to_go_back_to(void **state)
{
    (void)state;
    struct daemon d;
    struct kv_seq m;
    start(&d, 20, 20, false);
    init(&d, &m);
    compute_to(&d, &m, t, 100);
    kv_seq_pin(&m, 1);
    compute_to(&d, &m, t, 250);
    assert_int_equal(kv_seq_whole(&m, 150), 7 * PAGE); /* the pin's last page is full now */
    assert_int_equal(kv_seq_whole(&m, 100), 100);
    kv_seq_truncate(&m, 100);
    compute_to(&d, &m, t, 250);
    kv_seq_pin(&m, 1); /* the only one: the older pin gives way */
    assert_int_equal(kv_seq_whole(&m, 150), 0);
    compute_to(&d, &m, t, N_TOKENS);
    assert_int_equal(kv_seq_whole(&m, 250), 250);
    /* The pool's last pages: the pin gives way to the next rows. */
    struct kv_seq hog;
    init(&d, &hog);
    reserve(&d, &hog, 16);
    int n_free = kv_pool_n_free_windows(d.pool);
    assert_int_equal(kv_seq_open(&hog, 0, PAGE, NULL), 0);
    assert_int_equal(kv_pool_n_free_windows(d.pool), n_free - 1);
    kv_seq_deinit(&hog);
    kv_seq_deinit(&m);
    end(&d);
}

static void opening_without_free_pages_is_an_error_that_changes_nothing(void **state)
{
    (void)state;
    struct daemon d;
    struct kv_seq m;
    struct qn_error e;
    start(&d, 20, 3, false);
    init(&d, &m);
    reserve(&d, &m, 64);
    assert_int_equal(kv_seq_open(&m, 0, 64, &e), QN_ENOMEM);
    assert_string_equal(e.msg, "kv: 4 more window pages of 16 tokens needed, 3 of 3 free");
    assert_int_equal(kv_seq_n_windows(&m), 0);
    compute_to(&d, &m, t, 32);
    kv_seq_pin(&m, KV_PINS);
    assert_int_equal(kv_seq_open(&m, 32, 64, NULL), QN_ENOMEM); /* the pin's pages are those that are needed */
    assert_int_equal(kv_seq_n_windows(&m), 2);
    kv_seq_deinit(&m);
    end(&d);
}

/* ---- the tree ---- */

static void a_lookup_ends_at_a_cut(void **state)
{
    (void)state;
    struct daemon d;
    const int cuts[N_CUTS] = {100, 0, 0};
    start(&d, 60, 30, false);
    assert_int_equal(ask(&d, t, N_TOKENS, cuts), 0);
    assert_int_equal(ask(&d, t, 200, no_cuts), 96); /* the whole pages before the cut */
    assert_int_equal(ask(&d, t, 200, no_cuts),
                     192); /* the whole pages of the one before: the next page is a longer one's */
    assert_int_equal(ask(&d, t, 120, no_cuts), 96);
    assert_int_equal(ask(&d, t, 90, no_cuts), 89); /* the window before the cut reaches that far */
    assert_int_equal(ask(&d, t, 50, no_cuts), 0);
    assert_int_equal(ask(&d, t, N_TOKENS, no_cuts), N_TOKENS - 1);
    end(&d);
}

static void a_prompt_within_the_window_is_found_as_far_as_it_is_equal(void **state)
{
    (void)state;
    struct daemon d;
    start(&d, 60, 30, false);
    assert_int_equal(ask(&d, t, WINDOW, no_cuts), 0);
    for (int n = WINDOW; n > 1; n--) assert_int_equal(ask(&d, t, n, no_cuts), n - 1);
    end(&d);
}

static int peek(const struct daemon *d, int n)
{
    struct prefix_match match;
    prefix_peek(d->tree, &key_a, t, n, &match);
    return match.n_slots;
}

/* What was kept on the way goes first, and then what was used longest ago. */
static void windows_are_evicted_without_their_pages(void **state)
{
    (void)state;
    struct daemon d;
    struct prefix_stats s;
    const int cuts[N_CUTS] = {70, 150, 0}; /* the second one is on the way */
    start(&d, 60, 40, false);
    ask(&d, t, 250, cuts);
    assert_int_equal(peek(&d, 160), 144);
    assert_int_equal(prefix_evict_windows(d.tree, 1), 1);
    assert_int_equal(peek(&d, 160), 128); /* the spare page before it */
    assert_int_equal(prefix_evict_windows(d.tree, 3), 3);
    assert_int_equal(peek(&d, 160), 64);
    assert_int_equal(peek(&d, 250), 250);
    ask(&d, t, 70, no_cuts); /* a use: the end goes before it */
    assert_int_equal(prefix_evict_windows(d.tree, 1), 1);
    assert_true(peek(&d, 250) < 250);
    assert_int_equal(peek(&d, 80), 64);
    int n_left = prefix_n_evictable_windows(d.tree, 100);
    assert_int_equal(prefix_evict_windows(d.tree, 100), n_left);
    assert_int_equal(peek(&d, 250), 0);
    prefix_stats(d.tree, &s);
    assert_int_equal(s.n_pages, 16);
    assert_int_equal(s.n_windows, 0);
    end(&d);
}

/* ---- everything ---- */

/* Sequences with common beginnings, cuts and ends anywhere, pages and window pages that are too few, and restarts. */
static void random_requests(void **state)
{
    (void)state;
    int64_t n_asked = 0, n_found = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct daemon d;
        bool has_disk = seed % 2;
        empty_dir(NULL);
        start(&d, 40 + (int)seed, 9 + (int)seed, has_disk);
        for (uint64_t i = 0; i < 150; i++) {
            struct qn_error e;
            qn_token tokens[N_TOKENS];
            uint64_t dice = rng_u64(11, seed, i);
            int n = 2 + (int)(dice % (N_TOKENS - 2)), cuts[N_CUTS];
            int branch = (int)(dice >> 10) % N_TOKENS, kind = (int)(dice >> 20 & 3);
            for (int k = 0; k < N_TOKENS; k++) tokens[k] = k < branch ? k : 1000 * kind + k;
            for (int k = 0; k < N_CUTS; k++) cuts[k] = (k + 1) * n / (N_CUTS + 1);
            n_asked += n;
            n_found += ask(&d, tokens, n, cuts);
            if (has_disk && (dice >> 24 & 3) == 0)
                while (save_one(d.store, &e) > 0) {
                }
            if (has_disk && (dice >> 26 & 31) == 0) {
                end(&d);
                start(&d, 40 + (int)seed, 9 + (int)seed, true);
            }
        }
        end(&d);
    }
    print_message("%lld of %lld tokens were found\n", (long long)n_found, (long long)n_asked);
    assert_true(n_found > n_asked / 8);
}

static void windows_come_back_from_disk(void **state)
{
    (void)state;
    struct daemon d;
    const int cuts[N_CUTS] = {100, 0, 0};
    start(&d, 60, 30, true);
    ask(&d, t, 250, cuts);
    end(&d);
    start(&d, 60, 30, true);
    assert_int_equal(ask(&d, t, 150, no_cuts), 96);
    assert_int_equal(ask(&d, t, N_TOKENS, no_cuts), 250);
    end(&d);
    start(&d, 60, 30, true); /* the branch's last page and the longer end are on disk, too */
    assert_int_equal(ask(&d, t, N_TOKENS + 1, no_cuts), N_TOKENS);
    end(&d);
    assert_int_equal(n_logged, 0);
}

/* The window at the end is read ahead if there is memory for all of it; what was read is checked number by number. */
static void windows_are_read_ahead(void **state)
{
    (void)state;
    struct daemon d;
    struct prefix_match match;
    start(&d, 60, 30, true);
    ask(&d, t, 250, no_cuts);
    end(&d);
    for (int n_windows = 30; n_windows >= 2; n_windows -= 28) {
        struct prefix_stats s;
        start(&d, 60, n_windows, true);
        while (store_read_ahead(d.store)) usleep(1000);
        prefix_stats(d.tree, &s);
        assert_int_equal(s.n_pages, 16);
        assert_int_equal(s.n_windows, n_windows == 2 ? 0 : 3);
        prefix_peek(d.tree, &key_a, t, N_TOKENS, &match);
        assert_int_equal(match.n_slots, 250);
        assert_int_equal(prefix_is_on_disk(&match), n_windows == 2);
        if (n_windows > 2) assert_int_equal(ask(&d, t, N_TOKENS, no_cuts), 250);
        end(&d);
        empty_dir(NULL);
        start(&d, 60, 30, true);
        ask(&d, t, 250, no_cuts);
        end(&d);
    }
    assert_int_equal(n_logged, 0);
}

/* A file whose window page is damaged is dropped, and the sequence begins again. */
static void a_damaged_window_page_is_found(void **state)
{
    (void)state;
    struct daemon d;
    start(&d, 60, 30, true);
    ask(&d, t, 250, no_cuts);
    end(&d);
    assert_int_equal(each_file(remember_path), 1);
    FILE *f = fopen(found_path, "r+b");
    assert_non_null(f);
    fseek(f, -200, SEEK_END); /* in the window page of the next to last page, or of the last */
    fputc(0x55, f);
    fclose(f);
    start(&d, 60, 30, true);
    assert_int_equal(ask(&d, t, 250, no_cuts), 0);
    assert_non_null(strstr(last_log, "the checksum of part"));
    end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_sequence_holds_its_window_only),
        cmocka_unit_test(the_last_of_two_forks_frees_a_window_page),
        cmocka_unit_test(a_pin_is_a_place_to_go_back_to),
        cmocka_unit_test(opening_without_free_pages_is_an_error_that_changes_nothing),
        cmocka_unit_test(a_lookup_ends_at_a_cut),
        cmocka_unit_test(a_prompt_within_the_window_is_found_as_far_as_it_is_equal),
        cmocka_unit_test(windows_are_evicted_without_their_pages),
        cmocka_unit_test_setup(windows_come_back_from_disk, empty_dir),
        cmocka_unit_test_setup(windows_are_read_ahead, empty_dir),
        cmocka_unit_test_setup(a_damaged_window_page_is_found, empty_dir),
        cmocka_unit_test_setup(random_requests, empty_dir),
    };
    count_up(t, MAX_SEQ, 0);
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
