/* SPDX-License-Identifier: MIT
 *
 * ngram.h: the drafter that proposes what followed the same tokens before.
 *
 * The last tokens of a sequence are looked up among all its earlier ones, the longest match first. What followed there
 * is proposed. A match that reaches the end of the sequence goes on with the proposal itself, so a text that repeats is
 * continued for ever. Where a copy ended because the text differs from its source in some tokens, the rest of the
 * source is tried again. A sequence without a match is looked up among the tokens that other sequences of the same
 * identity had as their answers, which are kept in a table of fixed size.
 *
 * Every match is compared token by token, and so is the identity: hashes only say where to look.
 *
 * A token costs the same time to learn, wherever it is in the sequence. Nothing is allocated between open() and
 * close(). All calls come from one thread.
 *
 * Source: prompt lookup, https://github.com/apoorvumang/prompt-lookup-decoding; the classes of sureness and the search
 * next to the last source are ours.
 */
#ifndef QUERN_DECODE_NGRAM_H
#define QUERN_DECODE_NGRAM_H

#include "base/mem.h"
#include "decode/drafter.h"

/* Makes a drafter. The table of what an identity's sequences said has at most shared_bytes; 0: there is none. All bytes
 * are taken from the ledger before they are allocated, those of a sequence by open(); NULL: nothing is counted.
 * max_tokens of open() may be up to NGRAM_MOST_TOKENS. Free the drafter with d->type->free(), after all sequences were
 * closed. QN_ENOMEM. */
int ngram_new(struct ledger *l, size_t shared_bytes, struct drafter **out, struct qn_error *e);
/* The bytes that ngram_new() and open() take. */
size_t ngram_bytes(size_t shared_bytes);
size_t ngram_seq_bytes(int max_tokens);
/* Forgets everything that sequences said, for all identities. Open sequences go on; what they say from now on is kept
 * again. */
void ngram_empty(struct drafter *d);

#define NGRAM_MOST_TOKENS (1 << 28)

#endif
