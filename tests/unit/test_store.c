/* SPDX-License-Identifier: MIT
 *
 * test_store.c: the prefix cache on disk: what comes back after a restart, after a kill -9 at any time, from damaged
 * files and from a full disk; what a turn writes, what expires, and who may have the directory.
 *
 * "Comes back" is always checked number by number: a page is found with the numbers of just these tokens or not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/chain_file.h"
#include "cache/store.h"
#include "prefix_world.h"

#define ROOMY ((uint64_t)1 << 30)

static char dir[] = "/tmp/test_store.XXXXXX";
static qn_token t[MAX_SEQ], u[MAX_SEQ];
static const uint8_t this_model[CHAIN_MODEL_BYTES] = {1, 2, 3}, other_model[CHAIN_MODEL_BYTES] = {1, 2, 4};
static char last_log[1024];
static int n_logged;

static void keep_log(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(last_log, sizeof last_log, "%s", line);
    n_logged++;
}

/* Opens it and enters what it has. */
static int open_store(struct store **s, uint64_t budget, struct prefix *tree, const uint8_t *for_model,
                      struct qn_error *e)
{
    int rc = store_open(s, dir, budget, tree, e);
    if (rc || !(rc = store_enter(*s, for_model, e))) return rc;
    store_close(*s);
    *s = NULL;
    return rc;
}

/* Calls what for every file of the directory but the lock and the secret; returns how many there are. */
static int each_file(void (*what)(const char *path))
{
    char path[600];
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) return 0;
    for (const struct dirent *x; (x = readdir(d));) {
        if (x->d_name[0] == '.' || !strcmp(x->d_name, "lock") || !strcmp(x->d_name, "secret")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
        if (what) what(path);
        n++;
    }
    closedir(d);
    return n;
}

static void remove_path(const char *path)
{
    if (unlink(path)) rmdir(path);
}

static char found_path[600];
static void remember_path(const char *path) { snprintf(found_path, sizeof found_path, "%s", path); }

struct home {
    struct world w;
    struct store *store;
};

/* Reads what is on disk, as prefix_world.h wants it. */
static int restore(const struct world *w, const struct prefix_key *key, const qn_token *tokens, int n, struct memory *m,
                   struct prefix_match *match)
{
    struct home *h = w->arg;
    struct prefix_match now = {0};
    uint8_t *state = NULL;
    int n_pages = 0, n_slots = m->n_slots;
    if (m->state) prefix_peek(w->tree, key, tokens, n = match->n_slots, &now);
    struct prefix_snapshot *s = now.snapshot;
    struct store_read *r = store_read(h->store, key, tokens, n, m, s && !s->data ? s : NULL);
    bool has_state = s && s->data;
    if (has_state) memory_set_state(m, s->data);
    if (r) {
        assert_true(store_read_end(h->store, r, true, &n_pages, &state, &match->miss));
        n_slots += n_pages * PAGE;
    }
    if (n_slots > match->n_slots) n_slots = match->n_slots;
    if (!m->state) return n_slots;
    if (n_slots < match->n_slots || now.n_slots < n || (!has_state && !state)) {
        memory_truncate(m, 0);
        return 0;
    }
    memory_extend(m, n_slots);
    if (state) memory_set_state(m, state);
    if (state) prefix_snapshot_take(w->tree, key, tokens, n, state);
    return n_slots;
}

static void home_open_with(struct home *h, int n_pages, int n_snapshots, uint64_t budget)
{
    struct qn_error e = {0};
    world_open(&h->w, n_pages, n_snapshots);
    if (open_store(&h->store, budget, h->w.tree, this_model, &e)) fail_msg("%s", e.msg);
    h->w.restore = restore;
    h->w.arg = h;
    check_tree(&h->w, 0);
}

static void home_open(struct home *h, int n_pages, uint64_t budget) { home_open_with(h, n_pages, 0, budget); }

static void home_close(struct home *h)
{
    store_close(h->store);
    check_tree(&h->w, 0);
    world_close(&h->w);
}

/* One file, waited for. */
static int save_one(struct store *s, struct qn_error *e)
{
    int rc = store_save(s, e);
    return rc > 0 ? store_settle(s, true, e) : rc;
}

static int save_all(struct home *h)
{
    struct qn_error e = {0};
    int rc, n = 0;
    while ((rc = save_one(h->store, &e)) > 0) n++;
    if (rc < 0) fail_msg("%s", e.msg);
    return n;
}

static struct store_stats disk_of(const struct home *h)
{
    struct store_stats s;
    store_stats(h->store, &s);
    return s;
}

static int empty_dir(void **state)
{
    (void)state;
    each_file(remove_path);
    n_logged = 0;
    last_log[0] = 0;
    return 0;
}

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

/* A file left over because the process died before it removed it. */
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

/* A recycled page holds what somebody else has computed; behind the last token none of it is written. */
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

/* What is read is not in the tree before it is there, and may be given up, or lost from the tree, at any time. */
static void reading_may_be_given_up(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct memory m;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 200);
    save_all(&h);
    prefix_evict(h.w.tree, 30, false);
    for (int what = 0; what < 3; what++) {
        sequence_open(&h.w, &m);
        prefix_find(h.w.tree, &key_a, t, 200, &m, &match);
        assert_int_equal(match.n_placed, 13);
        assert_int_equal(memory_reserve(&m, 200, NULL), 0);
        uint8_t *no_state;
        struct store_read *r = store_read(h.store, &key_a, t, 200, &m, NULL);
        assert_non_null(r);
        if (what < 2) {
            store_read_cancel(h.store, r);
            if (what == 0) memory_deinit(&m); /* the thread may still write into the pages */
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
            memory_extend(&m, n_pages * PAGE < 200 ? n_pages * PAGE : 200);
            check_numbers(&m, t);
        }
        if (what) memory_deinit(&m);
        check_tree(&h.w, 0);
    }
    assert_int_equal(n_logged, 0);
    home_close(&h);
}

/* Of a file that others use too nothing is kept that somebody has dropped. */
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

/* The pages before are gone: what follows waits until they are computed again. */
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

/* What follows the missing part was not used since the start; still it is not deleted for the part before it. */
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

/* ---- strangers ---- */

static void one_process_at_a_time(void **state)
{
    (void)state;
    struct home h;
    struct world w;
    struct store *s = NULL;
    struct qn_error e = {0};
    home_open(&h, 10, ROOMY);
    world_open(&w, 10, 0);
    assert_int_equal(store_open(&s, dir, ROOMY, w.tree, &e), QN_EIO);
    assert_non_null(strstr(e.msg, "is in use by another process"));
    assert_non_null(strstr(e.msg, dir));
    assert_int_equal(store_open(&s, "/dev/null/x", ROOMY, w.tree, &e), QN_EIO);
    assert_non_null(strstr(e.msg, "'/dev/null/x'"));
    world_close(&w);
    home_close(&h);
}

static void write_file(const char *name, const void *p, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static void foreign_names_are_left_alone(void **state)
{
    (void)state;
    struct home h;
    char path[600];
    write_file("notes.txt", "mine", 4);
    write_file("0123456789abcdef.kv.0123abcd", "torn", 4); /* what a kill leaves */
    home_open(&h, 10, ROOMY);
    assert_int_equal(each_file(remember_path), 1);
    assert_non_null(strstr(found_path, "notes.txt"));
    assert_int_equal(n_logged, 1);
    assert_non_null(strstr(last_log, "notes.txt' ignored"));
    home_close(&h);
    write_file("0123456789abcdef.kv",
               "not a stored conversation, but longer than a head is: 128 bytes, so that the magic"
               " is what tells; padding padding padding padding",
               128);
    snprintf(path, sizeof path, "%s/aaaaaaaaaaaaaaaa.kv", dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/bbbbbbbbbbbbbbbb.kv", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    n_logged = 0;
    home_open(&h, 10, ROOMY);
    assert_int_equal(n_logged, 4);
    assert_int_equal(disk_of(&h).n_files, 0);
    home_close(&h);
}

static void other_models_files_are_kept(void **state)
{
    (void)state;
    struct home h;
    struct qn_error e = {0};
    struct kv_shape other = world_shape;
    other.n_layer = 2;
    home_open(&h, 10, ROOMY);
    count_up(t, 48, 0);
    request(&h.w, &key_a, t, 48);
    save_all(&h);
    uint64_t bytes = disk_of(&h).bytes;
    home_close(&h);
    struct world w = {.n_pages = 10};
    struct store *s = NULL;
    struct store_stats stats;
    ledger_init(&w.ledger, (size_t)1 << 40);
    assert_int_equal(kv_pool_new(&w.pool, &other, 160, 0, &w.ledger, &e), 0);
    assert_int_equal(prefix_new(&w.tree, w.pool, 0, &w.ledger, &e), 0);
    assert_int_equal(open_store(&s, ROOMY, w.tree, this_model, &e), 0);
    store_stats(s, &stats);
    assert_int_equal(stats.n_files, 1);
    assert_int_equal(stats.bytes, bytes);
    assert_int_equal(stats_of(&w).n_nodes, 0);
    store_close(s);
    assert_int_equal(open_store(&s, 100, w.tree, this_model, &e), 0); /* until the room is needed */
    assert_int_equal(each_file(NULL), 0);
    store_close(s);
    world_close(&w);
}

/* The same words on disk, of another owner; and the same file of another model. */
static void what_is_on_disk_is_its_owners_and_its_models(void **state)
{
    (void)state;
    const struct prefix_key forged = {{key_a.word[0], key_a.word[1]}, key_a.owner + 1};
    struct home h;
    struct prefix_match match;
    struct qn_error e = {0};
    home_open(&h, 10, ROOMY);
    count_up(t, 48, 0);
    request(&h.w, &key_a, t, 48);
    save_all(&h);
    home_close(&h);
    home_open(&h, 10, ROOMY);
    assert_int_equal(find(&h.w, &forged, t, 48, &match), 0);
    assert_int_equal(match.miss, PREFIX_NOTHING);
    assert_int_equal(find(&h.w, &key_a, t, 48, &match), 48);
    home_close(&h);
    world_open(&h.w, 10, 0);
    assert_int_equal(open_store(&h.store, ROOMY, h.w.tree, other_model, &e), 0);
    assert_int_equal(stats_of(&h.w).n_nodes, 0);
    assert_int_equal(disk_of(&h).n_files, 1); /* kept, and counted */
    home_close(&h);
    home_open(&h, 10, ROOMY);
    assert_int_equal(find(&h.w, &key_a, t, 48, &match), 48);
    home_close(&h);
}

static void make_it_old(const char *path)
{
    uint8_t head[128];
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fread(head, 1, sizeof head, f), sizeof head);
    head[8] = 2; /* the version, with nothing to say of the model */
    memset(head + 92, 0, 28);
    uint64_t sum = hash_bytes(head, 120, 1);
    memcpy(head + 120, &sum, sizeof sum);
    rewind(f);
    assert_int_equal(fwrite(head, 1, sizeof head, f), sizeof head);
    fclose(f);
}

/* As the version before wrote it: not used, not dropped, no word about it; and it makes room for what is new. */
static void an_old_version_is_left_alone(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct qn_error e = {0};
    home_open(&h, 10, ROOMY);
    count_up(t, 48, 0);
    request(&h.w, &key_a, t, 48);
    save_all(&h);
    home_close(&h);
    assert_int_equal(each_file(make_it_old), 1);
    n_logged = 0;
    home_open(&h, 10, ROOMY);
    assert_int_equal(n_logged, 0);
    assert_int_equal(disk_of(&h).n_files, 1);
    assert_int_equal(find(&h.w, &key_a, t, 48, &match), 0);
    assert_int_equal(match.miss, PREFIX_NOTHING);
    home_close(&h);
    assert_int_equal(each_file(NULL), 1);
    world_open(&h.w, 10, 0);
    assert_int_equal(open_store(&h.store, 100, h.w.tree, this_model, &e), 0);
    assert_int_equal(each_file(NULL), 0);
    home_close(&h);
}

/* ---- the secret ---- */

static void read_secret(uint8_t secret[32])
{
    struct home h;
    home_open(&h, 10, ROOMY);
    memcpy(secret, store_secret(h.store), 32);
    home_close(&h);
}

static void the_secret_is_the_directorys(void **state)
{
    (void)state;
    uint8_t first[32], again[32], zeros[32] = {0};
    char path[600];
    struct stat st;
    snprintf(path, sizeof path, "%s/secret", dir);
    n_logged = 0;
    read_secret(first);
    read_secret(again);
    assert_memory_equal(first, again, 32);
    assert_memory_not_equal(first, zeros, 32);
    assert_int_equal(n_logged, 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 32);
    assert_int_equal(unlink(path), 0);
    read_secret(again);
    assert_memory_not_equal(first, again, 32); /* another directory, another secret */
}

static void a_bad_secret_is_replaced(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        uint8_t first[32], again[32];
        char path[600];
        struct stat st;
        empty_dir(NULL);
        snprintf(path, sizeof path, "%s/secret", dir);
        read_secret(first);
        if (what == 0) assert_int_equal(truncate(path, 31), 0);
        if (what == 1) assert_int_equal(truncate(path, 33), 0);
        if (what == 2) assert_int_equal(chmod(path, 0640), 0);
        if (what == 3) assert_int_equal(unlink(path) || symlink("/dev/zero", path), 0);
        if (what == 4) assert_int_equal(unlink(path) || mkfifo(path, 0600), 0);
        n_logged = 0;
        read_secret(again);
        assert_int_equal(n_logged, 1);
        assert_non_null(strstr(last_log, "secret' replaced"));
        assert_memory_not_equal(first, again, 32);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_mode, S_IFREG | 0600);
        read_secret(first);
        assert_int_equal(n_logged, 1);
        assert_memory_equal(first, again, 32);
    }
}

/* ---- damage ---- */

/* Opens the directory with this one file in it and asks for the conversation: all of it, or a part, or nothing. */
static int what_comes_back(const uint8_t *bytes, size_t n, int n_tokens)
{
    struct home h;
    struct prefix_match match;
    empty_dir(NULL);
    write_file("0123456789abcdef.kv", bytes, n);
    home_open(&h, 12, ROOMY);
    int found = find(&h.w, &key_a, t, n_tokens, &match);
    check_tree(&h.w, 0);
    if (found < n_tokens) { /* what is dropped is told, and is off the disk */
        assert_true(n_logged == 1 && strstr(last_log, "0123456789abcdef.kv' dropped: "));
        assert_int_equal(each_file(NULL), 0);
    }
    assert_int_equal(request(&h.w, &key_a, t, n_tokens), found);
    assert_int_equal(find(&h.w, &key_a, t, n_tokens, &match), n_tokens);
    home_close(&h);
    return found;
}

static size_t small_file(uint8_t *bytes, size_t max, int n_tokens)
{
    struct home h;
    home_open(&h, 12, ROOMY);
    count_up(t, n_tokens, 0);
    request(&h.w, &key_a, t, n_tokens);
    assert_int_equal(save_all(&h), 1);
    home_close(&h);
    each_file(remember_path);
    FILE *f = fopen(found_path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, max, f);
    fclose(f);
    return n;
}

static void every_byte_matters_or_does_not(void **state)
{
    (void)state;
    static uint8_t bytes[8192];
    size_t n = small_file(bytes, sizeof bytes, 40), padding = 0;
    assert_int_equal(n, 4096 + 3 * kv_page_bytes(&world_shape));
    assert_int_equal(what_comes_back(bytes, n, 40), 40);
    for (size_t i = 0; i < n; i++) {
        if (i > 400 && i < 4096 - 8 && i % 101) continue; /* the padding, all alike */
        bytes[i] ^= (uint8_t)(1 << i % 8);
        int found = what_comes_back(bytes, n, 40);
        bytes[i] ^= (uint8_t)(1 << i % 8);
        if (found == 40)
            padding++;
        else
            assert_int_equal(found, i < 4096 ? 0 : (int)(i - 4096) / 256 * 16);
    }
    assert_true(padding > 0 && padding < 200);
    for (size_t cut = 0; cut < n; cut += 97) assert_int_equal(what_comes_back(bytes, cut, 40), 0);
}

/* Heads whose checksum is right and whose numbers are not. */
static void hostile_numbers_are_refused(void **state)
{
    (void)state;
    static uint8_t bytes[8192];
    static const uint64_t values[] = {0, 1, 15, 17, 0x7fffffff, 0xffffffff, 0x80000000, 1 << 24, (1 << 24) + 1};
    size_t n = small_file(bytes, sizeof bytes, 40);
    uint8_t good[CHAIN_HEAD_BYTES];
    memcpy(good, bytes, sizeof good);
    for (int at = 32; at < 72; at += 4)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct home h;
            struct prefix_match match;
            uint32_t x = (uint32_t)values[v];
            memcpy(bytes, good, sizeof good);
            memcpy(bytes + at, &x, sizeof x);
            if (!memcmp(bytes, good, sizeof good)) continue;
            uint64_t sum = hash_bytes(bytes, 120, 1);
            memcpy(bytes + 120, &sum, sizeof sum);
            empty_dir(NULL);
            write_file("0123456789abcdef.kv", bytes, n);
            home_open(&h, 12, ROOMY);
            if (at != 60) assert_int_equal(find(&h.w, &key_a, t, 40, &match), 0); /* 60 is not used */
            home_close(&h);
        }
}

static void pages_damaged_later_cost_only_themselves(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 64);
    save_all(&h);
    request(&h.w, &key_a, t, 128);
    save_all(&h);
    each_file(remember_path);
    prefix_evict(h.w.tree, 100, false);
    int fd = open(found_path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 4096 + 300), 1); /* its second page */
    close(fd);
    int found = find(&h.w, &key_a, t, 128, &match);
    assert_true(found == 16 || found == 80); /* one file or the other */
    assert_int_equal(match.miss, PREFIX_DAMAGED);
    check_tree(&h.w, 0);
    assert_int_equal(n_logged, 1);
    assert_non_null(strstr(last_log, "the checksum of part 1 differs"));
    request(&h.w, &key_a, t, 128);
    assert_int_equal(find(&h.w, &key_a, t, 128, &match), 128);
    assert_true(save_all(&h) >= 1);
    home_close(&h);
}

/* ---- failures ---- */

static void a_full_disk_changes_nothing(void **state)
{
    (void)state;
    struct home h;
    struct qn_error e = {0};
    struct rlimit was, small;
    struct prefix_match match;
    home_open(&h, 30, ROOMY);
    count_up(t, 200, 0);
    request(&h.w, &key_a, t, 30);
    save_all(&h);
    request(&h.w, &key_a, t, 200);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    for (rlim_t limit = 0; limit < 7000; limit += 1111) {
        small = (struct rlimit){limit, was.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        struct store_stats before = disk_of(&h), after;
        int rc = save_one(h.store, &e);
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(rc, QN_EIO);
        assert_non_null(strstr(e.msg, "File too large"));
        after = disk_of(&h);
        assert_int_equal(after.n_files, before.n_files);
        assert_int_equal(after.bytes, before.bytes);
        assert_int_equal(after.n_dropped + after.n_expired, 0);
        assert_int_equal(each_file(NULL), after.n_files);
        check_tree(&h.w, 0);
    }
    assert_int_equal(save_all(&h), 1);
    prefix_evict(h.w.tree, 100, false);
    assert_int_equal(find(&h.w, &key_a, t, 200, &match), 200);
    home_close(&h);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct prefix_match match;
    struct qn_error e = {0};
    int n, rc;
    count_up(t, 200, 0);
    struct home h;
    home_open(&h, 30, ROOMY);
    request(&h.w, &key_a, t, 100);
    for (n = 1;; n++) {
        mem_fault_set((uint64_t)n);
        rc = save_one(h.store, &e);
        int hit = mem_fault_hit();
        mem_fault_set(0);
        if (!hit) break;
        assert_int_equal(rc, QN_ENOMEM);
        assert_int_equal(each_file(NULL), 0);
        check_tree(&h.w, 0);
    }
    assert_int_equal(rc, 1);
    assert_true(n > 4);
    home_close(&h);
    for (n = 1;; n++) {
        world_open(&h.w, 30, 0);
        mem_fault_set((uint64_t)n);
        h.w.restore = restore;
        h.w.arg = &h;
        rc = open_store(&h.store, ROOMY, h.w.tree, this_model, &e);
        int hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(each_file(NULL), 1);
        assert_true(rc == 0 || (hit && rc == QN_ENOMEM));
        check_tree(&h.w, 0);
        if (!rc && !hit) break;
        if (!rc) home_close(&h);
        if (rc) world_close(&h.w);
    }
    assert_int_equal(find(&h.w, &key_a, t, 100, &match), 100);
    home_close(&h);
}

/* ---- kill -9 ---- */

/* Conversations that grow, are saved and are evicted, until somebody makes an end of it. */
static void live(unsigned seed)
{
    struct home h = {.w = {.n_pages = 40, .restore = restore}};
    struct world *w = &h.w;
    struct qn_error e;
    struct memory m;
    struct prefix_match match;
    w->arg = &h;
    ledger_init(&w->ledger, (size_t)1 << 40);
    if (kv_pool_new(&w->pool, &world_shape, w->n_pages * PAGE, 0, &w->ledger, &e) ||
        prefix_new(&w->tree, w->pool, 0, &w->ledger, &e) || open_store(&h.store, 60000, w->tree, this_model, &e))
        _exit(1);
    for (uint64_t i = 0;; i++) {
        uint64_t r = rng_u64(seed, 5, i);
        count_up(t, MAX_SEQ, 1000 * (int)(r % 5));
        int n = 1 + (int)((r >> 8) % (MAX_SEQ - 1));
        if (memory_init(&m, w->pool, MAX_SEQ, NULL)) _exit(2);
        find_all(w, &key_a, t, n, &m, &match);
        for (int x = 0; x < m.n_slots; x++)
            if (*slot_number(&m, x) != number_of(t, x)) _exit(3);
        if (compute(w, &m, t, n) && prefix_insert(w->tree, &key_a, t, n, &m, NULL)) _exit(4);
        memory_deinit(&m);
        while (save_one(h.store, &e) > 0) {
        }
        if (r >> 60 == 0) prefix_evict(w->tree, 10, false);
    }
}

static void a_kill_leaves_a_directory_that_loads(void **state)
{
    (void)state;
    int n_found = 0;
    for (unsigned round = 0; round < 250; round++) {
        struct home h;
        struct prefix_match match;
        int status;
        pid_t child = fork();
        if (child == 0) live(round);
        assert_true(child > 0);
        struct timespec wait = {0, (long)(rng_u64(9, 0, round) % 30000000)};
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) fail_msg("it ended by itself: %d", WEXITSTATUS(status));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it lived until then */
        home_open(&h, 200, ROOMY);
        for (int i = 0; i < 5; i++) {
            count_up(t, MAX_SEQ, 1000 * i);
            n_found += find(&h.w, &key_a, t, MAX_SEQ, &match);
        }
        check_tree(&h.w, 0);
        assert_int_equal(disk_of(&h).n_files, each_file(NULL)); /* nothing is left behind */
        assert_int_equal(n_logged, 0);                          /* and nothing was torn */
        home_close(&h);
    }
    assert_true(n_found > 250 * 100);
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

static void a_state_that_nobody_waits_for_is_put_back(void **state)
{
    (void)state;
    struct home h;
    struct prefix_match match;
    struct memory m;
    count_up(t, MAX_SEQ, 0);
    home_open_with(&h, 60, 1, ROOMY);
    request(&h.w, &key_a, t, 100);
    save_all(&h);
    home_close(&h);
    home_open_with(&h, 60, 1, ROOMY);
    sequence_open(&h.w, &m);
    prefix_find(h.w.tree, &key_a, t, 100, &m, &match);
    assert_int_equal(m.n_slots, 0);
    assert_int_equal(memory_reserve(&m, 100, NULL), 0);
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
    memory_deinit(&m);
    home_close(&h); /* waits for it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_conversation_comes_back, empty_dir),
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
        cmocka_unit_test_setup(one_process_at_a_time, empty_dir),
        cmocka_unit_test_setup(foreign_names_are_left_alone, empty_dir),
        cmocka_unit_test_setup(other_models_files_are_kept, empty_dir),
        cmocka_unit_test_setup(what_is_on_disk_is_its_owners_and_its_models, empty_dir),
        cmocka_unit_test_setup(an_old_version_is_left_alone, empty_dir),
        cmocka_unit_test_setup(the_secret_is_the_directorys, empty_dir),
        cmocka_unit_test_setup(a_bad_secret_is_replaced, empty_dir),
        cmocka_unit_test_setup(every_byte_matters_or_does_not, empty_dir),
        cmocka_unit_test_setup(hostile_numbers_are_refused, empty_dir),
        cmocka_unit_test_setup(pages_damaged_later_cost_only_themselves, empty_dir),
        cmocka_unit_test_setup(a_full_disk_changes_nothing, empty_dir),
        cmocka_unit_test_setup(every_allocation_may_fail, empty_dir),
        cmocka_unit_test_setup(a_kill_leaves_a_directory_that_loads, empty_dir),
        cmocka_unit_test_setup(a_state_comes_back_with_its_pages, empty_dir),
        cmocka_unit_test_setup(of_a_chain_few_states_are_on_disk, empty_dir),
        cmocka_unit_test_setup(a_state_that_is_lost_costs_itself, empty_dir),
        cmocka_unit_test_setup(a_state_that_nobody_waits_for_is_put_back, empty_dir),
    };
    if (!mkdtemp(dir)) return 1;
    log_set_sink(keep_log, NULL);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char lock[600];
    empty_dir(NULL);
    snprintf(lock, sizeof lock, "%s/lock", dir);
    unlink(lock);
    rmdir(dir);
    return rc;
}
