/* SPDX-License-Identifier: MIT
 *
 * words.h: the codebooks of the IQ1, IQ2 and IQ3 types with a word for each entry, for vpermi2w.
 *
 * What the word of an entry holds, the first element lowest:
 *
 *   IQ2   eight digits of two bits, which count the codebook's values from the lowest up
 *   IQ1   the low two bits of eight elements
 *   IQ3   four nibbles, which count likewise from 0 to 7
 *
 * iq_grid.h has the same codebooks element by element; a unit test compares them.
 */
#ifndef QUERN_KERNEL_AVX512_WORDS_H
#define QUERN_KERNEL_AVX512_WORDS_H

#include <stdint.h>

extern const _Alignas(64) uint16_t iq2xxs_words[256];
extern const _Alignas(64) uint16_t iq2xs_words[512];
extern const _Alignas(64) uint16_t iq2s_words[1024];
extern const _Alignas(64) uint16_t iq3xxs_words[256];
extern const _Alignas(64) uint16_t iq3s_words[512];
extern const _Alignas(64) uint16_t iq1s_words[2048];

#endif
