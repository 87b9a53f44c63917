/* SPDX-License-Identifier: MIT
 *
 * test_history.c: entries from one run to the next, several runs at a time, a file that has become large, and places
 * where none can be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/chat/history.h"

static char folder[] = "/tmp/quern-history-XXXXXX", path[100];

static void begin(struct history *h) { assert_int_equal(history_open(h, path, NULL), 0); }

static int start(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void entries_come_back(void **state)
{
    struct history h, other;
    struct stat st;
    (void)state;
    begin(&h);
    assert_int_equal(h.text.len, 0);
    begin(&other);
    history_add(&h, "one\ntwo \\n \\", 12);
    history_add(&other, "gr\xC3\xBC\xC3\x9F", 6);
    history_add(&h, "a\0b", 3); /* not kept */
    history_add(&h, "", 0);
    history_close(&h);
    history_close(&other);
    begin(&h);
    assert_int_equal(h.text.len, 20);
    assert_memory_equal(h.text.data, "one\ntwo \\n \\\0gr\xC3\xBC\xC3\x9F", 20);
    history_close(&h);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void it_does_not_grow_for_ever(void **state)
{
    struct history h;
    struct stat st;
    char text[HISTORY_ENTRY_BYTES + 1], last[20];
    (void)state;
    begin(&h);
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 400; i++) {
        snprintf(last, sizeof last, "%06d", i);
        memcpy(text, last, 6);
        history_add(&h, text, sizeof text - 1);
    }
    history_add(&h, text, sizeof text); /* too long */
    for (int i = 0; i < 100; i++) history_add(&h, "short", 5);
    history_close(&h);
    begin(&h);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size <= HISTORY_FILE_BYTES && st.st_size > HISTORY_FILE_BYTES / 2);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(h.text.len, st.st_size); /* a NUL for each line break */
    assert_memory_equal(h.text.data + h.text.len - 6, "short", 6);
    assert_int_equal(h.text.data[0], '0');
    history_add(&h, "after", 5); /* into the new file */
    history_close(&h);
    begin(&h);
    assert_memory_equal(h.text.data + h.text.len - 6, "after", 6);
    history_close(&h);
}

static void no_more_than_so_many(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    for (int i = 0; i < HISTORY_ENTRIES + 10; i++) history_add(&h, i < 10 ? "old" : "new", 3);
    history_close(&h);
    begin(&h);
    assert_int_equal(h.text.len, 4 * HISTORY_ENTRIES);
    assert_memory_equal(h.text.data, "new", 4);
    history_close(&h);
}

static void what_was_cut_is_left_out(void **state)
{
    struct history h;
    (void)state;
    FILE *f = fopen(path, "w");
    fwrite("\n\nwhole\nwith\0nul\nhalf", 1, 21, f);
    fclose(f);
    begin(&h);
    assert_int_equal(h.text.len, 6);
    assert_memory_equal(h.text.data, "whole", 6);
    history_close(&h);
}

static void where_none_can_be(void **state)
{
    struct history h;
    struct qn_error e;
    (void)state;
    assert_int_equal(history_open(&h, folder, &e), QN_EIO);
    assert_non_null(strstr(e.msg, folder));
    history_add(&h, "nothing happens", 15);
    history_close(&h);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(history_open(&h, path, &e), QN_EIO);
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_int_equal(history_open(&h, "/proc/no/such/history", &e), QN_EIO);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(entries_come_back, start),    cmocka_unit_test_setup(it_does_not_grow_for_ever, start),
        cmocka_unit_test_setup(no_more_than_so_many, start), cmocka_unit_test_setup(what_was_cut_is_left_out, start),
        cmocka_unit_test_setup(where_none_can_be, start),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/quern/history", folder); /* its folder is made */
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    return rmdir(folder) ? 1 : rc;
}
