/* SPDX-License-Identifier: MIT
 *
 * keep.h: the conversation that a question goes on with, and that its answer is added to.
 *
 * It is in the file of --session, or, for --continue, in last.chat among this user's state. Every answer replaces that
 * last conversation unless --no-keep is given. If it cannot be written, nothing is said, because nobody has asked for
 * it; a conversation that is too large removes the file, so that nobody goes on from an older one.
 *
 * Questions in one session wait for each other, so each turn is kept. Questions that go on from the last answer do not:
 * each has the answer that was the last one when it began, and the one that ends last is the new last one.
 */
#ifndef QUERN_CLI_KEEP_H
#define QUERN_CLI_KEEP_H

#include "cli/ask/ask_run.h"

#define KEEP_BYTES ((size_t)1 << 20) /* most bytes of the last conversation */

struct keep {
    struct buf answer, thoughts;
    bool is_whole; /* the answer was not cut */
};                 /* zeroed: empty */

/* The last conversation, of the filter or of quern chat. Reading is QN_ENOINPUT if there is none. */
int keep_read_last(struct talk *t, struct qn_error *e);
void keep_write_last(const struct talk *t);

/* Locks the file of --session, and reads what was said into a->talk, under the system message of this question if it
 * has one. QN_ENOINPUT: there is no last answer. */
int keep_read(struct ask_run *a, struct qn_error *e);
/* Adds the question and its answer, and writes the file. Returns 0 or an exit status, after a message. */
int keep_answer(const struct keep *k, struct ask_run *a, const struct buf *question);
void keep_deinit(struct keep *k);

#endif
