/* SPDX-License-Identifier: MIT
 *
 * fill.h: random weights in any stored type, of a chosen size.
 */
#ifndef QUERN_TOOLS_FILL_H
#define QUERN_TOOLS_FILL_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* Writes n blocks (of one element for the float types) whose decoded values have mean about 0 and root mean square
 * about rms. t: a float type or one that weights are quantised to. *state is the position in a random sequence:
 * equal states give equal bytes. */
void fill_blocks(uint8_t *out, enum dtype t, size_t n, double rms, uint64_t *state);

/* The scale that blocks of a type with one for the whole tensor need for that rms. */
float fill_tail(enum dtype t, double rms);

/* n float32 values, uniform in centre - spread .. centre + spread. */
void fill_uniform(float *out, size_t n, float centre, float spread, uint64_t *state);

#endif
