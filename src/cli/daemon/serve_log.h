/* SPDX-License-Identifier: MIT
 *
 * serve_log.h: the daemon's messages on standard error, each one line with its time.
 */
#ifndef QUERN_CLI_SERVE_LOG_H
#define QUERN_CLI_SERVE_LOG_H

#include <stdbool.h>

/* Makes all messages of the process such lines; warnings, and with `requests` also those about requests and models. */
void serve_log_open(bool requests);
/* Writes one line. Any thread. */
void serve_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
