/* SPDX-License-Identifier: MIT
 *
 * mtp.h: the drafter of models with a block that guesses the token after the next one (model/nextn.h).
 *
 * After a step, a sequence has a token that no row was computed for. The block guesses the token after it, from it and
 * the hidden row of the token before. The guess and the block's own row then take their places for the next guess, and
 * so on. So each further guess is a pass of one layer and the output matrix.
 *
 * The block has a cache of its own: the last MTP_SLOTS tokens that it was given, of each sequence. A prompt is not read
 * by it, except for the last MTP_KEPT tokens of a pass, and neither is an answer while nobody asks for guesses: it is
 * given at most the MTP_KEPT newest tokens when it is asked again. So where it is not used the block costs the norms of
 * as many rows of a pass, and never more than that. A layer more in the model's cache would see the whole prompt, but
 * would take memory and time for every token of every prompt, drafts or not, and change the files of the cache on disk.
 *
 * The output matrix is the largest part of the block's pass, so only the first MTP_VOCAB tokens are guessed: a
 * vocabulary made by merging lists its frequent tokens first.
 *
 * What is missing makes guesses worse, never wrong: a hidden row that is not known (after a prefix was found in the
 * cache) counts as zeros, and older tokens are forgotten page by page.
 */
#ifndef QUERN_DECODE_MTP_H
#define QUERN_DECODE_MTP_H

#include "decode/drafter.h"
#include "model/nextn.h"

#define MTP_SLOTS 512   /* of the block's cache, for each sequence; whole pages */
#define MTP_KEPT  32    /* hidden rows kept of each sequence */
#define MTP_VOCAB 65536 /* tokens that can be guessed */

/* Bytes that mtp_new() takes from the ledger at most. */
size_t mtp_bytes(const struct model *m, enum kv_type kv, int n_seqs);
/* For n_seqs sequences at a time. propose() runs passes with the buffers and the team of f, so it has to come between
 * two passes of the model, and absorb() right after one. f and l are borrowed until the drafter is freed. QN_EUNSUP:
 * the model has no such block. QN_ENOMEM: the ledger has no room, among other reasons. */
int mtp_new(struct drafter **out, struct forward *f, enum kv_type kv, int n_seqs, struct ledger *l, struct qn_error *e);

#endif
