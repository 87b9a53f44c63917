/* SPDX-License-Identifier: MIT
 *
 * arch.h: the families' descriptors, for the registry.
 */
#ifndef QUERN_MODEL_ARCH_ARCH_H
#define QUERN_MODEL_ARCH_ARCH_H

#include "model/model.h"

extern const struct arch arch_llama, arch_qwen2, arch_qwen3, arch_deepseek2;

#endif
