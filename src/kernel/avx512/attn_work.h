/* SPDX-License-Identifier: MIT
 *
 * attn_work.h: what the two files of attention with AVX-512 share: its scratch, blocks of rows, and chunks. See attn.c.
 */
#ifndef QUERN_KERNEL_AVX512_ATTN_WORK_H
#define QUERN_KERNEL_AVX512_ATTN_WORK_H

#include <assert.h>
#include <string.h>

#include "kernel/avx512/quant.h"
#include "kernel/kernel.h"

#define ROWS         12 /* in a block, at most */
#define BLOCKS       (ATTN_MAX_Q / ROWS + 1)
#define PACKED_DIM   256                            /* dims of queries that lie side by side, at most */
#define GROUPS       (ATTN_CHUNK / KV_GROUP)        /* of 16 slots in a chunk */
#define KEY_Q8_BYTES (2 * KV_GROUP + 32 * KV_GROUP) /* 32 dims of a group of keys */
static_assert(ATTN_MAX_Q % ROWS == 8 && ATTN_MAX_Q % 16 == 0, "a block of rows, repeated ones included, has its place");

/* How a row's chunk joins what it has: o, fma(O, f, o), fma(o, f, O). */
enum join { JOIN_FIRST, JOIN_HIGHER, JOIN_LOWER };

struct work {
    _Alignas(64) float p[ATTN_MAX_Q][ATTN_CHUNK]; /* scores, then their exponentials */
    union {
        _Alignas(64) float keys[2][ATTN_MAX_DIM][KV_GROUP];
        _Alignas(64) float values[ATTN_CHUNK][2 * 16];
        _Alignas(64) float scales[2][ATTN_CHUNK]; /* Q8_0 values that are read in place: of 32 dims each */
    } wide;
    union {
        _Alignas(64) float o[ROWS][ATTN_MAX_DIM];      /* of a block */
        _Alignas(64) float sums[BLOCKS][ROWS][2 * 16]; /* of all blocks, two registers of dims */
    };
    union {
        struct { /* for Q8_0 keys */
            _Alignas(64) int8_t q8[ATTN_MAX_Q][ATTN_MAX_DIM];
            float q8_d[ATTN_MAX_Q][ATTN_MAX_DIM / 32];
            int32_t q8_start[ATTN_MAX_Q][ATTN_MAX_DIM / 32]; /* -128 * sum of 32 q: keys are made unsigned */
        };
        _Alignas(64) float packed[BLOCKS][PACKED_DIM][ROWS]; /* for many rows: of each block, dim by dim */
    };
    _Alignas(64) float m[ATTN_MAX_Q], l[ATTN_MAX_Q]; /* merged so far */
    _Alignas(64) float chunk_m[ATTN_MAX_Q], chunk_l[ATTN_MAX_Q];
    _Alignas(64) float factor[ATTN_MAX_Q];
    bool started[ATTN_MAX_Q];
    uint8_t join[ATTN_MAX_Q];           /* enum join */
    size_t out_at;                      /* floats from a row's output to where the chunk's result goes */
    int lo[ATTN_MAX_Q], hi[ATTN_MAX_Q]; /* slots of the chunk that the row sees; both 0: none */
};
static_assert(sizeof(struct work) <= KERNEL_SCRATCH_BYTES, "scratch");

/* Up to ROWS rows of a chunk. */
struct block {
    int row, n;
    int lo, hi;         /* slots that any of them sees; both 0: none */
    int all_lo, all_hi; /* slots that all of them see; all_lo == all_hi: none */
};

/* The current chunk: where its slots are, and where the next chunk's are. */
struct chunk {
    int n_blocks;
    struct block block[BLOCKS];
    int g0, g1; /* groups that any row sees */
    const uint8_t *key[GROUPS], *value[GROUPS];
    const uint8_t *next_key[GROUPS]; /* the first n_next groups of the next chunk */
    int n_next;
    size_t key_bytes, value_bytes; /* of a group, of a slot */
};

static inline bool is_many(const struct attn *a) { return a->n_q > ROWS; }
static inline int int_min(int a, int b) { return a < b ? a : b; }
static inline int int_max(int a, int b) { return a > b ? a : b; }

/* Groups' keys or values that are read next, a part of which is fetched every few steps of the work before: the
 * processor drops what is asked for in one go. */
struct next {
    const uint8_t *const *p; /* groups that are still to be fetched, in the order in which they will be read */
    int n;
    size_t bytes; /* of a group */
    size_t at;    /* bytes of the first one that are fetched */
    size_t part;
};

static inline struct next next_of(const uint8_t *const *p, int n, size_t bytes, int n_steps)
{
    size_t part = n > 0 ? ((size_t)n * bytes / (size_t)n_steps + 63) / 64 * 64 : 0;
    return (struct next){.p = p, .n = int_max(n, 0), .bytes = bytes, .part = part};
}

ALWAYS_INLINE void fetch(struct next *t)
{
    if (!t->n) return;
    for (size_t i = 0; i < t->part; i += 64) _mm_prefetch((const char *)*t->p + t->at + i, _MM_HINT_T0);
    t->at += t->part;
    if (t->at < t->bytes) return;
    t->at = 0;
    t->p++;
    t->n--;
}

/* Some rows times two groups of keys. */
struct dots {
    const struct attn *a;
    struct work *w;
    int row, n;                  /* rows from `row` on; beyond n the last is repeated */
    int g0, g1;                  /* groups g0 .. g1 of the chunk; beyond g1 the last is repeated */
    const uint8_t *key[2];       /* each group's */
    const float (*packed)[ROWS]; /* the rows' queries, dim by dim, if they are packed */
    struct next *next;
};

/* The integers of register z of a Q8_0 value. */
ALWAYS_INLINE __m512 load_quants(const uint8_t *v, int z)
{
    const uint8_t *q = v + 34 * (z / 2) + 2 + 16 * (z % 2);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)q)));
}

/* Register z of a value's dims as f32; m: the dims that exist. */
ALWAYS_INLINE __m512 load_value(enum kv_type type, const uint8_t *v, int z, __mmask16 m)
{
    if (type == KV_F32) return _mm512_maskz_loadu_ps(m, v + 64 * z);
    if (type == KV_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, v + 32 * z));
    const uint8_t *block = v + 34 * (z / 2);
    uint16_t h;
    memcpy(&h, block, 2);
    return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(h)), load_quants(v, z));
}

/* attn.c: the sums of one block, ld apart, into the output, n registers from register z of the output on. */
void avx512_attn_join(const struct attn *a, const struct work *w, const struct block *k, const float *sums, size_t ld,
                      int z, int n);

/* ---- attn_many.c: for more than ROWS rows ---- */

/* Whether the queries lie side by side for avx512_attn_scores(). */
bool avx512_attn_packs(const struct attn *a);
/* Copies them. */
void avx512_attn_pack(const struct attn *a, struct work *w);
/* The scores of a block and two groups of f32 keys. */
void avx512_attn_scores(const struct dots *t);
/* The weighted values of a chunk, merged into the outputs. */
void avx512_attn_values(const struct attn *a, struct work *w, const struct chunk *c);

#endif
