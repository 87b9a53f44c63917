/* SPDX-License-Identifier: MIT
 *
 * input.h: a text of a question: standard input or a file, opened when it is needed and read as UTF-8.
 */
#ifndef QUERN_CLI_INPUT_H
#define QUERN_CLI_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/ask/intake.h"

struct input {
    const char *path; /* NULL: standard input */
    char name[512];   /* for people and models: one line of UTF-8 */
    int fd;
    bool is_live;      /* set it before opening: see intake_open() */
    uint64_t bytes;    /* size of a regular file when it was opened; 0: not known */
    uint64_t n_read;   /* bytes of text that were read so far */
    struct intake *in; /* NULL: not open */
};

/* Prepares a text without opening it. path: borrowed; NULL: standard input. */
void input_init(struct input *s, const char *path);
/* Opens the text. Errors are those of intake_open(); QN_ENOINPUT: no such file. */
int input_open(struct input *s, const char *encoding, struct qn_error *e);
/* Reads the next block, as intake_read() does. */
int input_read(struct input *s, char *out, size_t cap, size_t *n, struct qn_error *e);
/* Closes the text. Prints a warning if bytes were read as Windows-1252. May be called twice. */
void input_close(struct input *s);

#endif
