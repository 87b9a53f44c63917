/* SPDX-License-Identifier: MIT
 *
 * naive_nextn.c: an independent pass of the block that predicts the token after the next one. See naive.h.
 *
 * As naive.c in what it shares with the engine and what it does not, and in precision.
 *
 *     x = W [RMS(E[token]; enorm) | RMS(h; hnorm)],  then the layer
 *     y = RMS(x; shared_head_norm, or output_norm),  logits = Wout y
 *
 * E is embed_tokens or the model's, Wout is shared_head_head or the model's. Source: DeepSeek-V3 (arXiv:2412.19437),
 * section 2.2, where the halves are the other way round, and the modelling code of Qwen3-Next, where they are as here.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/kernel.h"
#include "naive.h"

static _Noreturn void die(const struct weights *w, const char *what, const char *name)
{
    fprintf(stderr, "naive: %s: %s: %s\n", weights_path(w), what, name);
    exit(1);
}

static double *doubles(size_t n)
{
    double *x = mem_calloc(n, sizeof *x);
    assert(x);
    return x;
}

/* blk.L.nextn.PART.weight, or the tensor `otherwise` (NULL: an error). */
static const struct tensor *find(const struct weights *w, int l, const char *part, const char *otherwise,
                                 size_t *n_used)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", l, part);
    const struct tensor *t = weights_tensor(w, name);
    *n_used += t != NULL;
    if (!t && otherwise) t = weights_tensor(w, otherwise);
    if (!t) die(w, "missing", name);
    return t;
}

/* Row r; owned. */
static double *row_of(const struct tensor *t, int64_t r)
{
    const int64_t k = t->ne[0];
    const struct side side = side_from(t->side, k, r);
    float *row = mem_calloc((size_t)k, sizeof *row);
    double *x = doubles((size_t)k);
    dequant_row(t->type, t->data + (size_t)r * t->row_bytes, &side, k, row);
    for (int64_t i = 0; i < k; i++) x[i] = (double)row[i];
    mem_free(row);
    return x;
}

static void norm(const double *x, const struct tensor *weight, double eps, double *y)
{
    const int n = (int)weight->ne[0];
    double sum = 0, *w = row_of(weight, 0);
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    for (int i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / n + eps) * w[i];
    mem_free(w);
}

/* y [n][rows of t] = x [n][k] t^T; owned. */
static double *times(const struct tensor *t, const double *x, int n)
{
    const int k = (int)t->ne[0], m = (int)t->ne[1];
    double *y = doubles((size_t)n * (size_t)m);
    for (int r = 0; r < m; r++) {
        double *w = row_of(t, r);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < k; j++) y[i * m + r] += w[j] * x[i * k + j];
        mem_free(w);
    }
    return y;
}

static double read_eps(const struct weights *w, const struct naive_skew *skew)
{
    struct str arch;
    char name[96];
    float eps = 0;
    if (meta_str(w, "general.architecture", &arch, NULL) != 1) die(w, "missing", "general.architecture");
    snprintf(name, sizeof name, "%.*s.attention.layer_norm_rms_epsilon", (int)arch.n, arch.p);
    if (meta_f32(w, name, &eps, NULL) != 1) die(w, "missing", name);
    return (double)eps * skew->eps;
}

static size_t tensors_of_layer(const struct weights *w, int l)
{
    char prefix[32];
    size_t n = 0;
    snprintf(prefix, sizeof prefix, "blk.%d.", l);
    for (size_t i = 0; i < weights_n_tensors(w); i++)
        n += !strncmp(weights_tensor_at(w, i)->name, prefix, strlen(prefix));
    return n;
}

double *naive_nextn(const struct weights *w, int l, const qn_token *tokens, const double *hidden, int n,
                    const struct naive_skew *skew, int *n_vocab, double **y)
{
    size_t n_used = 0, n_in_layer = 0;
    const struct tensor *embd = find(w, l, "embed_tokens", "token_embd.weight", &n_used);
    const char *output = weights_tensor(w, "output.weight") ? "output.weight" : "token_embd.weight";
    const struct tensor *head = find(w, l, "shared_head_head", output, &n_used);
    const struct tensor *head_norm = find(w, l, "shared_head_norm", "output_norm.weight", &n_used);
    const struct tensor *enorm = find(w, l, "enorm", NULL, &n_used), *hnorm = find(w, l, "hnorm", NULL, &n_used);
    const int d = (int)embd->ne[0];
    const double eps = read_eps(w, skew);
    double *both = doubles((size_t)n * 2 * (size_t)d);
    for (int i = 0; i < n; i++) {
        double *e = row_of(embd, tokens[i]);
        norm(e, enorm, eps, both + 2 * i * d);
        norm(hidden + i * d, hnorm, eps, both + (2 * i + 1) * d);
        mem_free(e);
    }
    double *x = times(find(w, l, "eh_proj", NULL, &n_used), both, n);
    naive_layer(w, l, x, n, n, skew, &n_in_layer);
    if (n_used + n_in_layer != tensors_of_layer(w, l)) die(w, "has tensors this pass does not use", "nextn");
    for (int i = 0; i < n; i++) norm(x + i * d, head_norm, eps, x + i * d);
    *n_vocab = (int)head->ne[1];
    *y = x;
    mem_free(both);
    return times(head, x, n);
}
