/* SPDX-License-Identifier: MIT
 *
 * deepseek2.c: DeepSeek-V2, V2-Lite, V3, R1, Kimi K2, GLM-4.7-Flash: everything converted as `deepseek2`.
 *
 *   h = x + Wo LatentAttention(n)      n = RMS(x; attn_norm)       block_latent.c
 *   x = h + FFN(m)                     m = RMS(h; ffn_norm)        the first layers: one network; then experts
 *
 * Experts are chosen by their softmax (V2) or their sigmoids (V3), with a bias that only chooses and in groups if the
 * file says so. One more expert takes part in every token. Files with attn_k_b and attn_v_b have the keys `_mla` for
 * the lengths of a head; their key_length and value_length are those of the cached vectors. Older files have attn_kv_b.
 *
 * YaRN: with yarn_log_multiplier, which holds 0.1 L, cos and sin are not scaled, but scores are, by (1 + 0.1 L ln
 * factor)^2.
 *
 * DeepSeek-AI 2024 (arXiv:2405.04434, 2412.19437). Temperatures that grow with the position (Mistral Large 3) are not
 * supported. A block after the last layer may predict the token after the next one (nextn.h).
 */
#include <math.h>
#include <stdio.h>

#include "base/math.h"
#include "model/arch/arch.h"
#include "model/block.h"
#include "model/pass/op.h"

/* Refuses a number that does not follow from the others; r->key is its key. */
static int must_be(struct hp_reader *r, const char *name, int v, int want, const char *why)
{
    if (v == want) return 0;
    return error_set(r->e, QN_EDATA, "model: '%s' is %d, not %d (%s)", hp_key(r, name), v, want, why);
}

static int missing(struct hp_reader *r, const char *name)
{
    return error_set(r->e, QN_EDATA, "model: key '%s' is missing", hp_key(r, name));
}

/* Reads the parts of a head and checks that they agree with the shape of the cache. */
static int read_latent(struct hparams *h, struct hp_reader *r)
{
    static const char *const needed[] = {"attention.key_length", "attention.value_length", "rope.dimension_count"};
    int rc, dim = h->head_dim;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!hp_has(r, needed[i])) return missing(r, needed[i]);
    if ((rc = hp_int(r, "attention.q_lora_rank", 0, HP_MAX_DIM, 0, &h->n_lora_q))) return rc;
    if ((rc = hp_int(r, "attention.kv_lora_rank", 2, HP_MAX_DIM, -1, &h->n_lora_kv))) return rc;
    h->latent_dim_v = h->head_dim_v;
    h->latent_is_absorbed = hp_has(r, "attention.key_length_mla") || hp_has(r, "attention.value_length_mla");
    if (h->latent_is_absorbed) {
        if ((rc = hp_int(r, "attention.key_length_mla", 4, HP_MAX_HEAD_DIM, -1, &dim))) return rc;
        if ((rc = hp_int(r, "attention.value_length_mla", 2, HP_MAX_HEAD_DIM, -1, &h->latent_dim_v))) return rc;
        if ((rc = must_be(r, "attention.head_count_kv", h->n_head_kv, 1, "latents are shared by all heads"))) return rc;
        if ((rc = must_be(r, "attention.key_length", h->head_dim, h->n_lora_kv + h->n_rot,
                          "kv_lora_rank and rope.dimension_count")))
            return rc;
        if ((rc = must_be(r, "attention.value_length", h->head_dim_v, h->n_lora_kv, "kv_lora_rank"))) return rc;
    } else if ((rc = must_be(r, "attention.head_count_kv", h->n_head_kv, h->n_head, "head_count"))) {
        return rc;
    }
    if (h->n_rot >= dim)
        return error_set(r->e, QN_EDATA, "model: '%s' is %d, not below the %d of a head",
                         hp_key(r, "rope.dimension_count"), h->n_rot, dim);
    h->latent_dim_nope = dim - h->n_rot;
    return 0;
}

/* The factor of scores. */
static int read_attn_scale(struct hparams *h, struct hp_reader *r)
{
    int rc;
    double m = 1, key = 0;
    if ((rc = hp_float(r, "rope.scaling.yarn_log_multiplier", -1e-30, 10, 0, &key))) return rc;
    if (key != 0 && h->rope_scaling != ROPE_YARN && h->rope_scaling != ROPE_NONE)
        return error_set(r->e, QN_EUNSUP, "model: '%s' is %g without yarn scaling", r->key, key);
    if (h->rope_attn_factor != 1)
        return error_set(r->e, QN_EUNSUP, "model: '%s' is %g: not supported for architecture '%s'",
                         hp_key(r, "rope.scaling.attn_factor"), h->rope_attn_factor, r->arch->name);
    h->yarn_log_mul = key;
    if (h->rope_scaling == ROPE_YARN && h->rope_factor > 1)
        m = 1 + 0.1 * (double)((float)key / 0.1f) * math_log(h->rope_factor);
    h->attn_scale = (float)(m * m / sqrt(h->latent_dim_nope + h->n_rot));
    return 0;
}

/* Groups of equal size; experts are chosen from the best groups. */
static int read_groups(struct hparams *h, struct hp_reader *r)
{
    int rc, n = 1, used = 1;
    if ((rc = hp_int(r, "expert_group_count", 0, h->n_expert, 1, &n))) return rc;
    if (n < 2) {
        hp_key(r, "expert_group_used_count"); /* without groups it has no meaning */
        return 0;
    }
    if (h->n_expert % n)
        return error_set(r->e, QN_EDATA, "model: '%s' is %d: %d experts are no whole number for each", r->key, n,
                         h->n_expert);
    if ((rc = hp_int(r, "expert_group_used_count", 1, n, -1, &used))) return rc;
    if (h->n_expert_used > h->n_expert / n * used)
        return error_set(r->e, QN_EDATA, "model: '%s' is %d: with %d experts that are not the %d that are used", r->key,
                         used, h->n_expert / n * used, h->n_expert_used);
    h->n_expert_groups = n;
    h->n_expert_groups_used = used;
    return 0;
}

/* The scores of files without expert_gating_func. Files with a bias that only chooses have sigmoids (GLM-4.7-Flash);
 * DeepSeek-V2 has no bias and a softmax. */
static enum expert_gate gate_unsaid(const struct hparams *h, const struct hp_reader *r)
{
    char name[64];
    for (int il = h->n_dense_lead; il < h->n_layer; il++) {
        snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", il);
        if (weights_tensor(r->w, name)) return GATE_SIGMOID;
    }
    return GATE_SOFTMAX;
}

/* Reads which layers have experts, and how experts are chosen. */
static int read_layers(struct hparams *h, struct hp_reader *r)
{
    int rc, n_shared = 0;
    h->n_dense_lead = h->n_layer;
    if (h->n_expert) {
        if ((rc = hp_int(r, "leading_dense_block_count", 0, h->n_layer, 0, &h->n_dense_lead))) return rc;
        if ((rc = hp_int(r, "expert_shared_count", 1, HP_MAX_DIM / h->n_ff_exp, -1, &n_shared))) return rc;
        if ((rc = hp_routing(r, h, gate_unsaid(h, r), false))) return rc;
        if ((rc = read_groups(h, r))) return rc;
        h->n_ff_shexp = n_shared * h->n_ff_exp;
    }
    if (h->n_dense_lead > 0 && h->n_ff == 0) return missing(r, "feed_forward_length");
    for (int il = 0; il < h->n_layer; il++) h->layer[il].has_experts = il >= h->n_dense_lead;
    return 0;
}

static int deepseek2_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    h->rope_adjacent = true;
    if ((rc = read_latent(h, r))) return rc;
    if ((rc = read_attn_scale(h, r))) return rc;
    return read_layers(h, r);
}

static const struct bind_rule rules[] = {
    BLOCK_LATENT_RULES, BLOCK_FFN_RULES, BLOCK_EXPERT_RULES, BLOCK_SHARED_EXPERT_RULES, {0}};

static void deepseek2_layer(const struct member *me, int il)
{
    block_latent(me, il);
    if (me->pass->model->hp.layer[il].has_experts)
        block_moe(me, il, ACTIV_SILU);
    else
        block_ffn(me, il, ACTIV_SILU);
}

static const char *const keys[] = {"attention.value_length", "expert_count", NULL};

const struct arch arch_deepseek2 = {.name = "deepseek2",
                                    .hparams = deepseek2_hparams,
                                    .rules = rules,
                                    .layer = deepseek2_layer,
                                    .keys = keys,
                                    .has_nextn = true};
