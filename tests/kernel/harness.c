/* SPDX-License-Identifier: MIT
 *
 * harness.c: guarded buffers, random data, comparison of bits (see harness.h).
 */
#include "harness.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE        ((size_t)4096)
#define CANARY      0xc3
#define MAX_PRINTED 40

int n_failed, n_checked;
char description[300];

void describe(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(description, sizeof description, fmt, ap);
    va_end(ap);
}

void fail(const char *fmt, ...)
{
    if (n_failed++ >= MAX_PRINTED) return;
    va_list ap;
    va_start(ap, fmt);
    printf("FAIL %s: ", description);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

ptrdiff_t first_difference(const float *want, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof *want) != 0 && !(isnan(want[i]) && isnan(got[i]))) return (ptrdiff_t)i;
    return -1;
}

void check_floats(enum cpu_level l, const char *what, const float *want, const float *got, size_t n)
{
    n_checked++;
    ptrdiff_t i = first_difference(want, got, n);
    if (i < 0) return;
    uint32_t a, b;
    memcpy(&a, &want[i], 4);
    memcpy(&b, &got[i], 4);
    fail("%s: %s[%td] is %.9g (%08x), should be %.9g (%08x)", cpu_level_name(l), what, i, (double)got[i], b,
         (double)want[i], a);
}

void check_bytes(enum cpu_level l, const char *what, const void *want, const void *got, size_t n)
{
    const uint8_t *a = want, *b = got;
    n_checked++;
    for (size_t i = 0; i < n; i++) {
        if (a[i] != b[i]) {
            fail("%s: %s byte %zu is %02x, should be %02x", cpu_level_name(l), what, i, b[i], a[i]);
            return;
        }
    }
}

/* ---- guarded buffers ---- */

/* | guard | canary ... bytes ... slack | guard |   or   | guard | bytes ... canary | guard | */
struct guarded guarded_new(size_t bytes, size_t slack, enum place where)
{
    struct guarded g = {.bytes = bytes};
    size_t inner = (bytes + slack + PAGE - 1) / PAGE * PAGE;
    g.map_bytes = inner + 2 * PAGE;
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(g.map != MAP_FAILED);
    int err = mprotect(g.map + PAGE, inner, PROT_READ | PROT_WRITE);
    assert(!err);
    memset(g.map + PAGE, CANARY, inner);
    g.p = where == AT_END ? g.map + PAGE + inner - slack - bytes : g.map + PAGE;
    memset(g.p, 0xff, bytes);
    return g;
}

void guarded_free(struct guarded *g)
{
    for (uint8_t *p = g->map + PAGE; p < g->map + g->map_bytes - PAGE; p++) {
        if (p == g->p) p += g->bytes;
        if (p >= g->map + g->map_bytes - PAGE) break;
        if (*p != CANARY) {
            fail("byte %td of a buffer of %zu was written", p - g->p, g->bytes);
            break;
        }
    }
    munmap(g->map, g->map_bytes);
}

void *scratch_dirty(void)
{
    static struct guarded g;
    if (!g.p) g = guarded_new(KERNEL_SCRATCH_BYTES, 0, AT_END);
    memset(g.p, (int)(rnd() & 1 ? 0xff : 0x7b), KERNEL_SCRATCH_BYTES);
    return g.p;
}

/* ---- random numbers: splitmix64 ---- */

static uint64_t state;

void rnd_seed(uint64_t seed) { state = seed; }

uint64_t rnd(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int rnd_below(int n) { return (int)(rnd() % (uint64_t)n); }

int rnd_of(const int *list, int n) { return list[rnd_below(n)]; }

float rnd_normal(void) /* near enough: a sum of four uniform numbers */
{
    uint64_t r = rnd();
    int s = (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) + (int)(r >> 48);
    return (float)(s - 2 * 65535) / 37837.0f;
}

/* ---- weights ---- */

static void set_u16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* An f16 that suits the pattern. */
static unsigned random_f16(enum wpat pat)
{
    static const int big[] = {0x7bff, 0xfbff, 0x7bff, 0x7800, 0x0001, 0x8001, 0x03ff};
    static const int special[] = {0x0000, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x0001, 0x83ff, 0x3c00};
    if (pat == W_BIG_SCALES) return (unsigned)rnd_of(big, LEN(big));
    if (pat == W_SPECIAL && rnd_below(4) == 0) return (unsigned)rnd_of(special, LEN(special));
    return 0x1800u + (unsigned)rnd_below(0x2400) + (rnd() & 1 ? 0x8000u : 0); /* 2^-9 .. 1, and their negatives */
}

/* Where the fields of a block begin, ascending, but for the first, which begins at 0, and for those of two bytes at the
 * end; 0 ends the list. */
static const uint8_t fields[DT_N][5] = {
    [DT_Q4_0] = {2},         [DT_Q4_1] = {4},
    [DT_Q5_0] = {2, 6},      [DT_Q5_1] = {4, 8},
    [DT_Q8_0] = {2},         [DT_Q1_0] = {2},
    [DT_Q2_0] = {2},         [DT_IQ4_NL] = {2},
    [DT_MXFP4] = {1},        [DT_NVFP4] = {4},
    [DT_Q2_K] = {16},        [DT_Q3_K] = {32, 96},
    [DT_Q4_K] = {4, 16},     [DT_Q5_K] = {4, 16, 48},
    [DT_Q6_K] = {128, 192},  [DT_IQ1_S] = {2, 34},
    [DT_IQ1_M] = {32, 48},   [DT_IQ2_XXS] = {2},
    [DT_IQ2_XS] = {2, 66},   [DT_IQ2_S] = {2, 34, 66, 74},
    [DT_IQ3_XXS] = {2, 66},  [DT_IQ3_S] = {2, 66, 74, 106},
    [DT_IQ4_XS] = {2, 4, 8}, [DT_TQ1_0] = {48},
    [DT_TQ2_0] = {0},        [DT_I2_S] = {0},
};

/* The block's float scales and minimum; tensor/dtype_list.h says where they lie. */
static void set_scales(enum dtype t, uint8_t *block, enum wpat pat)
{
    const struct dtype_info *info = dtype_get(t);
    if (info->floats == FLOATS_F16) {
        set_u16(block + info->float_at[0], random_f16(pat));
        if (info->float_at[1]) set_u16(block + info->float_at[1], random_f16(pat));
    }
    if (info->floats == FLOATS_NIBBLES) { /* the four nibbles of the f16 are on top of four u16 */
        uint8_t *p = block + info->float_at[0] + 1;
        unsigned d = random_f16(pat);
        for (int i = 0; i < 4; i++) p[2 * i] = (uint8_t)((p[2 * i] & 15) | (d >> (4 * i) & 15) << 4);
    }
    /* An exponent: all 256 mean something, the lowest two are denormal, the highest overflow. */
    if (info->floats == FLOATS_E8M0)
        block[0] = (uint8_t)(pat == W_EXTREMES     ? rnd_below(3)
                             : pat >= W_BIG_SCALES ? rnd_below(256)
                                                   : 110 + rnd_below(30));
}

static void fill_float_weights(enum dtype t, uint8_t *row, int k, enum wpat pat)
{
    static const enum xpat as[W_N] = {X_NORMAL, X_ZERO, X_CONST, X_SIGNS, X_WIDE, X_OUTLIER, X_HUGE, X_NAN};
    float x[MAX_K];
    assert(k <= LEN(x));
    fill_floats(x, k, as[pat]);
    for (int i = 0; i < k; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        if (t == DT_F32)
            memcpy(row + 4 * i, &u, 4);
        else if (t == DT_BF16)
            set_u16(row + 2 * i, u >> 16);
        else if (pat == W_EXTREMES) /* every finite exponent */
            set_u16(row + 2 * i, (unsigned)rnd() & 0xfbffu);
        else
            set_u16(row + 2 * i, pat == W_ZEROS ? u >> 16 & 0x8000u : random_f16(pat));
    }
}

static const uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x88};

/* Each field of a block is one extreme byte throughout. */
static void fill_fields(enum dtype t, uint8_t *block, size_t bytes)
{
    const uint8_t *next = fields[t], *end = next + LEN(fields[t]);
    uint8_t byte = extremes[rnd_below(LEN(extremes))];
    for (size_t i = 0; i < bytes; i++) {
        if (next < end && *next && *next == i) {
            byte = extremes[rnd_below(LEN(extremes))];
            next++;
        }
        block[i] = byte;
    }
}

void fill_weights(enum dtype t, uint8_t *row, int k, enum wpat pat)
{
    if (kernel_act_of(t) == ACT_F32) {
        fill_float_weights(t, row, k, pat);
        return;
    }
    const struct dtype_info *info = dtype_get(t);
    size_t bytes = dtype_row_bytes(t, k);
    for (size_t i = 0; i < bytes; i++) {
        switch (pat) {
        case W_ZEROS: row[i] = 0; break;
        case W_ONES: row[i] = 0xff; break;
        case W_TOP_BITS: row[i] = 0x80; break;
        case W_EXTREMES: row[i] = extremes[rnd_below(LEN(extremes))]; break;
        case W_FIELDS: break;
        default: row[i] = (uint8_t)rnd();
        }
    }
    for (size_t i = 0; i < bytes; i += info->bytes) {
        if (pat == W_FIELDS) fill_fields(t, row + i, info->bytes);
        set_scales(t, row + i, pat);
    }
}

/* ---- floats ---- */

static float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* In every other 32: multiples of 1/2 up to 127, so that the scale is 1; else the middle between two f16. */
static float tie(int i, float v)
{
    if (i / 32 % 2) return i % 32 == 5 ? 127.0f : 0.5f * (float)(rnd_below(509) - 254);
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return from_bits((u & 0xffffe000u) | 0x1000u);
}

void fill_floats(float *x, int n, enum xpat pat)
{
    const float one = rnd() & 1 ? -1.0f : 1.0f;
    for (int i = 0; i < n; i++) {
        float v = rnd_normal();
        switch (pat) {
        case X_CONST: v = one; break;
        case X_ALTERNATE: v = i & 1 ? -3.0f : 3.0f; break;
        case X_SIGNS: v = rnd() & 1 ? -1.0f : 1.0f; break;
        case X_OUTLIER: v = rnd_below(64) == 0 ? v * 1000.0f : v; break;
        case X_WIDE: v = ldexpf(v, rnd_below(60) - 30); break;
        case X_ZERO: v = rnd() & 1 ? -0.0f : 0.0f; break;
        case X_TINY: v = rnd() & 1 ? ldexpf(v, -100) : from_bits((uint32_t)rnd() & 0x807fffffu); break;
        case X_HUGE: v = rnd() & 1 ? v * 1e38f : v; break;
        case X_TIES: v = tie(i, v); break;
        default: break;
        }
        x[i] = v;
    }
    if (n > 0 && pat == X_INF) x[rnd_below(n)] = rnd() & 1 ? -INFINITY : INFINITY;
    if (n > 0 && pat == X_NAN) x[rnd_below(n)] = from_bits(0x7fc00000u | ((uint32_t)rnd() & 0x80000000u));
}
