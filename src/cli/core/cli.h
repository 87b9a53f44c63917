/* SPDX-License-Identifier: MIT
 *
 * cli.h: exit codes, input and output for all commands. Their options are in options.h.
 *
 * Only the commands print, read the environment or exit.
 */
#ifndef QUERN_CLI_CLI_H
#define QUERN_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <quern.h>

#include "cli/core/options.h"

/* Prints "quern: <message>" to stderr. Returns the exit status of <sysexits.h> that fits e->code. */
int cli_fail(const struct qn_error *e);
/* Prints "quern: " and the formatted message, without control characters, to stderr. Returns EX_USAGE (64). */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The name of a file that is not complete yet; NULL: there is none. It is removed if a signal or a lost page of the
 * model ends the program. Borrowed. */
extern const char *volatile cli_unfinished;
/* Whether the program survives a lost page of a model; the code that computes then sees the loss. Set before threads
 * run. */
extern volatile bool cli_outlives_files;

/* ---- input and output ---- */

/* Allocates n zeroed objects of `size` bytes. If there is no memory, it prints a message and ends the program with
 * status 75. Release with cli_free(). */
void *cli_alloc(size_t n, size_t size);
/* Releases what these functions allocated; NULL is fine. */
void cli_free(void *p);
/* Whether a pipe, a file or a socket is connected to standard input; a terminal and /dev/null do not count. */
bool cli_has_stdin(void);
/* Reads a descriptor to its end. `name` stands for it in messages. *data gets the bytes and a NUL, for cli_free();
 * *n their number. Returns 0 or an exit status, after a message; 65 if there are more than `limit` bytes. */
int cli_read_all(int fd, const char *name, size_t limit, char **data, size_t *n);
#define CLI_MAX_INPUT ((size_t)1 << 28)
/* Writes n bytes to standard output. Returns 0, or -1 with errno if the reader is gone or the device is full. */
int cli_write(const void *p, size_t n);
/* Adds what JSON for standard output needs to jansson's flags: on a terminal all text is ASCII, so that the terminal
 * acts on nothing. */
size_t cli_json_flags(size_t flags);
/* Prints a document and a newline to standard output and releases it. NULL, which is a document that there was no
 * memory for, and a text that there is no memory for end the program with a message. main() reports a write that
 * failed. */
void cli_print_json(json_t *document, size_t flags);
/* The exit status after cli_write() has failed: 0 if the reader went away, which is no error; otherwise EX_IOERR,
 * after a message. */
int cli_write_status(void);

#endif
