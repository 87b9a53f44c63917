/* SPDX-License-Identifier: MIT
 *
 * block_latent.c: multi-head latent attention. DeepSeek-AI, "DeepSeek-V2", 2024 (arXiv:2405.04434), section 2.1.
 *
 *     [c | k_pe] = Wkv_a n              n = RMS(x; attn_norm);  c = RMS(c; kv_a_norm), k_pe = RoPE(k_pe)
 *     [q_nope | q_pe] of each head = Wq n, or Wq_b RMS(Wq_a n; q_a_norm);  q_pe = RoPE(q_pe)
 *
 * Files come in two layouts. Each layout has one form of arithmetic, for prompts and single tokens alike:
 *
 *   expanded  (Wkv_b)        each head has a key [k_nope | k_pe] and a value, [k_nope | v] = Wkv_b c, and the cache
 *                            holds them: n_head * (nope + rot + v) numbers a token and layer.
 *   absorbed  (Wk_b, Wv_b)   q_nope . k_nope = (Wk_b q_nope) . c, so the heads attend to one key [c | k_pe] and one
 *                            value c, which they share, and Wv_b follows: o = Wv_b (sum p c). The cache holds
 *                            2 * n_lora_kv + rot numbers: c is stored twice, because keys and values have different
 *                            layouts.
 *
 * What absorbing costs: a score takes n_lora_kv + rot multiply-adds instead of nope + rot, a value n_lora_kv instead of
 * v. With DeepSeek-V3's numbers (512, 64, 128, 128) that is 1088 instead of 320 for each pair of tokens and head. For
 * a long prompt the expanded form would be 3.4 times cheaper. But the two forms round differently, so choosing between
 * them by the size of the batch would make results depend on it. In either form these sums are small compared with the
 * experts.
 */
#include "model/block.h"
#include "model/pass/ops_attn.h"
#include "model/pass/ops_common.h"
#include "model/pass/ops_latent.h"

/* Computes queries, keys and values: afterwards pass->q and the cache are ready for attention. */
static void queries_and_keys(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    struct latent_rows *t = &pass->latent;
    const bool is_low = pass->model->hp.n_lora_q != 0;
    const struct linear *first = is_low ? &l->wq_a : &l->wq;
    op_norm(me, il, "attn_norm", l->attn_norm, (const struct linear *const[]){first, &l->wkv_a, NULL});
    if (is_low)
        op_matmul(me, il, OP_LATENT, "attn_q_a", first, &pass->h, t->low_q.f32);
    else
        op_matmul(me, il, OP_LATENT, "attn_q", first, &pass->h, t->q);
    op_matmul(me, il, OP_LATENT, "attn_kv_a", &l->wkv_a, &pass->h, t->kv);
    op_sync(me);
    op_latent_norm(me, il);
    if (is_low) op_matmul(me, il, OP_LATENT, "attn_q_b", &l->wq_b, &t->low_q, t->q);
    if (!pass->model->hp.latent_is_absorbed) op_matmul(me, il, OP_LATENT, "attn_kv_b", &l->wkv_b, &t->low_kv, t->kv_b);
    op_sync(me);
    op_latent_heads(me, il);
}

void block_latent(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct layer *l = &pass->model->layers[il];
    queries_and_keys(me, il);
    if (h->latent_is_absorbed) {
        op_matmul_heads(me, il, "attn_k_b", &l->wk_b, pass->q, h->head_dim);
        op_attend(me, il);
        op_latent_context(me, il);
        op_matmul_heads(me, il, "attn_v_b", &l->wv_b, pass->att.f32, h->latent_dim_v);
    } else {
        op_attend(me, il);
    }
    op_quant_att(me, il, (const struct linear *const[]){&l->wo, NULL});
    op_matmul_add(me, il, OP_LATENT, "attn_output", &l->wo, &pass->att);
}
