/* SPDX-License-Identifier: MIT
 *
 * test_stop.c: stop strings across every cut of the text, against a search of the whole text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/stop.h"

#define MAX_STRINGS 4

static struct stop_string str(const char *s) { return (struct stop_string){s, strlen(s)}; }

static void push(struct stop_scan *s, const char *text, struct buf *out)
{
    assert_int_equal(stop_push(s, text, strlen(text), out, NULL), 0);
}

static void holds_back_and_gives_back(void **state)
{
    (void)state;
    struct stop_string list[] = {str("</s>"), str("\n\nUser:")};
    struct stop_scan s;
    struct buf out = {0};

    assert_int_equal(stop_init(&s, list, 2, NULL, 0, NULL), 0);
    push(&s, "Hello\n", &out);
    assert_string_equal((char *)out.data, "Hello");
    push(&s, "\nUs", &out);
    assert_string_equal((char *)out.data, "Hello");
    push(&s, "ual", &out);
    assert_string_equal((char *)out.data, "Hello\n\nUsual");
    push(&s, "<<", &out); /* the first one can no longer be a beginning */
    assert_string_equal((char *)out.data, "Hello\n\nUsual<");
    push(&s, "/", &out);
    assert_string_equal((char *)out.data, "Hello\n\nUsual<");
    assert_int_equal(s.hit, -1);
    assert_int_equal(stop_flush(&s, &out, NULL), 0);
    assert_string_equal((char *)out.data, "Hello\n\nUsual<</");
    assert_int_equal(stop_flush(&s, &out, NULL), 0); /* nothing twice */
    assert_string_equal((char *)out.data, "Hello\n\nUsual<</");
    push(&s, "!</s>tail", &out);
    assert_int_equal(s.hit, 0);
    assert_string_equal((char *)out.data, "Hello\n\nUsual<</!");
    push(&s, "more", &out);
    assert_int_equal(stop_flush(&s, &out, NULL), 0);
    assert_string_equal((char *)out.data, "Hello\n\nUsual<</!");
    buf_deinit(&out);
    stop_deinit(&s);
}

static void earliest_end_then_longest(void **state)
{
    (void)state;
    /* "bcd" ends before "abcde" does; "bc" and "abc" end together; one string twice: the first is reported */
    static const struct {
        const char *strings[3], *text, *before;
        int hit;
    } cases[] = {
        {{"abcde", "bcd", "x"}, "zabcde", "za", 1}, {{"bc", "abc", "x"}, "zabcde", "z", 1},
        {{"x", "bc", "bc"}, "zabcde", "za", 1},     {{"aab", "x", "y"}, "aaab", "a", 0},
        {{"abab", "ababc", "y"}, "abababc", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stop_string list[3];
        struct stop_scan s;
        struct buf out = {0};
        for (int j = 0; j < 3; j++) list[j] = str(cases[i].strings[j]);
        assert_int_equal(stop_init(&s, list, 3, NULL, 0, NULL), 0);
        for (const char *c = cases[i].text; *c; c++) assert_int_equal(stop_push(&s, c, 1, &out, NULL), 0);
        assert_int_equal(s.hit, cases[i].hit);
        assert_string_equal((char *)out.data, cases[i].before);
        buf_deinit(&out);
        stop_deinit(&s);
    }
}

static void tokens(void **state)
{
    (void)state;
    static const qn_token list[] = {2, 100001, 7};
    struct stop_scan s, none = {0};
    struct buf out = {0};

    assert_int_equal(stop_init(&s, NULL, 0, list, 3, NULL), 0);
    assert_true(stop_is_token(&s, 2) && stop_is_token(&s, 7) && stop_is_token(&s, 100001));
    assert_false(stop_is_token(&s, 0) || stop_is_token(&s, 3));
    push(&s, "text", &out); /* no strings: everything passes */
    assert_string_equal((char *)out.data, "text");
    stop_deinit(&s);
    assert_int_equal(stop_init(&none, NULL, 0, NULL, 0, NULL), 0);
    assert_false(stop_is_token(&none, 2));
    push(&none, "more", &out);
    assert_int_equal(stop_flush(&none, &out, NULL), 0);
    assert_string_equal((char *)out.data, "textmore");
    stop_deinit(&none);
    stop_deinit(&none);
    buf_deinit(&out);
}

static void refuses(void **state)
{
    (void)state;
    static char big[STOP_MAX_BYTES + 1];
    struct stop_string list[] = {str("ok"), str("")};
    struct stop_scan s = {.hit = 42};
    struct qn_error e;

    assert_int_equal(stop_init(&s, list, 2, NULL, 0, &e), QN_EUSAGE);
    assert_string_equal(e.msg, "stop string 2 is empty");
    list[1] = (struct stop_string){big, sizeof big};
    assert_int_equal(stop_init(&s, list, 2, NULL, 0, &e), QN_EUSAGE);
    assert_string_equal(e.msg, "stop string 2 has 65537 bytes, more than 65536");
    assert_int_equal(s.hit, 42); /* untouched */
}

/* Where the text ends by the definition: the earliest end, then the longest. */
static bool search(const struct stop_string *list, size_t n, const char *text, size_t len, size_t *start)
{
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n; i++)
            if (list[i].n <= end && list[i].n > longest &&
                memcmp(text + end - list[i].n, list[i].bytes, list[i].n) == 0)
                longest = list[i].n;
        if (longest) {
            *start = end - longest;
            return true;
        }
    }
    return false;
}

/* The longest end of the text that begins a stop string. */
static size_t longest_beginning(const struct stop_string *list, size_t n, const char *text, size_t len)
{
    for (size_t k = len; k > 0; k--)
        for (size_t i = 0; i < n; i++)
            if (k < list[i].n && memcmp(text + len - k, list[i].bytes, k) == 0) return k;
    return 0;
}

/* Strings and text over three letters, one of them NUL: overlaps and borders everywhere. */
static void random_text(void **state)
{
    (void)state;
    int n_hits = 0;
    for (uint64_t round = 0; round < 20000; round++) {
        char strings[MAX_STRINGS][8], text[64];
        struct stop_string list[MAX_STRINGS];
        uint64_t at = 0;
#define DRAW(n) ((size_t)(rng_u64(round, 1, at++) % (n)))
        size_t n = 1 + DRAW(MAX_STRINGS), len = DRAW(sizeof text), alphabet = 2 + DRAW(2), start = 0, done = 0;
        struct stop_scan s;
        struct buf out = {0};
        for (size_t i = 0; i < n; i++) {
            list[i] = (struct stop_string){strings[i], 1 + DRAW(8)};
            for (size_t j = 0; j < list[i].n; j++) strings[i][j] = (char)DRAW(alphabet);
        }
        for (size_t i = 0; i < len; i++) text[i] = (char)DRAW(alphabet);
        assert_int_equal(stop_init(&s, list, n, NULL, 0, NULL), 0);
        bool hit = search(list, n, text, len, &start);
        while (done < len && s.hit < 0) {
            size_t piece = 1 + DRAW(7);
            piece = piece < len - done ? piece : len - done;
            assert_int_equal(stop_push(&s, text + done, piece, &out, NULL), 0);
            done += piece;
            if (s.hit < 0) /* exactly what must be held back is */
                assert_int_equal(out.len, done - longest_beginning(list, n, text, done));
        }
        assert_int_equal(stop_flush(&s, &out, NULL), 0);
        assert_int_equal(s.hit >= 0, hit);
        assert_int_equal(out.len, hit ? start : len);
        if (out.len) assert_memory_equal(out.data, text, out.len);
        n_hits += hit;
        buf_deinit(&out);
        stop_deinit(&s);
    }
    assert_in_range(n_hits, 5000, 19000); /* both outcomes were tried */
}

/* 65536 times 'a' in a text of 'a' with a 'b' now and then: quadratic work would not end in time. */
static void linear_on_repetition(void **state)
{
    (void)state;
    enum { N = 4 << 20 };
    char *text = malloc(N), *pattern = malloc(STOP_MAX_BYTES);
    struct buf out = {0};
    struct stop_scan s;

    assert_true(text && pattern);
    memset(text, 'a', N);
    memset(pattern, 'a', STOP_MAX_BYTES);
    for (size_t i = STOP_MAX_BYTES - 2; i < N; i += STOP_MAX_BYTES - 1) text[i] = 'b';
    struct stop_string list = {pattern, STOP_MAX_BYTES};
    assert_int_equal(stop_init(&s, &list, 1, NULL, 0, NULL), 0);
    for (size_t i = 0; i < N; i += 4096) assert_int_equal(stop_push(&s, text + i, 4096, &out, NULL), 0);
    assert_int_equal(s.hit, -1);
    assert_int_equal(stop_flush(&s, &out, NULL), 0);
    assert_int_equal(out.len, N);
    assert_memory_equal(out.data, text, N);
    stop_deinit(&s);
    buf_deinit(&out);
    free(text), free(pattern);
}

/* A push or flush that fails for memory has changed nothing: the same call again succeeds. */
static void survives_failed_allocations(void **state)
{
    (void)state;
    struct stop_string list = str("stop here");
    struct stop_scan s;
    struct buf out = {0};

    mem_fault_set(1);
    assert_int_equal(stop_init(&s, &list, 1, NULL, 0, NULL), QN_ENOMEM);
    mem_fault_set(0);
    assert_int_equal(stop_init(&s, &list, 1, NULL, 0, NULL), 0);
    mem_fault_set(1);
    assert_int_equal(stop_push(&s, "a stop h", 8, &out, NULL), QN_ENOMEM);
    mem_fault_set(0);
    assert_int_equal(stop_push(&s, "a stop h", 8, &out, NULL), 0);
    assert_string_equal((char *)out.data, "a ");
    buf_deinit(&out);
    mem_fault_set(1);
    assert_int_equal(stop_flush(&s, &out, NULL), QN_ENOMEM);
    mem_fault_set(0);
    assert_int_equal(stop_flush(&s, &out, NULL), 0);
    assert_string_equal((char *)out.data, "stop h");
    buf_deinit(&out);
    stop_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_back_and_gives_back),
        cmocka_unit_test(earliest_end_then_longest),
        cmocka_unit_test(tokens),
        cmocka_unit_test(refuses),
        cmocka_unit_test(random_text),
        cmocka_unit_test(linear_on_repetition),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
