/* SPDX-License-Identifier: MIT
 *
 * sampler.h: chooses a token from logits by the parameters of struct qn_sampling.
 *
 * The choice depends only on the parameters, the logits, the position and the tokens accepted before, so picking twice
 * gives the same token twice. State changes only when a token is accepted.
 */
#ifndef QUERN_DECODE_SAMPLER_H
#define QUERN_DECODE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernel/kernel.h"

struct sampler;

/* The parameters are copied. Arrays that they point to are borrowed, as are the kernels, until the sampler is freed.
 * QN_EUSAGE names the field and its value. Takes 33 bytes for each token of the vocabulary and a kernel scratch. */
int sampler_new(struct sampler **out, const struct qn_sampling *p, int n_vocab, const struct kernels *k,
                struct qn_error *e);
void sampler_free(struct sampler *s);
/* Bytes that a sampler takes at most, with a history of n_tokens. */
size_t sampler_bytes(int n_vocab, size_t n_tokens);
/* An independent copy with the same history, state and reserved room. */
int sampler_clone(struct sampler **out, const struct sampler *s, struct qn_error *e);

/* Makes room for n_tokens more in the history, which sampler_accept asserts. Tokens that no parameter looks back at are
 * not kept, so often no memory is needed. */
int sampler_reserve(struct sampler *s, size_t n_tokens, struct qn_error *e);
/* Bytes by which the history would grow then; SIZE_MAX: more than there can be. */
size_t sampler_reserve_bytes(const struct sampler *s, size_t n_tokens);
/* A token of the prompt or of the reply, in order; 0 <= token < n_vocab. */
void sampler_accept(struct sampler *s, qn_token token);
/* Empties the history; the reserved room stays. */
void sampler_reset(struct sampler *s);

/* Allows only the tokens whose bit is set from now on: bit i % 64 of word i / 64 is token i's. The mask is borrowed
 * until the next call; NULL: all are allowed. It counts after bias and penalties, before the filters. Copies of the
 * sampler have none. */
void sampler_set_mask(struct sampler *s, const uint64_t *mask);
/* The token for `position` from logits [n_vocab], which are not modified: -inf bans a token, NaN counts as -inf, and
 * if any are +inf the lowest of those tokens is the answer. QN_ENUMERIC when all are NaN or -inf. Allocates nothing. */
int sampler_pick(struct sampler *s, const float *logits, uint64_t position, qn_token *out, struct qn_error *e);

/* ---- a sampler in another process that draws in the place of this one (cluster/voices.h) ---- */

/* The tokens that the parameters look back at, the newest last; valid until the next change. */
const qn_token *sampler_history(const struct sampler *s, size_t *n);
/* Mirostat's bound, which moves with every token; 0 without mirostat. */
double sampler_bound(const struct sampler *s);
void sampler_set_bound(struct sampler *s, double bound);
/* What mirostat learns from the last pick: goes to sampler_picked() where the token is accepted, too. NaN: nothing. */
double sampler_surprise(const struct sampler *s);
/* As if sampler_pick() had chosen the token. */
void sampler_picked(struct sampler *s, qn_token token, double surprise);

/* probs [n_vocab]: the probability with which sampler_pick would have drawn each token; 0 for those filtered out. */
int sampler_probs(struct sampler *s, const float *logits, uint64_t position, float *probs, struct qn_error *e);

#endif
