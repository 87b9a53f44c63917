/* SPDX-License-Identifier: MIT
 *
 * log.c: hands one finished line at a time to the program's sink, or to nobody.
 *
 * The sink and its argument are plain globals: they are set once, before threads are started, and only read from then
 * on. Lines are formatted on the stack, so that logging never allocates and works when memory is out.
 *
 * Does not filter by level, add a time or write anywhere: that is the sink's business.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

#define LOG_LINE_BYTES 1000

static log_sink *the_sink;
static void *the_arg;

void log_set_sink(log_sink *sink, void *arg)
{
    the_sink = sink;
    the_arg = arg;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    char text[LOG_LINE_BYTES + 8], line[LOG_LINE_BYTES]; /* see error_set for the 8 */
    va_list ap;

    if (!the_sink) return;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0) text[0] = '\0';
    va_end(ap);
    error_clean(line, sizeof line, text);
    the_sink(the_arg, level, line);
}
