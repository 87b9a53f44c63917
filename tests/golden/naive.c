/* SPDX-License-Identifier: MIT
 *
 * naive.c: an independent forward pass of llama, qwen2 and qwen3 models. See naive.h.
 *
 * Written from the formulas, not from the engine: of the engine it uses the file reader and the decoding of
 * stored numbers, both tested elsewhere, and nothing of its layers, kernels or cache. Everything is double and
 * libm, the prompt is one block, each weight is read where it is needed. So its own rounding is some 1e-13 and
 * whatever separates it from the engine is the engine's f32, or a mistake.
 *
 *     x = E[token]
 *     per layer:  x += Wo Attn(RoPE(Wq n), RoPE(Wk n), Wv n)      n = RMS(x; attn_norm)
 *                 x += Wdown (SiLU(Wgate m) * (Wup m))            m = RMS(x; ffn_norm)
 *     logits = Wout RMS(x; output_norm)
 *
 * A bias, a norm of the heads of q and k, and frequency divisors are applied where the file has them; every
 * tensor of the file must have been used in the end, so that nothing is left out by both passes alike.
 *
 * Sources: Llama 2 (arXiv:2307.09288), Qwen2 (arXiv:2407.10671), Qwen3 (arXiv:2505.09388), RoPE (arXiv:2104.09864),
 * YaRN (arXiv:2309.00071), and the key and tensor names of GGUF. Does not do experts, sliding windows or speed.
 */
#include "naive.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/kernel.h"

struct pass {
    const struct weights *w;
    char arch[16];
    int n; /* positions */
    int d_model, n_head, n_head_kv, head_dim, d_ff, n_vocab;
    double eps;
    int n_rot;   /* dims of a head that are rotated */
    bool halves; /* pairs are (i, i + n_rot/2), else (2i, 2i + 1) */
    double *cosi, *sine; /* [n][n_rot/2], YaRN's multiplier included */
    size_t n_used;       /* tensors read so far, each once */
};

static _Noreturn void die(const struct pass *p, const char *what, const char *name)
{
    fprintf(stderr, "naive: %s: %s: %s\n", weights_path(p->w), what, name);
    exit(1);
}

static double *doubles(size_t n)
{
    double *x = mem_calloc(n, sizeof *x);
    assert(x);
    return x;
}

/* ---- reading ---- */

/* The value of ARCH.key; `otherwise` when absent, an error where that is NAN. */
static double number(const struct pass *p, const char *key, double otherwise)
{
    char name[96];
    float x;
    struct qn_error e;
    snprintf(name, sizeof name, "%s.%s", p->arch, key);
    int found = meta_f32(p->w, name, &x, &e);
    if (found < 0 || (!found && isnan(otherwise))) die(p, found ? e.msg : "missing", name);
    return found ? (double)x : otherwise;
}

/* The same for a count; an error where `otherwise` is 0. */
static int count(const struct pass *p, const char *key, int otherwise)
{
    char name[96];
    uint64_t x;
    struct qn_error e;
    snprintf(name, sizeof name, "%s.%s", p->arch, key);
    int found = meta_u64(p->w, name, 1, 1 << 20, &x, &e);
    if (found < 0 || (!found && !otherwise)) die(p, found ? e.msg : "missing", name);
    return found ? (int)x : otherwise;
}

/* The value of a string key is `text`. */
static bool says(const struct weights *w, const char *key, const char *text)
{
    struct str s;
    return meta_str(w, key, &s, NULL) == 1 && s.n == strlen(text) && !memcmp(s.p, text, s.n);
}

/* The tensor blk.LAYER.part, or part itself for layer -1, as [rows][k]; NULL when absent. */
static double *tensor_if(struct pass *p, int layer, const char *part, int k, int rows)
{
    char name[96];
    if (layer < 0)
        snprintf(name, sizeof name, "%s", part);
    else
        snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    const struct tensor *t = weights_tensor(p->w, name);
    if (!t) return NULL;
    if (t->ne[0] != k || t->ne[1] != rows || t->ne[2] != 1) die(p, "another shape", name);
    double *x = doubles((size_t)rows * (size_t)k);
    float *row = mem_calloc((size_t)k, sizeof *row);
    assert(row);
    for (int r = 0; r < rows; r++) {
        const struct side side = side_from(t->side, k, r);
        dequant_row(t->type, t->data + (size_t)r * t->row_bytes, &side, k, row);
        for (int i = 0; i < k; i++) x[r * k + i] = row[i];
    }
    mem_free(row);
    p->n_used++;
    return x;
}

static double *tensor(struct pass *p, int layer, const char *part, int k, int rows)
{
    double *x = tensor_if(p, layer, part, k, rows);
    if (!x) die(p, "missing", part);
    return x;
}

/* ---- arithmetic ---- */

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* y[n][m] = x[n][k] W^T, plus the bias where there is one; W is NAME.weight [m][k]. */
static void project(struct pass *p, int layer, const char *name, const double *x, int k, double *y, int m)
{
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    double *w = tensor(p, layer, part, k, m);
    snprintf(part, sizeof part, "%s.bias", name);
    double *bias = tensor_if(p, layer, part, m, 1);
    for (int t = 0; t < p->n; t++)
        for (int r = 0; r < m; r++) y[t * m + r] = dot(w + r * k, x + t * k, k) + (bias ? bias[r] : 0);
    mem_free(w);
    mem_free(bias);
}

/* y_i = x_i / sqrt(mean(x^2) + eps) w_i for each of `rows` rows [len]; y may be x. */
static void rms_norm(const struct pass *p, const double *x, int rows, int len, const double *w, double *y)
{
    for (int r = 0; r < rows; r++, x += len, y += len) {
        double scale = 1 / sqrt(dot(x, x, len) / len + p->eps);
        for (int i = 0; i < len; i++) y[i] = x[i] * scale * w[i];
    }
}

/* Rotates the first n_rot dims of every head of x [n][heads][head_dim]. */
static void rotate(const struct pass *p, double *x, int heads)
{
    int half = p->n_rot / 2;
    for (int row = 0; row < p->n * heads; row++, x += p->head_dim)
        for (int i = 0; i < half; i++) {
            double c = p->cosi[row / heads * half + i], s = p->sine[row / heads * half + i];
            double *a = &x[p->halves ? i : 2 * i], *b = &x[p->halves ? i + half : 2 * i + 1];
            double a0 = *a, b0 = *b;
            *a = a0 * c - b0 * s;
            *b = a0 * s + b0 * c;
        }
}

/* q, out: [n][n_head][head_dim]; k, v: [n][n_head_kv][head_dim]. Each position sees itself and those before. */
static void attend(const struct pass *p, const double *q, const double *k, const double *v, double *out)
{
    int dim = p->head_dim, ld = p->n_head_kv * dim;
    double *score = doubles((size_t)p->n);
    for (int t = 0; t < p->n; t++)
        for (int h = 0; h < p->n_head; h++, q += dim, out += dim) {
            int kv = h / (p->n_head / p->n_head_kv) * dim; /* heads share keys and values in groups */
            double max = -INFINITY, sum = 0;
            for (int s = 0; s <= t; s++) {
                score[s] = dot(q, k + s * ld + kv, dim) / sqrt(dim);
                max = fmax(max, score[s]);
            }
            for (int s = 0; s <= t; s++) sum += score[s] = exp(score[s] - max);
            for (int s = 0; s <= t; s++)
                for (int i = 0; i < dim; i++) out[i] += score[s] / sum * v[s * ld + kv + i];
        }
    mem_free(score);
}

/* ---- the model ---- */

/* How far along pair i is from being interpolated (0) to being left alone (1), by how often it turns in the
 * original context: YaRN's NTK-by-parts. */
static double yarn_ramp(const struct pass *p, double base, int i)
{
    double ctx = count(p, "rope.scaling.original_context_length", 0), edge[2];
    double turns[2] = {number(p, "rope.scaling.yarn_beta_fast", 32), number(p, "rope.scaling.yarn_beta_slow", 1)};
    for (int j = 0; j < 2; j++) edge[j] = p->n_rot * log(ctx / (turns[j] * 2 * M_PI)) / (2 * log(base));
    double low = fmax(0, floor(edge[0])), high = fmin(p->n_rot - 1, ceil(edge[1]));
    return 1 - fmin(fmax((i - low) / fmax(0.001, high - low), 0), 1);
}

static void make_rope(struct pass *p, double base)
{
    char key[64];
    int half = p->n_rot / 2;
    double scale = 1, multiplier = 1, *divisor = tensor_if(p, -1, "rope_freqs.weight", half, 1);
    snprintf(key, sizeof key, "%s.rope.scaling.type", p->arch);
    bool yarn = says(p->w, key, "yarn"), linear = says(p->w, key, "linear");
    if (!yarn && !linear && !says(p->w, key, "none") && weights_meta(p->w, key)) die(p, "unknown", key);
    if (yarn || linear) scale = 1 / number(p, "rope.scaling.factor", NAN);
    if (yarn) multiplier = (1 - 0.1 * log(scale)) * number(p, "rope.scaling.attn_factor", 1);
    p->cosi = doubles((size_t)p->n * (size_t)half);
    p->sine = doubles((size_t)p->n * (size_t)half);
    for (int i = 0; i < half; i++) {
        double ramp = yarn ? yarn_ramp(p, base, i) : 0;
        double step = pow(base, -2.0 * i / p->n_rot) / (divisor ? divisor[i] : 1) * (scale * (1 - ramp) + ramp);
        for (int t = 0; t < p->n; t++) {
            p->cosi[t * half + i] = cos(t * step) * multiplier;
            p->sine[t * half + i] = sin(t * step) * multiplier;
        }
    }
    mem_free(divisor);
}

static void read_shape(struct pass *p, const struct naive_skew *skew)
{
    static const char *const known[] = {"llama", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (says(p->w, "general.architecture", known[i])) strcpy(p->arch, known[i]);
    if (!p->arch[0]) die(p, "another family", "general.architecture");
    p->halves = strcmp(p->arch, "llama") != 0; /* llama's q and k rows are stored permuted instead */
    p->d_model = count(p, "embedding_length", 0);
    p->d_ff = count(p, "feed_forward_length", 0);
    p->n_head = count(p, "attention.head_count", 0);
    p->n_head_kv = count(p, "attention.head_count_kv", p->n_head);
    p->head_dim = count(p, "attention.key_length", p->d_model / p->n_head);
    if (count(p, "attention.value_length", p->head_dim) != p->head_dim) die(p, "is not key_length", "value_length");
    p->eps = number(p, "attention.layer_norm_rms_epsilon", NAN) * skew->eps;
    p->n_rot = count(p, "rope.dimension_count", p->head_dim);
    make_rope(p, number(p, "rope.freq_base", 10000) * skew->rope_base);
}

/* x += attention, then x += feed-forward; x: [n][d_model]. */
static void layer(struct pass *p, int l, double *x)
{
    int d = p->d_model, d_q = p->n_head * p->head_dim, d_kv = p->n_head_kv * p->head_dim;
    size_t n = (size_t)p->n;
    double *norm = doubles(n * (size_t)d), *y = doubles(n * (size_t)d);
    double *q = doubles(n * (size_t)d_q), *k = doubles(n * (size_t)d_kv), *v = doubles(n * (size_t)d_kv);
    double *heads = doubles(n * (size_t)d_q), *gate = doubles(n * (size_t)p->d_ff), *up = doubles(n * (size_t)p->d_ff);
    double *attn_norm = tensor(p, l, "attn_norm.weight", d, 1), *ffn_norm = tensor(p, l, "ffn_norm.weight", d, 1);
    double *q_norm = tensor_if(p, l, "attn_q_norm.weight", p->head_dim, 1);
    double *k_norm = tensor_if(p, l, "attn_k_norm.weight", p->head_dim, 1);

    rms_norm(p, x, p->n, d, attn_norm, norm);
    project(p, l, "attn_q", norm, d, q, d_q);
    project(p, l, "attn_k", norm, d, k, d_kv);
    project(p, l, "attn_v", norm, d, v, d_kv);
    if (q_norm) rms_norm(p, q, p->n * p->n_head, p->head_dim, q_norm, q);
    if (k_norm) rms_norm(p, k, p->n * p->n_head_kv, p->head_dim, k_norm, k);
    rotate(p, q, p->n_head);
    rotate(p, k, p->n_head_kv);
    attend(p, q, k, v, heads);
    project(p, l, "attn_output", heads, d_q, y, d);
    for (size_t i = 0; i < n * (size_t)d; i++) x[i] += y[i];

    rms_norm(p, x, p->n, d, ffn_norm, norm);
    project(p, l, "ffn_gate", norm, d, gate, p->d_ff);
    project(p, l, "ffn_up", norm, d, up, p->d_ff);
    for (size_t i = 0; i < n * (size_t)p->d_ff; i++) gate[i] *= up[i] / (1 + exp(-gate[i])); /* SiLU(gate) up */
    project(p, l, "ffn_down", gate, p->d_ff, y, d);
    for (size_t i = 0; i < n * (size_t)d; i++) x[i] += y[i];

    double *all[] = {norm, y, q, k, v, heads, gate, up, attn_norm, ffn_norm, q_norm, k_norm};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
}

double *naive_logits(const struct weights *w, const qn_token *tokens, int n, const struct naive_skew *skew,
                     int *n_vocab)
{
    struct pass p = {.w = w, .n = n};
    read_shape(&p, skew);
    const struct tensor *embd = weights_tensor(w, "token_embd.weight");
    p.n_vocab = embd ? (int)embd->ne[1] : 0;
    int d = p.d_model, n_layer = count(&p, "block_count", 0);
    double *table = tensor(&p, -1, "token_embd.weight", d, p.n_vocab);
    double *out = tensor_if(&p, -1, "output.weight", d, p.n_vocab);
    double *out_norm = tensor(&p, -1, "output_norm.weight", d, 1);
    double *x = doubles((size_t)n * (size_t)d), *logits = doubles((size_t)n * (size_t)p.n_vocab);
    for (int t = 0; t < n; t++) {
        assert(tokens[t] >= 0 && tokens[t] < p.n_vocab);
        memcpy(x + t * d, table + tokens[t] * d, (size_t)d * sizeof *x);
    }
    for (int l = 0; l < n_layer; l++) layer(&p, l, x);
    rms_norm(&p, x, n, d, out_norm, x);
    for (int t = 0; t < n; t++) /* without an output matrix the embedding serves as one */
        for (int r = 0; r < p.n_vocab; r++) logits[t * p.n_vocab + r] = dot((out ? out : table) + r * d, x + t * d, d);
    if (p.n_used != weights_n_tensors(w)) die(&p, "has tensors this pass does not use", p.arch);
    double *all[] = {table, out, out_norm, x, p.cosi, p.sine};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
    *n_vocab = p.n_vocab;
    return logits;
}
