/* SPDX-License-Identifier: MIT
 *
 * kernel.h: what a kernel is, the table of them, and the shapes they work on.
 *
 * A kernel is a pure function on raw pointers: no allocation, no errors, no globals, no threads. The C reference in
 * ref/ is the definition of every kernel; the folders of the instruction sets hold the same functions, faster, with the
 * same bits. docs/KERNELS.md is the contract that makes this possible: it fixes the order of every sum. A table of
 * function pointers is chosen once at start-up and handed down; nothing calls a kernel by name.
 *
 * cost/ fills the same table with functions that touch no data and only add up what they would have read and computed.
 * A model that runs on this table shows its cost.
 *
 * In all kernels:
 *
 * - Arrays of floats and of integers need the alignment of their elements only; stored weights, keys and values need
 *   none. Activation rows and scratch are aligned to 64 bytes.
 * - Nothing outside the arrays is written. Nothing outside them is read, except by prefetching and in the padding of
 *   activation rows.
 * - Arrays do not overlap, except where a comment allows it.
 * - Sizes (n, k, ...) count elements, and ld_... the elements between rows, unless a comment says bytes.
 * - `scratch` comes last: KERNEL_SCRATCH_BYTES of memory that belong to the calling thread and hold nothing between
 *   calls. For the costing table it points at a struct cost instead.
 */
#ifndef QUERN_KERNEL_KERNEL_H
#define QUERN_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

#define KERNEL_SCRATCH_BYTES (512u << 10)

/* ---- activations: the right-hand side of every matrix product ---- */

/* The weight type decides which format its activations are brought into. Each row is brought into it independently of
 * every other row. A row of k values, all parts aligned to 64 bytes:
 *
 *   ACT_F32   f32 x[k]
 *   ACT_Q32   i8 q[k], f32 d[k/32], i32 sum[k/32]               k % 32 == 0
 *             per 32: x ~ d * q, sum = sum of the 32 q
 *   ACT_Q256  i8 q[k], f32 d[k/256], i16 bsum[k/16], u16 asum[k/256]   k % 256 == 0
 *             per 256: x ~ d * q; bsum[i] = sum of 16 q; asum = the largest sum of |q|
 *             over one of the 16 groups of 16 (with it a kernel can prove that 16 bits are enough)
 *
 * q is always in [-127, 127].
 */
enum act { ACT_F32, ACT_Q32, ACT_Q256, ACT_N };

static inline size_t act_round64(size_t n) { return (n + 63) & ~(size_t)63; }

struct act_q32 {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
};
struct act_q256 {
    const int8_t *q;
    const float *d;
    const int16_t *bsum;
    const uint16_t *asum;
};

/* Bytes of one row of k values, a multiple of 64; 0 for ACT_N. */
static inline size_t act_row_bytes(enum act a, int k)
{
    size_t n = (size_t)k;
    switch (a) {
    case ACT_F32: return act_round64(n * 4);
    case ACT_Q32: return act_round64(n) + 2 * act_round64(n / 32 * 4);
    case ACT_Q256: return n + act_round64(n / 256 * 4) + act_round64(n / 16 * 2) + act_round64(n / 256 * 2);
    case ACT_N: break;
    }
    return 0;
}

/* The parts of a row of k values. */
static inline struct act_q32 act_q32_at(const uint8_t *row, int k)
{
    const uint8_t *d = row + act_round64((size_t)k);
    return (struct act_q32){(const int8_t *)row, (const float *)d,
                            (const int32_t *)(d + act_round64((size_t)k / 32 * 4))};
}

static inline struct act_q256 act_q256_at(const uint8_t *row, int k)
{
    const uint8_t *d = row + k;
    const uint8_t *b = d + act_round64((size_t)k / 256 * 4);
    return (struct act_q256){(const int8_t *)row, (const float *)d, (const int16_t *)b,
                             (const uint16_t *)(b + act_round64((size_t)k / 16 * 2))};
}

/* The format that weights of type t are multiplied with; ACT_N when t is no weight type. */
enum act kernel_act_of(enum dtype t);

/* Brings x[n] into the format of the table's entry, as the values from .. from + n of a row of k values. The row has
 * act_row_bytes() bytes; from and n are multiples of the format's block. ACT_F32's entry copies. */
typedef void quant_fn(const float *x, int from, int n, int k, uint8_t *row, void *scratch);

/* ---- matrix product ---- */

/* y[c * ld_y + r] = sum over k of w[r][k] * x[c][k]   for r < n_rows, c < n_cols.
 * With `cols`, column c is activation row cols[c]: an expert's rows of a batch stay where they are.
 * n_rows >= 0, n_cols >= 1. */
struct gemm {
    const uint8_t *w;    /* weight rows as stored in the file: unaligned */
    size_t ld_w;         /* bytes between weight rows */
    int n_rows, k;       /* k is a multiple of the type's block */
    const uint8_t *x;    /* activation rows in kernel_act_of(type), 64-byte aligned */
    size_t ld_x;         /* bytes between activation rows, a multiple of 64 */
    const int32_t *cols; /* [n_cols] or NULL */
    int n_cols;
    float *y;
    size_t ld_y;      /* floats between columns */
    struct side side; /* scales and biases of row 0; MLX types only */
};

/* Column c's activations: one row of the format. */
static inline const uint8_t *gemm_x(const struct gemm *g, int c)
{
    return g->x + (size_t)(g->cols ? g->cols[c] : c) * g->ld_x;
}

typedef void gemm_fn(const struct gemm *g, void *scratch);

/* One stored row of k elements as floats y[k] (embedding rows, tests): element for element the values that the type's
 * format document gives. k is a multiple of the type's block. side: the row's scales and biases for MLX types; else
 * NULL or all zero. The table's entry is this function at every level. */
void dequant_row(enum dtype t, const uint8_t *w, const struct side *side, int64_t k, float *y);
typedef void dequant_fn(enum dtype t, const uint8_t *w, const struct side *side, int64_t k, float *y, void *scratch);

/* ---- attention ---- */

enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_N };

#define ATTN_CHUNK   256 /* slots; part of the arithmetic, see docs/KERNELS.md */
#define ATTN_MAX_Q   128 /* query rows in one call */
#define ATTN_MAX_DIM 576 /* of a latent and its rotated key: 512 + 64 */
#define KV_GROUP     16  /* slots whose keys are stored side by side */

/* A partial result of a query row, as floats: the largest logit, the sum of the exponentials, and from ATTN_PARTIAL_O
 * on the weighted sum of values, with room for a multiple of 16. */
#define ATTN_PARTIAL_M 0
#define ATTN_PARTIAL_L 1
#define ATTN_PARTIAL_O 16

/* out[i] = the attention of query row i over one KV head (docs/KERNELS.md section 3). The head's keys and values lie in
 * pages of page_slots slots (a multiple of 16):
 *
 *   keys, per group of 16 slots   F32, F16: [head_dim][16]
 *                                 Q8_0: per 32 dims { f16 d[16]; i8 q[8][16][4] }
 *                                       (q[g][slot][j] is dim 4g + j), dims padded to 32 with zeros
 *   values, per slot              F32, F16: [head_dim_v]
 *                                 Q8_0: per 32 dims { f16 d; i8 q[32] }, padded likewise
 */
struct attn {
    enum kv_type type;
    int head_dim, head_dim_v; /* even */
    int n_q;                  /* 1..ATTN_MAX_Q query rows that share this KV head */
    const float *const *q;    /* [n_q] -> [head_dim] */
    float *const *out;        /* [n_q] -> [head_dim_v] */
    const int32_t *lo, *hi;   /* [n_q] each row sees slots lo <= s < hi; lo < hi */
    const float *sink;        /* [n_q] an extra logit in the denominator, or NULL */
    float scale;
    float softcap;               /* 0: none; else s = softcap * tanh(s / softcap) after the scale */
    const uint8_t *const *pages; /* page p holds slots p * page_slots ... */
    int page_slots;
    size_t k_offset, v_offset; /* bytes from a page's start to the keys (values) of this layer and head */
    /* 0: the chunks' results are merged. Else all rows see the same slots, sinks are ignored, out[i] points at row i's
     * partial result of its first chunk, and ld_partial floats further is that of the next chunk. */
    size_t ld_partial;
};
typedef void attn_fn(const struct attn *a, void *scratch);

/* Merges the partial results of a row's chunks, in their order, and gives attention's result. With out NULL, the first
 * partial result becomes the merged one, which later chunks can be merged into. */
struct attn_merge {
    float *partial;
    int n; /* >= 1 */
    size_t ld_partial;
    int head_dim_v;
    const float *sink; /* the row's, or NULL */
    float *out;        /* [head_dim_v] or NULL */
};
typedef void attn_merge_fn(const struct attn_merge *m, void *scratch);

size_t kv_key_bytes(enum kv_type t, int head_dim);   /* of one group of 16 slots */
size_t kv_value_bytes(enum kv_type t, int head_dim); /* of one slot */

/* Writes one key (value) x[head_dim] to slot s of a KV head's keys (values) in a page; area: their first byte. */
typedef void kv_put_fn(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch);

/* ---- the gated delta rule ---- */

#define CONV_MAX_TAPS 8

/* n_rows steps of one sequence through a causal convolution, each channel by itself, then SiLU:
 * y[t][c] = silu(sum over i of w[c][i] * x[t - (n_taps - 1) + i][c]); the state holds the rows before the first. */
struct conv {
    const float *w; /* [n_channels][n_taps], as stored */
    int n_taps;     /* 2..CONV_MAX_TAPS; the last one is the row's own */
    int n_channels;
    int n_rows;     /* >= 1 */
    const float *x; /* [n_rows][n_channels] */
    float *y;       /* the same shape; may be x */
    size_t ld_x, ld_y;
    float *state; /* [n_taps - 1][n_channels] the inputs before row 0, the oldest first; after the call, the inputs
                     before row n_rows */
    size_t ld_state;
};
typedef void conv_silu_fn(const struct conv *c, void *scratch);

/* n_rows steps of n_dims dims of one value head. Each dim has a row m of dk numbers, and each step does
 *   m = decay * m + k * (beta * (v - decay * (m . k)));  o = m . q
 * with the updated m in the last product (the gated delta rule; m is a column of the usual state). */
struct delta {
    int dk, n_dims;
    int n_rows;                /* >= 1 */
    float *m;                  /* [n_dims][dk] */
    const float *q, *k;        /* a step's [dk]; ld_qk floats between steps */
    const float *v;            /* [n_dims] */
    float *o;                  /* [n_dims]; may be v */
    const float *decay, *beta; /* one a step */
    size_t ld_qk, ld_v, ld_o, ld_gate;
};
typedef void delta_fn(const struct delta *d, void *scratch);

/* The gates of one step of n value heads, arrays of n: decay = exp(rate * softplus(a + bias)), beta = sigmoid(b). */
typedef void delta_gates_fn(const float *a, const float *b, const float *rate, const float *bias, int n, float *decay,
                            float *beta, void *scratch);
/* y[n] = x * (scale / sqrt(sum of x^2 + eps)); y may be x. */
typedef void l2_norm_fn(const float *x, float eps, float scale, int n, float *y, void *scratch);

/* ---- functions of vectors of n ---- */

/* GELU is the tanh form; CLAMPED is gpt-oss's SiLU, which changes `up` as well: docs/KERNELS.md section 4. */
enum act_kind { ACTIV_SILU, ACTIV_GELU, ACTIV_RELU2, ACTIV_SIGMOID, ACTIV_CLAMPED, ACTIV_N };

/* y = x / sqrt(mean(x^2) + eps) * w; w NULL means 1; y may be x. */
typedef void rms_norm_fn(const float *x, const float *w, float eps, int n, float *y, void *scratch);
/* y += x */
typedef void add_fn(float *y, const float *x, int n, void *scratch);
/* y = fma(s, x, y) */
typedef void add_scaled_fn(float *y, const float *x, float s, int n, void *scratch);
/* y *= s */
typedef void scale_fn(float *y, float s, int n, void *scratch);
/* y = f(gate) * up; y may be gate or up. */
typedef void act_mul_fn(const float *gate, const float *up, int n, float *y, void *scratch);
/* y = cap * tanh(y / cap) */
typedef void softcap_fn(float *y, float cap, int n, void *scratch);
/* Rotates x[2 * n_pairs], the first values of one head, in place; cs[i] = {cos, sin} of pair i.
 * adjacent: pair i is (2i, 2i + 1); else (i, i + n_pairs). */
typedef void rope_fn(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch);
/* The index of the largest value, the lowest index among equals; NaN never wins; -1 when all are NaN or n is 0. */
typedef int argmax_fn(const float *x, int n, void *scratch);
/* idx[k] = the indices of the k largest, descending, ties to the lower index, NaN last; k <= n. */
typedef void topk_fn(const float *x, int n, int k, int32_t *idx, void *scratch);
/* y[i] = exp(x[i] - max(x)); returns their sum. y may be x. */
typedef float softmax_exp_fn(const float *x, int n, float *y, void *scratch);

struct kernels {
    const char *name; /* "ref", "avx2", "avxvnni", "avx512", "avx512vbmi", "amx", "cost" */
    bool is_cost;     /* nothing is computed: scratch points at a struct cost */
    int row_unit;     /* weight rows that the products take together: give each thread a multiple of it */
    int strip;        /* weight rows whose results are best passed on before the next are made, while they are in cache:
                         a multiple of row_unit and of the block of every activation format */
    quant_fn *quant[ACT_N];
    gemm_fn *gemm[DT_N]; /* NULL for types that are no weights */
    attn_fn *attn;
    attn_merge_fn *attn_merge;
    kv_put_fn *put_key, *put_value;
    conv_silu_fn *conv_silu;
    delta_fn *delta;
    delta_gates_fn *delta_gates;
    l2_norm_fn *l2_norm;
    rms_norm_fn *rms_norm;
    add_fn *add;
    add_scaled_fn *add_scaled;
    scale_fn *scale;
    act_mul_fn *act_mul[ACTIV_N];
    softcap_fn *softcap;
    rope_fn *rope;
    argmax_fn *argmax;
    topk_fn *topk;
    softmax_exp_fn *softmax_exp;
    dequant_fn *dequant;
};

/* The levels fill a table from the ground up: the reference fills all of it, each other level overwrites the entries
 * that it has a faster function for. Callers use kernels_init() of cpu.h, except for the costing table. */
void kernels_init_ref(struct kernels *k);
void kernels_init_avx2(struct kernels *k);
void kernels_init_avxvnni(struct kernels *k);
void kernels_init_avx512(struct kernels *k);
void kernels_init_avx512vbmi(struct kernels *k);
void kernels_init_amx(struct kernels *k);
void kernels_init_cost(struct kernels *k);

#endif
