/* SPDX-License-Identifier: MIT
 *
 * test_help.c: help that fits its terminal, texts that roff reads as they are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pty.h>
#include <sys/ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/main/help.h"
#include "cli/main/roff.h"
#include "cli/core/term.h"

const struct command *const commands[] = {NULL};

/* ---- lines ---- */

static char *wrapped(const char *text, int column, int indent, int width)
{
    static char *out;
    size_t n;
    free(out);
    FILE *f = open_memstream(&out, &n);
    int end = help_wrap(f, text, strlen(text), column, indent, width);
    fclose(f);
    const char *last = strrchr(out, '\n');
    assert_int_equal(end, last ? (int)strlen(last + 1) : column + (int)strlen(out));
    return out;
}

static void lines_end_before_the_width(void **state)
{
    (void)state;
    assert_string_equal(wrapped("", 0, 0, 10), "");
    assert_string_equal(wrapped("  one   two\nthree ", 0, 0, 80), "one two three");
    assert_string_equal(wrapped("aaaa bbbb", 0, 2, 9), "aaaa bbbb"); /* exactly the width */
    assert_string_equal(wrapped("aaaa bbbbb", 0, 2, 9), "aaaa\n  bbbbb");
    assert_string_equal(wrapped("aaaa bbbb cc", 3, 3, 9), "aaaa\n   bbbb\n   cc");
    /* a word that is too long stands alone, whole */
    assert_string_equal(wrapped("a bbbbbbbbbbbb c", 0, 1, 5), "a\n bbbbbbbbbbbb\n c");
    assert_string_equal(wrapped("bbbbbbbbbbbb c", 4, 4, 8), "bbbbbbbbbbbb\n    c");
}

static void paragraphs_are_divided_by_empty_lines(void **state)
{
    (void)state;
    const char *text = "one\ntwo\n\nthree\n\n";
    size_t n = help_paragraph(text);
    assert_int_equal(n, 7);
    text = help_next(text, n);
    assert_string_equal(text, "three\n\n");
    assert_int_equal(help_paragraph(text), 5);
    assert_null(help_next(text, 5));
    assert_null(help_next("x", 1));
}

/* ---- roff ---- */

enum form { TEXT, PROSE, PLACES, LITERAL };

static char *roff(enum form form, const char *text)
{
    static char *out;
    size_t n;
    free(out);
    FILE *f = open_memstream(&out, &n);
    if (form == TEXT) roff_text(f, text, strlen(text));
    if (form == PROSE || form == PLACES) roff_prose(f, text, strlen(text), form == PLACES);
    if (form == LITERAL) roff_literal(f, text, strlen(text));
    fclose(f);
    return out;
}

static void what_roff_acts_on_is_escaped(void **state)
{
    (void)state;
    assert_string_equal(roff(TEXT, ""), "");
    assert_string_equal(roff(TEXT, "a-b \\n"), "a\\-b \\(rsn");
    assert_string_equal(roff(TEXT, ".SH"), "\\&.SH");
    assert_string_equal(roff(TEXT, "'br"), "\\(aqbr");
    assert_string_equal(roff(TEXT, "say \"x\" `y` ^ ~"), "say \\(dqx\\(dq \\(gay\\(ga \\(ha \\(ti");
    assert_string_equal(roff(TEXT, "one\n.two\n'three"), "one .two \\(aqthree"); /* it stays one line */
    assert_string_equal(roff(LITERAL, ".a\n\n-b"), ".PP\n.RS 4\n.EX\n\\&.a\n\\&\n\\-b\n.EE\n.RE\n");
}

static void options_and_placeholders_are_marked(void **state)
{
    (void)state;
    assert_string_equal(roff(PROSE, "use --top-k, or --x"), "use \\fB\\-\\-top\\-k\\fR, or \\-\\-x");
    assert_string_equal(roff(PROSE, "a--bcd -- e"), "a\\-\\-bcd \\-\\- e"); /* no option */
    assert_string_equal(roff(PROSE, "MODEL"), "MODEL");
    assert_string_equal(roff(PLACES, "[-o FILE]... xA"), "[\\-o \\fIFILE\\fR]... xA");
    assert_string_equal(roff(PROSE, ".x"), "\\&.x");
}

/* ---- terminals ---- */

static void a_terminal_is_asked_and_the_environment_too(void **state)
{
    (void)state;
    int master, slave, pipes[2];
    struct winsize size = {.ws_row = 24, .ws_col = 100};
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    assert_int_equal(pipe(pipes), 0);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    setenv("CLICOLOR_FORCE", "1", 1);
    assert_true(term_is(slave) && term_colour(slave));
    assert_true(!term_is(pipes[1]) && !term_colour(pipes[1]));
    assert_int_equal(term_width(slave), 100);
    assert_int_equal(term_width(pipes[1]), 80);
    setenv("NO_COLOR", "", 1);
    assert_true(term_colour(slave));
    setenv("NO_COLOR", "1", 1);
    assert_true(term_is(slave) && !term_colour(slave));
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    assert_true(!term_is(slave) && !term_colour(slave));
    unsetenv("TERM");
    assert_true(!term_is(slave));
    for (int i = 0; i < 2; i++) {
        size.ws_col = (unsigned short)(i ? 0 : 7);
        assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
        assert_int_equal(term_width(slave), i ? 80 : 40);
    }
    close(master);
    close(slave);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_before_the_width),
        cmocka_unit_test(paragraphs_are_divided_by_empty_lines),
        cmocka_unit_test(what_roff_acts_on_is_escaped),
        cmocka_unit_test(options_and_placeholders_are_marked),
        cmocka_unit_test(a_terminal_is_asked_and_the_environment_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
