/* SPDX-License-Identifier: MIT
 *
 * log.h: warnings for the program. The library prints nothing. A program that wants its warnings installs a sink.
 * Thread-safe.
 */
#ifndef QUERN_BASE_LOG_H
#define QUERN_BASE_LOG_H

enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_INFO = 6, LOG_DEBUG = 7 }; /* syslog numbers */
typedef void log_sink(void *arg, enum log_level level, const char *line);

/* Installs a sink. With NULL, the initial state, everything is dropped. Any thread may call it; when it returns, the
 * former sink is not called any more. There is one sink: qn_log_set() sets it, too. */
void log_set_sink(log_sink *sink, void *arg);
/* Gives one line, without a newline, to the sink. Control characters become \xNN, as in error_set(). */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
