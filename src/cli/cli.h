/* SPDX-License-Identifier: MIT
 *
 * cli.h: what the commands share: exit codes, input and output. Their options: options.h.
 *
 * The commands are the only code that prints, reads the environment or exits.
 */
#ifndef QUERN_CLI_CLI_H
#define QUERN_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <quern.h>

#include "cli/options.h"

/* Prints "quern: <message>" to stderr and returns the sysexits code that fits e->code. */
int cli_fail(const struct qn_error *e);
/* The same for a command line that makes no sense (exit status 64). */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A file to remove if the program is ended from outside (a signal, a lost page of the model); NULL: none.
 * The name is borrowed. */
extern const char *volatile cli_unfinished;
/* A lost page of a model does not end the program: who computes sees it. Set before threads run. */
extern volatile bool cli_outlives_files;

/* ---- input and output ---- */

/* Memory for a command: zeroed; ends the program (75) when there is none. */
void *cli_alloc(size_t n, size_t size);
void cli_free(void *p);
/* Everything on a file descriptor, `name` in messages, at most `limit` bytes; *data is NUL-terminated,
 * freed with cli_free(). 0 or an exit status (65 when there is more). */
int cli_read_all(int fd, const char *name, size_t limit, char **data, size_t *n);
#define CLI_MAX_INPUT ((size_t)1 << 28)
/* Writes everything to stdout; -1 when the reader is gone or the device is full (errno). */
int cli_write(const void *p, size_t n);
/* For json_dump*() to standard output: what others wrote reaches a terminal as ASCII, so that it acts on nothing. */
size_t cli_json_flags(size_t flags);
/* The exit status after cli_write failed: a reader that went away is no error. */
int cli_write_status(void);

#endif
