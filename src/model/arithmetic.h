/* SPDX-License-Identifier: MIT
 *
 * arithmetic.h: the version of the arithmetic that docs/KERNELS.md and docs/FAMILIES.md define.
 *
 * Raise it by 1 whenever the same file, settings and tokens give other bits of keys, values, states or logits, for any
 * model. Keys and values that were computed before and kept on disk are then no longer found.
 *
 *     1  the first
 *     2  YaRN's correction range without rounding, its attention factor; groups of experts; delta-net's L2 norm; the
 * gate of deepseek2 files that name none; the rotation of glm4 with sections and of gemma3 with bases by layer
 */
#ifndef QUERN_MODEL_ARITHMETIC_H
#define QUERN_MODEL_ARITHMETIC_H

#define MODEL_ARITHMETIC 2

#endif
