/* SPDX-License-Identifier: MIT
 *
 * test_log.c: lines reach the sink clean and whole, and nobody without one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/log.h"

struct seen {
    int n;
    enum log_level level;
    char line[2000];
};

static void sink(void *arg, enum log_level level, const char *line)
{
    struct seen *s = arg;
    s->n++;
    s->level = level;
    snprintf(s->line, sizeof s->line, "%s", line);
}

static void goes_to_the_sink(void **state)
{
    (void)state;
    struct seen s = {0};
    log_at(LOG_ERROR, "nobody hears this %d", 1);
    log_set_sink(sink, &s);
    log_at(LOG_WARN, "two %s\n%d", "\x1b", 3);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.level, LOG_WARN);
    assert_string_equal(s.line, "two \\x1B\\x0A3");
    log_set_sink(NULL, NULL);
    log_at(LOG_ERROR, "nor this");
    assert_int_equal(s.n, 1);
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    struct seen s = {0};
    log_set_sink(sink, &s);
    log_at(LOG_INFO, "%5000d", 1);
    assert_in_range(strlen(s.line), 900, 1500);
    log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_to_the_sink),
        cmocka_unit_test(long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
