/* SPDX-License-Identifier: MIT
 *
 * message.h: an instruction and the texts it is about, as the one message that a model reads.
 *
 * The texts come first, the instruction last. So the same text asked about twice is the same prefix, whose keys and
 * values are in the cache, and what is to be done stands where a model that has read much still knows it. A text alone,
 * without an instruction, is the message as it is. Else each text is fenced, by more backticks than it has in a row
 * itself, and has its name above, unless it is standard input and there is no other:
 *
 *     error.log:
 *     ```
 *     ...
 *     ```
 *
 *     What is wrong here?
 */
#ifndef QUERN_CLI_MESSAGE_H
#define QUERN_CLI_MESSAGE_H

#include "base/buf.h"
#include "cli/excerpt.h"

struct message_text {
    const char *name;       /* NULL: it needs none */
    struct excerpt_cut cut; /* where something is left out stands a line that says so */
};

/* Adds to *out. instruction: "" for none. */
int message_compose(struct buf *out, const struct message_text *texts, size_t n, const char *instruction,
                    struct qn_error *e);

#endif
