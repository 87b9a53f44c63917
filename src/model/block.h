/* SPDX-License-Identifier: MIT
 *
 * block.h: the blocks that family pages are made of. Each reads and updates the residual
 * stream; every member of the team calls it.
 */
#ifndef QUERN_MODEL_BLOCK_H
#define QUERN_MODEL_BLOCK_H

#include "model/step.h"

/* x += Wo Attn(RoPE(norm(Wq n)), RoPE(norm(Wk n)), Wv n), n = RMS(x; attn_norm) */
void block_attn(const struct worker *w, int il);
/* x += Wdown (f(Wgate m) * (Wup m)), m = RMS(x; ffn_norm) */
void block_ffn(const struct worker *w, int il, enum act_kind f);

#endif
