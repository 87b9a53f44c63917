/* SPDX-License-Identifier: MIT
 *
 * test_columns.c: columns line up, whatever is in them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/core/columns.h"

static void widths(void **state)
{
    (void)state;
    assert_int_equal(columns_width(""), 0);
    assert_int_equal(columns_width("abc"), 3);
    assert_int_equal(columns_width("Größe"), 5);
    assert_int_equal(columns_width("日本語"), 6);
    assert_int_equal(columns_width("ｆｕｌｌ"), 8);
    assert_int_equal(columns_width("e\xCC\x81"), 1); /* a letter and its accent */
    assert_int_equal(columns_width("\U0001F600"), 2);
    assert_int_equal(columns_width("\xff\xfe"), 2); /* bytes that are no characters: each stands for one */
}

static void sizes(void **state)
{
    (void)state;
    char text[32];
    const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},
                 {1023, "1023 bytes"},
                 {1024, "1.0 KiB"},
                 {5ull << 30, "5.0 GiB"},
                 {1ull << 62, "4194304.0 TiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        columns_size(cases[i].bytes, text);
        assert_string_equal(text, cases[i].text);
    }
}

/* What columns_print() writes to stdout. */
static void printed(struct text_columns *c, char *out, size_t cap)
{
    FILE *f = tmpfile();
    int saved = dup(STDOUT_FILENO);
    assert_non_null(f);
    fflush(stdout);
    dup2(fileno(f), STDOUT_FILENO);
    columns_print(c);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(f);
    out[fread(out, 1, cap - 1, f)] = 0;
    fclose(f);
}

static void rows_line_up(void **state)
{
    (void)state;
    char out[500];
    struct text_columns c = {.align = "lrl"};
    const char *cells[] = {"NAME", "N", "WHY", "日本", "12345", "", "a\033[1m\n", "1", "a long one"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) columns_add(&c, "%s", cells[i]);
    printed(&c, out, sizeof out);
    assert_string_equal(out, "NAME              N  WHY\n"
                             "日本          12345\n"
                             "a\\x1B[1m\\x0A      1  a long one\n");
    assert_int_equal(c.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),
        cmocka_unit_test(sizes),
        cmocka_unit_test(rows_line_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
