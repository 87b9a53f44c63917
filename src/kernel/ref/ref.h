/* SPDX-License-Identifier: MIT
 *
 * ref.h: what the files of the reference show each other.
 */
#ifndef QUERN_KERNEL_REF_REF_H
#define QUERN_KERNEL_REF_REF_H

#include "kernel/kernel.h"

quant_fn quant_f32_ref, quant_q32_ref, quant_q256_ref;
void gemm_init_ref(gemm_fn **table); /* [DT_N], filled where there is a kernel */
attn_fn attn_ref;
attn_merge_fn attn_merge_ref;
kv_put_fn put_key_ref, put_value_ref;
conv_silu_fn conv_silu_ref;
delta_fn delta_ref;
delta_gates_fn delta_gates_ref;
l2_norm_fn l2_norm_ref;
rms_norm_fn rms_norm_ref;
add_fn add_ref;
add_scaled_fn add_scaled_ref;
scale_fn scale_ref;
act_mul_fn act_mul_silu_ref, act_mul_gelu_ref, act_mul_relu2_ref, act_mul_sigmoid_ref, act_mul_clamped_ref;
softcap_fn softcap_ref;
rope_fn rope_ref;
argmax_fn argmax_ref;
topk_fn topk_ref;
softmax_exp_fn softmax_exp_ref;

/* One block of the Q32 and Q256 formats' common rule: n values to n integers, returns the scale. */
float quant_block(const float *x, size_t n, int8_t *q);

/* The halving tree over 16 lanes. */
static inline float lanes16_sum(float lane[16])
{
    for (int n = 8; n > 0; n /= 2)
        for (int l = 0; l < n; l++) lane[l] += lane[l + n];
    return lane[0];
}

#endif
