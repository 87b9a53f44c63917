/* SPDX-License-Identifier: MIT
 *
 * test_render.c: replies as a terminal gets them: nothing it would act on, however they are cut; thoughts apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/core/render.h"

static int ends[2];

static struct render terminal(bool colour)
{
    struct render r;
    render_init(&r, ends[1]);
    assert_false(r.terminal || r.colour); /* a pipe */
    r.terminal = true;
    r.colour = colour;
    return r;
}

/* What was written since the last time. */
static const char *written(void)
{
    static char text[4096];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void nothing_a_terminal_acts_on(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\ttab\nline", "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\ttab\nline"},
        {"\x1B]0;title\x07 \x1B[2J", "\\x1B]0;title\\x07 \\x1B[2J"},
        {"a\rb\bc\x7F"
         "d",
         "a\\x0Db\\x08c\\x7Fd"},
        {"\xC2\x9B"
         "31m",
         "\\xC2\\x9B31m"}, /* CSI, as one C1 character */
        {"\x9B"
         "31m",
         "\\x9B31m"}, /* and as a byte */
        {"\xE2\x80\xAE"
         "abc",
         "\\xE2\\x80\\xAEabc"},              /* right to left override */
        {"\xED\xA0\x80", "\\xED\\xA0\\x80"}, /* a surrogate */
        {"\xC0\xAF", "\\xC0\\xAF"},          /* overlong */
        {"cut \xF0\x9F\x98", "cut \\xF0\\x9F\\x98"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t piece = 1; piece < 6; piece++) {
            struct render r = terminal(piece % 2);
            char want[200];
            size_t n = strlen(cases[i].in);
            for (size_t at = 0; at < n; at += piece)
                assert_int_equal(render_answer(&r, cases[i].in + at, at + piece < n ? piece : n - at, NULL), 0);
            assert_int_equal(render_end(&r, NULL), 0);
            snprintf(want, sizeof want, "%s\n", cases[i].out);
            assert_string_equal(written(), want);
            render_deinit(&r);
        }
}

static void elsewhere_bytes_are_as_they_are(void **state)
{
    struct render r;
    (void)state;
    render_init(&r, ends[1]);
    assert_int_equal(render_thought(&r, "hm", 2, NULL), 0);
    assert_int_equal(render_note(&r, "queued", 6, NULL), 0);
    assert_int_equal(render_answer(&r, "\n\x1B[2J\xFF\n\n", 8, NULL), 0);
    assert_int_equal(render_end(&r, NULL), 0);
    assert_string_equal(written(), "\n\x1B[2J\xFF\n\n");
    assert_int_equal(render_answer(&r, "a", 1, NULL), 0);
    assert_int_equal(render_end(&r, NULL), 0);
    assert_string_equal(written(), "a\n");
    render_deinit(&r);
}

static void reply(struct render *r)
{
    assert_int_equal(render_thought(r, "\ntwo\n\nand two\n", 14, NULL), 0);
    assert_int_equal(render_answer(r, "\n\nfour\n", 7, NULL), 0);
    assert_int_equal(render_end(r, NULL), 0);
}

static void thoughts_stand_apart(void **state)
{
    (void)state;
    struct render r = terminal(true);
    reply(&r);
    assert_string_equal(written(), "\033[2mtwo\n\nand two\033[0m\n\nfour\n");
    render_deinit(&r);
    r = terminal(false);
    reply(&r);
    assert_string_equal(written(), "| two\n| \n| and two\n\nfour\n");
    render_deinit(&r);
}

static void folded_thoughts_are_a_line(void **state)
{
    (void)state;
    struct render r = terminal(true);
    r.fold = true;
    reply(&r);
    const char *text = written();
    assert_null(strstr(text, "two"));
    assert_non_null(strstr(text, "\r\033[K\033[2mthought for 0."));
    assert_string_equal(text + strlen(text) - 8, "m\n\nfour\n");
    r.colour = false;
    reply(&r);
    text = written();
    assert_null(strstr(text, "two"));
    assert_null(strchr(text, '\033'));
    assert_int_equal(strncmp(text, "thinking...\nthought for 0.", 26), 0);
    render_deinit(&r);
}

static void notes_leave_no_trace(void **state)
{
    (void)state;
    struct render r = terminal(true);
    assert_int_equal(render_note(&r, "queued, \x1B[2J 3 before", 20, NULL), 0);
    assert_string_equal(written(), "\r\033[K\033[2mqueued, \\x1B[2J 3 befor\033[0m");
    assert_int_equal(render_answer(&r, "a", 1, NULL), 0);
    assert_string_equal(written(), "\r\033[Ka");
    assert_int_equal(render_note(&r, "late", 4, NULL), 0);
    assert_string_equal(written(), "");
    assert_int_equal(render_end(&r, NULL), 0);
    assert_int_equal(render_note(&r, "prefill", 7, NULL), 0);
    assert_int_equal(render_end(&r, NULL), 0);
    assert_string_equal(written(), "\n\r\033[K\033[2mprefill\033[0m\r\033[K");
    render_deinit(&r);
    r = terminal(false);
    assert_int_equal(render_note(&r, "queued", 6, NULL), 0);
    assert_string_equal(written(), "");
    render_deinit(&r);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_a_terminal_acts_on), cmocka_unit_test(elsewhere_bytes_are_as_they_are),
        cmocka_unit_test(thoughts_stand_apart),       cmocka_unit_test(folded_thoughts_are_a_line),
        cmocka_unit_test(notes_leave_no_trace),
    };
    if (pipe2(ends, O_NONBLOCK)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
