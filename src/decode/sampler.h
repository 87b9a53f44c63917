/* SPDX-License-Identifier: MIT
 *
 * sampler.h: logits to a token, as struct qn_sampling says.
 *
 * The choice depends on the parameters, the logits, the position and the tokens accepted before, and on nothing else:
 * picking twice gives the same token twice. State changes only when a token is accepted.
 */
#ifndef QUERN_DECODE_SAMPLER_H
#define QUERN_DECODE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernel/kernel.h"

struct sampler;

/* The parameters are copied, but what they point at is borrowed, as are the kernels, while the sampler lives.
 * QN_EUSAGE names the field and its value. Takes 33 bytes for each token of the vocabulary and a kernel scratch. */
int sampler_new(struct sampler **out, const struct qn_sampling *p, int n_vocab, const struct kernels *k,
                struct qn_error *e);
void sampler_free(struct sampler *s);
/* Bytes that a sampler takes at most, with a history of n_tokens. */
size_t sampler_bytes(int n_vocab, size_t n_tokens);
/* A copy with the same history, state and reserved room, which go separate ways from here. */
int sampler_clone(struct sampler **out, const struct sampler *s, struct qn_error *e);

/* Room for n_tokens more in the history; sampler_accept asserts that there is. What no parameter looks back at is
 * not kept, so this is often nothing at all. */
int sampler_reserve(struct sampler *s, size_t n_tokens, struct qn_error *e);
/* A token of the prompt or of the reply, in order; 0 <= token < n_vocab. */
void sampler_accept(struct sampler *s, qn_token token);
/* As new: the history is empty; what was reserved stays. */
void sampler_reset(struct sampler *s);

/* The token for `position` from logits [n_vocab], which are not modified: -inf bans a token, NaN counts as -inf, and
 * if any are +inf the lowest of those tokens is the answer. QN_ENUMERIC when all are NaN or -inf. Allocates nothing. */
int sampler_pick(struct sampler *s, const float *logits, uint64_t position, qn_token *out, struct qn_error *e);
/* probs [n_vocab]: the probability with which sampler_pick would have drawn each token; 0 for those filtered out. */
int sampler_probs(struct sampler *s, const float *logits, uint64_t position, float *probs, struct qn_error *e);

#endif
