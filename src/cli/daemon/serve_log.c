/* SPDX-License-Identifier: MIT
 *
 * serve_log.c: lines with the time, which is UTC. The journal of systemd has times of its own, so there the lines have
 * none.
 *
 * Source: systemd.exec(5), "JOURNAL_STREAM".
 */
#include "cli/daemon/serve_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

static bool has_times; /* set before there are threads */

/* Whether standard error is the stream that systemd has connected to its journal. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat st;
    if (!stream || fstat(STDERR_FILENO, &st)) return false;
    snprintf(own, sizeof own, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    return !strcmp(own, stream);
}

void serve_log(const char *fmt, ...)
{
    char line[2048], time[40] = "";
    struct timespec now;
    struct tm t;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    clock_gettime(CLOCK_REALTIME, &now);
    if (has_times && gmtime_r(&now.tv_sec, &t)) {
        size_t n = strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &t);
        snprintf(time + n, sizeof time - n, ".%03dZ ", (int)(now.tv_nsec / 1000000));
    }
    fprintf(stderr, "%squern: %s\n", time, line);
}

static void warnings(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    if (level <= LOG_WARN) serve_log("warning: %s", line);
}

static void everything(void *arg, enum log_level level, const char *line)
{
    warnings(arg, level, line);
    if (level > LOG_WARN && level <= LOG_INFO) serve_log("%s", line);
}

void serve_log_open(bool requests)
{
    has_times = !is_journal();
    log_set_sink(requests ? everything : warnings, NULL);
}
