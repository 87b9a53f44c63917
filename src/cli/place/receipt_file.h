/* SPDX-License-Identifier: MIT
 *
 * receipt_file.h: the options for receipts of answers, and the files that they are written to.
 *
 * A file of one receipt appears whole or not at all. A conversation appends a line for each reply. The prompt of a
 * private receipt goes to FILE.prompt in the same way, for this user only.
 */
#ifndef QUERN_CLI_RECEIPT_FILE_H
#define QUERN_CLI_RECEIPT_FILE_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/core/options.h"

struct receipt_options {
    const char *path; /* NULL: no receipt */
    bool is_private;
};
extern const struct opt opts_receipt[];

/* Functions that can fail return 0 or an exit status, after a message. */

/* Refuses options that make no sense, and files that cannot be written, before anything is computed for them. appends:
 * the command writes with receipt_file_append(). */
int receipt_file_check(const char *command, const struct receipt_options *o, bool appends);
/* Adds to a request that its answer is to have a receipt, if the options say so. */
int receipt_file_ask(const struct receipt_options *o, json_t *request);
/* Keeps a text that came, if the options ask for it, in an empty buffer. 0, or QN_ENOMEM. */
int receipt_file_keep(struct buf *to, const struct receipt_options *o, const char *text, size_t n);
/* Write the receipt, and the prompt if it has one, if the options ask for that. An empty receipt is refused: the server
 * has given none. */
int receipt_file_write(const struct receipt_options *o, const struct buf *receipt, const struct buf *prompt);
int receipt_file_append(const struct receipt_options *o, const struct buf *receipt, const struct buf *prompt);

#endif
