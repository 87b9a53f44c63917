/* SPDX-License-Identifier: MIT
 *
 * naive_latent.c: an independent forward pass of deepseek2 models: multi-head latent attention, and experts behind the
 * first layers. See naive.h.
 *
 * As naive.c in what it shares with the engine (reading the file) and what it does not (everything else), and in
 * precision: double and libm. Keys and values of every head are made of the compressed [c | k_pe] whichever layout the
 * file has, all experts are computed for every token, and those that were not chosen count nothing.
 *
 *     x = E[token]
 *     per layer:  x += Wo Attn([q_nope | RoPE(q_pe)], [k_nope | RoPE(k_pe)], v)     q of n, or of RMS(Wq_a n)
 *                      [c | k_pe] = Wkv_a n;  [k_nope | v] = Wkv_b RMS(c)           n = RMS(x; attn_norm)
 *                 x += FFN(m), or sum_e weight_e FFN_e(m) + FFN_shared(m)           m = RMS(x; ffn_norm)
 *     logits = Wout RMS(x; output_norm)
 *
 * Sources: DeepSeek-V2 (arXiv:2405.04434, section 2.2: groups, devices there, by their best expert), DeepSeek-V3
 * (arXiv:2412.19437, section 2.1: sigmoids, the bias for choosing, groups by the sum of their two best), YaRN
 * (arXiv:2309.00071), and the key and tensor names of GGUF.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/kernel.h"
#include "naive.h"

struct pass {
    const struct weights *w;
    int n; /* positions */
    int d_model, n_head, q_lora, rank, nope, rot, v, d_ff, n_vocab;
    int n_expert, n_used_experts, n_group, n_used_groups, d_expert;
    double eps, scale, base; /* scale: of the scores */
    size_t n_read;           /* tensors, each once */
};

static _Noreturn void die(const struct pass *p, const char *what, const char *name)
{
    fprintf(stderr, "naive: %s: %s: %s\n", weights_path(p->w), what, name);
    exit(1);
}

static double *doubles(size_t n)
{
    double *x = mem_calloc(n ? n : 1, sizeof *x);
    assert(x);
    return x;
}

/* ---- reading ---- */

static const char *key_name(const char *key, char name[96])
{
    snprintf(name, 96, "deepseek2.%s", key);
    return name;
}

/* NAN and -1: the key must be there. */
static double number(const struct pass *p, const char *key, double otherwise)
{
    char name[96];
    float x;
    int found = meta_f32(p->w, key_name(key, name), &x, NULL);
    if (found < 0 || (!found && isnan(otherwise))) die(p, "missing, or no number", name);
    return found ? (double)x : otherwise;
}

static int count(const struct pass *p, const char *key, int otherwise)
{
    char name[96];
    uint64_t x;
    int found = meta_u64(p->w, key_name(key, name), 0, 1 << 20, &x, NULL);
    if (found < 0 || (!found && otherwise < 0)) die(p, "missing, or no count", name);
    return found ? (int)x : otherwise;
}

static bool flag(const struct pass *p, const char *key)
{
    char name[96];
    bool x = false;
    return meta_bool(p->w, key_name(key, name), &x, NULL) == 1 && x;
}

/* blk.LAYER.part, or part itself for layer -1, as [rows][k], matrices one after the other; NULL when absent. */
static double *tensor_if(struct pass *p, int layer, const char *part, int k, int rows)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    const struct tensor *t = weights_tensor(p->w, layer < 0 ? part : name);
    if (!t) return NULL;
    if (t->ne[0] != k || t->ne[1] * t->ne[2] != rows) die(p, "another shape", t->name);
    double *x = doubles((size_t)rows * (size_t)k);
    float *row = mem_calloc((size_t)k, sizeof *row);
    assert(row);
    for (int r = 0; r < rows; r++) {
        const struct side side = side_from(t->side, k, r);
        dequant_row(t->type, t->data + (size_t)r * t->row_bytes, &side, k, row);
        for (int i = 0; i < k; i++) x[(size_t)r * (size_t)k + (size_t)i] = row[i];
    }
    mem_free(row);
    p->n_read++;
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

/* y[n][m] = x[n][k] W^T; owned. */
static double *times(const double *w, const double *x, int n, int k, int m)
{
    double *y = doubles((size_t)n * (size_t)m);
    for (int t = 0; t < n; t++)
        for (int r = 0; r < m; r++) y[t * m + r] = dot(w + r * k, x + t * k, k);
    return y;
}

static double *project(struct pass *p, int layer, const char *part, const double *x, int k, int m)
{
    double *w = tensor(p, layer, part, k, m), *y = times(w, x, p->n, k, m);
    mem_free(w);
    return y;
}

/* The first len of every row [ld] of x by their RMS; owned, [n][len]. */
static double *normed(struct pass *p, int layer, const char *part, const double *x, int ld, int len)
{
    double *w = tensor(p, layer, part, len, 1), *y = doubles((size_t)p->n * (size_t)len);
    for (int t = 0; t < p->n; t++, x += ld) {
        double scale = 1 / sqrt(dot(x, x, len) / len + p->eps);
        for (int i = 0; i < len; i++) y[t * len + i] = x[i] * scale * w[i];
    }
    mem_free(w);
    return y;
}

/* ---- rotation ---- */

/* Radians a position of pair i: YaRN's NTK-by-parts. */
static double turn(const struct pass *p, int i)
{
    double plain = pow(p->base, -2.0 * i / p->rot), edge[2];
    struct str type;
    if (meta_str(p->w, "deepseek2.rope.scaling.type", &type, NULL) != 1) return plain;
    if (type.n != 4 || memcmp(type.p, "yarn", 4)) die(p, "not yarn", "rope.scaling.type");
    double ctx = count(p, "rope.scaling.original_context_length", -1), factor = number(p, "rope.scaling.factor", NAN);
    double turns[2] = {number(p, "rope.scaling.yarn_beta_fast", 32), number(p, "rope.scaling.yarn_beta_slow", 1)};
    for (int j = 0; j < 2; j++) edge[j] = p->rot * log(ctx / (turns[j] * 2 * M_PI)) / (2 * log(p->base));
    double low = fmax(0, floor(edge[0])), high = fmin(p->rot - 1, ceil(edge[1]));
    double slow = fmin(fmax((i - low) / fmax(0.001, high - low), 0), 1);
    return plain * (slow / factor + 1 - slow);
}

/* Rotates rot values at x, adjacent pairs, to position t. */
static void rotate(const struct pass *p, double *x, int t)
{
    for (int i = 0; i < p->rot / 2; i++, x += 2) {
        double a = t * turn(p, i), x0 = x[0], x1 = x[1];
        x[0] = x0 * cos(a) - x1 * sin(a);
        x[1] = x0 * sin(a) + x1 * cos(a);
    }
}

/* ---- attention ---- */

/* [n][n_head][nope + v] of c [n][rank]: by one matrix, or by two of each head, of which the first is transposed. */
static double *expand(struct pass *p, int l, const double *c)
{
    int m = p->nope + p->v;
    double *k_b = tensor_if(p, l, "attn_k_b.weight", p->nope, p->rank * p->n_head);
    if (!k_b) return project(p, l, "attn_kv_b.weight", c, p->rank, p->n_head * m);
    double *v_b = tensor(p, l, "attn_v_b.weight", p->rank, p->v * p->n_head);
    double *kv = doubles((size_t)(p->n * p->n_head * m)), *y = kv;
    for (int t = 0; t < p->n; t++, c += p->rank)
        for (int h = 0; h < p->n_head; h++, y += m) {
            for (int j = 0; j < p->rank; j++)
                for (int i = 0; i < p->nope; i++) y[i] += k_b[(h * p->rank + j) * p->nope + i] * c[j];
            for (int i = 0; i < p->v; i++) y[p->nope + i] = dot(v_b + (h * p->v + i) * p->rank, c, p->rank);
        }
    mem_free(k_b);
    mem_free(v_b);
    return kv;
}

/* out [v] of one head at position t; q [nope + rot], kv and latent as below. */
static void attend(const struct pass *p, int t, int h, const double *q, const double *kv, const double *latent,
                   double *out)
{
    double *score = doubles((size_t)t + 1), max = -INFINITY, sum = 0;
    int m = p->nope + p->v;
    for (int s = 0; s <= t; s++) {
        const double *k = kv + (s * p->n_head + h) * m, *k_pe = latent + s * (p->rank + p->rot) + p->rank;
        score[s] = (dot(q, k, p->nope) + dot(q + p->nope, k_pe, p->rot)) * p->scale;
        max = fmax(max, score[s]);
    }
    for (int s = 0; s <= t; s++) sum += score[s] = exp(score[s] - max);
    for (int s = 0; s <= t; s++)
        for (int i = 0; i < p->v; i++) out[i] += score[s] / sum * kv[(s * p->n_head + h) * m + p->nope + i];
    mem_free(score);
}

/* Attention's output for norm [n][d_model]; owned. */
static double *attention(struct pass *p, int l, const double *norm)
{
    int d = p->d_model, dim = p->nope + p->rot, ld = p->rank + p->rot;
    double *q, *heads = doubles((size_t)(p->n * p->n_head * p->v));
    if (p->q_lora) {
        double *down = project(p, l, "attn_q_a.weight", norm, d, p->q_lora);
        double *low = normed(p, l, "attn_q_a_norm.weight", down, p->q_lora, p->q_lora);
        q = project(p, l, "attn_q_b.weight", low, p->q_lora, p->n_head * dim);
        mem_free(down);
        mem_free(low);
    } else {
        q = project(p, l, "attn_q.weight", norm, d, p->n_head * dim);
    }
    double *latent = project(p, l, "attn_kv_a_mqa.weight", norm, d, ld); /* [c | k_pe], of all heads */
    double *c = normed(p, l, "attn_kv_a_norm.weight", latent, ld, p->rank), *kv = expand(p, l, c);
    for (int t = 0; t < p->n; t++) rotate(p, latent + t * ld + p->rank, t);
    for (int i = 0; i < p->n * p->n_head; i++) {
        rotate(p, q + i * dim + p->nope, i / p->n_head);
        attend(p, i / p->n_head, i % p->n_head, q + i * dim, kv, latent, heads + i * p->v);
    }
    double *y = project(p, l, "attn_output.weight", heads, p->n_head * p->v, d);
    double *used[] = {q, heads, latent, c, kv};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) mem_free(used[i]);
    return y;
}

/* ---- networks ---- */

/* y += share[t * ld] Wdown (SiLU(Wgate m) Wup m) for every row; share NULL: 1. */
static void add_network(const struct pass *p, const double *gate, const double *up, const double *down, int width,
                        const double *m, const double *share, int ld, double *y)
{
    int d = p->d_model;
    double *g = times(gate, m, p->n, d, width), *u = times(up, m, p->n, d, width);
    for (int i = 0; i < p->n * width; i++) g[i] *= u[i] / (1 + exp(-g[i]));
    double *out = times(down, g, p->n, width, d);
    for (int i = 0; i < p->n * d; i++) y[i] += out[i] * (share ? share[i / d * ld] : 1);
    mem_free(g);
    mem_free(u);
    mem_free(out);
}

static void add_named(struct pass *p, int l, const char *suffix, int width, const double *m, double *y)
{
    char part[3][40];
    static const char *const names[] = {"gate", "up", "down"};
    for (int i = 0; i < 3; i++) snprintf(part[i], sizeof part[i], "ffn_%s%s.weight", names[i], suffix);
    double *gate = tensor(p, l, part[0], p->d_model, width), *up = tensor(p, l, part[1], p->d_model, width);
    double *down = tensor(p, l, part[2], width, p->d_model);
    add_network(p, gate, up, down, width, m, NULL, 0, y);
    mem_free(gate);
    mem_free(up);
    mem_free(down);
}

/* The index of the largest of x[n], which becomes -inf. */
static int take_largest(double *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    x[best] = -INFINITY;
    return best;
}

/* The sum of the n largest of x[len]. */
static double largest(const double *x, int len, int n)
{
    double *copy = doubles((size_t)len), sum = 0;
    memcpy(copy, x, (size_t)len * sizeof *x);
    for (int i = 0; i < n && i < len; i++) sum += x[take_largest(copy, len)];
    mem_free(copy);
    return sum;
}

/* Experts outside of the best groups cannot be chosen. A group is worth as much as its best expert (V2), or with
 * sigmoids as its two best together (V3). */
static void keep_groups(const struct pass *p, double *select, bool sigmoid)
{
    int each = p->n_expert / p->n_group;
    double *score = doubles((size_t)p->n_group), *kept = doubles((size_t)p->n_group);
    for (int g = 0; g < p->n_group; g++) score[g] = largest(select + g * each, each, sigmoid ? 2 : 1);
    for (int i = 0; i < p->n_used_groups; i++) kept[take_largest(score, p->n_group)] = 1;
    for (int e = 0; e < p->n_expert; e++)
        if (kept[e / each] == 0) select[e] = -INFINITY;
    mem_free(score);
    mem_free(kept);
}

/* share[n_expert] of one token from the router's scores z, which are overwritten. */
static void route(const struct pass *p, double *z, const double *bias, double *share)
{
    int n = p->n_expert, gating = count(p, "expert_gating_func", 1);
    double sum = 0, *select = doubles((size_t)n), scale = number(p, "expert_weights_scale", 1);
    if (gating != 1 && gating != 2) die(p, "neither softmax nor sigmoid", "expert_gating_func");
    for (int e = 0; e < n; e++) sum += gating == 1 ? exp(z[e]) : 0;
    for (int e = 0; e < n; e++) z[e] = gating == 1 ? exp(z[e]) / sum : 1 / (1 + exp(-z[e]));
    for (int e = 0; e < n; e++) select[e] = z[e] + (bias ? bias[e] : 0);
    if (p->n_group > 1) keep_groups(p, select, gating == 2);
    sum = 0;
    for (int i = 0; i < p->n_used_experts; i++) {
        int e = take_largest(select, n);
        sum += share[e] = z[e];
    }
    for (int e = 0; e < n; e++) share[e] *= scale / (flag(p, "expert_weights_norm") ? sum : 1);
    mem_free(select);
}

static void add_experts(struct pass *p, int l, const double *m, double *y)
{
    int d = p->d_model, w = p->d_expert, n = p->n_expert;
    double *z = project(p, l, "ffn_gate_inp.weight", m, d, n), *share = doubles((size_t)(p->n * n));
    double *bias = tensor_if(p, l, "exp_probs_b.bias", n, 1);
    double *gate = tensor(p, l, "ffn_gate_exps.weight", d, w * n), *up = tensor(p, l, "ffn_up_exps.weight", d, w * n);
    double *down = tensor(p, l, "ffn_down_exps.weight", w, d * n);
    for (int t = 0; t < p->n; t++) route(p, z + t * n, bias, share + t * n);
    for (int e = 0; e < n; e++)
        add_network(p, gate + e * d * w, up + e * d * w, down + e * d * w, w, m, share + e, n, y);
    int n_shared = count(p, "expert_shared_count", 0);
    if (n_shared) add_named(p, l, "_shexp", n_shared * w, m, y);
    double *used[] = {z, share, bias, gate, up, down};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) mem_free(used[i]);
}

/* ---- the model ---- */

static void read_shape(struct pass *p, const struct naive_skew *skew)
{
    p->d_model = count(p, "embedding_length", -1);
    p->d_ff = count(p, "feed_forward_length", 0);
    p->n_head = count(p, "attention.head_count", -1);
    p->q_lora = count(p, "attention.q_lora_rank", 0);
    p->rank = count(p, "attention.kv_lora_rank", -1);
    p->rot = count(p, "rope.dimension_count", -1);
    int dim = count(p, "attention.key_length_mla", count(p, "attention.key_length", -1));
    p->nope = dim - p->rot;
    p->v = count(p, "attention.value_length_mla", count(p, "attention.value_length", -1));
    p->n_expert = count(p, "expert_count", 0);
    p->n_used_experts = count(p, "expert_used_count", 0);
    p->d_expert = count(p, "expert_feed_forward_length", 0);
    p->n_group = count(p, "expert_group_count", 1);
    p->n_used_groups = count(p, "expert_group_used_count", 1);
    p->eps = number(p, "attention.layer_norm_rms_epsilon", NAN) * skew->eps;
    p->base = number(p, "rope.freq_base", 10000) * skew->rope_base;
    /* The key holds a tenth of what multiplies the logarithm, which for V3 makes it YaRN's 0.1 itself. */
    double grown = 1 + number(p, "rope.scaling.yarn_log_multiplier", 0) * log(number(p, "rope.scaling.factor", 1));
    p->scale = grown * grown / sqrt(dim);
}

static void layer(struct pass *p, int l, double *x)
{
    int d = p->d_model;
    double *norm = normed(p, l, "attn_norm.weight", x, d, d), *y = attention(p, l, norm);
    for (int i = 0; i < p->n * d; i++) x[i] += y[i];
    double *m = normed(p, l, "ffn_norm.weight", x, d, d);
    if (p->n_expert && l >= count(p, "leading_dense_block_count", 0))
        add_experts(p, l, m, x);
    else
        add_named(p, l, "", p->d_ff, m, x);
    mem_free(norm);
    mem_free(y);
    mem_free(m);
}

void naive_latent_layer(const struct weights *w, int l, double *x, int n, const struct naive_skew *skew, size_t *n_used)
{
    struct pass p = {.w = w, .n = n};
    read_shape(&p, skew);
    layer(&p, l, x);
    *n_used = p.n_read;
}

double *naive_latent_logits(const struct weights *w, const qn_token *tokens, int n, const struct naive_skew *skew,
                            int *n_vocab)
{
    struct pass p = {.w = w, .n = n};
    read_shape(&p, skew);
    const struct tensor *embd = weights_tensor(w, "token_embd.weight");
    *n_vocab = p.n_vocab = embd ? (int)embd->ne[1] : 0;
    int d = p.d_model, n_layer = count(&p, "block_count", -1);
    double *table = tensor(&p, -1, "token_embd.weight", d, p.n_vocab), *x = doubles((size_t)(n * d));
    double *out = tensor_if(&p, -1, "output.weight", d, p.n_vocab);
    for (int t = 0; t < n; t++) {
        assert(tokens[t] >= 0 && tokens[t] < p.n_vocab);
        memcpy(x + t * d, table + tokens[t] * d, (size_t)d * sizeof *x);
    }
    for (int l = 0; l < n_layer; l++) layer(&p, l, x);
    double *norm = normed(&p, -1, "output_norm.weight", x, d, d);
    double *logits =
        times(out ? out : table, norm, n, d, p.n_vocab); /* without an output matrix the embedding is one */
    if (p.n_read != weights_n_tensors(w)) die(&p, "has tensors this pass does not use", "deepseek2");
    double *all[] = {table, x, out, norm};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
    return logits;
}
