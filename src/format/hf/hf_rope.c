/* SPDX-License-Identifier: MIT
 *
 * hf_rope.c: reads the base, the share and the scaling of the rotation.
 *
 * They stand in config.json itself and in its `rope_scaling`. Newer versions write all of them in `rope_parameters`; in
 * Gemma 3 that has one object for each kind of layer. For Llama 3's scaling GGUF has no keys but a tensor of divisors.
 * The divisors are computed here, in double precision with our own functions.
 *
 * Sources: modeling_rope_utils.py of huggingface/transformers; YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024),
 * "The Llama 3 herd of models" (Dubey et al. 2024) and the factors' definition in its code.
 */
#include "format/hf/hf_rope.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "format/hf/hf_value.h"

#define TWO_PI  6.283185307179586476925
#define MAX_CTX (1 << 28)

struct rope_writer {
    struct hf_config *c;
    struct meta_build *b;
    struct qn_error *e;
    struct hf_value main, params; /* params: where the scaling stands; an object of NULL has nothing */
    const json_t *local;          /* the rotation of Gemma 3's windowed layers, NULL: not told apart */
    double base;
    int n_rot, n_ctx;
    char key[96];
};

static const char *key_of(struct rope_writer *w, const char *name)
{
    snprintf(w->key, sizeof w->key, "%s.rope.%s", w->c->arch, name);
    return w->key;
}

static int put_real(struct rope_writer *w, const char *name, double v)
{
    return meta_build_f32(w->b, key_of(w, name), (float)v, w->e);
}

static int put_type(struct rope_writer *w, const char *type)
{
    return meta_build_str(w->b, key_of(w, "scaling.type"), type, strlen(type), w->e);
}

/* Reads a number that stands in the parameters or in config.json itself. */
static int real_of(struct rope_writer *w, const char *name, double above, double hi, double def, double *out)
{
    int rc = hf_real(&w->main, name, above, hi, def, out);
    return rc ? rc : hf_real(&w->params, name, above, hi, *out, out);
}

static int factor_of(struct rope_writer *w, double *factor)
{
    int rc = hf_real(&w->params, "factor", 0, 1e6, 0, factor);
    if (!rc && *factor == 0) rc = error_set(w->e, QN_EDATA, "config.json: the rotation's scaling has no 'factor'");
    return rc;
}

/* Puts the length of the context before scaling. */
static int put_original(struct rope_writer *w, int *n)
{
    int rc = hf_int(&w->main, "original_max_position_embeddings", 1, MAX_CTX, w->n_ctx, n);
    if (rc || (rc = hf_int(&w->params, "original_max_position_embeddings", 1, MAX_CTX, *n, n))) return rc;
    return meta_build_u32(w->b, key_of(w, "scaling.original_context_length"), (uint32_t)*n, w->e);
}

static int put_linear(struct rope_writer *w)
{
    double factor;
    int rc;
    if ((rc = factor_of(w, &factor)) || (rc = put_type(w, "linear"))) return rc;
    return put_real(w, "scaling.factor", factor);
}

static double mscale(double factor, double m) { return factor <= 1 ? 1 : 1 + 0.1 * m * math_log(factor); }

/* Refuses members that some implementations obey and others ignore. */
static int refuse_disputed(struct rope_writer *w)
{
    static const char *const names[] = {"attn_factor", "extrapolation_factor"};
    bool apply;
    int rc = hf_bool(&w->params, "apply_yarn_scaling", true, &apply);
    if (rc) return rc;
    if (!apply) return error_set(w->e, QN_EUNSUP, "config.json: yarn with 'apply_yarn_scaling' false is not supported");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double v;
        if ((rc = hf_real(&w->params, names[i], -1e6, 1e6, 1, &v))) return rc;
        if (v != 1) return error_set(w->e, QN_EUNSUP, "config.json: yarn with '%s' %g is not supported", names[i], v);
    }
    return 0;
}

/* Puts the factor that cos and sin are multiplied with, if it is not the default, 1 + ln(factor) / 10. */
static int put_yarn(struct rope_writer *w)
{
    double factor, whole, m, all, fast, slow;
    bool truncate;
    int rc, n;
    if ((rc = refuse_disputed(w))) return rc;
    if ((rc = factor_of(w, &factor)) || (rc = hf_real(&w->params, "attention_factor", 0, 1e6, 0, &whole)) ||
        (rc = hf_real(&w->params, "mscale", 0, 1e6, 0, &m)) ||
        (rc = hf_real(&w->params, "mscale_all_dim", 0, 1e6, 0, &all)) ||
        (rc = hf_real(&w->params, "beta_fast", 0, 1e6, 32, &fast)) ||
        (rc = hf_real(&w->params, "beta_slow", 0, 1e6, 1, &slow)) ||
        (rc = hf_bool(&w->params, "truncate", true, &truncate)))
        return rc;
    if (whole == 0 && m > 0 && all > 0) whole = mscale(factor, m) / mscale(factor, all);
    if ((rc = put_type(w, "yarn")) || (rc = put_real(w, "scaling.factor", factor)) || (rc = put_original(w, &n)) ||
        (rc = put_real(w, "scaling.yarn_beta_fast", fast)) || (rc = put_real(w, "scaling.yarn_beta_slow", slow)))
        return rc;
    if (!truncate && (rc = meta_build_bool(w->b, "quern.rope_yarn_truncate", false, w->e))) return rc;
    return whole == 0 ? 0 : put_real(w, "scaling.yarn_attn_factor", whole);
}

/* Computes Llama 3's divisors. Slow pairs (long waves) are divided by the factor, fast ones by 1, and those between by
 * a number between. */
static int llama3_factors(struct rope_writer *w)
{
    double factor, low, high;
    int rc, n;
    if ((rc = factor_of(w, &factor)) || (rc = hf_real(&w->params, "low_freq_factor", 0, 1e6, 1, &low)) ||
        (rc = hf_real(&w->params, "high_freq_factor", 0, 1e6, 4, &high)) ||
        (rc = hf_int(&w->params, "original_max_position_embeddings", 1, MAX_CTX, 8192, &n)))
        return rc;
    if (high <= low)
        return error_set(w->e, QN_EDATA, "config.json: 'high_freq_factor' is %g, not above 'low_freq_factor' %g", high,
                         low);
    w->c->n_freqs = w->n_rot / 2;
    for (int i = 0; i < w->c->n_freqs; i++) {
        double wave = TWO_PI * math_pow(w->base, 2.0 * i / w->n_rot), divisor = 1;
        double smooth = (n / wave - low) / (high - low);
        if (wave > n / low)
            divisor = factor;
        else if (wave >= n / high)
            divisor = 1 / ((1 - smooth) / factor + smooth);
        w->c->freqs[i] = (float)divisor;
    }
    return 0;
}

/* Reads a list of divisors, one for each pair. */
static int read_factors(struct rope_writer *w, const char *name, float *out)
{
    const json_t *list = json_object_get(w->params.object, name);
    if (json_array_size(list) != (size_t)w->n_rot / 2)
        return error_set(w->e, QN_EDATA, "config.json: '%s' has %zu factors for %d pairs", name, json_array_size(list),
                         w->n_rot / 2);
    for (int i = 0; i < w->n_rot / 2; i++) {
        double v = json_number_value(json_array_get(list, (size_t)i));
        if (!(v > 0 && v <= 1e6))
            return error_set(w->e, QN_EDATA, "config.json: '%s': factor %d is %g, not in (0, 1e6]", name, i, v);
        out[i] = (float)v;
    }
    return 0;
}

static int put_longrope(struct rope_writer *w)
{
    double whole;
    int rc, n;
    if ((rc = put_type(w, "longrope")) || (rc = put_original(w, &n)) ||
        (rc = hf_real(&w->params, "attention_factor", 0, 1e6, 0, &whole)) ||
        (rc = read_factors(w, "long_factor", w->c->longs)) || (rc = read_factors(w, "short_factor", w->c->shorts)))
        return rc;
    w->c->n_long = w->n_rot / 2;
    double stretch = (double)w->n_ctx / n;
    if (whole == 0) whole = stretch <= 1 || n < 2 ? 1 : __builtin_sqrt(1 + math_log(stretch) / math_log((double)n));
    return put_real(w, "scaling.attn_factor", whole);
}

static int put_scaling(struct rope_writer *w)
{
    const char *type = "default";
    int rc = hf_text(&w->params, "type", &type); /* the older name */
    if (rc || (rc = hf_text(&w->params, "rope_type", &type))) return rc;
    if (!strcmp(type, "default")) return 0;
    if (!strcmp(type, "linear")) return put_linear(w);
    if (!strcmp(type, "yarn")) return put_yarn(w);
    if (!strcmp(type, "llama3")) return llama3_factors(w);
    if (!strcmp(type, "longrope") || !strcmp(type, "su")) return put_longrope(w);
    return error_set(w->e, QN_EUNSUP,
                     "config.json: rotation of type '%.40s' is not supported, default, linear, yarn, "
                     "llama3 and longrope are",
                     type);
}

/* Reads the dimensions of a head, and how many of them are rotated. */
static int read_turned(struct rope_writer *w)
{
    bool delta = w->c->family->traits & HF_DELTA, gemma = w->c->family->traits & (HF_GEMMA2 | HF_GEMMA3);
    int rc, heads, embd, dim;
    double share;
    if ((rc = hf_int(&w->main, "num_attention_heads", 1, 4096, 8, &heads)) ||
        (rc = hf_int(&w->main, "hidden_size", 1, 1 << 20, HF_REQUIRED, &embd)))
        return rc;
    dim = embd / heads;
    if (delta || gemma) dim = 256;
    if (!strcmp(w->c->arch, "qwen3") || !strcmp(w->c->arch, "qwen3moe")) dim = 128;
    if ((rc = hf_int(&w->main, "head_dim", 2, 2 * HF_MAX_FACTORS, dim, &dim)) ||
        (rc = real_of(w, "partial_rotary_factor", 0, 1, delta ? 0.25 : 1, &share)))
        return rc;
    w->n_rot = (int)(dim * share);
    if (w->n_rot < 2 || w->n_rot > 2 * HF_MAX_FACTORS)
        return error_set(w->e, QN_EDATA, "config.json: %d dimensions of a head are rotated, not 2 to %d", w->n_rot,
                         2 * HF_MAX_FACTORS);
    return meta_build_u32(w->b, key_of(w, "dimension_count"), (uint32_t)w->n_rot, w->e);
}

/* Finds the object of the parameters. The newer form of Gemma 3 has one for each kind of layer. */
static int find_params(struct rope_writer *w)
{
    const json_t *p = json_object_get(w->c->main, "rope_parameters"), *full = json_object_get(p, "full_attention");
    if (json_is_null(p)) p = NULL;
    if (!p) p = json_object_get(w->c->main, "rope_scaling");
    if (p && !json_is_null(p) && !json_is_object(p))
        return error_set(w->e, QN_EDATA, "config.json: the rotation's parameters are not an object");
    w->local = json_object_get(p, "sliding_attention");
    w->params = (struct hf_value){.object = full ? full : p, .e = w->e};
    return 0;
}

int hf_rope_meta(struct hf_config *c, struct meta_build *b, struct qn_error *e)
{
    struct rope_writer w = {.c = c, .b = b, .e = e, .main = {.object = c->main, .e = e}};
    bool gemma3 = c->family->traits & HF_GEMMA3;
    struct hf_value local = {.e = e};
    double base_local;
    int rc;
    if ((rc = find_params(&w)) || (rc = read_turned(&w)) ||
        (rc = hf_int(&w.main, "max_position_embeddings", 1, MAX_CTX, 131072, &w.n_ctx)) ||
        (rc = real_of(&w, "rope_theta", 1, 1e30, gemma3 ? 1e6 : 1e4, &w.base)) ||
        (rc = put_real(&w, "freq_base", w.base)))
        return rc;
    if (gemma3) {
        local.object = w.local;
        if ((rc = hf_real(&w.main, "rope_local_base_freq", 1, 1e30, 1e4, &base_local)) ||
            (rc = hf_real(&local, "rope_theta", 1, 1e30, base_local, &base_local)) ||
            (rc = put_real(&w, "freq_base_swa", base_local)))
            return rc;
    }
    if ((rc = put_scaling(&w)) || strcmp(c->arch, "llama")) return rc;
    /* Llama's GGUF files have the rows of queries and keys in another order. Here they are as they were trained. */
    return meta_build_bool(b, "quern.rope_half_split", true, e);
}
