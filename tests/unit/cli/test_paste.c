/* SPDX-License-Identifier: MIT
 *
 * test_paste.c: pasted bytes, the marks that stand for them, and the text in the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/chat/paste.h"

static void paste(struct buf *raw, const char *bytes)
{
    buf_clear(raw);
    for (; *bytes; bytes++) assert_int_equal(paste_byte(raw, (unsigned char)*bytes, NULL), bytes[1] ? 0 : 1);
    paste_lines(raw);
}

static void the_bracket_ends_it(void **state)
{
    struct buf raw = {0};
    (void)state;
    paste(&raw, "a~[201~\033[201x\033[201~");
    assert_string_equal((char *)raw.data, "a~[201~\033[201x");
    paste(&raw, "one\r\ntwo\rthree\nfour\r\r\033[201~");
    assert_string_equal((char *)raw.data, "one\ntwo\nthree\nfour\n\n");
    paste(&raw, "\033[201~");
    assert_int_equal(raw.len, 0);
    buf_deinit(&raw);
}

static void marks_stand_for_texts(void **state)
{
    struct paste_list l = {0};
    struct buf raw = {0}, out = {0};
    char line[400];
    (void)state;
    paste(&raw, "short and \xC3\xBC\033[201~");
    assert_string_equal(paste_shown(&l, &raw, NULL), "short and \xC3\xBC");
    assert_int_equal(l.n, 0);
    paste(&raw, "two\rlines\033[201~");
    assert_string_equal(paste_shown(&l, &raw, NULL), "[paste 1: 9 bytes, 2 lines]");
    paste(&raw, "[paste 1: 9 bytes, 2 lines]\r\033[201~"); /* what it says is not looked into */
    assert_string_equal(paste_shown(&l, &raw, NULL), "[paste 2: 28 bytes, 1 line]");
    snprintf(line, sizeof line, "x %s [y %s%s", l.v[1].mark, l.v[0].mark, l.v[0].mark);
    assert_int_equal(paste_expand(&l, line, strlen(line), &out, NULL), 0);
    assert_string_equal((char *)out.data, "x [paste 1: 9 bytes, 2 lines]\n [y two\nlinestwo\nlines");
    assert_int_equal(paste_mark_before(&l, line, strlen(line)), strlen(l.v[0].mark));
    assert_int_equal(paste_mark_before(&l, line, strlen(line) - 1), 0);
    assert_int_equal(paste_mark_before(&l, line, 2), 0);
    paste_clear(&l);
    assert_int_equal(l.n, 0);
    buf_deinit(&raw);
    buf_deinit(&out);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bracket_ends_it),
        cmocka_unit_test(marks_stand_for_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
