/* SPDX-License-Identifier: MIT
 *
 * test_store.c: the prefix cache on disk: what is found after a restart, the files that a turn writes, their expiry,
 * and copies of recurrent states. Damage and strangers are in test_store_damage.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "store_home.h"

static qn_token u[MAX_SEQ];

/* ---- coming back ---- */

static void a_conversation_comes_back(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct stat st;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    for (int turn = 1; turn <= 5; turn++) {
        uint64_t before = disk_of(&h).bytes;
        request(&h.w, &key_a, t, 40 * turn);
        assert_int_equal(save_all(&h), 1);
        assert_int_equal(save_all(&h), 0);
        assert_true(disk_of(&h).bytes - before <= 4096 + 4 * kv_page_bytes(&world_shape)); /* only what is new */
    }
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(each_file(remember_path), 5);
    assert_int_equal(stat(found_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    home_close(&h);

    home_open(&h, 30, ROOMY);
    assert_int_equal(stats_of(&h.w).n_pages, 0); /* nothing is read before it is asked for */
    prefix_peek(h.w.tree, &key_a, t, 200, &match);
    assert_int_equal(match.n_slots, 200);
    assert_int_equal(match.n_placed, 13);
    assert_int_equal(find(&h.w, &key_b, t, 200, &match), 0);
    assert_int_equal(find(&h.w, &key_a, t, 100, &match), 100);
    assert_int_equal(match.n_placed, 7);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 200);
    assert_int_equal(match.n_placed, 7);
    check_tree(&h.w, 0);
    assert_int_equal(request(&h.w, &key_a, t, 200), 200);
    assert_int_equal(save_all(&h), 0); /* it is there already */
    assert_int_equal(prefix_evict(h.w.tree, 100, false), 13);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 200); /* and once more from disk */
    assert_int_equal(n_logged, 0);
    home_close(&h);
}

/* Reads ahead until nothing more fits. Returns the number of pages in the pool then. */
static int read_all_ahead(struct home *h)
{
    while (store_read_ahead(h->store)) usleep(1000);
    check_tree(&h->w, 0);
    return stats_of(&h->w).n_pages;
}

static void it_is_read_ahead(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    count_up(u, 200, 1000);
    request(&h.w, &key_a, t, 200);
    request(&h.w, &key_b, u, 100);
    save_all(&h);
    home_close(&h);

    home_open(&h, 30, ROOMY);
    assert_int_equal(read_all_ahead(&h), 13 + 7);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 200);
    assert_int_equal(match.n_placed, 0);
    assert_int_equal(request(&h.w, &key_b, u, 100), 100); /* compares the pages' bytes */
    assert_int_equal(save_all(&h), 0);
    assert_int_equal(read_all_ahead(&h), 13 + 7);
    home_close(&h);

    home_open(&h, 10, ROOMY); /* the one that was used last fits, the other does not */
    assert_int_equal(read_all_ahead(&h), 7);
    assert_int_equal(find(&h.w, &key_b, u, 100, &match), 100);
    assert_int_equal(match.n_placed, 0);
    assert_int_equal(request(&h.w, &key_a, t, 160), 160); /* what was read ahead gives way */
    assert_int_equal(n_logged, 0);
    home_close(&h);
}

/* The tree changes while it is read: pages are computed again, or dropped, or their file is damaged. */
static void the_tree_may_change_while_it_is_read_ahead(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 200);
    save_all(&h);
    home_close(&h);

    home_open(&h, 30, ROOMY);
    assert_true(store_read_ahead(h.store));
    request(&h.w, &key_a, t, 200);
    assert_int_equal(read_all_ahead(&h), 13);
    home_close(&h);

    home_open(&h, 30, ROOMY);
    assert_true(store_read_ahead(h.store));
    home_close(&h);

    home_open(&h, 30, ROOMY);
    assert_true(store_read_ahead(h.store));
    prefix_drop(h.w.tree, prefix_next_leaf(h.w.tree, NULL));
    store_sweep(h.store);
    assert_int_equal(read_all_ahead(&h), 0);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 0);
    assert_int_equal(n_logged, 0);
    home_close(&h);
}

static void superseded_files_go(void **state)
{
    (void)state;
    struct home h;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    for (int n = 1; n <= 16; n++) {
        request(&h.w, &key_a, t, n);
        assert_int_equal(save_all(&h), 1);
        assert_int_equal(each_file(NULL), 1);
        assert_int_equal(disk_of(&h).n_files, 1);
    }
    home_close(&h);
}

/* A file that is left because the process died before it removed it. */
static void superseded_files_go_at_the_start(void **state)
{
    (void)state;
    struct home h;
    char copy[600], command[1300];
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 10);
    save_all(&h);
    each_file(remember_path);
    snprintf(copy, sizeof copy, "%s/0123456789abcdef.kv", dir);
    snprintf(command, sizeof command, "cp '%s' '%s'", found_path, copy);
    assert_int_equal(system(command), 0);
    request(&h.w, &key_a, t, 30);
    save_all(&h);
    assert_int_equal(each_file(NULL), 2);
    home_close(&h);
    home_open(&h, 30, ROOMY);
    assert_int_equal(each_file(NULL), 1);
    assert_int_equal(request(&h.w, &key_a, t, 30), 30);
    assert_int_equal(n_logged, 0);
    home_close(&h);
}

static void branches_are_stored_once(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 40, ROOMY);
    count_up(t, 200, 0);
    count_up(u, 200, 0);
    for (int i = 150; i < 200; i++) u[i] = -i;
    request(&h.w, &key_a, t, 200);
    request(&h.w, &key_a, u, 200);
    assert_int_equal(save_all(&h), 2);
    struct prefix_stats s = stats_of(&h.w);
    assert_int_equal(s.n_placed, s.n_pages);
    home_close(&h);
    home_open(&h, 40, ROOMY);
    assert_int_equal(n_leaves(&h.w), 2);
    assert_int_equal(stats_of(&h.w).n_placed, s.n_placed);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 200);
    assert_int_equal(find(&h.w, &key_a, u, 200, &match), 200);
    home_close(&h);
}

/* A recycled page holds another sequence's data. After the last token, none of it is written. */
static void what_others_left_is_not_written(void **state)
{
    (void)state;
    struct home h;
    uint8_t page[256], zeros[256] = {0};
    home_open(&h, 4, ROOMY);
    count_up(u, 64, 5000);
    request(&h.w, &key_b, u, 64);
    for (const struct prefix_node *leaf = prefix_next_leaf(h.w.tree, NULL); leaf->parent; leaf = leaf->parent)
        memset(leaf->page, 0xaa, 128); /* its keys */
    prefix_evict(h.w.tree, 4, false);
    count_up(t, 20, 0);
    request(&h.w, &key_a, t, 20);
    assert_int_equal(save_all(&h), 1);
    each_file(remember_path);
    int fd = open(found_path, O_RDONLY);
    assert_int_equal(pread(fd, page, sizeof page, 4096 + 256), sizeof page);
    close(fd);
    for (int dim = 0; dim < 2; dim++) { /* [dim][16] floats */
        assert_int_equal(page[64 * dim + 15], 0xaa);
        assert_memory_equal(page + 64 * dim + 16, zeros, 48);
    }
    assert_memory_equal(page + 128 + 8 * 4, zeros, 8 * 12);
    prefix_evict(h.w.tree, 4, false);
    struct prefix_match match;
    assert_int_equal(find(&h.w, &key_a, t, 20, &match), 20);
    home_close(&h);
}

/* ---- while a file is being written ---- */

static void the_tree_may_change_meanwhile(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct qn_error e;
    static const int n_found[] = {20, 40, 20, 0};
    for (int what = 0; what < 4; what++) {
        int n = n_found[what];
        empty_dir(NULL);
        home_open(&h, 30, ROOMY);
        count_up(t, 200, 0);
        request(&h.w, &key_a, t, 20);
        assert_int_equal(store_save(h.store, &e), 1);
        assert_true(store_is_saving(h.store) && store_holds_pages(h.store));
        if (what == 1) request(&h.w, &key_a, t, 40);      /* longer: its second page is another now */
        if (what == 2) prefix_evict(h.w.tree, 30, false); /* keeps what is being written */
        if (what == 3) {
            prefix_drop(h.w.tree, prefix_next_leaf(h.w.tree, NULL));
            store_sweep(h.store);
        }
        assert_int_equal(store_settle(h.store, true, &e), 1);
        assert_int_equal(store_settle(h.store, true, &e), 0);
        assert_false(store_is_saving(h.store) || store_holds_pages(h.store));
        check_tree(&h.w, 0);
        assert_int_equal(each_file(NULL), what < 3);
        assert_int_equal(save_all(&h), what == 1);
        assert_int_equal(prefix_evict(h.w.tree, 30, true), (n + PAGE - 1) / PAGE);
        assert_int_equal(find(&h.w, &key_a, t, 200, &match), n);
        home_close(&h);
        home_open(&h, 30, ROOMY);
        assert_int_equal(find(&h.w, &key_a, t, 200, &match), n);
        home_close(&h);
    }
}

static void failing_to_write_leaves_the_tree_as_it_is_now(void **state)
{
    (void)state;
    struct home h;
    struct qn_error e;
    struct rlimit was, small;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 20);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    small = (struct rlimit){100, was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(store_save(h.store, &e), 1);
    request(&h.w, &key_a, t, 40);
    assert_int_equal(store_settle(h.store, true, &e), QN_EIO);
    setrlimit(RLIMIT_FSIZE, &was);
    check_tree(&h.w, 0);
    assert_int_equal(stats_of(&h.w).n_placed, 0);
    assert_int_equal(each_file(NULL), 0);
    assert_int_equal(save_all(&h), 1);
    home_close(&h);
}

/* Pages enter the tree only after they were read. A read may be given up, and its nodes may leave the tree, at any
 * time.
 */
static void reading_may_be_given_up(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct kv_seq m;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 200);
    save_all(&h);
    prefix_evict(h.w.tree, 30, false);
    for (int what = 0; what < 3; what++) {
        sequence_open(&h.w, &m);
        prefix_find(h.w.tree, &key_a, t, 200, &m, &match);
        assert_int_equal(match.n_placed, 13);
        assert_int_equal(kv_seq_reserve(&m, 200, NULL), 0);
        uint8_t *no_state;
        struct store_read *r = store_read(h.store, &key_a, t, 200, &m, NULL);
        assert_non_null(r);
        if (what < 2) {
            store_read_cancel(h.store, r);
            if (what == 0) kv_seq_deinit(&m); /* the thread may still write into the pages */
            while (store_holds_pages(h.store)) {
            }
        } else {
            int n_pages;
            enum prefix_miss miss;
            prefix_drop(h.w.tree, prefix_next_leaf(h.w.tree, NULL));
            store_sweep(h.store);
            assert_int_equal(each_file(NULL), 0);
            assert_true(
                store_read_end(h.store, r, true, &n_pages, &no_state, &miss)); /* all, or none if it came too late */
            kv_seq_extend(&m, n_pages * PAGE < 200 ? n_pages * PAGE : 200);
            check_numbers(&m, t);
        }
        if (what) kv_seq_deinit(&m);
        check_tree(&h.w, 0);
    }
    assert_int_equal(n_logged, 0);
    home_close(&h);
}

/* A file that several chains use keeps nothing of a dropped chain. */
static void what_is_dropped_is_in_no_file(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 40, ROOMY);
    count_up(t, 200, 0);
    count_up(u, 200, 0);
    for (int i = 150; i < 200; i++) u[i] = -i;
    request(&h.w, &key_a, t, 200);
    assert_int_equal(save_all(&h), 1);
    request(&h.w, &key_a, u, 200);
    assert_int_equal(save_all(&h), 1);
    struct prefix_node *leaf = prefix_next_leaf(h.w.tree, NULL);
    leaf = prefix_next_leaf(h.w.tree, leaf); /* t's, in whose file the common pages are */
    prefix_drop(h.w.tree, leaf);
    store_sweep(h.store);
    check_tree(&h.w, 0);
    assert_int_equal(each_file(NULL), 1);
    assert_int_equal(find(&h.w, &key_a, u, 200, &match), 200);
    assert_int_equal(save_all(&h), 1);
    home_close(&h);
    home_open(&h, 40, ROOMY);
    assert_int_equal(find(&h.w, &key_a, u, 200, &match), 200);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 150);
    home_close(&h);
}

/* ---- the budget ---- */

static void the_least_recently_used_expires(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    uint64_t one = 4096 + 3 * kv_page_bytes(&world_shape); /* a file of three pages */
    home_open(&h, 100, 4 * one);
    for (int i = 0; i < 6; i++) {
        count_up(t, 48, 1000 * i);
        request(&h.w, &key_a, t, 48);
        assert_int_equal(save_all(&h), 1); /* and nothing goes round in circles */
        assert_true(disk_of(&h).bytes <= 4 * one);
    }
    assert_int_equal(disk_of(&h).n_expired, 2);
    home_close(&h);
    home_open(&h, 100, 4 * one); /* the order outlives the process: 2 is the oldest, unless it is used */
    count_up(t, 48, 2000);
    assert_int_equal(find(&h.w, &key_a, t, 48, &match), 48);
    home_close(&h);
    home_open(&h, 100, 2 * one);
    assert_int_equal(disk_of(&h).n_files, 2);
    for (int i = 0; i < 6; i++) {
        count_up(t, 48, 1000 * i);
        assert_int_equal(find(&h.w, &key_a, t, 48, &match), i == 2 || i == 5 ? 48 : 0);
    }
    check_tree(&h.w, 0);
    home_close(&h);
}

static void what_is_larger_than_the_budget_is_cut(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 100, 4096 + 5 * kv_page_bytes(&world_shape));
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 200);
    assert_int_equal(save_all(&h), 1);
    home_close(&h);
    home_open(&h, 100, ROOMY);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 80);
    home_close(&h);
}

/* If the pages before are gone, the pages after them can be used once those are computed again. */
static void the_middle_can_be_missing(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    char middle[600];
    home_open(&h, 100, ROOMY);
    count_up(t, 96, 0);
    request(&h.w, &key_a, t, 32);
    save_all(&h);
    each_file(remember_path);
    snprintf(middle, sizeof middle, "%s", found_path);
    request(&h.w, &key_a, t, 96);
    save_all(&h);
    home_close(&h);
    assert_int_equal(unlink(middle), 0);
    home_open(&h, 100, ROOMY);
    assert_int_equal(find(&h.w, &key_a, t, 96, &match), 0);
    assert_int_equal(match.miss, PREFIX_EVICTED);
    request(&h.w, &key_a, t, 32);
    assert_int_equal(find(&h.w, &key_a, t, 96, &match), 96);
    assert_int_equal(match.n_placed, 4);
    assert_int_equal(save_all(&h), 1); /* the missing part only */
    home_close(&h);
}

/* The pages after the missing part were not used since the start, but they are not deleted for the pages before it. */
static void a_chain_makes_no_room_in_itself(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 100, ROOMY);
    count_up(t, 96, 0);
    request(&h.w, &key_a, t, 32);
    save_all(&h);
    each_file(remember_path);
    request(&h.w, &key_a, t, 96);
    save_all(&h);
    uint64_t both = disk_of(&h).bytes;
    home_close(&h);
    assert_int_equal(unlink(found_path), 0);
    home_open(&h, 100, both - 1);
    request(&h.w, &key_a, t, 32);
    assert_int_equal(save_all(&h), 1); /* one of the two pages fits */
    assert_int_equal(disk_of(&h).n_expired, 0);
    assert_int_equal(find(&h.w, &key_a, t, 96, &match), 96);
    check_tree(&h.w, 0);
    home_close(&h);
}

/* ---- states ---- */

/* Tells pages from states by their length. */
static char state_paths[10][600];
static int n_state_paths;
static void remember_states(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    if ((st.st_size - STATE_BYTES) % 256 == 0)
        snprintf(state_paths[n_state_paths++], sizeof *state_paths, "%s", path);
    else
        remember_path(path);
}

static int find_states(void)
{
    n_state_paths = 0;
    each_file(remember_states);
    return n_state_paths;
}

static void a_state_comes_back_with_its_pages(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    count_up(t, MAX_SEQ, 0);
    memcpy(u, t, sizeof u);
    u[150] = -1;
    home_open_with(&h, 60, 10, ROOMY);
    assert_int_equal(request(&h.w, &key_a, t, 100), 0);
    assert_int_equal(request(&h.w, &key_a, t, 140), 100);
    assert_int_equal(save_all(&h), 3);
    assert_int_equal(find_states(), 2);
    check_tree(&h.w, 0);
    prefix_evict(h.w.tree, 60, false); /* the states' copies stay in memory */
    assert_int_equal(stats_of(&h.w).n_states, 2);
    assert_int_equal(find(&h.w, &key_a, t, 139, &match), 100);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 140);
    check_tree(&h.w, 0);
    home_close(&h);

    for (int turn = 0; turn < 2; turn++) {
        home_open_with(&h, 60, 10, ROOMY);
        assert_int_equal(stats_of(&h.w).n_states, 0);
        assert_int_equal(stats_of(&h.w).n_snapshots, 2);
        if (turn == 0) assert_int_equal(find(&h.w, &key_a, t, 139, &match), 100);
        assert_int_equal(request(&h.w, &key_a, u, 160), 140);
        assert_int_equal(stats_of(&h.w).n_states, turn == 0 ? 3 : 2);
        check_tree(&h.w, 0);
        home_close(&h);
    }
    assert_int_equal(n_logged, 0);
}

static void of_a_chain_few_states_are_on_disk(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    count_up(t, MAX_SEQ, 0);
    home_open_with(&h, 60, 20, ROOMY);
    for (int turn = 1; turn <= 8; turn++) {
        assert_int_equal(request(&h.w, &key_a, t, 41 * turn), 41 * (turn - 1));
        save_all(&h);
        assert_int_equal(find_states(), turn < 3 ? turn : 3);
        check_tree(&h.w, 0);
    }
    assert_int_equal(stats_of(&h.w).n_states, 8);
    home_close(&h);
    home_open_with(&h, 60, 20, ROOMY);
    static const int found[][2] = {{40, 0}, {41, 41}, {286, 41}, {287, 287}, {327, 287}, {328, 328}};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        assert_int_equal(find(&h.w, &key_a, t, found[i][0], &match), found[i][1]);
    check_tree(&h.w, 0);
    prefix_drop(h.w.tree, prefix_next_leaf(h.w.tree, NULL));
    store_sweep(h.store);
    assert_int_equal(each_file(NULL), 0);
    home_close(&h);
}

static void a_state_that_is_lost_costs_itself(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    count_up(t, MAX_SEQ, 0);
    for (int how = 0; how < 4; how++) {
        empty_dir(NULL);
        home_open_with(&h, 60, 10, ROOMY);
        request(&h.w, &key_a, t, 100);
        request(&h.w, &key_a, t, 140);
        save_all(&h);
        home_close(&h);
        assert_int_equal(find_states(), 2);
        for (int i = 0; i < 2 && how < 3; i++) { /* both, for the names do not tell which is the longer one */
            struct stat st;
            int fd = open(state_paths[i], O_RDWR);
            assert_int_equal(fstat(fd, &st), 0);
            if (how == 0) assert_int_equal(pwrite(fd, "x", 1, st.st_size - 1), 1);
            if (how == 1) assert_int_equal(ftruncate(fd, st.st_size - 1), 0);
            if (how == 2) assert_int_equal(unlink(state_paths[i]), 0);
            close(fd);
        }
        if (how == 3) assert_int_equal(unlink(found_path), 0); /* the pages: the states are of no use then */
        home_open_with(&h, 60, 10, ROOMY);
        assert_int_equal(find(&h.w, &key_a, t, 200, &match), 0);
        assert_int_equal(find(&h.w, &key_a, t, 200, &match), 0);
        assert_int_equal(n_logged, how < 2 ? 2 : 0);
        check_tree(&h.w, 0);
        assert_int_equal(find_states(), 0);
        assert_int_equal(request(&h.w, &key_a, t, 140), 0);
        assert_int_equal(request(&h.w, &key_a, t, 150), 140);
        save_all(&h);
        home_close(&h);
        home_open_with(&h, 60, 10, ROOMY);
        assert_int_equal(find(&h.w, &key_a, t, 200, &match), 150);
        home_close(&h);
    }
}

static void a_state_is_read_ahead_with_its_pages(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    count_up(t, MAX_SEQ, 0);
    home_open_with(&h, 60, 10, ROOMY);
    request(&h.w, &key_a, t, 100);
    request(&h.w, &key_a, t, 140);
    save_all(&h);
    home_close(&h);
    for (int n_states = 1; n_states <= 10; n_states += 9) {
        home_open_with(&h, 60, n_states, ROOMY);
        assert_int_equal(read_all_ahead(&h), 9);
        assert_int_equal(stats_of(&h.w).n_states, n_states == 1 ? 1 : 2); /* the longest one first */
        assert_int_equal(find(&h.w, &key_a, t, 200, &match), 140);
        assert_false(prefix_is_on_disk(&match));
        assert_int_equal(request(&h.w, &key_a, t, 150), 140);
        assert_int_equal(n_logged, 0);
        home_close(&h);
        if (n_states > 1) break;
    }
}

static void a_state_that_nobody_waits_for_is_put_back(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct kv_seq m;
    count_up(t, MAX_SEQ, 0);
    home_open_with(&h, 60, 1, ROOMY);
    request(&h.w, &key_a, t, 100);
    save_all(&h);
    home_close(&h);
    home_open_with(&h, 60, 1, ROOMY);
    sequence_open(&h.w, &m);
    prefix_find(h.w.tree, &key_a, t, 100, &m, &match);
    assert_int_equal(m.n_slots, 0);
    assert_int_equal(kv_seq_reserve(&m, 100, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct store_read *r = store_read(h.store, &key_a, t, 100, &m, match.snapshot);
        assert_non_null(r);
        assert_null(store_read(h.store, &key_a, t, 100, &m, match.snapshot)); /* the one state is being filled */
        assert_int_equal(stats_of(&h.w).n_states, 1);
        store_read_cancel(h.store, r);
        while (store_holds_pages(h.store)) {
        }
        assert_int_equal(stats_of(&h.w).n_states, 0);
    }
    struct store_read *r = store_read(h.store, &key_a, t, 100, &m, match.snapshot);
    assert_non_null(r);
    store_read_cancel(h.store, r);
    kv_seq_deinit(&m);
    home_close(&h); /* waits for it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_conversation_comes_back, empty_dir),
        cmocka_unit_test_setup(it_is_read_ahead, empty_dir),
        cmocka_unit_test_setup(the_tree_may_change_while_it_is_read_ahead, empty_dir),
        cmocka_unit_test_setup(superseded_files_go, empty_dir),
        cmocka_unit_test_setup(superseded_files_go_at_the_start, empty_dir),
        cmocka_unit_test_setup(branches_are_stored_once, empty_dir),
        cmocka_unit_test_setup(what_others_left_is_not_written, empty_dir),
        cmocka_unit_test_setup(the_tree_may_change_meanwhile, empty_dir),
        cmocka_unit_test_setup(failing_to_write_leaves_the_tree_as_it_is_now, empty_dir),
        cmocka_unit_test_setup(reading_may_be_given_up, empty_dir),
        cmocka_unit_test_setup(what_is_dropped_is_in_no_file, empty_dir),
        cmocka_unit_test_setup(the_least_recently_used_expires, empty_dir),
        cmocka_unit_test_setup(what_is_larger_than_the_budget_is_cut, empty_dir),
        cmocka_unit_test_setup(the_middle_can_be_missing, empty_dir),
        cmocka_unit_test_setup(a_chain_makes_no_room_in_itself, empty_dir),
        cmocka_unit_test_setup(a_state_comes_back_with_its_pages, empty_dir),
        cmocka_unit_test_setup(of_a_chain_few_states_are_on_disk, empty_dir),
        cmocka_unit_test_setup(a_state_that_is_lost_costs_itself, empty_dir),
        cmocka_unit_test_setup(a_state_is_read_ahead_with_its_pages, empty_dir),
        cmocka_unit_test_setup(a_state_that_nobody_waits_for_is_put_back, empty_dir),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
