/* SPDX-License-Identifier: MIT
 *
 * attn_work.h: what the two files of attention with AVX2 share: its scratch, and where keys and values lie. See attn.c.
 */
#ifndef QUERN_KERNEL_AVX2_ATTN_WORK_H
#define QUERN_KERNEL_AVX2_ATTN_WORK_H

#include "kernel/avx2/vec.h"
#include "kernel/kernel.h"

#define ROWS       4  /* query rows together, if they are few */
#define BLOCK      6  /* query rows together, if they are many */
#define MAX_Q      48 /* rows in one pass: a call with more takes several */
#define MAX_BLOCKS (ATTN_MAX_DIM / 32)
#define LD_P       (ATTN_CHUNK + 16) /* floats from a row's scores to the next row's, so that they share no cache sets */
#define GROUPS     (ATTN_CHUNK / KV_GROUP)
#define STRIP      32 /* dims of values in hand, if rows are many: a line of f16 */
#define HALF       (ATTN_CHUNK / 2)
_Static_assert(MAX_Q % BLOCK == 0 && MAX_Q % ROWS == 0, "a block of rows, repeated ones included, has its place");
_Static_assert(ATTN_MAX_DIM % STRIP == 0, "a strip of dims, zeros included, has its place");

/* A running (chunk's) result of every row. */
struct partials {
    float m[MAX_Q], l[MAX_Q];
    float o[MAX_Q][ATTN_MAX_DIM];
};

struct work {
    float p[MAX_Q][LD_P]; /* scores, then their exponentials */
    struct partials total, chunk;
    int lo[MAX_Q], hi[MAX_Q]; /* slots of the chunk that the row sees, from its first one on; both 0: none */
    bool is_seen[GROUPS + 1]; /* for many rows: whether any of them sees a slot of the group; the last: no */
    union {
        struct { /* Q8_0 keys: the queries in the Q32 format */
            int8_t q[MAX_Q][ATTN_MAX_DIM];
            float d[MAX_Q][MAX_BLOCKS];
        };
        float packed[MAX_Q / BLOCK][ATTN_MAX_DIM][BLOCK]; /* for many rows: the queries of each block, dim by dim */
    };
    union { /* for many rows, as f32 */
        float keys[ATTN_MAX_DIM][KV_GROUP];
        float values[HALF][STRIP]; /* of half of the chunk's slots */
    };
};
_Static_assert(sizeof(struct work) <= KERNEL_SCRATCH_BYTES, "the work fits the scratch memory");

static inline int int_min(int a, int b) { return a < b ? a : b; }
static inline int int_max(int a, int b) { return a > b ? a : b; }

/* The keys of the group of slot s; its value. */
static inline const uint8_t *key_at(const struct attn *a, int s)
{
    return a->pages[s / a->page_slots] + a->k_offset +
           (size_t)(s % a->page_slots / KV_GROUP) * kv_key_bytes(a->type, a->head_dim);
}

static inline const uint8_t *value_at(const struct attn *a, int s)
{
    return a->pages[s / a->page_slots] + a->v_offset +
           (size_t)(s % a->page_slots) * kv_value_bytes(a->type, a->head_dim_v);
}

/* Fetches [p + from, p + from + bytes); p NULL: nothing. What is read next is fetched in the order in which it lies in
 * memory, and a few lines at a time, because the processor drops more. */
VEC_INLINE void fetch(const uint8_t *p, size_t from, size_t bytes)
{
    for (size_t i = 0; p && i < bytes; i += 64) _mm_prefetch((const char *)p + from + i, _MM_HINT_T0);
}

/* 8 values of one slot from dim i on, i a multiple of 8. */
VEC_INLINE __m256 load_values(enum kv_type t, const uint8_t *v, int i)
{
    if (t == KV_F32) return _mm256_loadu_ps((const float *)(v + 4 * (size_t)i));
    if (t == KV_F16) return _mm256_cvtph_ps(vec_load128(v + 2 * (size_t)i));
    const uint8_t *b = v + i / 32 * 34;
    __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(vec_load64(b + 2 + i % 32)));
    return _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(vec_u16(b))), q);
}

/* The same for one dim: the last ones of a head whose size is no multiple of 8. */
VEC_INLINE float load_value(enum kv_type t, const uint8_t *v, int i)
{
    float x;
    if (t == KV_F16) return _cvtsh_ss(vec_u16(v + 2 * (size_t)i));
    if (t == KV_Q8_0) return _cvtsh_ss(vec_u16(v + i / 32 * 34)) * (float)(int8_t)v[i / 32 * 34 + 2 + i % 32];
    memcpy(&x, v + 4 * (size_t)i, sizeof x);
    return x;
}

/* ---- attn_many.c: for many rows ---- */

/* F16 is converted by a unit that products leave free, so few rows lose nothing if each block converts for itself. */
static inline bool are_many(const struct attn *a) { return a->n_q > (a->type == KV_F16 ? 24 : 8); }

/* The queries, so that avx2_attn_scores() finds those of a block side by side. */
void avx2_attn_pack(const struct attn *a, struct work *w);
/* Sets w->is_seen by w->lo and w->hi; before the two that follow. */
void avx2_attn_look(const struct attn *a, struct work *w);
/* The scores of all rows and the slots of the chunk at c0 that they see, in whole groups; not for Q8_0 keys. */
void avx2_attn_scores(const struct attn *a, struct work *w, int c0);
/* The weighted values of the chunk at c0 into w->chunk. */
void avx2_attn_values(const struct attn *a, struct work *w, int c0);

#endif
