/* SPDX-License-Identifier: MIT
 *
 * source.h: a text that comes with a question: standard input or a file, opened when it is its turn, read as UTF-8.
 */
#ifndef QUERN_CLI_SOURCE_H
#define QUERN_CLI_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/intake.h"

struct source {
    const char *path; /* NULL: standard input */
    char name[512];   /* for people and models; one line of UTF-8 */
    int fd;
    uint64_t bytes;    /* of a regular file, when it was opened; 0: not known */
    struct intake *in; /* NULL: not open */
};

/* Whether something was connected to standard input: a pipe, a file, a socket; a terminal and /dev/null are nothing. */
bool source_has_stdin(void);
void source_init(struct source *s, const char *path);
/* Errors as intake_open's; QN_ENOINPUT when there is no such file. */
int source_open(struct source *s, const char *encoding, struct qn_error *e);
int source_read(struct source *s, char *out, size_t cap, size_t *n, struct qn_error *e);
/* Says on stderr if bytes were taken as another encoding. What is closed may be closed. */
void source_close(struct source *s);

#endif
