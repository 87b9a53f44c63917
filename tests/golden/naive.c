/* SPDX-License-Identifier: MIT
 *
 * naive.c: an independent forward pass of the families without recurrence. See naive.h.
 *
 * Written from the formulas, not from the engine: of the engine it uses the file reader and the decoding of
 * stored numbers, both tested elsewhere, and nothing of its layers, kernels or cache. Everything is double and
 * libm, the prompt is one block, each weight is read where it is needed. So its own rounding is some 1e-13 and
 * whatever separates it from the engine is the engine's f32, or a mistake.
 *
 *     x = e E[token]
 *     per layer:  x += r post(Wo sub(Attn(RoPE(norm(Wq n)), RoPE(norm(Wk n)), Wv n)))      n = RMS(x; attn_norm)
 *                 x += r post(Wdown sub(f(Wgate m) * (Wup m)))                             m = RMS(x; ffn_norm)
 *     logits = c tanh(s / c Wout RMS(x; output_norm))
 *
 * or, where a layer has a router, x += the sum of weight * expert(m) over those it chooses, + weight * shared
 * expert(m).
 *
 * Every norm, bias, factor of a product and table of frequency divisors is applied where the file has it, matrices are
 * read from the larger ones that hold them, and the numbers e, r, s, c are 1 (c: none) unless keys say otherwise; every
 * tensor of the file must have been used in the end, so that nothing is left out by both passes alike. What only the
 * family's name tells is in the table of families.
 *
 * Sources: Llama 2 (arXiv:2307.09288), Qwen2 (arXiv:2407.10671), Qwen3 (arXiv:2505.09388), Gemma (arXiv:2403.08295),
 * Gemma 2 (arXiv:2408.00118), Gemma 3 (arXiv:2503.19786), Phi-3 (arXiv:2404.14219), ChatGLM (arXiv:2406.12793), OLMo 2
 * (arXiv:2501.00656), BitNet b1.58 (arXiv:2402.17764, 2504.12285), RoPE (arXiv:2104.09864), YaRN (arXiv:2309.00071),
 * LongRoPE (arXiv:2402.13753), Mixtral (arXiv:2401.04088), gpt-oss (arXiv:2508.10925), and the key and tensor names of
 * GGUF. Does not do speed.
 */
#include "naive.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/kernel.h"

enum activation { SILU, GELU, SQUARED_RELU, CLAMPED };
enum weighing { SUM_TO_1, AS_THEY_ARE }; /* the chosen experts' shares of a softmax over all */

/* What the name of a family stands for. */
static const struct family {
    const char *name;
    bool adjacent; /* rotation pairs are (2i, 2i + 1), else (i, i + n_rot/2) */
    enum activation f;
    bool big_embedding; /* times sqrt(d_model) */
    int period;         /* of layers with a window, the last one sees everything; 0: all have it, -1: none */
    int unrotated;      /* every so many'th layer is not rotated */
    enum weighing weighing;
    bool post_is_pre; /* what is called a norm behind attention is the one before the network */
    int odd_scale;    /* with so many layers, attention is scaled by the heads' share of d_model */
    bool gated;       /* each head of q is followed by a gate for the head's result */
} families[] = {
    {.name = "llama", .adjacent = true}, /* q and k rows are stored permuted instead */
    {.name = "qwen2"},
    {.name = "qwen3"},
    {.name = "gemma", .f = GELU, .big_embedding = true},
    {.name = "gemma2", .f = GELU, .big_embedding = true, .period = 2, .odd_scale = 46},
    {.name = "gemma3", .f = GELU, .big_embedding = true, .period = 6, .odd_scale = 62},
    {.name = "phi3", .period = -1},
    {.name = "glm4", .adjacent = true},
    {.name = "granite", .adjacent = true},
    {.name = "olmo2", .period = 4},
    {.name = "smollm3", .adjacent = true, .unrotated = 4},
    {.name = "qwen3moe"},
    {.name = "qwen2moe", .weighing = AS_THEY_ARE},
    {.name = "gpt-oss", .f = CLAMPED, .period = 2, .post_is_pre = true},
    {.name = "qwen35", .post_is_pre = true, .gated = true}, /* only layers with attention: naive_layer() */
    {.name = "qwen35moe", .post_is_pre = true, .gated = true},
    {.name = "qwen3next", .post_is_pre = true, .gated = true},
    {.name = "bitnet"},
    {.name = "bitnet-b1.58", .f = SQUARED_RELU},
};

struct pass {
    const struct weights *w;
    const struct family *family;
    char arch[16];
    int n, n_ctx; /* positions; room for them */
    int n_layer;
    int d_model, n_head, n_head_kv, head_dim, d_ff, n_vocab;
    double eps;
    int n_rot;                 /* dims of a head that are rotated */
    int window;                /* of the layers that have one; 0: none has */
    double *turn, *turn_local; /* [n][n_rot/2][2], cosine and sine, with YaRN's multiplier; of layers with a window */
    double attn_scale, attn_cap, embedding, residual, logit, cap; /* caps: 0 for none */
    size_t n_used;                                                /* tensors read so far, each once */
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

static bool has(const struct pass *p, int layer, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return weights_tensor(p->w, name) != NULL;
}

/* The scale behind a matrix of type I2_S; NULL for others. */
static double *whole_scale(const struct pass *p, int layer, const char *name)
{
    char full[96];
    float scale;
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    const struct tensor *t = weights_tensor(p->w, full);
    if (t->type != DT_I2_S) return NULL;
    memcpy(&scale, t->data + t->bytes, sizeof scale);
    double *x = doubles(1);
    *x = scale;
    return x;
}

/* y[n][m] = x[n][k] W^T times the factor and plus the bias where there are; W is NAME.weight [m][k]. */
static void project(struct pass *p, int layer, const char *name, const double *x, int k, double *y, int m)
{
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    double *w = tensor(p, layer, part, k, m);
    snprintf(part, sizeof part, "%s.bias", name);
    double *bias = tensor_if(p, layer, part, m, 1);
    snprintf(part, sizeof part, "%s.scale", name);
    double *factor = tensor_if(p, layer, part, 1, 1);
    if (!factor) factor = whole_scale(p, layer, name);
    for (int t = 0; t < p->n; t++)
        for (int r = 0; r < m; r++)
            y[t * m + r] = dot(w + r * k, x + t * k, k) * (factor ? *factor : 1) + (bias ? bias[r] : 0);
    mem_free(w);
    mem_free(bias);
    mem_free(factor);
}

/* Columns [from, from + m) of y, a matrix with n rows of `all`. */
static void pick(const struct pass *p, const double *y, int all, int from, int m, double *out)
{
    for (int t = 0; t < p->n; t++) memcpy(out + t * m, y + t * all + from, (size_t)m * sizeof *out);
}

/* y_i = x_i / sqrt(mean(x^2) + eps) w_i for each of `rows` rows [len]; y may be x. */
static void rms_norm(const struct pass *p, const double *x, int rows, int len, const double *w, double *y)
{
    for (int r = 0; r < rows; r++, x += len, y += len) {
        double scale = 1 / sqrt(dot(x, x, len) / len + p->eps);
        for (int i = 0; i < len; i++) y[i] = x[i] * scale * w[i];
    }
}

/* The norm blk.LAYER.part of rows of x where the file has it; false when it has not. */
static bool norm_if(struct pass *p, int layer, const char *part, const double *x, int rows, int len, double *y)
{
    double *w = tensor_if(p, layer, part, len, 1);
    if (w) rms_norm(p, x, rows, len, w, y);
    mem_free(w);
    return w != NULL;
}

/* Norms of the heads of q or k, or of all heads as one, by the length that the file's norm has. */
static void norm_heads(struct pass *p, int layer, const char *part, double *x, int heads)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    const struct tensor *t = weights_tensor(p->w, name);
    bool whole = t && t->ne[0] != p->head_dim;
    norm_if(p, layer, part, x, whole ? p->n : p->n * heads, whole ? heads * p->head_dim : p->head_dim, x);
}

static bool has_window(const struct pass *p, int layer)
{
    int period = p->family->period;
    return p->window > 0 && (period == 0 || (period > 0 && layer % period != period - 1));
}

/* Rotates the first n_rot dims of every head of x [n][heads][head_dim]. */
static void rotate(const struct pass *p, int layer, double *x, int heads)
{
    int half = p->n_rot / 2;
    const double *turn = has_window(p, layer) && p->turn_local ? p->turn_local : p->turn;
    bool on = true;
    if (p->family->unrotated && layer % p->family->unrotated == p->family->unrotated - 1) return;
    char key[64];
    struct qn_error e;
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", p->arch);
    if (!strcmp(p->arch, "granite") && meta_bool(p->w, key, &on, &e) == 1 && !on) return;
    for (int row = 0; row < p->n * heads; row++, x += p->head_dim)
        for (int i = 0; i < half; i++) {
            const double *cs = turn + (row / heads * half + i) * 2, c = cs[0], s = cs[1];
            double *a = &x[p->family->adjacent ? 2 * i : i], *b = &x[p->family->adjacent ? 2 * i + 1 : i + half];
            double a0 = *a, b0 = *b;
            *a = a0 * c - b0 * s;
            *b = a0 * s + b0 * c;
        }
}

/* The network's product of gate and up. */
static double activate(const struct pass *p, double g, double up)
{
    switch (p->family->f) {
    case GELU: return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * up;
    case SQUARED_RELU: return g > 0 ? g * g * up : 0;
    case CLAMPED: g = fmin(g, 7); return g / (1 + exp(-1.702 * g)) * (fmax(-7, fmin(up, 7)) + 1);
    case SILU: break;
    }
    return g / (1 + exp(-g)) * up;
}

static double capped(double z, double cap) { return cap > 0 ? cap * tanh(z / cap) : z; }

/* q, out: [n][n_head][head_dim]; k, v: [n][n_head_kv][head_dim]. Each position sees itself and those before, the last
 * `window` of all these where the layer has one; where a head has a sink, its exponential goes nowhere. */
static void attend(struct pass *p, int layer, const double *q, const double *k, const double *v, double *out)
{
    int dim = p->head_dim, ld = p->n_head_kv * dim;
    double *score = doubles((size_t)p->n), *sinks = tensor_if(p, layer, "attn_sinks.weight", p->n_head, 1);
    for (int t = 0; t < p->n; t++)
        for (int h = 0; h < p->n_head; h++, q += dim, out += dim) {
            int kv = h / (p->n_head / p->n_head_kv) * dim; /* heads share keys and values in groups */
            double max = -INFINITY, sum = 0;
            int first = has_window(p, layer) && t >= p->window ? t - p->window + 1 : 0;
            for (int s = first; s <= t; s++) {
                score[s] = capped(dot(q, k + s * ld + kv, dim) * p->attn_scale, p->attn_cap);
                max = fmax(max, score[s]);
            }
            if (sinks) sum = exp(sinks[h] - max);
            for (int s = first; s <= t; s++) sum += score[s] = exp(score[s] - max);
            for (int s = first; s <= t; s++)
                for (int i = 0; i < dim; i++) out[i] += score[s] / sum * v[s * ld + kv + i];
        }
    mem_free(score);
    mem_free(sinks);
}

/* ---- the model ---- */

/* How far along pair i is from being interpolated (0) to being left alone (1), by how often it turns in the
 * original context: YaRN's NTK-by-parts. */
static double yarn_ramp(const struct pass *p, double base, bool rounds, int i)
{
    double ctx = count(p, "rope.scaling.original_context_length", 0), edge[2];
    double turns[2] = {number(p, "rope.scaling.yarn_beta_fast", 32), number(p, "rope.scaling.yarn_beta_slow", 1)};
    for (int j = 0; j < 2; j++) edge[j] = p->n_rot * log(ctx / (turns[j] * 2 * M_PI)) / (2 * log(base));
    if (rounds) edge[0] = floor(edge[0]), edge[1] = ceil(edge[1]);
    double low = fmax(0, edge[0]), high = fmin(p->n_rot - 1, edge[1]);
    return 1 - fmin(fmax((i - low) / fmax(0.001, high - low), 0), 1);
}

/* The cosines and sines of position x step, times `multiplier`. */
static void fill_turn(const struct pass *p, double *turn, int i, double step, double multiplier)
{
    for (int t = 0; t < p->n; t++) {
        turn[(t * p->n_rot / 2 + i) * 2] = cos(t * step) * multiplier;
        turn[(t * p->n_rot / 2 + i) * 2 + 1] = sin(t * step) * multiplier;
    }
}

/* LongRoPE's divisors for the room there is, or NULL. */
static double *long_divisors(struct pass *p)
{
    double *far = tensor_if(p, -1, "rope_factors_long.weight", p->n_rot / 2, 1);
    double *near = tensor_if(p, -1, "rope_factors_short.weight", p->n_rot / 2, 1);
    if (!far || !near) return NULL;
    bool is_far = p->n_ctx > count(p, "rope.scaling.original_context_length", count(p, "context_length", 0));
    mem_free(is_far ? near : far);
    return is_far ? far : near;
}

/* gpt-oss was trained without rounding the range; of others a file may say it. */
bool naive_has_exact_range(const struct weights *w)
{
    bool truncate = !says(w, "general.architecture", "gpt-oss");
    meta_bool(w, "quern.rope_yarn_truncate", &truncate, NULL);
    return !truncate;
}

/* What YaRN multiplies cosines and sines with. What a file of OLMo 2 and 3 calls attn_factor is all of it, too. */
static double yarn_multiplier(const struct pass *p)
{
    double more = number(p, "rope.scaling.attn_factor", 1), all = number(p, "rope.scaling.yarn_attn_factor", 0);
    if (all != 0) return all;
    if (!strcmp(p->arch, "olmo2") && more != 1) return more;
    return (1 + 0.1 * log(fmax(1, number(p, "rope.scaling.factor", NAN)))) * more;
}

static void make_rope(struct pass *p, double base, bool rounds)
{
    char key[64];
    int half = p->n_rot / 2;
    double scale = 1, multiplier = 1, *divisor = tensor_if(p, -1, "rope_freqs.weight", half, 1);
    if (!divisor && (divisor = long_divisors(p))) multiplier = number(p, "rope.scaling.attn_factor", 1);
    snprintf(key, sizeof key, "%s.rope.scaling.type", p->arch);
    bool yarn = says(p->w, key, "yarn"), linear = says(p->w, key, "linear");
    if (!yarn && !linear && !says(p->w, key, "none") && weights_meta(p->w, key)) die(p, "unknown", key);
    if (yarn || linear) scale = 1 / number(p, "rope.scaling.factor", NAN);
    if (yarn)
        multiplier = yarn_multiplier(p);
    else if (!weights_meta(p->w, key))
        scale = 1 / number(p, "rope.scaling.factor", 1);
    p->turn = doubles((size_t)p->n * (size_t)half * 2);
    for (int i = 0; i < half; i++) {
        double ramp = yarn ? yarn_ramp(p, base, rounds, i) : 0;
        double step = pow(base, -2.0 * i / p->n_rot) / (divisor ? divisor[i] : 1) * (scale * (1 - ramp) + ramp);
        fill_turn(p, p->turn, i, step, multiplier);
    }
    mem_free(divisor);
}

/* The rotation that layers with a window have to themselves, unscaled: of gemma3 and olmo2. */
static void make_local_rope(struct pass *p, double base)
{
    p->turn_local = doubles((size_t)p->n * (size_t)p->n_rot);
    for (int i = 0; i < p->n_rot / 2; i++) fill_turn(p, p->turn_local, i, pow(base, -2.0 * i / p->n_rot), 1);
}

/* Factors and caps. */
static void read_numbers(struct pass *p)
{
    bool granite = !strcmp(p->arch, "granite"), gemma2 = !strcmp(p->arch, "gemma2");
    double usual = 1 / sqrt(p->head_dim);
    if (p->family->odd_scale == p->n_layer) usual = 1 / sqrt(p->d_model / p->n_head);
    p->attn_scale = granite ? number(p, "attention.scale", usual) : usual;
    p->embedding = granite ? number(p, "embedding_scale", 1) : p->family->big_embedding ? sqrt(p->d_model) : 1;
    p->residual = granite ? number(p, "residual_scale", 1) : 1;
    p->logit = granite ? 1 / number(p, "logit_scale", 1) : 1;
    p->attn_cap = gemma2 ? number(p, "attn_logit_softcapping", 50) : 0;
    p->cap = number(p, "final_logit_softcapping", gemma2 ? 30 : 0);
    char key[64];
    snprintf(key, sizeof key, "%s.attention.sliding_window", p->arch);
    p->window = weights_meta(p->w, key) ? count(p, "attention.sliding_window", 0) : gemma2 ? 4096 : 0;
}

static void read_shape(struct pass *p, const struct naive_skew *skew)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (says(p->w, "general.architecture", families[i].name)) p->family = &families[i];
    if (!p->family) die(p, "another family", "general.architecture");
    snprintf(p->arch, sizeof p->arch, "%s", p->family->name);
    p->n_layer = count(p, "block_count", 0);
    p->d_model = count(p, "embedding_length", 0);
    p->d_ff = count(p, "feed_forward_length", 0);
    p->n_head = count(p, "attention.head_count", 0);
    p->n_head_kv = count(p, "attention.head_count_kv", p->n_head);
    p->head_dim = count(p, "attention.key_length", p->d_model / p->n_head);
    if (count(p, "attention.value_length", p->head_dim) != p->head_dim) die(p, "is not key_length", "value_length");
    p->eps = number(p, "attention.layer_norm_rms_epsilon", NAN) * skew->eps;
    p->n_rot = count(p, "rope.dimension_count", p->head_dim);
    read_numbers(p);
    double base = number(p, "rope.freq_base", 10000);
    make_rope(p, base * skew->rope_base, skew->rounds_range || !naive_has_exact_range(p->w));
    if (!strcmp(p->arch, "gemma3")) make_local_rope(p, number(p, "rope.freq_base_swa", 10000) * skew->rope_base);
    if (!strcmp(p->arch, "olmo2")) make_local_rope(p, number(p, "rope.freq_base_swa", base) * skew->rope_base);
}

/* x += r post(y) */
static void add_branch(struct pass *p, int l, const char *post, double *y, double *x)
{
    norm_if(p, l, post, y, p->n, p->d_model, y);
    for (int i = 0; i < p->n * p->d_model; i++) x[i] += p->residual * y[i];
}

/* q and the sigmoids of the gates that follow each of its heads. */
static void project_gated(struct pass *p, int l, const double *n, double *q, double *gates)
{
    int dim = p->head_dim, rows = p->n * p->n_head;
    double *y = doubles((size_t)rows * (size_t)dim * 2);
    project(p, l, "attn_q", n, p->d_model, y, 2 * p->n_head * dim);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < dim; i++) {
            q[r * dim + i] = y[2 * r * dim + i];
            gates[r * dim + i] = 1 / (1 + exp(-y[(2 * r + 1) * dim + i]));
        }
    mem_free(y);
}

/* q, k and v of rows of n, from one matrix or three. */
static void project_qkv(struct pass *p, int l, const double *n, double *q, int d_q, double *k, double *v, int d_kv)
{
    int all = d_q + 2 * d_kv;
    if (!has(p, l, "attn_qkv.weight")) {
        project(p, l, "attn_q", n, p->d_model, q, d_q);
        project(p, l, "attn_k", n, p->d_model, k, d_kv);
        project(p, l, "attn_v", n, p->d_model, v, d_kv);
        return;
    }
    double *y = doubles((size_t)p->n * (size_t)all);
    project(p, l, "attn_qkv", n, p->d_model, y, all);
    pick(p, y, all, 0, d_q, q);
    pick(p, y, all, d_q, d_kv, k);
    pick(p, y, all, d_q + d_kv, d_kv, v);
    mem_free(y);
}

/* Gate and up, from one matrix (gate first) or two. */
static void project_gate_up(struct pass *p, int l, const double *m, double *gate, double *up)
{
    if (has(p, l, "ffn_gate.weight")) {
        project(p, l, "ffn_gate", m, p->d_model, gate, p->d_ff);
        project(p, l, "ffn_up", m, p->d_model, up, p->d_ff);
        return;
    }
    double *y = doubles((size_t)p->n * (size_t)p->d_ff * 2);
    project(p, l, "ffn_up", m, p->d_model, y, 2 * p->d_ff);
    pick(p, y, 2 * p->d_ff, 0, p->d_ff, gate);
    pick(p, y, 2 * p->d_ff, p->d_ff, p->d_ff, up);
    mem_free(y);
}

/* Expert e's matrix [rows][k] of NAME_exps, or of a tensor of its own, and its bias or zeros. Each tensor counts once.
 */
static double *expert_matrix(struct pass *p, int l, const char *name, int e, int k, int rows, double *bias)
{
    char all[96], one[96];
    snprintf(all, sizeof all, "blk.%d.%s_exps.weight", l, name);
    snprintf(one, sizeof one, "%s.%d.weight", name, e);
    const struct tensor *t = weights_tensor(p->w, all);
    if (!t) return tensor(p, l, one, k, rows);
    if (t->ne[0] != k || t->ne[1] != rows || e >= t->ne[2]) die(p, "another shape", all);
    double *x = doubles((size_t)rows * (size_t)k);
    float *row = mem_calloc((size_t)(k > rows ? k : rows), sizeof *row);
    assert(row);
    for (int r = 0; r < rows; r++) {
        const int64_t at = (int64_t)e * rows + r;
        const struct side side = side_from(t->side, k, at);
        dequant_row(t->type, t->data + (size_t)at * t->row_bytes, &side, k, row);
        for (int i = 0; i < k; i++) x[r * k + i] = row[i];
    }
    if (e == 0) p->n_used++;
    memset(bias, 0, (size_t)rows * sizeof *bias);
    snprintf(all, sizeof all, "blk.%d.%s_exps.bias", l, name);
    if ((t = weights_tensor(p->w, all))) {
        dequant_row(t->type, t->data + (size_t)e * t->row_bytes, NULL, rows, row);
        for (int i = 0; i < rows; i++) bias[i] = row[i];
        if (e == 0) p->n_used++;
    }
    mem_free(row);
    return x;
}

/* How much of each of n experts a position takes, from the router's logits: 0 for all but the `used` largest. */
static void route(const struct pass *p, const double *logit, int n, int used, double *weight)
{
    double max = -INFINITY, sum = 0, kept = 0;
    for (int e = 0; e < n; e++) max = fmax(max, logit[e]);
    for (int e = 0; e < n; e++) sum += exp(logit[e] - max);
    for (int e = 0; e < n; e++) {
        int better = 0;
        for (int o = 0; o < n; o++) better += logit[o] > logit[e] || (logit[o] == logit[e] && o < e);
        weight[e] = better < used ? exp(logit[e] - max) / sum : 0;
        kept += weight[e];
    }
    for (int e = 0; e < n && p->family->weighing == SUM_TO_1; e++) weight[e] /= kept;
}

/* y += the chosen experts' shares of rows of m. */
static void mix_experts(struct pass *p, int l, const double *m, double *y)
{
    int d = p->d_model, ff = count(p, "expert_feed_forward_length", p->d_ff), n = count(p, "expert_count", 0);
    double *logit = doubles((size_t)(p->n * n)), *weight = doubles((size_t)(p->n * n)), *mid = doubles((size_t)ff);
    double *b_gate = doubles((size_t)ff), *b_up = doubles((size_t)ff), *b_down = doubles((size_t)d);
    project(p, l, "ffn_gate_inp", m, d, logit, n);
    for (int t = 0; t < p->n; t++) route(p, logit + t * n, n, count(p, "expert_used_count", 0), weight + t * n);
    for (int e = 0; e < n; e++) {
        double *gate = expert_matrix(p, l, "ffn_gate", e, d, ff, b_gate);
        double *up = expert_matrix(p, l, "ffn_up", e, d, ff, b_up);
        double *down = expert_matrix(p, l, "ffn_down", e, ff, d, b_down);
        for (int t = 0; t < p->n; t++) {
            if (weight[t * n + e] == 0) continue;
            for (int i = 0; i < ff; i++)
                mid[i] =
                    activate(p, dot(gate + i * d, m + t * d, d) + b_gate[i], dot(up + i * d, m + t * d, d) + b_up[i]);
            for (int i = 0; i < d; i++) y[t * d + i] += weight[t * n + e] * (dot(down + i * ff, mid, ff) + b_down[i]);
        }
        mem_free(gate);
        mem_free(up);
        mem_free(down);
    }
    double *all[] = {logit, weight, mid, b_gate, b_up, b_down};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
}

/* y += the share of the expert that all positions have. */
static void add_shared_expert(struct pass *p, int l, const double *m, double *y)
{
    int d = p->d_model, ff = count(p, "expert_shared_feed_forward_length", p->d_ff);
    size_t size = (size_t)(p->n * ff);
    double *gate = doubles(size), *up = doubles(size), *out = doubles((size_t)(p->n * d));
    double *router = tensor_if(p, l, "ffn_gate_inp_shexp.weight", d, 1);
    project(p, l, "ffn_gate_shexp", m, d, gate, ff);
    project(p, l, "ffn_up_shexp", m, d, up, ff);
    for (size_t i = 0; i < size; i++) gate[i] = activate(p, gate[i], up[i]);
    project(p, l, "ffn_down_shexp", gate, ff, out, d);
    for (int t = 0; t < p->n; t++) {
        double share = router ? 1 / (1 + exp(-dot(router, m + t * d, d))) : 1;
        for (int i = 0; i < d; i++) y[t * d + i] += share * out[t * d + i];
    }
    double *all[] = {gate, up, out, router};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
}

/* y = the network of rows of m. */
static void feed_forward(struct pass *p, int l, const double *m, double *y)
{
    size_t size = (size_t)p->n * (size_t)p->d_ff;
    if (has(p, l, "ffn_gate_inp.weight")) {
        memset(y, 0, (size_t)(p->n * p->d_model) * sizeof *y);
        mix_experts(p, l, m, y);
        if (has(p, l, "ffn_down_shexp.weight")) add_shared_expert(p, l, m, y);
        return;
    }
    double *gate = doubles(size), *up = doubles(size);
    project_gate_up(p, l, m, gate, up);
    for (size_t i = 0; i < size; i++) gate[i] = activate(p, gate[i], up[i]);
    norm_if(p, l, "ffn_sub_norm.weight", gate, p->n, p->d_ff, gate);
    project(p, l, "ffn_down", gate, p->d_ff, y, p->d_model);
    mem_free(gate);
    mem_free(up);
}

/* x += attention, then x += feed-forward; x: [n][d_model]. */
static void layer(struct pass *p, int l, double *x)
{
    int d = p->d_model, d_q = p->n_head * p->head_dim, d_kv = p->n_head_kv * p->head_dim;
    size_t n = (size_t)p->n;
    double *norm = doubles(n * (size_t)d), *y = doubles(n * (size_t)d);
    double *q = doubles(n * (size_t)d_q), *k = doubles(n * (size_t)d_kv), *v = doubles(n * (size_t)d_kv);
    double *heads = doubles(n * (size_t)d_q), *gates = doubles(n * (size_t)d_q);
    const char *post = p->family->post_is_pre ? "none" : "post_attention_norm.weight";
    const char *pre = p->family->post_is_pre ? "post_attention_norm.weight" : "ffn_norm.weight";

    const double *in = norm_if(p, l, "attn_norm.weight", x, p->n, d, norm) ? norm : x;
    if (p->family->gated) {
        project_gated(p, l, in, q, gates);
        project(p, l, "attn_k", in, d, k, d_kv);
        project(p, l, "attn_v", in, d, v, d_kv);
    } else {
        project_qkv(p, l, in, q, d_q, k, v, d_kv);
    }
    norm_heads(p, l, "attn_q_norm.weight", q, p->n_head);
    norm_heads(p, l, "attn_k_norm.weight", k, p->n_head_kv);
    rotate(p, l, q, p->n_head);
    rotate(p, l, k, p->n_head_kv);
    attend(p, l, q, k, v, heads);
    for (size_t i = 0; p->family->gated && i < n * (size_t)d_q; i++) heads[i] *= gates[i];
    norm_if(p, l, "attn_sub_norm.weight", heads, p->n, d_q, heads);
    project(p, l, "attn_output", heads, d_q, y, d);
    add_branch(p, l, post, y, x);

    feed_forward(p, l, norm_if(p, l, pre, x, p->n, d, norm) ? norm : x, y);
    add_branch(p, l, "post_ffw_norm.weight", y, x);

    double *all[] = {norm, y, q, k, v, heads, gates};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
}

void naive_layer(const struct weights *w, int l, double *x, int n, int n_ctx, const struct naive_skew *skew,
                 size_t *n_used)
{
    struct pass p = {.w = w, .n = n, .n_ctx = n_ctx};
    if (says(w, "general.architecture", "deepseek2")) {
        naive_latent_layer(w, l, x, n, skew, n_used);
        return;
    }
    read_shape(&p, skew);
    p.n_used = 0;
    layer(&p, l, x);
    *n_used = p.n_used;
    mem_free(p.turn);
    mem_free(p.turn_local);
}

double *naive_logits(const struct weights *w, const qn_token *tokens, int n, int n_ctx, const struct naive_skew *skew,
                     int *n_vocab)
{
    if (says(w, "general.architecture", "deepseek2")) return naive_latent_logits(w, tokens, n, skew, n_vocab);
    struct pass p = {.w = w, .n = n, .n_ctx = n_ctx};
    read_shape(&p, skew);
    const struct tensor *embd = weights_tensor(w, "token_embd.weight");
    p.n_vocab = embd ? (int)embd->ne[1] : 0;
    int d = p.d_model;
    double *table = tensor(&p, -1, "token_embd.weight", d, p.n_vocab);
    double *out = tensor_if(&p, -1, "output.weight", d, p.n_vocab);
    double *out_norm = tensor(&p, -1, "output_norm.weight", d, 1);
    double *x = doubles((size_t)n * (size_t)d), *logits = doubles((size_t)n * (size_t)p.n_vocab);
    for (int t = 0; t < n; t++) {
        assert(tokens[t] >= 0 && tokens[t] < p.n_vocab);
        for (int i = 0; i < d; i++) x[t * d + i] = table[tokens[t] * d + i] * p.embedding;
    }
    for (int l = 0; l < p.n_layer; l++) layer(&p, l, x);
    rms_norm(&p, x, n, d, out_norm, x);
    for (int t = 0; t < n; t++) /* without an output matrix the embedding serves as one */
        for (int r = 0; r < p.n_vocab; r++)
            logits[t * p.n_vocab + r] = capped(dot((out ? out : table) + r * d, x + t * d, d) * p.logit, p.cap);
    if (p.n_used != weights_n_tensors(w)) die(&p, "has tensors this pass does not use", p.arch);
    double *all[] = {table, out, out_norm, x, p.turn, p.turn_local};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
    *n_vocab = p.n_vocab;
    return logits;
}
