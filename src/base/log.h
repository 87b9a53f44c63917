/* SPDX-License-Identifier: MIT
 *
 * log.h: where warnings go. The library prints nothing by itself; a program that wants to
 * see what it has to say installs a sink. Thread-safe once the sink is set.
 */
#ifndef QUERN_BASE_LOG_H
#define QUERN_BASE_LOG_H

enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_INFO = 6, LOG_DEBUG = 7 }; /* syslog numbers */
typedef void log_sink(void *arg, enum log_level level, const char *line);

/* NULL, the initial state, drops everything. Set before other threads exist. */
void log_set_sink(log_sink *sink, void *arg);
/* As error_set, control characters in the text are printed as \xNN; the line has no newline. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
