/* SPDX-License-Identifier: MIT
 *
 * check_small.c: norms, element-wise functions, rotations and searches against the reference,
 * in place and not, and a sweep over the bit patterns of all floats for the elementary functions.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int sizes[] = {1,  2,  3,  5,  7,  8,  9,   15,  16,   17,   24,   31,
                            32, 33, 48, 63, 64, 65, 100, 288, 1000, 4097, 17408};

/* One case: up to three arrays of n floats that the kernel may read and write. */
struct arrays {
    struct guarded a[3];
    float *x, *y, *z;
};

static void arrays_new(struct arrays *s, int n, enum xpat pat)
{
    for (int i = 0; i < 3; i++) {
        s->a[i] = guarded_new((size_t)n * 4, 0, AT_END);
        fill_floats((float *)s->a[i].p, n, pat);
    }
    s->x = (float *)s->a[0].p;
    s->y = (float *)s->a[1].p;
    s->z = (float *)s->a[2].p;
}

static void arrays_copy(struct arrays *to, const struct arrays *from)
{
    for (int i = 0; i < 3; i++) {
        to->a[i] = guarded_new(from->a[i].bytes, 0, AT_END);
        memcpy(to->a[i].p, from->a[i].p, from->a[i].bytes);
    }
    to->x = (float *)to->a[0].p;
    to->y = (float *)to->a[1].p;
    to->z = (float *)to->a[2].p;
}

static void arrays_free(struct arrays *s)
{
    for (int i = 0; i < 3; i++) guarded_free(&s->a[i]);
}

/* Every operation as a function of the arrays; `how` picks aliasing and flavour. What it returns
 * is compared too. */
typedef float op_fn(const struct kernels *k, struct arrays *s, int n, int how, void *scratch);

static float op_rms_norm(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    k->rms_norm(s->x, how & 1 ? NULL : s->y, how & 2 ? 0.0f : 1e-5f, n, how & 4 ? s->x : s->z, scratch);
    return 0;
}

static float op_add(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    (void)how;
    k->add(s->y, s->x, n, scratch);
    return 0;
}

static float op_add_scaled(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    k->add_scaled(s->y, s->x, how & 1 ? 0.1f : -3.0f, n, scratch);
    return 0;
}

static float op_scale(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    k->scale(s->y, how & 1 ? 0.1f : -3.0f, n, scratch);
    return 0;
}

static float act_mul(act_mul_fn *fn, struct arrays *s, int n, int how, void *scratch)
{
    fn(s->x, s->y, n, how % 3 == 0 ? s->z : how % 3 == 1 ? s->x : s->y, scratch);
    return 0;
}

static float op_silu(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    return act_mul(k->act_mul[ACTIV_SILU], s, n, how, scratch);
}

static float op_gelu(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    return act_mul(k->act_mul[ACTIV_GELU], s, n, how, scratch);
}

static float op_relu2(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    return act_mul(k->act_mul[ACTIV_RELU2], s, n, how, scratch);
}

static float op_sigmoid(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    return act_mul(k->act_mul[ACTIV_SIGMOID], s, n, how, scratch);
}

static float op_clamped(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    return act_mul(k->act_mul[ACTIV_CLAMPED], s, n, how, scratch);
}

/* The other operand of the same, which it limits too. */
static float op_clamped_up(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    k->act_mul[ACTIV_CLAMPED](s->y, s->x, n, how & 1 ? s->z : s->x, scratch);
    return 0;
}

static float op_softcap(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    k->softcap(s->y, how & 1 ? 30.0f : 0.7f, n, scratch);
    return 0;
}

static float op_rope(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    /* the head is x, the table of n / 2 pairs y: exactly as long; an odd last element stays */
    k->rope(s->x, (const float(*)[2])s->y, n / 2, how & 1, scratch);
    return 0;
}

static float op_softmax_exp(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    return k->softmax_exp(s->x, n, how & 1 ? s->x : s->z, scratch);
}

static float op_argmax(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    for (int i = 0; i < n; i++) { /* few different values: ties; sometimes nothing but NaN */
        if (how & 1) s->x[i] = rintf(s->x[i]);
        if ((how & 14) == 14) s->x[i] = NAN;
    }
    return (float)k->argmax(s->x, n, scratch);
}

static float op_topk(const struct kernels *k, struct arrays *s, int n, int how, void *scratch)
{
    for (int i = 0; i < n && how & 1; i++) s->x[i] = i % 7 == 3 && how & 2 ? NAN : rintf(s->x[i]);
    int want = how * 5 + 1 < n ? how * 5 + 1 : n;
    k->topk(s->x, n, want, (int32_t *)s->z, scratch);
    for (int i = 0; i < want; i++) /* as numbers, for the comparison */
        s->z[i] = (float)((int32_t *)s->z)[i];
    return 0;
}

static const struct op {
    const char *name;
    op_fn *fn;
    size_t entry; /* in struct kernels */
} ops[] = {
    {"rms_norm", op_rms_norm, offsetof(struct kernels, rms_norm)},
    {"add", op_add, offsetof(struct kernels, add)},
    {"add_scaled", op_add_scaled, offsetof(struct kernels, add_scaled)},
    {"scale", op_scale, offsetof(struct kernels, scale)},
    {"silu", op_silu, offsetof(struct kernels, act_mul[ACTIV_SILU])},
    {"gelu", op_gelu, offsetof(struct kernels, act_mul[ACTIV_GELU])},
    {"relu2", op_relu2, offsetof(struct kernels, act_mul[ACTIV_RELU2])},
    {"sigmoid", op_sigmoid, offsetof(struct kernels, act_mul[ACTIV_SIGMOID])},
    {"clamped", op_clamped, offsetof(struct kernels, act_mul[ACTIV_CLAMPED])},
    {"clamped up", op_clamped_up, offsetof(struct kernels, act_mul[ACTIV_CLAMPED])},
    {"softcap", op_softcap, offsetof(struct kernels, softcap)},
    {"rope", op_rope, offsetof(struct kernels, rope)},
    {"argmax", op_argmax, offsetof(struct kernels, argmax)},
    {"topk", op_topk, offsetof(struct kernels, topk)},
    {"softmax_exp", op_softmax_exp, offsetof(struct kernels, softmax_exp)},
};

static void check_op(const struct op *op, int n, enum xpat pat, int how)
{
    struct arrays in, want, got;
    describe("%s n %d pattern %d how %d", op->name, n, pat, how);
    arrays_new(&in, n, pat);
    arrays_copy(&want, &in);
    float r = op->fn(&table[CPU_REF], &want, n, how, NULL);
    for (int l = first_level; l <= last_level; l++) {
        if (!is_own(l, op->entry)) continue;
        arrays_copy(&got, &in);
        float s = op->fn(&table[l], &got, n, how, scratch_dirty());
        check_floats((enum cpu_level)l, "result", &r, &s, 1);
        check_floats((enum cpu_level)l, "x", want.x, got.x, (size_t)n);
        check_floats((enum cpu_level)l, "y", want.y, got.y, (size_t)n);
        check_floats((enum cpu_level)l, "z", want.z, got.z, (size_t)n);
        arrays_free(&got);
    }
    arrays_free(&want);
    arrays_free(&in);
}

/* Floats of every exponent and sign, 2^32 / stride of them, through one element-wise operation. */
static void sweep(const struct op *op, uint32_t stride)
{
    enum { N = 4096 };
    struct arrays in, want, got;
    uint64_t u = rnd() % stride;
    arrays_new(&in, N, X_CONST);
    while (u < UINT64_C(1) << 32) {
        describe("%s sweep from %08x", op->name, (unsigned)u);
        for (int i = 0; i < N; i++, u += stride) {
            uint32_t bits = (uint32_t)u;
            memcpy(&in.x[i], &bits, 4);
            memcpy(&in.y[i], op->fn == op_softcap ? (void *)&bits : (void *)&(float){1.0f}, 4);
        }
        arrays_copy(&want, &in);
        op->fn(&table[CPU_REF], &want, N, 0, NULL);
        for (int l = first_level; l <= last_level; l++) {
            if (!is_own(l, op->entry)) continue;
            arrays_copy(&got, &in);
            op->fn(&table[l], &got, N, 0, scratch_dirty());
            check_floats((enum cpu_level)l, "y", want.y, got.y, N);
            check_floats((enum cpu_level)l, "z", want.z, got.z, N);
            arrays_free(&got);
        }
        arrays_free(&want);
    }
    arrays_free(&in);
}

/* Where the elementary functions change their formula: every float close to the constants of the contract, through
 * what shows them (exp of negative numbers only in the softmax, tanh in a soft cap of 1). */
static void check_edges(void)
{
    static const float edges[] = {88.72f, 87.33f, 87.3365f, 10.0f, 7.0f, 5.0f, 0.5f, 0.25f, 0.0004f, 0.34657359f, 0.0f};
    enum { NEAR = 200, N = 2 * NEAR };
    float in[N], want[N], got[N], up[N];
    for (int e = 0; e < 2 * LEN(edges); e++) {
        float edge = e & 1 ? -edges[e / 2] : edges[e / 2];
        describe("edge %.9g", (double)edge);
        in[0] = edge;
        for (int i = 1; i < N; i++) {
            in[i] = nextafterf(i == NEAR ? edge : in[i - 1], i < NEAR ? INFINITY : -INFINITY);
            up[i] = 1.0f;
        }
        up[0] = 1.0f;
        for (int l = first_level; l <= last_level; l++) {
            for (int f = 0; f < ACTIV_N; f++) {
                table[CPU_REF].act_mul[f](in, up, N, want, NULL);
                table[l].act_mul[f](in, up, N, got, scratch_dirty());
                check_floats((enum cpu_level)l, "activation", want, got, N);
            }
            memcpy(want, in, sizeof in);
            memcpy(got, in, sizeof in);
            table[CPU_REF].softcap(want, 1.0f, N, NULL);
            table[l].softcap(got, 1.0f, N, scratch_dirty());
            check_floats((enum cpu_level)l, "softcap", want, got, N);
            memcpy(want, in, sizeof in);
            want[0] = 0; /* the maximum, when the edge is negative */
            memcpy(got, want, sizeof got);
            table[CPU_REF].softmax_exp(want, N, want, NULL);
            table[l].softmax_exp(got, N, got, scratch_dirty());
            check_floats((enum cpu_level)l, "softmax_exp", want, got, N);
        }
    }
}

void check_small(int rounds)
{
    if (wanted("edges")) check_edges();
    for (int o = 0; o < LEN(ops); o++) {
        if (!wanted(ops[o].name)) continue;
        for (int i = 0; i < rounds * 16; i++)
            for (int s = 0; s < LEN(sizes); s++) check_op(&ops[o], sizes[s], (enum xpat)rnd_below(X_N), i % 16);
        op_fn *f = ops[o].fn;
        if (f == op_silu || f == op_gelu || f == op_relu2 || f == op_sigmoid || f == op_clamped || f == op_clamped_up ||
            f == op_softcap)
            sweep(&ops[o], 8191);
    }
}
