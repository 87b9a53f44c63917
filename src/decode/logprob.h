/* SPDX-License-Identifier: MIT
 *
 * logprob.h: the logarithms of the probabilities that a model gives to tokens, before any sampling parameter.
 */
#ifndef QUERN_DECODE_LOGPROB_H
#define QUERN_DECODE_LOGPROB_H

#include <quern.h>

#include "kernel/kernel.h"

/* ln of the softmax of logits[0..n) at `token`, and at the n_top largest (ties to the lower token), descending, in
 * top[]. If a logit is NaN, all are NaN. work: [n]. */
float logprob_of(const struct kernels *k, const float *logits, int n, qn_token token, struct qn_logprob *top, int n_top,
                 float *work, void *scratch);

#endif
