/* SPDX-License-Identifier: MIT
 *
 * chunk.h: a text of any length, answered in pieces.
 *
 * The instruction is applied to each piece (map), then to the answers, until they fit into one context (reduce).
 * Memory is bounded; answers between the rounds wait in a temporary file.
 *
 * Pieces are cut by content (pieces.h) and answered greedily. So the answer for a piece that was seen before is in the
 * cache (piece_cache.h), and only the changes of an edited file are computed.
 */
#ifndef QUERN_CLI_CHUNK_H
#define QUERN_CLI_CHUNK_H

#include "cli/ask/ask_run.h"

/* Appends the last message to *out: the texts themselves if they fit, or else the answers for their pieces. To be
 * called after ask_look(). Returns the exit status, after a message if something failed. */
int chunk_message(struct ask_run *a, struct buf *out);

#endif
