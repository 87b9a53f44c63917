/* SPDX-License-Identifier: MIT
 *
 * gemm.c: the matrix products (docs/KERNELS.md section 2), as the contract defines them.
 *
 * Three loops, for float weights, blocks of 32 and blocks of 256; what differs between the types
 * of a shape is only how a block is unpacked. One accumulator per output, blocks ascending. A
 * weight row is unpacked again for every 16 columns, which is all this file does for speed.
 */
#include <assert.h>

#include "kernel/ref/half.h"
#include "kernel/ref/ref.h"
#include "kernel/ref/unpack.h"

#define COLS 16 /* columns that share an unpacked block; no part of the arithmetic */

/* ---- float weights ---- */

typedef float load_fn(const uint8_t *w, int i);

static float load_f32_at(const uint8_t *w, int i) { return load_f32(w + 4 * (size_t)i); }
static float load_f16_at(const uint8_t *w, int i) { return load_f16(w + 2 * (size_t)i); }
static float load_bf16_at(const uint8_t *w, int i) { return bf16_to_f32(load_u16(w + 2 * (size_t)i)); }

static void gemm_float(const struct gemm *g, load_fn *load)
{
    for (int r = 0; r < g->n_rows; r++) {
        const uint8_t *w = g->w + (size_t)r * g->ld_w;
        for (int c = 0; c < g->n_cols; c++) {
            const float *x = (const float *)gemm_x(g, c);
            float lane[16] = {0};
            for (int i = 0; i < g->k; i++)
                lane[i % 16] = __builtin_fmaf(load(w, i), x[i], lane[i % 16]);
            g->y[(size_t)c * g->ld_y + (size_t)r] = lanes16_sum(lane);
        }
    }
}

static void gemm_f32_f32_ref(const struct gemm *g, void *scratch)
{
    (void)scratch;
    gemm_float(g, load_f32_at);
}

static void gemm_f16_f32_ref(const struct gemm *g, void *scratch)
{
    (void)scratch;
    gemm_float(g, load_f16_at);
}

static void gemm_bf16_f32_ref(const struct gemm *g, void *scratch)
{
    (void)scratch;
    gemm_float(g, load_bf16_at);
}

/* ---- blocks of 32 ---- */

static int32_t dot(const int8_t *c, const int8_t *q, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n; i++)
        s += c[i] * q[i];
    return s;
}

static int32_t dot32(const int16_t *c, const int8_t *q, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n; i++)
        s += c[i] * q[i];
    return s;
}

static float term32(const struct block32 *w, const int8_t *q, int32_t sum, enum dtype type)
{
    if (type == DT_NVFP4) {
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
            for (int c = 0; c < n; c++)
                g->y[(size_t)(c0 + c) * g->ld_y + (size_t)r] = acc[c];
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
            for (int c = 0; c < n; c++)
                g->y[(size_t)(c0 + c) * g->ld_y + (size_t)r] = acc[c];
        }
    }
}

/* ---- by type ---- */

/* The table holds plain function pointers, so every type needs a function of its own. */
#define B32(type, name)                                                                                                \
    static void gemm_##name##_q32_ref(const struct gemm *g, void *scratch)                                             \
    {                                                                                                                  \
        (void)scratch;                                                                                                 \
        gemm_b32(g, type);                                                                                             \
    }
#define K256(type, name)                                                                                               \
    static void gemm_##name##_q256_ref(const struct gemm *g, void *scratch)                                            \
    {                                                                                                                  \
        (void)scratch;                                                                                                 \
        gemm_k256(g, type);                                                                                            \
    }

B32(DT_Q4_0, q4_0)
B32(DT_Q4_1, q4_1)
B32(DT_Q5_0, q5_0)
B32(DT_Q5_1, q5_1)
B32(DT_Q8_0, q8_0)
B32(DT_IQ4_NL, iq4_nl)
B32(DT_MXFP4, mxfp4)
B32(DT_NVFP4, nvfp4)
B32(DT_Q1_0, q1_0)
B32(DT_Q2_0, q2_0)
B32(DT_MLX2, mlx2)
B32(DT_MLX3, mlx3)
B32(DT_MLX4, mlx4)
B32(DT_MLX5, mlx5)
B32(DT_MLX6, mlx6)
B32(DT_MLX8, mlx8)
K256(DT_Q2_K, q2_k)
K256(DT_Q3_K, q3_k)
K256(DT_Q4_K, q4_k)
K256(DT_Q5_K, q5_k)
K256(DT_Q6_K, q6_k)
K256(DT_IQ1_S, iq1_s)
K256(DT_IQ1_M, iq1_m)
K256(DT_IQ2_XXS, iq2_xxs)
K256(DT_IQ2_XS, iq2_xs)
K256(DT_IQ2_S, iq2_s)
K256(DT_IQ3_XXS, iq3_xxs)
K256(DT_IQ3_S, iq3_s)
K256(DT_IQ4_XS, iq4_xs)
K256(DT_TQ1_0, tq1_0)
K256(DT_TQ2_0, tq2_0)
K256(DT_I2_S, i2_s)

void gemm_init_ref(gemm_fn **table)
{
    for (int t = 0; t < DT_N; t++)
        table[t] = NULL;
    table[DT_F32] = gemm_f32_f32_ref;
    table[DT_F16] = gemm_f16_f32_ref;
    table[DT_BF16] = gemm_bf16_f32_ref;
    table[DT_Q4_0] = gemm_q4_0_q32_ref;
    table[DT_Q4_1] = gemm_q4_1_q32_ref;
    table[DT_Q5_0] = gemm_q5_0_q32_ref;
    table[DT_Q5_1] = gemm_q5_1_q32_ref;
    table[DT_Q8_0] = gemm_q8_0_q32_ref;
    table[DT_IQ4_NL] = gemm_iq4_nl_q32_ref;
    table[DT_MXFP4] = gemm_mxfp4_q32_ref;
    table[DT_NVFP4] = gemm_nvfp4_q32_ref;
    table[DT_Q1_0] = gemm_q1_0_q32_ref;
    table[DT_Q2_0] = gemm_q2_0_q32_ref;
    table[DT_MLX2] = gemm_mlx2_q32_ref;
    table[DT_MLX3] = gemm_mlx3_q32_ref;
    table[DT_MLX4] = gemm_mlx4_q32_ref;
    table[DT_MLX5] = gemm_mlx5_q32_ref;
    table[DT_MLX6] = gemm_mlx6_q32_ref;
    table[DT_MLX8] = gemm_mlx8_q32_ref;
    table[DT_Q2_K] = gemm_q2_k_q256_ref;
    table[DT_Q3_K] = gemm_q3_k_q256_ref;
    table[DT_Q4_K] = gemm_q4_k_q256_ref;
    table[DT_Q5_K] = gemm_q5_k_q256_ref;
    table[DT_Q6_K] = gemm_q6_k_q256_ref;
    table[DT_IQ1_S] = gemm_iq1_s_q256_ref;
    table[DT_IQ1_M] = gemm_iq1_m_q256_ref;
    table[DT_IQ2_XXS] = gemm_iq2_xxs_q256_ref;
    table[DT_IQ2_XS] = gemm_iq2_xs_q256_ref;
    table[DT_IQ2_S] = gemm_iq2_s_q256_ref;
    table[DT_IQ3_XXS] = gemm_iq3_xxs_q256_ref;
    table[DT_IQ3_S] = gemm_iq3_s_q256_ref;
    table[DT_IQ4_XS] = gemm_iq4_xs_q256_ref;
    table[DT_TQ1_0] = gemm_tq1_0_q256_ref;
    table[DT_TQ2_0] = gemm_tq2_0_q256_ref;
    table[DT_I2_S] = gemm_i2_s_q256_ref;
}
