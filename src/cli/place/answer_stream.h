/* SPDX-License-Identifier: MIT
 *
 * answer_stream.h: sends a request to a place, and writes the answer to standard output while it arrives, or into
 * memory.
 *
 * Standard output gets the answer alone, a terminal as it arrives and anything else in whole lines, and a newline at
 * the end if the answer has none. With answer_manner.json it gets events instead, one object per line. Notes of the
 * server about its progress go to standard error if that is a terminal.
 *
 * SIGINT, SIGTERM, SIGHUP and a reader that goes away end the request at the server too.
 */
#ifndef QUERN_CLI_ANSWER_STREAM_H
#define QUERN_CLI_ANSWER_STREAM_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "cli/place/place.h"
#include "cli/place/receipt_file.h"
#include "client/client_chat.h"

struct answer_manner {
    bool json;                             /* events instead of text */
    bool verbose;                          /* thoughts and numbers on standard error */
    const struct receipt_options *receipt; /* where the receipt goes; NULL: there is none */
    struct buf *text, *thoughts; /* get the answer and the thoughts as the model wrote them; NULL: nobody wants them */
    bool *is_whole;              /* gets whether the model ended the answer itself */
    bool extract; /* only the first code block of the answer, or all of it if there is none, at the end */
};

/* From here on a signal ends the running request. The program must then end through answer_end(). */
void answer_begin(void);
/* To be called after place_close(). If a signal came, it ends the program as it would have done. Otherwise returns
 * `status`. */
int answer_end(int status);
/* Whether a signal has ended an exchange. */
bool answer_is_cancelled(void);

/* Streams the answer to standard output. Returns the exit status, after a message if something failed. */
int answer_stream(struct place *p, json_t *request, const struct answer_manner *m);
/* Appends the answer to *out. Errors and *result are those of chat_send(). */
int answer_collect(struct place *p, json_t *request, struct buf *out, struct chat_result *result, struct qn_error *e);
/* After a request that failed: if the place was silent, goes to the next one, and fits the request to it. Returns 0 if
 * it did, an exit status after a message if there is none, and -1 if the failure was another one. answer_stream() does
 * this itself as long as nothing of the answer has come. */
int answer_elsewhere(struct place *p, json_t *request);
/* Appends a JSON value in its shortest form. Returns non-zero if there is no memory, or value is NULL. */
int answer_write_json(struct buf *out, const json_t *value);
/* Prints what failed. Returns the exit status for it. */
int answer_fail(const struct qn_error *e, const struct chat_result *result);

#endif
