/* SPDX-License-Identifier: MIT
 *
 * test_sse.c: event streams as the HTML standard has them, whole and cut at every byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "client/sse.h"

/* What comes is written as "type|data;" and "#comment;". */
static int note(void *arg, const char *type, const char *text, size_t n)
{
    struct buf *b = arg;
    assert_int_equal(text[n], 0);
    if (buf_printf(b, NULL, type ? "%s|" : "#%.0s", type ? type : "") || buf_add(b, text, n, NULL) ||
        buf_str(b, ";", NULL))
        return -1;
    return n == 4 && !memcmp(text, "stop", 4) ? 77 : 0;
}

static const struct {
    const char *stream, *seen;
} cases[] = {
    {"data: a\n\n", "|a;"},
    {"data:a\n\n", "|a;"},
    {"data:  a\n\n", "| a;"},
    {"data: a\ndata: b\n\n", "|a\nb;"},
    {"data\n\n", "|;"},
    {"data:\ndata\n\n", "|\n;"},
    {"data: a\r\rdata: b\r\r", "|a;|b;"},
    {"data: a\r\n\r\ndata: b\r\n\r\n", "|a;|b;"},
    {"data: a\n\r\ndata: b\r\n\n", "|a;|b;"},
    {"data: a\r\n\rdata: b\n\r", "|a;|b;"},
    {"data: a\r\ndata: b\r\n\r\n", "|a\nb;"},
    {"data: a\rdata: b\r\r", "|a\nb;"},
    {"event: error\ndata: a\n\ndata: b\n\n", "error|a;|b;"},
    {"event: only a name\n\ndata: b\n\n", "|b;"},
    {": a comment\n:\n:x\n\n", "#a comment;#;#x;"},
    {"data: a\n: between\ndata: b\n\n", "#between;|a\nb;"},
    {"id: 1\nretry: 5\nfoo: bar\nfoo\n data: no\ndata : no\nData: no\n\n", ""},
    {"\xef\xbb\xbf"
     "data: a\n\n",
     "|a;"},
    {"data: a\n\n\xef\xbb\xbf"
     "data: b\n\n",
     "|a;"},
    {"\xef\xbb"
     "data: b\n\n",
     ""},
    {"\n\n\n\r\n\r", ""},
    {"data: cut off", ""},
    {"data: cut off\n", ""},
    {"data: a:b: c\n\n", "|a:b: c;"},
    {"data: [DONE]\n\n", "|[DONE];"},
};

static void as_the_standard_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n = strlen(cases[i].stream), step = 1; step <= n; step++) {
            struct sse s = {0};
            struct buf seen = {0};
            for (size_t at = 0; at < n; at += step) {
                size_t k = n - at < step ? n - at : step;
                char *copy = malloc(k);
                memcpy(copy, cases[i].stream + at, k);
                assert_int_equal(sse_read(&s, copy, k, note, &seen, NULL), 0);
                free(copy);
            }
            assert_string_equal(seen.data ? (char *)seen.data : "", cases[i].seen);
            sse_deinit(&s);
            buf_deinit(&seen);
        }
}

static void a_sink_ends_it(void **state)
{
    (void)state;
    struct sse s = {0};
    struct buf seen = {0};
    const char *text = "data: a\n\ndata: stop\n\ndata: b\n\n";
    assert_int_equal(sse_read(&s, text, strlen(text), note, &seen, NULL), 77);
    assert_string_equal((char *)seen.data, "|a;|stop;");
    sse_deinit(&s);
    buf_deinit(&seen);
}

static void too_long(void **state)
{
    (void)state;
    static char block[1 << 20];
    struct qn_error e;
    for (int lines = 0; lines < 2; lines++) { /* one line without an end; an event of many */
        struct sse s = {0};
        struct buf seen = {0};
        int rc = 0, n = 0;
        memset(block, 'a', sizeof block);
        if (lines) memcpy(block, "data: ", 6);
        if (lines) block[sizeof block - 1] = '\n';
        while (!rc && n++ < 20) rc = sse_read(&s, block, sizeof block, note, &seen, &e);
        assert_int_equal(rc, QN_EDATA);
        assert_true(n >= 16 && n <= 18);
        sse_deinit(&s);
        buf_deinit(&seen);
    }
}

static void nul_bytes_are_bytes(void **state)
{
    (void)state;
    struct sse s = {0};
    struct buf seen = {0};
    assert_int_equal(sse_read(&s, "data: a\0b\n\n", 11, note, &seen, NULL), 0);
    assert_int_equal(seen.len, 5);
    assert_memory_equal(seen.data, "|a\0b;", 5);
    sse_deinit(&s);
    buf_deinit(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_standard_says),
        cmocka_unit_test(a_sink_ends_it),
        cmocka_unit_test(too_long),
        cmocka_unit_test(nul_bytes_are_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
