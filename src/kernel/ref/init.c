/* SPDX-License-Identifier: MIT
 *
 * init.c: the reference as a table: the ground level of the cascade, with every entry filled.
 */
#include "kernel/ref/ref.h"

static void dequant_ref(enum dtype t, const uint8_t *w, const struct side *side, int64_t k, float *y, void *scratch)
{
    (void)scratch;
    dequant_row(t, w, side, k, y);
}

void kernels_init_ref(struct kernels *k)
{
    *k = (struct kernels){
        .name = "ref",
        .row_unit = 32, /* it has no tiles: as at the other levels, so that threads share work in the same way */
        .strip = 256,
        .quant = {[ACT_F32] = quant_f32_ref, [ACT_Q32] = quant_q32_ref, [ACT_Q256] = quant_q256_ref},
        .attn = attn_ref,
        .attn_merge = attn_merge_ref,
        .put_key = put_key_ref,
        .put_value = put_value_ref,
        .conv_silu = conv_silu_ref,
        .delta = delta_ref,
        .delta_gates = delta_gates_ref,
        .l2_norm = l2_norm_ref,
        .rms_norm = rms_norm_ref,
        .add = add_ref,
        .add_scaled = add_scaled_ref,
        .scale = scale_ref,
        .act_mul = {[ACTIV_SILU] = act_mul_silu_ref,
                    [ACTIV_GELU] = act_mul_gelu_ref,
                    [ACTIV_RELU2] = act_mul_relu2_ref,
                    [ACTIV_SIGMOID] = act_mul_sigmoid_ref,
                    [ACTIV_CLAMPED] = act_mul_clamped_ref},
        .softcap = softcap_ref,
        .rope = rope_ref,
        .argmax = argmax_ref,
        .topk = topk_ref,
        .softmax_exp = softmax_exp_ref,
        .dequant = dequant_ref,
    };
    gemm_init_ref(k->gemm);
}
