/* SPDX-License-Identifier: MIT
 *
 * arch.h: the families' descriptors, for the registry.
 */
#ifndef QUERN_MODEL_ARCH_ARCH_H
#define QUERN_MODEL_ARCH_ARCH_H

#include "model/model.h"

extern const struct arch arch_llama, arch_qwen2, arch_qwen3, arch_qwen2moe, arch_qwen3moe, arch_gpt_oss;
extern const struct arch arch_qwen3next, arch_qwen35, arch_qwen35moe;
extern const struct arch arch_gemma, arch_gemma2, arch_gemma3, arch_phi3, arch_glm4, arch_granite, arch_olmo2,
    arch_smollm3, arch_bitnet, arch_bitnet_158, arch_bitnet_25, arch_deepseek2;

/* Reads the key head that a value head reads (delta_is_grouped), for qwen35 and qwen35moe. */
int qwen35_head_order(struct hparams *h, struct hp_reader *r);
/* Of qwen3next and qwen35moe: the numbers of the experts, which every layer has, and one layer. */
int qwen3next_experts(struct hparams *h, struct hp_reader *r);
void qwen3next_layer(const struct member *me, int il);

#endif
