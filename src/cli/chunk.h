/* SPDX-License-Identifier: MIT
 *
 * chunk.h: a text of any length, answered in pieces: the instruction over each piece (map), then over the answers,
 * until they have room in one context (reduce). Memory is bounded; answers in between wait in a temporary file.
 *
 * Pieces are cut by content (pieces.h) and answered greedily, so a piece that was seen before has its answer in the
 * cache (piece_cache.h): of an edited file only what changed is computed.
 */
#ifndef QUERN_CLI_CHUNK_H
#define QUERN_CLI_CHUNK_H

#include "cli/ask.h"

/* The last message to ask, added to *out: the texts themselves when they have room, else the answers for their pieces.
 * After ask_look(). The exit status; what failed was said. */
int chunk_message(struct ask *a, struct buf *out);

#endif
