/* SPDX-License-Identifier: MIT
 *
 * rotate.h: which tokens of an endless text a rotating context holds.
 *
 * It holds the first `keep` tokens and the newest ones, like the attention sinks of StreamingLLM (arXiv 2309.17453).
 * Whenever n_ctx tokens are reached, half of those after the kept ones are dropped, the oldest. What is dropped depends
 * on nothing but the number of tokens, so a text that is given again as a whole has the context that it had when it
 * grew.
 */
#ifndef QUERN_ENGINE_ROTATE_H
#define QUERN_ENGINE_ROTATE_H

#include <stddef.h>

#include "base/error.h"

/* QN_EUSAGE: keep is negative, or more than half of the context. */
int rotate_check(int n_ctx, int keep, struct qn_error *e);
/* Returns the tokens that are dropped at a time. */
static inline int rotate_step(int n_ctx, int keep) { return (n_ctx - keep) / 2; }
/* Returns the tokens that are dropped of a text of n: tokens keep .. keep + dropped - 1. Fewer than n_ctx remain. */
size_t rotate_dropped(size_t n, int n_ctx, int keep);

#endif
