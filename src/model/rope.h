/* SPDX-License-Identifier: MIT
 *
 * rope.h: rotation angles: from hyper-parameters to {cos, sin} of every pair at a position.
 *
 * Everything is computed in double precision with our own functions and rounded to f32 once, so the same position gives
 * the same bits on every machine. Sources: RoPE (Su et al. 2021), YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024).
 */
#ifndef QUERN_MODEL_ROPE_H
#define QUERN_MODEL_ROPE_H

#include "model/hparams.h"

#define ROPE_MAX_PAIRS (HP_MAX_HEAD_DIM / 2)
#define ROPE_MAX_FREQ  3.0 /* radians per position; math_sin still takes the angle at HP_MAX_CTX */

struct rope {
    int n_pairs;
    double freq[ROPE_MAX_PAIRS]; /* radians per position */
    double scale;                /* multiplies cos and sin */
};

/* factors: n_rot/2 divisors of the frequencies (rope_freqs, rope_factors_long/short), or NULL. */
void rope_init(struct rope *r, const struct hparams *h, const float *factors);
/* The rotation of ROPE_LOCAL layers: base h->rope_base_local, never scaled. */
void rope_init_local(struct rope *r, const struct hparams *h);
/* QN_EDATA if base, scaling and factors together rotate a pair faster than ROPE_MAX_FREQ, or not at all. */
int rope_check(const struct rope *r, struct qn_error *e);
/* cs[n_pairs] = {cos, sin} at position pos. */
void rope_at(const struct rope *r, int32_t pos, float (*cs)[2]);

#endif
