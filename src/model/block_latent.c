/* SPDX-License-Identifier: MIT
 *
 * block_latent.c: multi-head latent attention. DeepSeek-AI, "DeepSeek-V2", 2024 (arXiv:2405.04434), section 2.1.
 *
 *     [c | k_pe] = Wkv_a n              n = RMS(x; attn_norm);  c = RMS(c; kv_a_norm), k_pe = RoPE(k_pe)
 *     [q_nope | q_pe] of each head = Wq n, or Wq_b RMS(Wq_a n; q_a_norm);  q_pe = RoPE(q_pe)
 *
 * Files come in two layouts, and each has one form of arithmetic for everything, prompts and single tokens alike:
 *
 *   expanded  (Wkv_b)        each head has a key [k_nope | k_pe] and a value, [k_nope | v] = Wkv_b c, and the cache
 *                            holds them: n_head * (nope + rot + v) numbers a token and layer.
 *   absorbed  (Wk_b, Wv_b)   q_nope . k_nope = (Wk_b q_nope) . c, so the heads attend to one key [c | k_pe] and one
 *                            value c, which they share, and Wv_b follows: o = Wv_b (sum p c). The cache holds
 *                            2 * n_lora_kv + rot numbers, c being stored twice because keys and values lie differently.
 *
 * What absorbing costs: a score takes n_lora_kv + rot multiply-adds instead of nope + rot, a value n_lora_kv instead of
 * v. With DeepSeek-V3's numbers (512, 64, 128, 128) that is 1088 instead of 320 for each pair of tokens and head. For
 * a long prompt the expanded form would be 3.4 times cheaper there; but the two round differently, and a choice between
 * them by the size of the batch would make results depend on it. The sums over heads' vectors are small in any case
 * beside the experts.
 */
#include "model/block.h"

/* s->q and the cache have what attention needs. */
static void queries_and_keys(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct layer *l = &s->model->layers[il];
    struct latent_rows *t = &s->latent;
    const struct linear *first = s->model->hp.n_lora_q ? &l->wq_a : &l->wq;
    op_norm(w, il, "attn_norm", l->attn_norm, (const struct linear *const[]){first, &l->wkv_a, NULL});
    op_matmul(w, il, first == &l->wq_a ? "attn_q_a" : "attn_q", first, &s->h, first == &l->wq_a ? t->low_q.f32 : t->q);
    op_matmul(w, il, "attn_kv_a", &l->wkv_a, &s->h, t->kv);
    op_sync(w);
    op_latent_norm(w, il);
    if (first == &l->wq_a) op_matmul(w, il, "attn_q_b", &l->wq_b, &t->low_q, t->q);
    if (!s->model->hp.latent_is_absorbed) op_matmul(w, il, "attn_kv_b", &l->wkv_b, &t->low_kv, t->kv_b);
    op_sync(w);
    op_latent_heads(w, il);
}

void block_latent(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct layer *l = &s->model->layers[il];
    queries_and_keys(w, il);
    if (h->latent_is_absorbed) {
        op_matmul_heads(w, il, "attn_k_b", &l->wk_b, s->q, h->head_dim);
        op_attend(w, il);
        op_latent_context(w, il);
        op_matmul_heads(w, il, "attn_v_b", &l->wv_b, s->att.f32, h->latent_dim_v);
    } else {
        op_attend(w, il);
    }
    op_quant_att(w, il, (const struct linear *const[]){&l->wo, NULL});
    op_matmul_add(w, il, "attn_output", &l->wo, &s->att);
}
