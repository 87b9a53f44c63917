/* SPDX-License-Identifier: MIT
 *
 * test_chain_io.c: parts of a file read by several readers: in what order, past the page cache, with errors anywhere,
 * and cancelled.
 *
 * pread() of this program counts, waits and fails as a test wants. The file is in a folder of its own where the test
 * runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "cache/chain_io.h"

#define NAME       "0123456789abcdef.kv"
#define N_PARTS    12
#define PART_BYTES 12288
#define N_READERS  3
#define LIMIT_MS   100000

static char dir[] = "test_chain_io_XXXXXX";
static uint8_t *stored, *got; /* [N_PARTS][PART_BYTES], aligned for direct reads */
static struct chain_part parts[N_PARTS];
static struct chain_read r;
static struct worker *workers[N_READERS];
static struct qn_error e;

/* ---- the disk ---- */

static int fails_at;              /* the part of which no byte can be read; -1: none */
static bool refuses_direct;       /* as a file system without such reads */
static atomic_bool is_closed;     /* reads wait */
static atomic_int n_waiting;      /* reads that wait */
static atomic_int n_begun;        /* reads, ever */
static atomic_int n_direct_bytes; /* read past the page cache */

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    bool is_direct = fcntl(fd, F_GETFL) & O_DIRECT;
    n_begun++;
    n_waiting++;
    while (is_closed) nap();
    n_waiting--;
    if (is_direct && refuses_direct) errno = EINVAL;
    if (is_direct && refuses_direct) return -1;
    if (at / PART_BYTES == fails_at) errno = EIO;
    if (at / PART_BYTES == fails_at) return -1;
    ssize_t done = syscall(SYS_pread64, fd, p, n < 8192 ? n : 8192, at); /* less than was asked for */
    if (is_direct && done > 0) n_direct_bytes += (int)done;
    return done;
}

static void wait_until_waiting(int n)
{
    for (int i = 0; i < LIMIT_MS && n_waiting < n; i++) nap();
    assert_int_equal(n_waiting, n);
}

/* Writes the file; drops it from the page cache, as far as the file system does that. */
static int write_file(void **state)
{
    (void)state;
    FILE *f = fopen(NAME, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(stored, PART_BYTES, N_PARTS, f), N_PARTS);
    assert_int_equal(fflush(f) || fsync(fileno(f)), 0);
    posix_fadvise(fileno(f), 0, 0, POSIX_FADV_DONTNEED);
    fclose(f);
    memset(got, 0, N_PARTS * PART_BYTES);
    fails_at = -1;
    refuses_direct = false;
    is_closed = false;
    n_waiting = 0;
    n_begun = 0;
    n_direct_bytes = 0;
    for (int i = 0; i < N_PARTS; i++) {
        parts[i] = (struct chain_part){.name = NAME, .index = i, .offset = (uint64_t)i * PART_BYTES};
        parts[i].bytes = PART_BYTES;
        parts[i].sum = chain_part_sum(stored + i * PART_BYTES, PART_BYTES);
        parts[i].to = got + i * PART_BYTES;
    }
    return 0;
}

/* ---- reading ---- */

static void begin(void)
{
    chain_read_init(&r, AT_FDCWD, parts, N_PARTS, N_READERS);
    for (int i = 0; i < N_READERS; i++) worker_post(workers[i], &r.readers[i].job);
}

/* Waits for the readers. Returns the good parts, after a check of their bytes. */
static int end(const struct qn_error **why)
{
    *why = NULL;
    for (int i = 0; i < N_READERS; i++) worker_wait(workers[i], &r.readers[i].job);
    int n = chain_read_n_good(&r, why);
    assert_memory_equal(got, stored, (size_t)n * PART_BYTES);
    assert_int_equal(n < N_PARTS, *why != NULL);
    return n;
}

static void readers_read_at_the_same_time(void **state)
{
    const struct qn_error *why;
    (void)state;
    is_closed = true;
    begin();
    wait_until_waiting(N_READERS);
    is_closed = false;
    assert_int_equal(end(&why), N_PARTS);
}

static void an_error_in_any_part_keeps_all_before_it(void **state)
{
    const struct qn_error *why;
    for (int i = 0; i < N_PARTS; i++) {
        write_file(state);
        fails_at = i;
        begin();
        assert_int_equal(end(&why), i);
        assert_int_equal(why->code, QN_EIO);
        assert_string_equal(why->msg, strerror(EIO));
        fails_at = -1;
        stored[i * PART_BYTES + 7] ^= 1; /* the file is damaged, or the sum */
        write_file(state);
        stored[i * PART_BYTES + 7] ^= 1;
        parts[i].sum = chain_part_sum(stored + i * PART_BYTES, PART_BYTES);
        begin();
        assert_int_equal(end(&why), i);
        assert_int_equal(why->code, QN_EDATA);
        assert_non_null(strstr(why->msg, "the checksum of part "));
    }
}

/* Whichever reader meets it. */
static void of_several_errors_the_first_part_counts(void **state)
{
    static const int at[][N_READERS] = {{5, 6, 7}, {7, 5, 6}, {6, 7, 5}, {5, N_PARTS, N_PARTS}, {N_PARTS, N_PARTS, 5}};
    const struct qn_error *why;
    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        chain_read_init(&r, AT_FDCWD, parts, N_PARTS, N_READERS);
        for (int k = 0; k < N_READERS; k++) r.readers[k].n_good = at[i][k];
        assert_int_equal(chain_read_n_good(&r, &why), 5);
        for (int k = 0; k < N_READERS; k++) assert_int_equal(why == &r.readers[k].error, at[i][k] == 5);
    }
    parts[5].sum ^= 1;
    parts[6].sum ^= 1;
    parts[7].sum ^= 1;
    begin();
    assert_int_equal(end(&why), 5);
    assert_string_equal(why->msg, "the checksum of part 5 differs");
}

static void a_file_that_was_cut_ends_early(void **state)
{
    const struct qn_error *why;
    (void)state;
    assert_int_equal(truncate(NAME, 7 * PART_BYTES + 100), 0);
    begin();
    assert_int_equal(end(&why), 7);
    assert_int_equal(why->code, QN_EDATA);
    assert_string_equal(why->msg, "it ends 12188 bytes early");
    assert_int_equal(unlink(NAME), 0);
    begin();
    assert_int_equal(end(&why), 0);
    assert_int_equal(why->code, QN_EIO);
    assert_string_equal(why->msg, strerror(ENOENT));
}

static void a_cancelled_read_begins_no_more_parts(void **state)
{
    const struct qn_error *why;
    (void)state;
    is_closed = true;
    begin();
    wait_until_waiting(N_READERS);
    atomic_store(&r.is_cancelled, true);
    is_closed = false;
    assert_int_equal(end(&why), N_READERS); /* those that were being read */
    assert_int_equal(why->code, QN_ECANCEL);
    assert_int_equal(n_begun, 2 * N_READERS); /* a part takes two calls */
}

/* Where the file system can, and only what is not in the page cache. */
static void what_is_in_memory_is_not_read_directly(void **state)
{
    const struct qn_error *why;
    char byte;
    (void)state;
    int fd = open(NAME, O_RDONLY);
    for (int i = 0; i < N_PARTS * PART_BYTES; i += 4096) assert_int_equal(syscall(SYS_pread64, fd, &byte, 1, i), 1);
    close(fd);
    begin();
    assert_int_equal(end(&why), N_PARTS);
    assert_int_equal(n_direct_bytes, 0);
}

static void a_file_system_without_direct_reads_will_do(void **state)
{
    const struct qn_error *why;
    (void)state;
    refuses_direct = true;
    begin();
    assert_int_equal(end(&why), N_PARTS);
    assert_int_equal(n_direct_bytes, 0);
}

/* A page of a small model, or memory that is not aligned. */
static void any_alignment_will_do(void **state)
{
    const struct qn_error *why;
    (void)state;
    uint8_t *odd = malloc(PART_BYTES + 1);
    parts[0].to = odd + 1;
    parts[N_PARTS - 1].bytes = 333;
    parts[N_PARTS - 1].sum = chain_part_sum(stored + (N_PARTS - 1) * PART_BYTES, 333);
    parts[N_PARTS - 2].offset -= 33;
    parts[N_PARTS - 2].sum = chain_part_sum(stored + (N_PARTS - 2) * PART_BYTES - 33, PART_BYTES);
    begin();
    for (int i = 0; i < N_READERS; i++) worker_wait(workers[i], &r.readers[i].job);
    assert_int_equal(chain_read_n_good(&r, &why), N_PARTS);
    assert_memory_equal(odd + 1, stored, PART_BYTES);
    free(odd);
}

static int make_all(void **state)
{
    (void)state;
    stored = mem_aligned(4096, N_PARTS * PART_BYTES);
    got = mem_aligned(4096, N_PARTS * PART_BYTES);
    if (!stored || !got || !mkdtemp(dir) || chdir(dir)) return -1;
    for (int i = 0; i < N_PARTS * PART_BYTES; i++) stored[i] = (uint8_t)rng_u64(11, 0, (uint64_t)i);
    for (int i = 0; i < N_READERS; i++)
        if (worker_new(&workers[i], "reader", &e)) return -1;
    return 0;
}

static int free_all(void **state)
{
    (void)state;
    for (int i = 0; i < N_READERS; i++) worker_free(workers[i]);
    mem_free(stored);
    mem_free(got);
    unlink(NAME);
    return chdir("..") || rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(readers_read_at_the_same_time, write_file),
        cmocka_unit_test_setup(an_error_in_any_part_keeps_all_before_it, write_file),
        cmocka_unit_test_setup(of_several_errors_the_first_part_counts, write_file),
        cmocka_unit_test_setup(a_file_that_was_cut_ends_early, write_file),
        cmocka_unit_test_setup(a_cancelled_read_begins_no_more_parts, write_file),
        cmocka_unit_test_setup(what_is_in_memory_is_not_read_directly, write_file),
        cmocka_unit_test_setup(a_file_system_without_direct_reads_will_do, write_file),
        cmocka_unit_test_setup(any_alignment_will_do, write_file),
    };
    return cmocka_run_group_tests(tests, make_all, free_all);
}
