/* SPDX-License-Identifier: MIT
 *
 * test_store_damage.c: the prefix cache on disk when something is wrong: other processes and other files in its
 * directory, a bad secret, damaged and hostile files, a full disk, no memory, and kill -9 at any time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store_home.h"

/* ---- strangers ---- */

static void one_process_at_a_time(void **state)
{
    (void)state;
    struct home h;
    struct prefix_world w;
    struct store *s = NULL;
    struct qn_error e = {0};
    home_open(&h, 10, ROOMY);
    world_open(&w, 10, 0);
    assert_int_equal(store_open(&s, dir, ROOMY, w.tree, NULL, &e), QN_EIO);
    assert_non_null(strstr(e.msg, "is in use by another process"));
    assert_non_null(strstr(e.msg, dir));
    assert_int_equal(store_open(&s, "/dev/null/x", ROOMY, w.tree, NULL, &e), QN_EIO);
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
    struct prefix_world w = {.n_pages = 10};
    struct store *s = NULL;
    struct store_stats stats;
    ledger_init(&w.ledger, (size_t)1 << 40);
    assert_int_equal(kv_pool_new(&w.pool, &other, 160, 0, 0, &w.ledger, &e), 0);
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

/* A file of the previous version is not used, not dropped and not logged. It is deleted when new files need the room.
 */
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

/* Opens the directory with only this file in it and looks up the conversation. Returns the number of tokens found. */
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

static void a_file_longer_than_its_head_says_is_refused(void **state)
{
    (void)state;
    static uint8_t bytes[16384];
    const size_t n = small_file(bytes, sizeof bytes, 40), page = kv_page_bytes(&world_shape);
    const size_t more[] = {1, page - 1, page, 2 * page, 3 * page};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        assert_int_equal(what_comes_back(bytes, n + more[i], 40), 0);
    assert_int_equal(what_comes_back(bytes, n, 40), 40);
}

/* Heads with a correct checksum and wrong numbers. */
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

/* Conversations grow, are saved and are evicted, until the process is killed. */
static void live(unsigned seed)
{
    struct home h = {.w = {.n_pages = 40, .restore = restore}};
    struct prefix_world *w = &h.w;
    struct qn_error e;
    struct kv_seq m;
    struct prefix_match match;
    w->arg = &h;
    ledger_init(&w->ledger, (size_t)1 << 40);
    if (kv_pool_new(&w->pool, &world_shape, w->n_pages * PAGE, 0, 0, &w->ledger, &e) ||
        prefix_new(&w->tree, w->pool, 0, &w->ledger, &e) || open_store(&h.store, 60000, w->tree, this_model, &e))
        _exit(1);
    for (uint64_t i = 0;; i++) {
        uint64_t r = rng_u64(seed, 5, i);
        count_up(t, MAX_SEQ, 1000 * (int)(r % 5));
        int n = 1 + (int)((r >> 8) % (MAX_SEQ - 1));
        if (kv_seq_init(&m, w->pool, MAX_SEQ, NULL)) _exit(2);
        find_all(w, &key_a, t, n, &m, &match);
        for (int x = 0; x < m.n_slots; x++)
            if (*slot_number(&m, x) != number_of(t, x)) _exit(3);
        if (compute(w, &m, t, n) && prefix_insert(w->tree, &key_a, t, n, &m, NULL)) _exit(4);
        kv_seq_deinit(&m);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_process_at_a_time, empty_dir),
        cmocka_unit_test_setup(foreign_names_are_left_alone, empty_dir),
        cmocka_unit_test_setup(other_models_files_are_kept, empty_dir),
        cmocka_unit_test_setup(what_is_on_disk_is_its_owners_and_its_models, empty_dir),
        cmocka_unit_test_setup(an_old_version_is_left_alone, empty_dir),
        cmocka_unit_test_setup(the_secret_is_the_directorys, empty_dir),
        cmocka_unit_test_setup(a_bad_secret_is_replaced, empty_dir),
        cmocka_unit_test_setup(every_byte_matters_or_does_not, empty_dir),
        cmocka_unit_test_setup(a_file_longer_than_its_head_says_is_refused, empty_dir),
        cmocka_unit_test_setup(hostile_numbers_are_refused, empty_dir),
        cmocka_unit_test_setup(pages_damaged_later_cost_only_themselves, empty_dir),
        cmocka_unit_test_setup(a_full_disk_changes_nothing, empty_dir),
        cmocka_unit_test_setup(every_allocation_may_fail, empty_dir),
        cmocka_unit_test_setup(a_kill_leaves_a_directory_that_loads, empty_dir),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
