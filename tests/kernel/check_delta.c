/* SPDX-License-Identifier: MIT
 *
 * check_delta.c: the gated delta rule, its convolution, its gates and the norm of its keys against the reference.
 *
 * Sizes are odd as well as the models' own; rows lie farther apart than they are long, and what is between them must
 * stay. Splitting the steps into two calls, or the dims and channels, must give the same bits and the same state:
 * that is what chunks of a prompt and threads do.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a case reads, writes and reads again. */
enum { N_BUFFERS = 6 };

struct buffers {
    struct guarded b[N_BUFFERS];
};

static float *at(const struct buffers *s, int i) { return (float *)s->b[i].p; }

static void buffers_new(struct buffers *s, const size_t *n, enum xpat pat)
{
    for (int i = 0; i < N_BUFFERS; i++) {
        s->b[i] = guarded_new(n[i] * 4, 0, AT_END);
        fill_floats(at(s, i), (int)n[i], pat);
    }
}

static void buffers_copy(struct buffers *to, const struct buffers *from)
{
    for (int i = 0; i < N_BUFFERS; i++) {
        to->b[i] = guarded_new(from->b[i].bytes, 0, AT_END);
        memcpy(to->b[i].p, from->b[i].p, from->b[i].bytes);
    }
}

static void buffers_free(struct buffers *s)
{
    for (int i = 0; i < N_BUFFERS; i++) guarded_free(&s->b[i]);
}

/* Compares all of them, and frees those of `got`. */
static void buffers_check(enum cpu_level l, const struct buffers *want, struct buffers *got)
{
    static const char *const names[N_BUFFERS] = {"buffer 0", "buffer 1", "buffer 2",
                                                 "buffer 3", "buffer 4", "buffer 5"};
    for (int i = 0; i < N_BUFFERS; i++) check_floats(l, names[i], at(want, i), at(got, i), want->b[i].bytes / 4);
    buffers_free(got);
}

/* ---- the rule ---- */

static void run_delta(const struct kernels *k, struct delta d, const struct buffers *s, int cut, int cut_dim,
                      void *scratch)
{
    d.m = at(s, 0), d.k = at(s, 1), d.q = at(s, 1) + d.dk, d.v = at(s, 2);
    d.o = d.ld_o ? at(s, 3) : at(s, 2);
    if (!d.ld_o) d.ld_o = d.ld_v;
    d.decay = at(s, 4), d.beta = at(s, 5);
    for (int part = 0; part < 4; part++) {
        struct delta e = d;
        int t = part / 2 ? cut : 0, j = part % 2 ? cut_dim : 0;
        e.n_rows = part / 2 ? d.n_rows - cut : cut;
        e.n_dims = part % 2 ? d.n_dims - cut_dim : cut_dim;
        e.m += (size_t)j * (size_t)d.dk;
        e.q += (size_t)t * d.ld_qk, e.k += (size_t)t * d.ld_qk;
        e.v += (size_t)t * d.ld_v + (size_t)j, e.o += (size_t)t * d.ld_o + (size_t)j;
        e.decay += (size_t)t * d.ld_gate, e.beta += (size_t)t * d.ld_gate;
        if (e.n_rows && e.n_dims) k->delta(&e, scratch);
    }
}

static void check_rule(void)
{
    static const int keys[] = {1, 2, 6, 8, 16, 24, 31, 32, 48, 64, 112, 128, 128, 128, 144, 192, 256, 320};
    static const int dims[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 128};
    static const int rows[] = {1, 1, 2, 3, 5, 17};
    struct delta d = {
        .dk = rnd_of(keys, LEN(keys)), .n_dims = rnd_of(dims, LEN(dims)), .n_rows = rnd_of(rows, LEN(rows))};
    struct buffers in, want, got;
    enum xpat pat = (enum xpat)rnd_below(X_N);
    size_t n = (size_t)d.n_rows;
    d.ld_qk = 2 * (size_t)d.dk + (size_t)rnd_below(5);
    d.ld_v = (size_t)d.n_dims + (size_t)rnd_below(5);
    d.ld_o = rnd() & 1 ? 0 : (size_t)d.n_dims + (size_t)rnd_below(5); /* 0: over v */
    d.ld_gate = 1 + (size_t)rnd_below(3);
    describe("delta keys %d dims %d rows %d pattern %d in place %d", d.dk, d.n_dims, d.n_rows, pat, !d.ld_o);
    const size_t sizes[N_BUFFERS] = {
        (size_t)d.n_dims * (size_t)d.dk, n * d.ld_qk, n * d.ld_v, n * d.ld_o + 1, n * d.ld_gate, n * d.ld_gate};
    buffers_new(&in, sizes, pat);
    for (size_t i = 0; i < n * d.ld_gate && pat != X_NAN; i++) { /* what they are in a model */
        at(&in, 4)[i] = expf(-fabsf(at(&in, 4)[i]));
        at(&in, 5)[i] = 1.0f / (1.0f + expf(at(&in, 5)[i]));
    }
    buffers_copy(&want, &in);
    run_delta(&table[CPU_REF], d, &want, d.n_rows, d.n_dims, NULL);
    buffers_copy(&got, &in);
    run_delta(&table[CPU_REF], d, &got, rnd_below(d.n_rows), rnd_below(d.n_dims), NULL);
    buffers_check(CPU_REF, &want, &got);
    FOR_LEVELS(l, delta)
    {
        buffers_copy(&got, &in);
        run_delta(&table[l], d, &got, d.n_rows, d.n_dims, scratch_dirty());
        buffers_check((enum cpu_level)l, &want, &got);
        buffers_copy(&got, &in);
        run_delta(&table[l], d, &got, rnd_below(d.n_rows + 1), rnd_below(d.n_dims + 1), scratch_dirty());
        buffers_check((enum cpu_level)l, &want, &got);
    }
    buffers_free(&want);
    buffers_free(&in);
}

/* ---- the convolution ---- */

static void run_conv(const struct kernels *k, struct conv c, const struct buffers *s, int cut, int cut_channel,
                     void *scratch)
{
    c.w = at(s, 0), c.state = at(s, 1), c.x = at(s, 2);
    c.y = c.ld_y ? at(s, 3) : at(s, 2);
    if (!c.ld_y) c.ld_y = c.ld_x;
    for (int part = 0; part < 4; part++) {
        struct conv e = c;
        int t = part / 2 ? cut : 0, ch = part % 2 ? cut_channel : 0;
        e.n_rows = part / 2 ? c.n_rows - cut : cut;
        e.n_channels = part % 2 ? c.n_channels - cut_channel : cut_channel;
        e.w += (size_t)ch * (size_t)c.n_taps, e.state += ch;
        e.x += (size_t)t * c.ld_x + (size_t)ch, e.y += (size_t)t * c.ld_y + (size_t)ch;
        if (e.n_rows && e.n_channels) k->conv_silu(&e, scratch);
    }
}

static void check_conv(void)
{
    static const int taps[] = {2, 3, 4, 4, 4, 4, 5, 8};
    static const int channels[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 288};
    static const int rows[] = {1, 1, 2, 3, 4, 5, 17};
    struct conv c = {.n_taps = rnd_of(taps, LEN(taps)),
                     .n_channels = rnd_of(channels, LEN(channels)),
                     .n_rows = rnd_of(rows, LEN(rows))};
    struct buffers in, want, got;
    enum xpat pat = (enum xpat)rnd_below(X_N);
    size_t n = (size_t)c.n_rows, wide = (size_t)c.n_channels;
    c.ld_x = wide + (size_t)rnd_below(5);
    c.ld_y = rnd() & 1 ? 0 : wide + (size_t)rnd_below(5); /* 0: over x */
    c.ld_state = wide + (size_t)rnd_below(5);
    describe("conv_silu taps %d channels %d rows %d pattern %d in place %d", c.n_taps, c.n_channels, c.n_rows, pat,
             !c.ld_y);
    const size_t sizes[N_BUFFERS] = {
        wide * (size_t)c.n_taps, c.ld_state * (size_t)(c.n_taps - 1), n * c.ld_x, n * c.ld_y + 1, 1, 1};
    buffers_new(&in, sizes, pat);
    buffers_copy(&want, &in);
    run_conv(&table[CPU_REF], c, &want, c.n_rows, c.n_channels, NULL);
    buffers_copy(&got, &in);
    run_conv(&table[CPU_REF], c, &got, rnd_below(c.n_rows), rnd_below(c.n_channels), NULL);
    buffers_check(CPU_REF, &want, &got);
    FOR_LEVELS(l, conv_silu)
    {
        buffers_copy(&got, &in);
        run_conv(&table[l], c, &got, c.n_rows, c.n_channels, scratch_dirty());
        buffers_check((enum cpu_level)l, &want, &got);
        buffers_copy(&got, &in);
        run_conv(&table[l], c, &got, rnd_below(c.n_rows + 1), rnd_below(c.n_channels + 1), scratch_dirty());
        buffers_check((enum cpu_level)l, &want, &got);
    }
    buffers_free(&want);
    buffers_free(&in);
}

/* ---- gates and norm ---- */

static void run_gates(const struct kernels *k, int n, const struct buffers *s, void *scratch)
{
    k->delta_gates(at(s, 0), at(s, 1), at(s, 2), at(s, 3), n, at(s, 4), at(s, 5), scratch);
}

static void check_gates(int n, enum xpat pat, float wide)
{
    struct buffers in, want, got;
    const size_t m = (size_t)n, sizes[N_BUFFERS] = {m, m, m, m, m, m};
    describe("delta_gates n %d pattern %d times %g", n, pat, (double)wide);
    buffers_new(&in, sizes, pat);
    for (int i = 0; i < n; i++) { /* both sides of where softplus changes, and rates that show its last bits */
        at(&in, 0)[i] *= wide;
        at(&in, 1)[i] *= wide;
        if (wide != 1) at(&in, 2)[i] = -1.0f / wide;
    }
    buffers_copy(&want, &in);
    run_gates(&table[CPU_REF], n, &want, NULL);
    FOR_LEVELS(l, delta_gates)
    {
        buffers_copy(&got, &in);
        run_gates(&table[l], n, &got, scratch_dirty());
        buffers_check((enum cpu_level)l, &want, &got);
    }
    buffers_free(&want);
    buffers_free(&in);
}

static void run_norm(const struct kernels *k, int n, int how, const struct buffers *s, void *scratch)
{
    k->l2_norm(at(s, 0), how & 1 ? 1e-6f : 3.0f, how & 2 ? 1.0f : 0.088388346f, n, at(s, how & 4 ? 0 : 1), scratch);
}

static void check_norm(int n, enum xpat pat, int how)
{
    struct buffers in, want, got;
    const size_t m = (size_t)n, sizes[N_BUFFERS] = {m, m, 1, 1, 1, 1};
    describe("l2_norm n %d pattern %d how %d", n, pat, how);
    buffers_new(&in, sizes, pat);
    buffers_copy(&want, &in);
    run_norm(&table[CPU_REF], n, how, &want, NULL);
    FOR_LEVELS(l, l2_norm)
    {
        buffers_copy(&got, &in);
        run_norm(&table[l], n, how, &got, scratch_dirty());
        buffers_check((enum cpu_level)l, &want, &got);
    }
    buffers_free(&want);
    buffers_free(&in);
}

/* Beside the formula in double: x / sqrt(sum of x^2 + eps), eps within the root, which shows where vectors are short.
 */
static void check_norm_value(int n, float length)
{
    struct buffers s;
    const size_t m = (size_t)n, sizes[N_BUFFERS] = {m, m, 1, 1, 1, 1};
    const double eps = 1e-6f, scale = 0.25;
    double sum = 0;
    describe("l2_norm n %d, length %g beside the formula", n, (double)length);
    buffers_new(&s, sizes, X_NORMAL);
    for (int i = 0; i < n; i++) sum += (double)at(&s, 0)[i] * at(&s, 0)[i];
    for (int i = 0; i < n; i++) at(&s, 0)[i] = (float)(at(&s, 0)[i] * length / sqrt(sum));
    sum = 0;
    for (int i = 0; i < n; i++) sum += (double)at(&s, 0)[i] * at(&s, 0)[i];
    table[CPU_REF].l2_norm(at(&s, 0), (float)eps, (float)scale, n, at(&s, 1), NULL);
    for (int i = 0; i < n; i++) {
        double want = at(&s, 0)[i] * scale / sqrt(sum + eps);
        if (fabs(at(&s, 1)[i] - want) > 1e-6 * fabs(want))
            fail("element %d is %g, not %g", i, (double)at(&s, 1)[i], want);
    }
    buffers_free(&s);
}

void check_delta(int rounds)
{
    static const int sizes[] = {1, 2, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 100, 128, 256};
    for (int i = 0; wanted("delta") && i < 400 * rounds; i++) check_rule();
    for (int i = 0; wanted("conv_silu") && i < 400 * rounds; i++) check_conv();
    for (int i = 0; wanted("l2_norm") && i < 7; i++)
        check_norm_value(rnd_of(sizes, LEN(sizes)), powf(10, (float)(i - 5)));
    for (int i = 0; i < 200 * rounds; i++) {
        int n = rnd_of(sizes, LEN(sizes));
        enum xpat pat = (enum xpat)rnd_below(X_N);
        if (wanted("delta_gates")) check_gates(n, pat, i % 3 == 0 ? 1.0f : i % 3 == 1 ? 8.0f : 30.0f);
        if (wanted("l2_norm")) check_norm(n, pat, i % 8);
    }
}
