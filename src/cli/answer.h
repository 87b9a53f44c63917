/* SPDX-License-Identifier: MIT
 *
 * answer.h: asks a place, and gives out what it answers: to standard output as it comes, or into memory.
 *
 * Standard output gets the answer alone, each piece in one write, and a newline at the end when the answer has none; or
 * events, an object a line. What the server does meanwhile goes to standard error while that is a terminal.
 *
 * SIGINT, SIGTERM, SIGHUP and a reader that goes away end the request at the server too.
 */
#ifndef QUERN_CLI_ANSWER_H
#define QUERN_CLI_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "cli/place.h"
#include "client/chat.h"

struct answer_manner {
    bool json;    /* events instead of text */
    bool verbose; /* thoughts, numbers */
};

/* From now on signals end what runs; the program then has to end by answer_end(). */
void answer_begin(void);
/* After place_close(): a signal that came ends the program as it would have. Returns status, when there was none. */
int answer_end(int status);

/* Streams to standard output. The exit status; what failed was said. */
int answer_stream(struct place *p, json_t *request, const struct answer_manner *m);
/* Adds the answer to *out. Errors and result are chat_send's. */
int answer_collect(struct place *p, json_t *request, struct buf *out, struct chat_result *result, struct qn_error *e);
/* Adds a JSON value in its shortest form. Non-zero: no memory, or there is no value. */
int answer_write_json(struct buf *out, const json_t *value);
/* Says what failed, and returns the exit status for it. */
int answer_fail(const struct qn_error *e, const struct chat_result *result);

#endif
