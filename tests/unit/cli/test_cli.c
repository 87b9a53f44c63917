/* SPDX-License-Identifier: MIT
 *
 * test_cli.c: the parts all commands share: exit codes, reading everything.
 *
 * Messages go to stderr, so each case runs with stderr in a temporary file and looks at what is in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "capture.h"
#include "cli/core/cli.h"

/* ---- exit codes and bytes ---- */

static void every_error_has_its_exit_code(void **state)
{
    (void)state;
    static const struct {
        int code, status;
    } map[] = {{QN_EUSAGE, 64}, {QN_EDATA, 65},   {QN_EUNSUP, 65},   {QN_ENOINPUT, 66}, {QN_ENOMEM, 75},
               {QN_EIO, 74},    {QN_ECANCEL, 70}, {QN_ENUMERIC, 65}, {QN_EFULL, 65}};
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        struct qn_error e = {map[i].code, "thing 7 is too large"};
        struct capture c = capture_begin(STDERR_FILENO);
        int status = cli_fail(&e);
        capture_end(c);
        assert_int_equal(status, map[i].status);
        assert_string_equal(printed, "quern: thing 7 is too large\n");
    }
}

static void *feed(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 300; i++) {
        char piece[1000];
        memset(piece, i, sizeof piece);
        if (write(fd, piece, sizeof piece) != sizeof piece) break;
    }
    close(fd);
    return NULL;
}

static void everything_is_read(void **state)
{
    (void)state;
    int ends[2];
    char *data = NULL;
    size_t n = 0;
    pthread_t t;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&t, NULL, feed, &ends[1]), 0);
    assert_int_equal(cli_read_all(ends[0], "standard input", CLI_MAX_INPUT, &data, &n), 0);
    pthread_join(t, NULL);
    close(ends[0]);
    assert_int_equal(n, 300000);
    for (size_t i = 0; i < n; i++) assert_int_equal((unsigned char)data[i], i / 1000 % 256);
    assert_int_equal(data[n], 0);
    mem_free(data);
    struct capture c = capture_begin(STDERR_FILENO);
    int rc = cli_read_all(-1, "standard input", CLI_MAX_INPUT, &data, &n);
    capture_end(c);
    assert_int_equal(rc, 74);
    assert_non_null(strstr(printed, "cannot read standard input"));
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    for (uint64_t fail = 1; fail <= 3; fail++) { /* the buffer, and its first two doublings */
        int ends[2];
        char *data = NULL;
        size_t n = 0;
        pthread_t t;
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(pthread_create(&t, NULL, feed, &ends[1]), 0);
        struct capture c = capture_begin(STDERR_FILENO);
        mem_fault_set(fail);
        int rc = cli_read_all(ends[0], "standard input", CLI_MAX_INPUT, &data, &n);
        capture_end(c);
        assert_true(mem_fault_hit());
        mem_fault_set(0);
        while (read(ends[0], printed + 4000, 4000) > 0) { /* lets the writer end */
        }
        pthread_join(t, NULL);
        close(ends[0]);
        assert_int_equal(rc, 75);
        assert_null(data);
    }
}

static void a_reader_that_left_is_no_error(void **state)
{
    (void)state;
    errno = EPIPE;
    assert_int_equal(cli_write_status(), 0);
    struct capture c = capture_begin(STDERR_FILENO);
    errno = ENOSPC;
    int rc = cli_write_status();
    capture_end(c);
    assert_int_equal(rc, 74);
    assert_non_null(strstr(printed, "No space left"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_its_exit_code),
        cmocka_unit_test(everything_is_read),
        cmocka_unit_test(failed_allocations_are_reported),
        cmocka_unit_test(a_reader_that_left_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
