/* SPDX-License-Identifier: MIT
 *
 * test_stage_disk.c: a stage's files of pages: what is written is read again, and nothing that is missing, damaged or
 * of another model counts as read; and the orders as packets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cluster/disk/last_cuts.h"
#include "cluster/disk/stage_disk.h"
#include "cluster/step_packet.h"

#define N_PAGES  12
#define N_STATES 4
#define ROOMY    ((uint64_t)1 << 30)

static const uint8_t key[CHAIN_MODEL_BYTES] = {1, 2}, other_key[CHAIN_MODEL_BYTES] = {1, 3};
static char root[] = "/tmp/test_stage_disk.XXXXXX", folder[64];

/* ---- a stage ---- */

struct life {
    struct ledger ledger;
    struct kv_pool *kv;
    struct stage_disk *disk;
    uint32_t last;
};

static void open_life(struct life *l, int lo, int hi, const uint8_t *model, uint64_t budget)
{
    const struct kv_shape shape = {.type = KV_F16,
                                   .n_layer = 2,
                                   .n_head_kv = 2,
                                   .head_dim = 16,
                                   .head_dim_v = 16,
                                   .page_slots = KV_PAGE_SLOTS,
                                   .n_layer_win = 1,
                                   .window = 20,
                                   .state_bytes = 512};
    *l = (struct life){0};
    ledger_init(&l->ledger, 1 << 26);
    assert_int_equal(kv_pool_new(&l->kv, &shape, N_PAGES * KV_PAGE_SLOTS, N_STATES, N_PAGES, &l->ledger, NULL), 0);
    assert_int_equal(stage_disk_folder(folder, sizeof folder, root, NULL), 0);
    assert_int_equal(stage_disk_new(&l->disk, folder, l->kv, lo, hi, NULL), 0);
    if (model) stage_disk_do(l->disk, &(struct disk_order){.op = DISK_ENTER, .key = model, .budget = budget});
}

static void close_life(struct life *l)
{
    stage_disk_free(l->disk);
    kv_pool_free(l->kv);
}

static size_t bytes_of(const struct life *l, enum kv_kind kind)
{
    const struct kv_shape *shape = kv_pool_shape(l->kv);
    return kind == KV_PAGES ? kv_page_bytes(shape) : kind == KV_WINDOWS ? kv_window_page_bytes(shape) : 512;
}

/* Other bytes for each kind and number. */
static void fill(const struct life *l, enum kv_kind kind, int number)
{
    uint8_t *p = kv_at(l->kv, kind, number);
    for (size_t i = 0; i < bytes_of(l, kind); i++) p[i] = (uint8_t)(1 + i % 251 + 7 * (size_t)number + (size_t)kind);
}

/* Runs an order to its end; *good as in stage_disk_ask(). */
static uint32_t do_order(struct life *l, enum disk_op op, const struct disk_part *parts, int n)
{
    uint32_t good = 1000, is_busy = 1;
    stage_disk_do(l->disk, &(struct disk_order){.op = op, .number = ++l->last, .n_parts = n, .parts = parts});
    for (int ms = 0; is_busy && ms < 20000; ms++) {
        is_busy = 0;
        good = 1000;
        stage_disk_ask(l->disk, l->last, &is_busy, &good);
        if (is_busy) poll(NULL, 0, 1);
    }
    assert_int_equal(is_busy, 0);
    stage_disk_do(l->disk, &(struct disk_order){.op = DISK_END, .number = l->last});
    uint32_t busy = 0, after = 1000;
    stage_disk_ask(l->disk, l->last, &busy, &after);
    assert_int_equal(busy, 0);
    assert_int_equal(after, 0); /* it is forgotten */
    return good;
}

/* The parts of the file of that name: two pages, the second with 5 slots; its window; or a state. */
static const struct disk_part pages[] = {{{7, 1}, 0, KV_PAGES, 2, KV_PAGE_SLOTS},
                                         {{7, 1}, 1, KV_PAGES, 3, 5},
                                         {{7, 1}, 2, KV_WINDOWS, 4, 5}},
                              state[] = {{{8, 1}, 0, KV_STATES, 1, 0}};

static void write_both(struct life *l)
{
    for (int i = 0; i < 3; i++) fill(l, (enum kv_kind)pages[i].kind, pages[i].number);
    fill(l, KV_STATES, 1);
    assert_int_equal(do_order(l, DISK_WRITE, pages, 3), 3);
    assert_int_equal(do_order(l, DISK_WRITE, state, 1), 1);
}

/* All parts, to other places. */
static const struct disk_part all[] = {{{7, 1}, 0, KV_PAGES, 6, KV_PAGE_SLOTS},
                                       {{7, 1}, 1, KV_PAGES, 7, KV_PAGE_SLOTS},
                                       {{7, 1}, 2, KV_WINDOWS, 8, KV_PAGE_SLOTS},
                                       {{8, 1}, 0, KV_STATES, 2, 0}};

static void what_is_written_is_read(void **unused)
{
    (void)unused;
    struct life l;
    static uint8_t wanted[1 << 16];
    open_life(&l, 0, 2, key, ROOMY);
    write_both(&l);
    close_life(&l);
    open_life(&l, 0, 2, key, ROOMY); /* another process */
    assert_int_equal(do_order(&l, DISK_READ, all, 4), 4);
    for (int i = 0; i < 4; i++) {
        const struct disk_part *from = i < 3 ? &pages[i] : &state[0];
        enum kv_kind kind = (enum kv_kind)from->kind;
        fill(&l, kind, from->number);
        memcpy(wanted, kv_at(l.kv, kind, from->number), bytes_of(&l, kind));
        if (i == 1) kv_page_clear(kv_pool_shape(l.kv), wanted, 5);
        if (i == 2) kv_window_page_clear(kv_pool_shape(l.kv), wanted, 5);
        assert_memory_equal(kv_at(l.kv, kind, all[i].number), wanted, bytes_of(&l, kind));
    }
    close_life(&l);
}

static uint32_t read_as(int lo, int hi, const uint8_t *model)
{
    struct life l;
    open_life(&l, lo, hi, model, ROOMY);
    uint32_t good = do_order(&l, DISK_READ, all, 4);
    close_life(&l);
    return good;
}

static const char *file_at(uint32_t name, const char *range)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/00000001%08x-%s.stage", folder, name, range);
    return path;
}

static void what_is_not_there_is_not_read(void **unused)
{
    (void)unused;
    struct life l;
    open_life(&l, 0, 2, key, ROOMY);
    write_both(&l);
    close_life(&l);
    assert_int_equal(read_as(0, 2, key), 4);
    assert_int_equal(read_as(0, 2, other_key), 0);
    assert_int_equal(read_as(0, 3, key), 0);
    assert_int_equal(read_as(0, 2, NULL), 0); /* no key yet */
    assert_int_equal(unlink(file_at(8, "0-2")), 0);
    assert_int_equal(read_as(0, 2, key), 3); /* the state is gone */
    open_life(&l, 0, 2, key, ROOMY);
    const struct disk_part beyond = {{7, 1}, 3, KV_PAGES, 6, KV_PAGE_SLOTS}, other_kind = {{7, 1}, 0, KV_STATES, 1, 0};
    assert_int_equal(do_order(&l, DISK_READ, &beyond, 1), 0);
    assert_int_equal(do_order(&l, DISK_READ, &other_kind, 1), 0);
    stage_disk_do(l.disk, &(struct disk_order){.op = DISK_DROP, .n_parts = 1, .parts = pages});
    assert_int_equal(do_order(&l, DISK_READ, all, 4), 0);
    close_life(&l);
}

/* Every byte of the head and the table, and some of the parts; and every shorter file, by steps. */
static void damage_is_found(void **unused)
{
    (void)unused;
    struct life l;
    struct stat st;
    open_life(&l, 0, 2, key, ROOMY);
    write_both(&l);
    int fd = open(file_at(7, "0-2"), O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = 0; at < st.st_size; at += at < 104 ? 1 : 997) {
        uint8_t was, now;
        assert_int_equal(pread(fd, &was, 1, at), 1);
        now = was ^ 0x40;
        assert_int_equal(pwrite(fd, &now, 1, at), 1);
        uint32_t good = do_order(&l, DISK_READ, all, 4);
        bool is_unused = (at >= 44 && at < 48) || (at >= 104 && at < 4096); /* zeros that nobody reads */
        assert_true(is_unused ? good == 4 : good < 3);
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    assert_int_equal(do_order(&l, DISK_READ, all, 4), 4);
    for (off_t size = st.st_size - 1; size > 0; size = size * 2 / 3) {
        assert_int_equal(ftruncate(fd, size), 0);
        assert_true(do_order(&l, DISK_READ, all, 4) < 3);
    }
    close(fd);
    close_life(&l);
}

static char last_log[512];

static void keep_log(void *arg, enum log_level level, const char *line)
{
    (void)arg, (void)level;
    snprintf(last_log, sizeof last_log, "%s", line);
}

/* A file that seems to have a table of 64 GB, all of it a hole: no memory is asked for. */
static void a_huge_table_is_not_read(void **unused)
{
    (void)unused;
    struct life l;
    const uint32_t n = UINT32_MAX;
    open_life(&l, 0, 2, key, UINT64_MAX);
    write_both(&l);
    int fd = open(file_at(7, "0-2"), O_RDWR);
    assert_int_equal(pwrite(fd, &n, sizeof n, 40), sizeof n);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
    close(fd);
    log_set_sink(keep_log, NULL);
    assert_int_equal(do_order(&l, DISK_READ, all, 4), 0);
    close_life(&l);
    log_set_sink(NULL, NULL);
    assert_non_null(strstr(last_log, "of other layers or damaged"));
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *f; d && (f = readdir(d));) n += f->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void the_folder_stays_within_its_budget(void **unused)
{
    (void)unused;
    struct life l;
    open_life(&l, 0, 2, key, 0);
    write_both(&l); /* each of them is deleted at once */
    assert_int_equal(count_files(), 0);
    uint64_t each = 4096 + bytes_of(&l, KV_PAGES);
    stage_disk_do(l.disk, &(struct disk_order){.op = DISK_ENTER, .key = key, .budget = 3 * each + 1000});
    for (uint32_t i = 0; i < 6; i++) {
        struct disk_part p = {{i, 9}, 0, KV_PAGES, 1, KV_PAGE_SLOTS};
        assert_int_equal(do_order(&l, DISK_WRITE, &p, 1), 1);
        if (i >= 2) p.name[0] = 1;
        assert_int_equal(do_order(&l, DISK_READ, &p, 1), 1); /* number 1 is in use and stays */
    }
    assert_int_equal(count_files(), 3);
    close_life(&l);
}

/* Files that were not completed go, but only this stage's. */
static void what_was_not_completed_is_removed(void **unused)
{
    (void)unused;
    struct life l;
    static const char *const names[] = {"0000000100000001-0-2.stage.0badcafe", "0000000100000001-2-4.stage.0badcafe",
                                        "notes.txt"};
    char path[200];
    open_life(&l, 0, 2, NULL, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    stage_disk_do(l.disk, &(struct disk_order){.op = DISK_ENTER, .key = key, .budget = ROOMY});
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(access(path, F_OK), i ? 0 : -1);
        unlink(path);
    }
    close_life(&l);
}

/* A head that never ends its orders gets no more of them done. */
static void orders_that_nobody_ends_are_few(void **unused)
{
    (void)unused;
    struct life l;
    int n = 0;
    open_life(&l, 0, 2, key, ROOMY);
    write_both(&l);
    for (uint32_t i = 1001; i <= 1100; i++)
        stage_disk_do(l.disk, &(struct disk_order){.op = DISK_READ, .number = i, .n_parts = 1, .parts = state});
    for (uint32_t i = 1001; i <= 1100; i++) {
        uint32_t is_busy = 1, good = 0;
        for (int ms = 0; is_busy && ms < 20000; ms++) {
            is_busy = 0;
            good = 5;
            stage_disk_ask(l.disk, i, &is_busy, &good);
            if (is_busy) poll(NULL, 0, 1);
        }
        n += good > 0;
        stage_disk_do(l.disk, &(struct disk_order){.op = DISK_END, .number = i});
    }
    assert_int_equal(n, 64);
    close_life(&l);
}

/* Without a disk, nothing is ever good. */
static void a_stage_without_files_has_none(void **unused)
{
    (void)unused;
    uint32_t is_busy = 0, good = UINT32_MAX;
    stage_disk_ask(NULL, 1, &is_busy, &good);
    assert_int_equal(good, 0);
    assert_int_equal(is_busy, 0);
    is_busy = 1; /* an earlier stage is at it */
    stage_disk_ask(NULL, 1, &is_busy, &good);
    assert_int_equal(is_busy, 1);
}

/* ---- packets ---- */

static const struct step_limits limits = {.n_rows = 1,
                                          .n_seqs = 1,
                                          .n_moves = 1,
                                          .n_pages = 8,
                                          .n_windows = 4,
                                          .n_states = 2,
                                          .n_pages_each = 3,
                                          .page_slots = KV_PAGE_SLOTS};

static int read_again(struct disk_order *out, const struct disk_order *o, struct qn_error *e)
{
    static uint8_t bytes[1 << 12] __attribute__((aligned(4)));
    struct packet_out p = {.p = bytes, .cap = sizeof bytes};
    disk_order_put(&p, 1, 2, o);
    assert_true(p.n <= disk_order_bytes(&limits) || o->n_parts > disk_order_most(&limits));
    return disk_order_read(out, packet_body(bytes, p.n), &limits, e);
}

static void orders_are_read_as_they_were_written(void **unused)
{
    (void)unused;
    struct disk_order o, enter = {.op = DISK_ENTER, .key = key, .budget = 0x123456789abcu};
    assert_int_equal(read_again(&o, &enter, NULL), 0);
    assert_memory_equal(o.key, key, sizeof key);
    assert_true(o.budget == enter.budget && o.n_parts == 0);
    assert_int_equal(
        read_again(&o, &(struct disk_order){.op = DISK_READ, .number = 9, .n_parts = 2, .parts = pages}, NULL), 0);
    assert_int_equal(o.number, 9);
    assert_memory_equal(o.parts, pages, 2 * sizeof *pages);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_ASK, .number = 9, .n_good = 3, .is_busy = 1}, NULL),
                     0);
    assert_true(o.n_good == 3 && o.is_busy == 1);
}

static void orders_out_of_limits_are_refused(void **unused)
{
    (void)unused;
    struct disk_part wrong[] = {{{1, 1}, 0, KV_PAGES, 8, KV_PAGE_SLOTS},
                                {{1, 1}, 0, KV_PAGES, -1, KV_PAGE_SLOTS},
                                {{1, 1}, 0, KV_WINDOWS, 4, KV_PAGE_SLOTS},
                                {{1, 1}, 0, KV_STATES, 2, 0},
                                {{1, 1}, 0, 3, 0, 0},
                                {{1, 1}, 0, KV_PAGES, 0, KV_PAGE_SLOTS + 1},
                                {{1, 1}, 1 << 24, KV_PAGES, 0, KV_PAGE_SLOTS}};
    struct disk_part many[16] = {{{0, 0}, 0, 0, 0, 0}};
    struct disk_order o;
    struct qn_error e;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_WRITE, .n_parts = 1, .parts = &wrong[i]}, &e),
                         QN_EDATA);
    assert_int_equal(disk_order_most(&limits), 7);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_READ, .n_parts = 7, .parts = many}, &e), 0);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_READ, .n_parts = 8, .parts = many}, &e), QN_EDATA);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_READ}, &e), QN_EDATA);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_ASK, .n_parts = 1, .parts = many}, &e), QN_EDATA);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_ASK, .is_busy = 2}, &e), QN_EDATA);
    assert_int_equal(read_again(&o, &(struct disk_order){.op = DISK_OPS}, &e), QN_EDATA);
    assert_int_equal(disk_order_read(&o, (struct packet_in){(const uint8_t *)many, 12}, &limits, &e), QN_EDATA);
}

/* ---- the last cuts ---- */

static void the_last_cuts_are_found_again(void **unused)
{
    (void)unused;
    const uint8_t model[SHA256_BYTES] = {4}, other[SHA256_BYTES] = {5};
    const int32_t cuts[] = {0, 3, 9, 12};
    static const char *const damaged[] = {" 0 3 9 12 12\n", " 0 3 3 12\n", " 1 3 9 12\n", " 0 3 9 11\n",
                                          " 0 3 9\n",       "\n",          " x\n"};
    int32_t found[4] = {0};
    char path[100], text[200], digits[2 * SHA256_BYTES + 1];
    assert_false(last_cuts_read(root, model, 3, 12, found));
    last_cuts_write(root, model, 3, cuts);
    assert_true(last_cuts_read(root, model, 3, 12, found));
    assert_memory_equal(found, cuts, sizeof cuts);
    assert_false(last_cuts_read(root, other, 3, 12, found));
    assert_false(last_cuts_read(root, model, 2, 12, found));
    assert_false(last_cuts_read(root, model, 3, 13, found));
    sha256_hex(model, digits);
    snprintf(path, sizeof path, "%s/placement", root);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        FILE *f = fopen(path, "w");
        snprintf(text, sizeof text, "%s%s", digits, damaged[i]);
        fputs(text, f);
        fclose(f);
        assert_false(last_cuts_read(root, model, 3, 12, found));
    }
    unlink(path);
}

static int remove_all(void **unused)
{
    char command[100];
    (void)unused;
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_written_is_read, remove_all),
        cmocka_unit_test_teardown(what_is_not_there_is_not_read, remove_all),
        cmocka_unit_test_teardown(damage_is_found, remove_all),
        cmocka_unit_test_teardown(a_huge_table_is_not_read, remove_all),
        cmocka_unit_test_teardown(the_folder_stays_within_its_budget, remove_all),
        cmocka_unit_test_teardown(what_was_not_completed_is_removed, remove_all),
        cmocka_unit_test_teardown(orders_that_nobody_ends_are_few, remove_all),
        cmocka_unit_test(a_stage_without_files_has_none),
        cmocka_unit_test(orders_are_read_as_they_were_written),
        cmocka_unit_test(orders_out_of_limits_are_refused),
        cmocka_unit_test_teardown(the_last_cuts_are_found_again, remove_all),
    };
    if (!mkdtemp(root)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(root);
    return failed;
}
