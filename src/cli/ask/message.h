/* SPDX-License-Identifier: MIT
 *
 * message.h: an instruction and its texts, as the one message that a model reads.
 *
 * The texts come first and the instruction last. So two questions about a text share a prefix, whose keys and values
 * are in the cache, and a model that has read much still knows the instruction. A text without an instruction is the
 * message as it is. Otherwise each text is in a fence of more backticks than the text has in a row, and has its name
 * above the fence, unless it is standard input and the only text:
 *
 *      error.log:
 *      ```
 *      ...
 *      ```
 *
 *      What is wrong here?
 */
#ifndef QUERN_CLI_MESSAGE_H
#define QUERN_CLI_MESSAGE_H

#include "base/buf.h"
#include "cli/ask/excerpt.h"

struct message_text {
    const char *name;       /* NULL: none */
    struct excerpt_cut cut; /* a line marks the place where something is left out */
};

/* Appends the message to *out. instruction: "" for none. */
int message_compose(struct buf *out, const struct message_text *texts, size_t n, const char *instruction,
                    struct qn_error *e);

#endif
