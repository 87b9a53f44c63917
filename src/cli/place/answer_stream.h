/* SPDX-License-Identifier: MIT
 *
 * answer_stream.h: sends a request to a place, and writes the answer to standard output while it arrives, or into
 * memory.
 *
 * Standard output gets the answer alone, each piece in one write, and a newline at the end if the answer has none.
 * With answer_manner.json it gets events instead, one object per line. Notes of the server about its progress go to
 * standard error if that is a terminal.
 *
 * SIGINT, SIGTERM, SIGHUP and a reader that goes away end the request at the server too.
 */
#ifndef QUERN_CLI_ANSWER_STREAM_H
#define QUERN_CLI_ANSWER_STREAM_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "cli/place/place.h"
#include "client/client_chat.h"

struct answer_manner {
    bool json;    /* events instead of text */
    bool verbose; /* thoughts and numbers on standard error */
};

/* From here on a signal ends the running request. The program must then end through answer_end(). */
void answer_begin(void);
/* To be called after place_close(). If a signal came, it ends the program as it would have done. Otherwise returns
 * `status`. */
int answer_end(int status);

/* Streams the answer to standard output. Returns the exit status, after a message if something failed. */
int answer_stream(struct place *p, json_t *request, const struct answer_manner *m);
/* Appends the answer to *out. Errors and *result are those of chat_send(). */
int answer_collect(struct place *p, json_t *request, struct buf *out, struct chat_result *result, struct qn_error *e);
/* Appends a JSON value in its shortest form. Returns non-zero if there is no memory, or value is NULL. */
int answer_write_json(struct buf *out, const json_t *value);
/* Prints what failed. Returns the exit status for it. */
int answer_fail(const struct qn_error *e, const struct chat_result *result);

#endif
