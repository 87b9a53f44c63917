/* SPDX-License-Identifier: MIT
 *
 * kv.c: how keys and values lie in a page, and storing them there.
 *
 * Keys of 16 slots are stored side by side, so that scores can be computed 16 at a time with one
 * lane per slot; values are stored slot by slot, so that their weighted sum runs along the dims.
 * The layout is drawn at struct attn (kernel.h), the rounding is docs/KERNELS.md section 3.
 * Does not know pages: `area` is where a head's keys (values) begin in one.
 */
#include <assert.h>
#include <string.h>

#include "kernel/ref/half.h"
#include "kernel/ref/ref.h"

#define Q8_KEY_BYTES   (KV_GROUP * 2 + 32 * KV_GROUP) /* 32 dims of a group of slots */
#define Q8_VALUE_BYTES (2 + 32)                       /* 32 dims of a slot */

static int n_blocks32(int head_dim) { return (head_dim + 31) / 32; }

size_t kv_value_bytes(enum kv_type t, int head_dim)
{
    switch (t) {
    case KV_F32: return (size_t)head_dim * 4;
    case KV_F16: return (size_t)head_dim * 2;
    case KV_Q8_0: return (size_t)n_blocks32(head_dim) * Q8_VALUE_BYTES;
    case KV_N: break;
    }
    assert(!"kv type");
    return 0;
}

size_t kv_key_bytes(enum kv_type t, int head_dim) { return KV_GROUP * kv_value_bytes(t, head_dim); }

static void store_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* Dims 32 * b ... of x, zeros beyond its end, as 32 integers and a scale. */
static float quant_dims(const float *x, int head_dim, int b, int8_t q[32])
{
    float v[32] = {0};
    int n = head_dim - 32 * b < 32 ? head_dim - 32 * b : 32;
    memcpy(v, x + 32 * b, (size_t)n * sizeof *x);
    return quant_block(v, 32, q);
}

void put_key_ref(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch)
{
    (void)scratch;
    uint8_t *group = area + (size_t)(s / KV_GROUP) * kv_key_bytes(t, head_dim);
    size_t lane = (size_t)(s % KV_GROUP);
    if (t == KV_Q8_0) {
        for (int b = 0; b < n_blocks32(head_dim); b++, group += Q8_KEY_BYTES) {
            int8_t q[32];
            store_u16(group + 2 * lane, f32_to_f16(quant_dims(x, head_dim, b, q)));
            for (size_t g = 0; g < 8; g++) memcpy(group + 2 * KV_GROUP + (g * KV_GROUP + lane) * 4, q + 4 * g, 4);
        }
        return;
    }
    for (size_t i = 0; i < (size_t)head_dim; i++) {
        if (t == KV_F32)
            memcpy(group + (i * KV_GROUP + lane) * 4, &x[i], 4);
        else
            store_u16(group + (i * KV_GROUP + lane) * 2, f32_to_f16(x[i]));
    }
}

void put_value_ref(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch)
{
    (void)scratch;
    uint8_t *slot = area + (size_t)s * kv_value_bytes(t, head_dim);
    if (t == KV_F32) {
        memcpy(slot, x, (size_t)head_dim * 4);
    } else if (t == KV_F16) {
        for (size_t i = 0; i < (size_t)head_dim; i++) store_u16(slot + 2 * i, f32_to_f16(x[i]));
    } else {
        for (int b = 0; b < n_blocks32(head_dim); b++, slot += Q8_VALUE_BYTES) {
            int8_t q[32];
            store_u16(slot, f32_to_f16(quant_dims(x, head_dim, b, q)));
            memcpy(slot + 2, q, 32);
        }
    }
}
