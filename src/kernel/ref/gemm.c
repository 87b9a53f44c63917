/* SPDX-License-Identifier: MIT
 *
 * gemm.c: the matrix products (docs/KERNELS.md section 2), as the contract defines them.
 *
 * There are three loops: for float weights, blocks of 32 and blocks of 256. The types of a shape differ only in how a
 * block is unpacked. Each output has one accumulator, and the blocks ascend. A weight row is unpacked once for 64
 * columns; nothing else is done for speed.
 */
#include <assert.h>

#include "kernel/ref/half.h"
#include "kernel/ref/ref.h"
#include "kernel/ref/unpack.h"

#define COLS 64 /* columns that share an unpacked block; no part of the arithmetic */

/* ---- float weights ---- */

typedef float load_fn(const uint8_t *w, int i);

static float at_f32(const uint8_t *w, int i) { return load_f32(w + 4 * (size_t)i); }
static float at_f16(const uint8_t *w, int i) { return load_f16(w + 2 * (size_t)i); }
static float at_bf16(const uint8_t *w, int i) { return bf16_to_f32(load_u16(w + 2 * (size_t)i)); }

static void gemm_float(const struct gemm *g, load_fn *load)
{
    for (int r = 0; r < g->n_rows; r++) {
        const uint8_t *w = g->w + (size_t)r * g->ld_w;
        for (int c = 0; c < g->n_cols; c++) {
            const float *x = (const float *)gemm_x(g, c);
            float lane[16] = {0};
            for (int i = 0; i < g->k; i++) lane[i % 16] = __builtin_fmaf(load(w, i), x[i], lane[i % 16]);
            g->y[(size_t)c * g->ld_y + (size_t)r] = lanes16_sum(lane);
        }
    }
}

/* ---- blocks of 32 ---- */

static int32_t dot(const int8_t *c, const int8_t *q, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n; i++) s += c[i] * q[i];
    return s;
}

static int32_t dot32(const int16_t *c, const int8_t *q, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n; i++) s += c[i] * q[i];
    return s;
}

static float term32(const struct block32 *w, const int8_t *q, int32_t sum, enum dtype type)
{
    if (unpack_has_halves(type)) {
        float t = w->dw * (float)dot32(w->code, q, 16);
        return __builtin_fmaf(w->dw1, (float)dot32(w->code + 16, q + 16, 16), t);
    }
    float t = w->dw * (float)dot32(w->code, q, 32);
    return unpack_has_min(type) ? __builtin_fmaf(w->m, (float)sum, t) : t;
}

static void gemm_b32(const struct gemm *g, enum dtype type)
{
    unpack32_fn *unpack = unpack32_of(type);
    for (int r = 0; r < g->n_rows; r++) {
        const uint8_t *row = g->w + (size_t)r * g->ld_w;
        const struct side side = side_from(g->side, g->k, r);
        for (int c0 = 0; c0 < g->n_cols; c0 += COLS) {
            int n = g->n_cols - c0 < COLS ? g->n_cols - c0 : COLS;
            float acc[COLS] = {0};
            for (int b = 0; b < g->k / 32; b++) {
                struct block32 w;
                unpack(row, b, &w);
                if (side.scale) unpack_side(&side, b, &w);
                for (int c = 0; c < n; c++) {
                    struct act_q32 x = act_q32_at(gemm_x(g, c0 + c), g->k);
                    acc[c] = __builtin_fmaf(x.d[b], term32(&w, x.q + 32 * b, x.sum[b], type), acc[c]);
                }
            }
            for (int c = 0; c < n; c++) g->y[(size_t)(c0 + c) * g->ld_y + (size_t)r] = acc[c];
        }
    }
}

/* ---- blocks of 256 ---- */

static float term256(const struct block256 *w, const int8_t *q, const int16_t *bsum, bool has_min)
{
    int32_t s = 0, m = 0;
    for (int i = 0; i < 16; i++) {
        s += w->scale[i] * dot(w->code + 16 * i, q + 16 * i, 16);
        m += w->min[i] * bsum[i];
    }
    float t = w->dw * (float)s;
    return has_min ? __builtin_fmaf(-w->dmin, (float)m, t) : t;
}

static void gemm_k256(const struct gemm *g, enum dtype type)
{
    const size_t block_bytes = dtype_get(type)->bytes;
    unpack256_fn *unpack = unpack256_of(type);
    bool has_min = unpack_has_min(type);
    for (int r = 0; r < g->n_rows; r++) {
        const uint8_t *row = g->w + (size_t)r * g->ld_w;
        for (int c0 = 0; c0 < g->n_cols; c0 += COLS) {
            int n = g->n_cols - c0 < COLS ? g->n_cols - c0 : COLS;
            float acc[COLS] = {0};
            for (int b = 0; b < g->k / 256; b++) {
                struct block256 w;
                unpack(row + (size_t)b * block_bytes, &w);
                for (int c = 0; c < n; c++) {
                    struct act_q256 x = act_q256_at(gemm_x(g, c0 + c), g->k);
                    acc[c] = __builtin_fmaf(x.d[b], term256(&w, x.q + 256 * b, x.bsum + 16 * b, has_min), acc[c]);
                }
            }
            for (int c = 0; c < n; c++) g->y[(size_t)(c0 + c) * g->ld_y + (size_t)r] = acc[c];
        }
    }
}

/* ---- by type ---- */

/* The table holds plain function pointers, so every type needs a function of its own. */
#define GEMM(ID, name, call)                                                                                           \
    static void gemm_##name##_ref(const struct gemm *g, void *scratch)                                                 \
    {                                                                                                                  \
        (void)scratch;                                                                                                 \
        call;                                                                                                          \
    }
#define GEMM_FLOAT(ID, name, ...) GEMM(ID, name, gemm_float(g, at_##name))
#define GEMM_B32(ID, name, ...)   GEMM(ID, name, gemm_b32(g, DT_##ID))
#define GEMM_K256(ID, name, ...)  GEMM(ID, name, gemm_k256(g, DT_##ID))
#define ENTRY(ID, name, ...)      table[DT_##ID] = gemm_##name##_ref;

DTYPES_FLOAT(GEMM_FLOAT)
DTYPES_Q32(GEMM_B32)
DTYPES_K256(GEMM_K256)

void gemm_init_ref(gemm_fn **table)
{
    for (int t = 0; t < DT_N; t++) table[t] = NULL;
    DTYPES_FLOAT(ENTRY)
    DTYPES_Q32(ENTRY)
    DTYPES_K256(ENTRY)
}
