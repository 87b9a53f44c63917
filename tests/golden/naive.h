/* SPDX-License-Identifier: MIT
 *
 * naive.h: the forward pass once more, as plainly as it can be written: a second opinion on the engine.
 */
#ifndef QUERN_TESTS_GOLDEN_NAIVE_H
#define QUERN_TESTS_GOLDEN_NAIVE_H

#include "format/weights.h"

/* What to get wrong on purpose: factors on hyper-parameters, 1 for the truth; and YaRN's range rounded to whole pairs
 * where the model was trained without. */
struct naive_skew {
    double eps, rope_base;
    bool rounds_range;
};

/* The pairs between which YaRN ramps are not rounded to whole ones. */
bool naive_has_exact_range(const struct weights *w);

/* Logits of every position of a prompt that begins at position 0, in a context of n_ctx (which table of LongRoPE is
 * used depends on it). returns owned (mem_free): [n][*n_vocab]. Exits with a message for a file that it does not
 * understand in full. */
double *naive_logits(const struct weights *w, const qn_token *tokens, int n, int n_ctx, const struct naive_skew *skew,
                     int *n_vocab);

/* Puts rows x [n][d_model] at positions 0..n - 1 through layer l alone. Of the families with recurrent layers, only
 * layers with attention. *n_used: the tensors that were read. */
void naive_layer(const struct weights *w, int l, double *x, int n, int n_ctx, const struct naive_skew *skew,
                 size_t *n_used);

/* The block that predicts the token after the next one (layer l): row i is tokens[i] with hidden row hidden[i * d_model
 * ...] of the token before it. returns owned: [n][*n_vocab] logits; *y owned: [n][d_model], the rows that the logits
 * are products of. */
double *naive_nextn(const struct weights *w, int l, const qn_token *tokens, const double *hidden, int n,
                    const struct naive_skew *skew, int *n_vocab, double **y);

/* The same for deepseek2 models; naive_layer() calls it for them. */
void naive_latent_layer(const struct weights *w, int l, double *x, int n, const struct naive_skew *skew,
                        size_t *n_used);

/* naive_logits() for deepseek2 models; naive_logits() calls it for them. */
double *naive_latent_logits(const struct weights *w, const qn_token *tokens, int n, const struct naive_skew *skew,
                            int *n_vocab);

#endif
