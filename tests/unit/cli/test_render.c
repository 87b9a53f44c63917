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

#include "base/rng.h"
#include "base/utf8.h"
#include "cli/core/columns.h"
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
    assert_int_equal(render_answer(&r, "a ", 2, NULL), 0);
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

/* Lays out an answer for a terminal of 20 columns; the static text is valid until the next call. */
static const char *laid_out_in(const char *text, bool styled, int width)
{
    static struct buf out;
    struct markup m = {.styled = styled, .wrap.width = width};
    buf_clear(&out);
    assert_int_equal(buf_str(&out, "", NULL), 0);
    for (const char *p = text; *p;) {
        uint32_t cp;
        size_t n = utf8_get((const uint8_t *)p, strlen(p), &cp);
        int rc = *p == '\n' ? markup_end_line(&m, &out, NULL) || buf_str(&out, "\n", NULL)
                            : markup_add(&m, &out, p, n, NULL);
        assert_int_equal(rc, 0);
        p += n;
    }
    assert_int_equal(markup_end_line(&m, &out, NULL), 0);
    markup_deinit(&m);
    return (char *)out.data;
}

static const char *laid_out(const char *text, bool styled) { return laid_out_in(text, styled, 20); }

#define B  "\033[1m"
#define F  "\033[2m"
#define RB "\033[22m"
#define C  "\033[36m"
#define RC "\033[39m"

static void lines_are_wrapped_between_words(void **state)
{
    static const char *const cases[][2] = {
        {"one two three four five six", "one two three four\nfive six"},
        {"exactly twenty chars", "exactly twenty chars"},
        {"- an item that is too long", "- an item that is\n  too long"},
        {"  12. an item that is long", "  12. an item that\n      is long"},
        {"https://example.org/a/long/path and", "https://example.org/a/long/path and"},
        {"na\xC3\xAFve na\xC3\xAFve \xC3\xA4pfel.", "na\xC3\xAFve na\xC3\xAFve \xC3\xA4pfel."},
        {"\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5"
         "\xE6\x97\xA5\xE6\x97\xA5",
         "\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5"
         "\xE6\x97\xA5\n\xE6\x97\xA5"},
        {"```\nint main(void) { return 0; }\n```\none two three four five",
         "```\nint main(void) { return 0; }\n```\none two three four\nfive"},
        {"| a | table | that is wide |", "| a | table | that is wide |"},
        {"a  b   c", "a  b   c"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(laid_out(cases[i][0], false), cases[i][1]);
}

static void marks_become_styles(void **state)
{
    static const char *const cases[][2] = {
        {"a **bold word** here", "a " B "bold word" RB " here"},
        {"**Note:** x", B "Note:" RB " x"},
        {"2 ** 3, a**b, *x*", "2 ** 3, a**b, *x*"},
        {"use `ls -l`, it`s", "use " C "ls -l" RC ", it`s"},
        {"``", "``"},
        {"never **closed\nnext", "never **closed\nnext"},
        {"## Title\ntext", B "## Title" RB "\ntext"},
        {"#\n#include", "#\n#include"},
        {"# \u65e5\u672c", B "# \u65e5\u672c" RB},
        {"#\u65e5", "#\u65e5"},
        {"```x``` y\n**a**", C "x" RC " y\n" B "a" RB},
        {"char **argv", "char **argv"},
        {"int **a, **b;", "int **a, **b;"},
        {"2**8**2 = 2", "2**8**2 = 2"},
        {"**/*.c a/**/b.c", "**/*.c a/**/b.c"},
        {"__init__ _x_", "__init__ _x_"},
        {"* an **item**", "* an " B "item" RB},
        {"** x ** y", "** x ** y"},
        {"\u8fd9\u662f**\u91cd**\u7684", "\u8fd9\u662f" B "\u91cd" RB "\u7684"},
        {"**a `b**c` d**", B "a " C "b**c" RC " d" RB},
        {"f(**kw), `**kw`", "f(**kw), " C "**kw" RC},
        {"***x*** ~~y~~", "***x*** ~~y~~"},
        {"`` a`b `` `c", C " a`b" RC "  `c"},
        {"**never\nclosed**", "**never\nclosed**"},
        {"<b>**x**</b>", "<b>" B "x" RB "</b>"},
        {"[**a**](b_c)", "[" B "a" RB "](b_c)"},
        {"| **a** | `b` |", "| **a** | `b` |"},
        {"~~~\n**a**\n```\n~~~\n**b**", F "~~~" RB "\n" C "**a**" RC "\n" C "```" RC "\n" F "~~~" RB "\n" B "b" RB},
        {"````\n```\n````\n`b`", F "````" RB "\n" C "```" RC "\n" F "````" RB "\n" C "b" RC},
        {"```\n``` x\n  ``` \nx", F "```" RB "\n" C "``` x" RC "\n  " F "```" RB "\nx"},
        {"```c\n**a** `b`\n```\nx", F "```c" RB "\n" C "**a** `b`" RC "\n" F "```" RB "\nx"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(laid_out(cases[i][0], true), cases[i][1]);
}

static const char *after_spaces(const char *p) { return p + strspn(p, " \n"); }

/* Whether `shown` is the text without some pairs of marks, each of which became a style. Spaces are not compared. */
static bool is_all_there(const char *text, const char *shown)
{
    for (;;) {
        text = after_spaces(text);
        shown = after_spaces(shown);
        if (!*shown) return !*text;
        if (*shown != '\033') {
            if (*text++ != *shown++) return false;
            continue;
        }
        size_t n = shown[2] == '3' ? strspn(text, "`") : 2 * !strncmp(text, "**", 2);
        shown = strchr(shown, 'm') + 1;
        if (n && is_all_there(text + n, shown)) return true;
    }
}

/* Whether both have the same words. */
static bool is_same_words(const char *a, const char *b)
{
    for (a = after_spaces(a), b = after_spaces(b); *a && *a == *b;) {
        bool stops = strchr(" \n", *++a), other = strchr(" \n", *++b);
        if (stops != other && *a && *b) return false;
        a = after_spaces(a);
        b = after_spaces(b);
    }
    return *a == *b;
}

/* Random lines of marks, words and wide characters: nothing is hidden but pairs, no style is left on, and no line that
 * could be broken is too wide. */
static void nothing_is_hidden(void **state)
{
    static const char *const parts[] = {
        "*",    "**",      "***", "`",   "``", "```", "~~~", "_",  "__", "#", " ", " ",   " ",  "a",
        "argv", "e\u0301", "/",   "*.c", "|",  "- ",  "1. ", "\n", "(",  ")", "2", "<b>", "\"", ".",
    };
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        char text[400] = "";
        for (uint64_t i = 0, n = rng_u64(seed, 1, 0) % 30; i < n; i++)
            strcat(text, parts[rng_u64(seed, 0, i) % (sizeof parts / sizeof *parts)]);
        const char *shown = laid_out_in(text, false, 20);
        if (!is_same_words(text, shown)) fail_msg("'%s' is shown as '%s'", text, shown);
        shown = laid_out_in(text, true, 20);
        if (!is_all_there(text, shown)) fail_msg("'%s' is shown as '%s'", text, shown);
        assert_string_equal(laid_out_in("x", true, 20), "x");
    }
}

static void emoji_stay_whole(void **state)
{
    (void)state;
    assert_string_equal(laid_out_in("\u65e5\U0001F468\u200D\U0001F469", true, 5), "\u65e5\n\U0001F468\u200D\U0001F469");
    assert_string_equal(laid_out_in("\U0001F44D\U0001F3FD\U0001F44D\U0001F3FD", true, 4),
                        "\U0001F44D\U0001F3FD\n\U0001F44D\U0001F3FD");
    assert_string_equal(laid_out_in("a\u0301a\u0301 b\u0301b\u0301", true, 5), "a\u0301a\u0301 b\u0301b\u0301");
    assert_string_equal(laid_out_in("\u2764\uFE0F\u2764\uFE0F", true, 3), "\u2764\uFE0F\u2764\uFE0F");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_a_terminal_acts_on), cmocka_unit_test(elsewhere_bytes_are_as_they_are),
        cmocka_unit_test(thoughts_stand_apart),       cmocka_unit_test(folded_thoughts_are_a_line),
        cmocka_unit_test(notes_leave_no_trace),       cmocka_unit_test(lines_are_wrapped_between_words),
        cmocka_unit_test(marks_become_styles),        cmocka_unit_test(nothing_is_hidden),
        cmocka_unit_test(emoji_stay_whole),
    };
    if (pipe2(ends, O_NONBLOCK)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
