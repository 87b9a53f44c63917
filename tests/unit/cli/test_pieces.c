/* SPDX-License-Identifier: MIT
 *
 * test_pieces.c: boundaries depend on what a text says, so that an edit changes the pieces around it alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "cli/ask/pieces.h"

#define MAX ((size_t)4096)
#define MIN (MAX / 4)

struct given_text {
    const char *p;
    size_t n, step;
};
struct cut {
    uint64_t hash[4096];
    size_t n, n_broken, longest, shortest, bytes; /* n_broken: that end within a line */
};

static int give(void *arg, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    struct given_text *t = arg;
    (void)e;
    *n = t->n < t->step ? t->n : t->step;
    if (*n > cap) *n = cap;
    memcpy(out, t->p, *n);
    t->p += *n;
    t->n -= *n;
    return 0;
}

static struct cut cut_text(const char *text, size_t n, size_t step)
{
    struct given_text t = {text, n, step};
    struct pieces p;
    struct cut c = {.shortest = SIZE_MAX};
    const char *piece;
    assert_int_equal(pieces_init(&p, MIN, MAX, give, &t, NULL), 0);
    while (assert_int_equal(pieces_next(&p, &piece, &n, NULL), 0), n) {
        assert_memory_equal(piece, text + c.bytes, n); /* nothing is lost, nothing is moved */
        c.bytes += n;
        c.n_broken += piece[n - 1] != '\n';
        c.hash[c.n++] = hash_bytes(piece, n, 0);
        if (n > c.longest) c.longest = n;
        if (n < c.shortest) c.shortest = n;
    }
    pieces_deinit(&p);
    return c;
}

/* Lines of many lengths, no two the same. */
static size_t write_lines(char *text, size_t n_lines, uint64_t seed)
{
    size_t n = 0;
    for (size_t i = 0; i < n_lines; i++) {
        n += (size_t)sprintf(text + n, "%zu %llx ", i, (unsigned long long)rng_u64(seed, 0, i));
        for (uint64_t k = rng_u64(seed, 1, i) % 60; k; k--) text[n++] = 'x';
        text[n++] = '\n';
    }
    return n;
}

static size_t n_common(const struct cut *a, const struct cut *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < b->n; k++)
            if (a->hash[i] == b->hash[k]) {
                n++;
                break;
            }
    return n;
}

static void test_an_edit_changes_the_pieces_around_it(void **state)
{
    (void)state;
    static char text[400000], edited[400000];
    size_t n = write_lines(text, 4000, 1);
    struct cut before = cut_text(text, n, n);
    assert_int_equal(before.bytes, n);
    assert_true(before.n > 80);
    for (int i = 1; i < 20; i++) { /* a line is put in, somewhere */
        size_t at = (size_t)(strchr(text + n / 20 * (size_t)i, '\n') - text) + 1;
        memcpy(edited, text, at);
        int more = sprintf(edited + at, "a new line, number %d\n", i);
        memcpy(edited + at + more, text + at, n - at);
        struct cut after = cut_text(edited, n + (size_t)more, n);
        assert_true(n_common(&before, &after) + 4 >= before.n);
        assert_true(n_common(&before, &after) < before.n);
    }
}

static void test_sizes_are_within_bounds(void **state)
{
    (void)state;
    static char text[400000];
    size_t n = write_lines(text, 4000, 2);
    struct cut c = cut_text(text, n, n);
    assert_true(c.longest <= MAX);
    assert_int_equal(c.n_broken, 0);
    assert_true(n / c.n > MAX / 3 && n / c.n < MAX * 6 / 10);
    memset(text, 'x', n); /* no lines at all */
    c = cut_text(text, n, n);
    assert_int_equal(c.longest, MAX);
    n = n / 3 * 3;
    for (size_t i = 0; i < n; i += 3) memcpy(text + i, "yy\n", 3); /* all lines the same: no line's end is a boundary */
    c = cut_text(text, n, n);
    assert_int_equal(c.longest, MAX / 3 * 3);
    assert_int_equal(c.n_broken, 0);
    for (size_t i = 0; i < n; i += 3) memcpy(text + i, "€", 3); /* no character is cut */
    c = cut_text(text, n, n);
    assert_int_equal(c.longest, MAX / 3 * 3);
}

static void test_blocks_do_not_matter(void **state)
{
    (void)state;
    static char text[200000];
    size_t n = write_lines(text, 2000, 3);
    struct cut whole = cut_text(text, n, n);
    for (size_t step = 1; step < 70000; step = step * 7 + 1) {
        struct cut c = cut_text(text, n, step);
        assert_int_equal(c.n, whole.n);
        assert_memory_equal(c.hash, whole.hash, whole.n * sizeof *c.hash);
    }
    assert_int_equal(cut_text("", 0, 1).n, 0);
    assert_int_equal(cut_text("no end", 6, 1).n, 1);
}

static void test_halves(void **state)
{
    (void)state;
    assert_int_equal(pieces_half("ab\ncd\n", 6), 3);
    assert_int_equal(pieces_half("a\nbcdefgh", 9), 2);
    assert_int_equal(pieces_half("abcdefg\nh", 9), 8);
    assert_int_equal(pieces_half("abcd\n", 5), 2);
    assert_int_equal(pieces_half("€€", 6), 3);
    assert_int_equal(pieces_half("€", 3), 0);
    assert_int_equal(pieces_half("a", 1), 0);
}

static int break_off(void *arg, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    (void)arg, (void)out, (void)cap, (void)n;
    return error_set(e, QN_EIO, "gone");
}

static void test_a_source_that_fails(void **state)
{
    (void)state;
    struct pieces p;
    const char *text;
    size_t n;
    assert_int_equal(pieces_init(&p, 1, 2, break_off, NULL, NULL), 0);
    assert_int_equal(pieces_next(&p, &text, &n, NULL), QN_EIO);
    pieces_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_edit_changes_the_pieces_around_it),
        cmocka_unit_test(test_sizes_are_within_bounds),
        cmocka_unit_test(test_blocks_do_not_matter),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_a_source_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
