/* SPDX-License-Identifier: MIT
 *
 * test_error.c: messages are formatted, made harmless and cut on a character boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/error.h"

static void formats_and_returns_the_code(void **state)
{
    (void)state;
    struct qn_error e = {0};
    assert_int_equal(error_set(&e, QN_EDATA, "tensor '%s' ends at %d", "a.b", 42), QN_EDATA);
    assert_int_equal(e.code, QN_EDATA);
    assert_string_equal(e.msg, "tensor 'a.b' ends at 42");
    assert_int_equal(error_set(NULL, QN_EIO, "nobody listens"), QN_EIO);
    assert_int_equal(error_nomem(&e, "the cache", 123), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "123"));
    assert_non_null(strstr(e.msg, "the cache"));
}

/* Input and what has to be shown for it. */
static void cleans(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } t[] = {
        {"", ""},
        {"plain ~", "plain ~"},
        {"gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x99\x82", "gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x99\x82"},
        {"a\nb\tc", "a\\x0Ab\\x09"
                    "c"},
        {"\x1b[2J", "\\x1B[2J"},
        {"\x7f", "\\x7F"},
        {"\xc2\x9b"
         "1m",
         "\\xC2\\x9B"
         "1m"}, /* C1: some terminals take it for ESC [ */
        {"\xe2\x80\xae"
         "fdp",
         "\\xE2\\x80\\xAE"
         "fdp"}, /* right-to-left override */
        {"\xff\xfe", "\\xFF\\xFE"},
        {"\x80", "\\x80"},
        {"\xc0\xaf", "\\xC0\\xAF"},                   /* overlong */
        {"\xe0\x80\xaf", "\\xE0\\x80\\xAF"},          /* overlong */
        {"\xf0\x80\x80\xaf", "\\xF0\\x80\\x80\\xAF"}, /* overlong */
        {"\xed\xa0\x80", "\\xED\\xA0\\x80"},          /* a surrogate */
        {"\xf4\x90\x80\x80", "\\xF4\\x90\\x80\\x80"}, /* beyond U+10FFFF */
        {"\xf5", "\\xF5"},
        {"\xe4\xbd", "\\xE4\\xBD"}, /* ends early */
        {"\xe4\xbdx", "\\xE4\\xBDx"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char out[100];
        size_t n = error_clean(out, sizeof out, t[i].in);
        assert_string_equal(out, t[i].out);
        assert_int_equal(n, strlen(out));
    }
}

/* Whatever the capacity, the result is the longest run of whole pieces that fits. */
static void cuts_between_characters(void **state)
{
    (void)state;
    const char *in = "x\xe4\xbd\xa0\n\xc3\xbcy";
    const char *full = "x\xe4\xbd\xa0\\x0A\xc3\xbcy";
    static const size_t ends[] = {0, 1, 4, 8, 10, 11}; /* of the pieces in full */
    for (size_t cap = 1; cap <= 14; cap++) {
        char out[16];
        memset(out, '#', sizeof out);
        size_t want = 0;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (ends[i] < cap) want = ends[i];
        assert_int_equal(error_clean(out, cap, in), want);
        assert_memory_equal(out, full, want);
        assert_int_equal(out[want], 0);
        assert_int_equal(out[cap], '#');
    }
    char c = '#';
    assert_int_equal(error_clean(&c, 0, in), 0);
    assert_int_equal(c, '#');
}

static void long_message_keeps_both_ends(void **state)
{
    (void)state;
    struct qn_error e;
    char name[2000];
    for (size_t i = 0; i < sizeof name - 1; i++) name[i] = "\xe2\x82\xac"[i % 3]; /* euro signs */
    name[sizeof name / 3 * 3] = 0;
    for (int skip = 0; skip < 3; skip++) {
        error_set(&e, QN_EDATA, "%.*s%s: no such file", skip, "abc", name);
        size_t n = strlen(e.msg);
        assert_true(n < sizeof e.msg && n + 5 >= sizeof e.msg);
        const char *gap = strstr(e.msg, " ... "), *end = strstr(e.msg, ": no such file");
        assert_non_null(gap);
        assert_int_equal((size_t)(gap - e.msg - skip) % 3, 0); /* no character is cut */
        assert_int_equal(strlen(end), 14);
        assert_int_equal((size_t)(end - gap - 5) % 3, 0);
        assert_null(strchr(e.msg, '\\'));
    }
    memset(name, '\n', sizeof name - 1); /* cleaning makes it four times as long */
    name[sizeof name - 1] = 0;
    error_set(&e, QN_EDATA, "%s: the end", name);
    assert_true(strlen(e.msg) < sizeof e.msg);
    assert_null(strchr(e.msg, '\n'));
    memset(name, 'x', sizeof e.msg);
    name[sizeof e.msg - 1] = 0; /* just fits */
    error_set(&e, QN_EDATA, "%s", name);
    assert_string_equal(e.msg, name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_and_returns_the_code),
        cmocka_unit_test(cleans),
        cmocka_unit_test(cuts_between_characters),
        cmocka_unit_test(long_message_keeps_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
