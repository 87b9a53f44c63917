/* SPDX-License-Identifier: MIT
 *
 * test_excerpt.c: what is kept of a text, cuts of it, the largest one that fits, and the message it becomes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/ask/excerpt.h"
#include "cli/ask/message.h"
#include "cli/ask/overflow.h"

/* n lines "0\n", "1\n", ..., given `step` bytes at a time. */
static char text[100000];
static size_t n_text;

static struct excerpt keep(enum excerpt_ends ends, size_t cap, int n_lines, size_t step)
{
    struct excerpt x;
    n_text = 0;
    for (int i = 0; i < n_lines; i++) n_text += (size_t)sprintf(text + n_text, "%d\n", i);
    excerpt_init(&x, ends, cap);
    for (size_t at = 0; at < n_text; at += step)
        assert_int_equal(excerpt_add(&x, text + at, n_text - at < step ? n_text - at : step, NULL), 0);
    assert_int_equal(excerpt_end(&x, false, NULL), 0);
    return x;
}

static void check_cut(const struct excerpt *x, size_t k)
{
    struct excerpt_cut c;
    excerpt_cut(x, k, &c);
    if (k < n_text) assert_true(c.n_head + c.n_tail <= k);
    assert_int_equal(c.n_head + c.n_tail + c.left_out, n_text);
    assert_memory_equal(c.head, text, c.n_head);
    assert_memory_equal(c.tail, text + n_text - c.n_tail, c.n_tail);
    if (c.left_out && c.n_head) assert_int_equal(c.head[c.n_head - 1], '\n');
    if (c.left_out && c.n_tail) assert_int_equal(text[n_text - c.n_tail - 1], '\n');
}

static void test_each_end_in_lines(void **state)
{
    (void)state;
    for (int ends = EXCERPT_HEAD; ends <= EXCERPT_BOTH; ends++)
        for (int n = 0; n < 5000; n = n * 3 + 1)
            for (size_t step = 1; step < 5000; step = step * 5 + 2) {
                struct excerpt x = keep((enum excerpt_ends)ends, 300, n, step);
                assert_int_equal(excerpt_most(&x), n_text <= 300 || (ends == EXCERPT_BOTH && n_text <= 600) ? n_text
                                                   : ends == EXCERPT_BOTH                                   ? 600
                                                                                                            : 300);
                for (size_t k = 14; k < 300; k += 7) check_cut(&x, k);
                excerpt_deinit(&x);
            }
}

static void test_a_long_line_is_cut_between_characters(void **state)
{
    (void)state;
    struct excerpt x;
    struct excerpt_cut c;
    for (int ends = EXCERPT_HEAD; ends <= EXCERPT_BOTH; ends++) {
        excerpt_init(&x, (enum excerpt_ends)ends, 1000);
        for (int i = 0; i < 5000; i++) assert_int_equal(excerpt_add(&x, "€", 3, NULL), 0);
        assert_int_equal(excerpt_end(&x, false, NULL), 0);
        for (size_t k = 0; k <= excerpt_most(&x); k++) {
            excerpt_cut(&x, k, &c);
            assert_int_equal(c.n_head % 3, 0);
            assert_int_equal(c.n_tail % 3, 0);
            assert_true(c.n_head + c.n_tail <= k && c.n_head + c.n_tail + 6 > k);
            if (c.n_tail) assert_memory_equal(c.tail, "€", 3);
        }
        excerpt_deinit(&x);
    }
}

static void test_a_head_is_full_some_time(void **state)
{
    (void)state;
    struct excerpt x;
    struct excerpt_cut c;
    excerpt_init(&x, EXCERPT_HEAD, 4);
    assert_int_equal(excerpt_add(&x, "ab\n", 3, NULL), 0);
    assert_false(excerpt_is_full(&x));
    assert_int_equal(excerpt_add(&x, "cd\n", 3, NULL), 0);
    assert_true(excerpt_is_full(&x));
    assert_int_equal(excerpt_end(&x, true, NULL), 0);
    excerpt_cut(&x, 4, &c);
    assert_true(c.left_out == UINT64_MAX);
    excerpt_deinit(&x);
}

/* ---- the largest that fits ---- */

struct counting {
    int n_calls, dense_until;
};

static size_t kept_lines(void *arg, size_t k) /* lines of 10 bytes */
{
    (void)arg;
    return k / 10 * 10;
}

/* A token for each byte at first, later one for four. */
static int count_tokens(void *arg, size_t k, int *n, struct qn_error *e)
{
    struct counting *c = arg;
    int kept = (int)kept_lines(NULL, k);
    (void)e;
    c->n_calls++;
    *n = 20 + (kept < c->dense_until ? kept : c->dense_until + (kept - c->dense_until) / 4);
    return 0;
}

static void test_the_largest_cut_with_few_counts(void **state)
{
    (void)state;
    for (int dense = 0; dense < 100000; dense = dense * 4 + 100)
        for (int room = 20; room < 30000; room = room * 3 + 7) {
            struct counting c = {0, dense};
            struct overflow o = {100000, room, kept_lines, count_tokens, &c};
            size_t k;
            int n, more;
            assert_int_equal(overflow_fit(&o, &k, NULL), 0);
            assert_true(c.n_calls <= 24);
            count_tokens(&c, k, &n, NULL);
            count_tokens(&c, kept_lines(NULL, k) + 10, &more, NULL);
            assert_true(n <= room);
            assert_true(k >= 100000 || more > room);
        }
    struct counting c = {0, 0};
    struct overflow o = {100, 19, kept_lines, count_tokens, &c};
    struct qn_error e;
    size_t k;
    assert_int_equal(overflow_fit(&o, &k, &e), QN_EFULL);
    assert_string_equal(e.msg, "there is room for 19 tokens, and the instruction alone has 20");
}

/* ---- messages ---- */

static void check_message(const struct message_text *t, size_t n, const char *instruction, const char *wanted)
{
    struct buf b = {0};
    assert_int_equal(message_compose(&b, t, n, instruction, NULL), 0);
    assert_string_equal(b.data ? (char *)b.data : "", wanted);
    buf_deinit(&b);
}

#define TEXT(label, s)                                                                                                 \
    {                                                                                                                  \
        label, { .head = s, .n_head = sizeof s - 1 }                                                                   \
    }

static void test_messages(void **state)
{
    (void)state;
    struct message_text alone[] = {TEXT(NULL, "text")}, named[] = {TEXT("a.c", "text\n")},
                        two[] = {TEXT("a.c", "x"), TEXT("standard input", "y\n")}, ticks[] = {TEXT(NULL, "a\n````c\n")},
                        empty[] = {TEXT(NULL, "")};
    check_message(NULL, 0, "Do it.", "Do it.");
    check_message(alone, 1, "", "text");
    check_message(alone, 1, "Do it.", "```\ntext\n```\n\nDo it.");
    check_message(named, 1, "", "a.c:\n```\ntext\n```\n");
    check_message(two, 2, "Do it.", "a.c:\n```\nx\n```\n\nstandard input:\n```\ny\n```\n\nDo it.");
    check_message(ticks, 1, "Do it.", "`````\na\n````c\n`````\n\nDo it.");
    check_message(empty, 1, "Do it.", "```\n```\n\nDo it.");
}

static void test_messages_say_what_is_left_out(void **state)
{
    (void)state;
    struct message_text t = {NULL,
                             {.head = "head", .n_head = 4, .tail = "tail\n", .n_tail = 5, .left_out = 1073741700}};
    check_message(&t, 1, "Do it.", "```\nhead\n[... 1073741700 bytes left out ...]\ntail\n```\n\nDo it.");
    t.cut.n_head = 0;
    check_message(&t, 1, "Do it.", "```\n[... 1073741700 bytes left out ...]\ntail\n```\n\nDo it.");
    t.cut = (struct excerpt_cut){.head = "head\n", .n_head = 5, .tail = "", .left_out = UINT64_MAX};
    check_message(&t, 1, "Do it.", "```\nhead\n[... the rest is left out ...]\n```\n\nDo it.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_end_in_lines),
        cmocka_unit_test(test_a_long_line_is_cut_between_characters),
        cmocka_unit_test(test_a_head_is_full_some_time),
        cmocka_unit_test(test_the_largest_cut_with_few_counts),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_say_what_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
