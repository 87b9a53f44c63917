/* SPDX-License-Identifier: MIT
 *
 * cost.h: the counters that the costing table writes instead of results.
 */
#ifndef QUERN_KERNEL_COST_COST_H
#define QUERN_KERNEL_COST_COST_H

#include <stdint.h>

/* Under the costing table every kernel's `scratch` points at one of these and is added to. */
struct cost {
    uint64_t bytes;     /* weights, keys and values read: what cannot come from a cache */
    uint64_t macs_int8; /* multiply-adds of bytes */
    uint64_t macs_f32;
};

#endif
