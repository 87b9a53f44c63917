/* SPDX-License-Identifier: MIT
 *
 * rank_head.h: how a model ranks: from the last row of a prompt with a query and a document it computes two numbers,
 * one for "yes" and one for "no", whose softmax is the probability that the document answers the query.
 *
 * Source: Zhang et al. 2025, "Qwen3 Embedding", arXiv:2506.05176, and the model card of Qwen3-Reranker.
 */
#ifndef QUERN_MODEL_RANK_HEAD_H
#define QUERN_MODEL_RANK_HEAD_H

#include "model/model.h"

/* Finds the two rows after the other tensors are bound, and sets m->rank_head. They are the tensor `cls.output.weight`
 * if the file says that it ranks (pooling_type 4). In files of older converters they are two rows of the output matrix,
 * and only the name says that it is a Qwen3-Reranker; hp.pooling is then set here. QN_EDATA, QN_EUNSUP: the file says
 * that it ranks, but the tensor is missing or of another shape or meaning. */
int rank_head_find(struct model *m, struct qn_error *e);

/* Returns the probability of "yes" for a row after the output norm, [n_embd]. scratch: [n_embd]. The model ranks. Sums
 * are in double and in order, so that the bits are the same everywhere. */
float rank_head_score(const struct model *m, const double *row, float *scratch);

#endif
