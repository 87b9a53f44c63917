/* SPDX-License-Identifier: MIT
 *
 * logprob.c: computes logprobs from logits.
 *
 *     ln p[i] = x[i] - (max + ln sum_j exp(x[j] - max))
 *
 * The exponentials and their sum are the contract's (softmax_exp). The rest is computed in double and rounded once. The
 * sum is at least 1, because the largest term is 1, unless there are NaN or infinities.
 */
#include "decode/logprob.h"

#include <assert.h>

#include "base/math.h"

float logprob_of(const struct kernels *k, const float *logits, int n, qn_token token, struct qn_logprob *top, int n_top,
                 float *work, void *scratch)
{
    int32_t index[QN_MAX_TOP_LOGPROBS];
    double norm = __builtin_nan("");
    assert(token >= 0 && token < n && n_top <= QN_MAX_TOP_LOGPROBS && n_top <= n);
    float sum = k->softmax_exp(logits, n, work, scratch);
    if (sum >= 1) norm = (double)logits[k->argmax(logits, n, scratch)] + math_log((double)sum);
    if (n_top > 0) k->topk(logits, n, n_top, index, scratch);
    for (int i = 0; i < n_top; i++) top[i] = (struct qn_logprob){index[i], (float)((double)logits[index[i]] - norm)};
    return (float)((double)logits[token] - norm);
}
