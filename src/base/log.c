/* SPDX-License-Identifier: MIT
 *
 * log.c: hands one finished line at a time to the program's sink, or to nobody.
 *
 * The sink and its argument change together, under a lock that is held for reading while the sink is called. Lines are
 * formatted on the stack, so logging never allocates and works when there is no memory. The sink filters by level, adds
 * a time and writes.
 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

#define LOG_LINE_BYTES 1000

_Static_assert((int)QN_LOG_ERROR == LOG_ERROR && (int)QN_LOG_WARNING == LOG_WARN && (int)QN_LOG_INFO == LOG_INFO &&
                   (int)QN_LOG_DEBUG == LOG_DEBUG,
               "the public levels are those of log.h");

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* for the three below */
static log_sink *the_sink;
static qn_log_sink *the_public_sink; /* at most one of the two is set */
static void *the_arg;

static void set(log_sink *sink, qn_log_sink *public_sink, void *arg)
{
    pthread_rwlock_wrlock(&lock);
    the_sink = sink;
    the_public_sink = public_sink;
    the_arg = arg;
    pthread_rwlock_unlock(&lock);
}

void log_set_sink(log_sink *sink, void *arg) { set(sink, NULL, arg); }
void qn_log_set(qn_log_sink *sink, void *arg) { set(NULL, sink, arg); }

void log_at(enum log_level level, const char *fmt, ...)
{
    char text[LOG_LINE_BYTES + 8], line[LOG_LINE_BYTES]; /* see error_set for the 8 */
    va_list ap;

    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0) text[0] = '\0';
    va_end(ap);
    error_clean(line, sizeof line, text);
    pthread_rwlock_rdlock(&lock);
    if (the_sink) the_sink(the_arg, level, line);
    if (the_public_sink) the_public_sink(the_arg, (enum qn_log_level)level, line);
    pthread_rwlock_unlock(&lock);
}
