/* SPDX-License-Identifier: MIT
 *
 * hparams.c: reading and bounding a model's hyper-parameters.
 *
 * A key may be stored as any integer type, and a per-layer value as a scalar or as an array
 * with one element a layer. The families here have equal layers: an array whose elements
 * differ is refused by name rather than half-understood.
 */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const struct weights *w;
    const char *arch;
    struct qn_error *e;
    char key[128];
};

static const char *key_of(struct reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return r->key;
}

/* A required or (def >= 0) optional integer in [lo, hi]. */
static int read_int(struct reader *r, const char *name, int64_t lo, int64_t hi, int64_t def, int *out)
{
    uint64_t v = 0;
    int rc = meta_u64(r->w, key_of(r, name), (uint64_t)lo, (uint64_t)hi, &v, r->e);
    if (rc < 0) return rc;
    if (rc == 0) {
        if (def < 0) return error_set(r->e, QN_EDATA, "model: key '%s' is missing", r->key);
        v = (uint64_t)def;
    }
    *out = (int)v;
    return 0;
}

/* As read_int for a value that may be an array of n_layer elements, which must all be equal. */
static int read_per_layer(struct reader *r, const char *name, int n_layer, int64_t lo, int64_t hi, int64_t def,
                          int *out)
{
    const struct meta *m = weights_meta(r->w, key_of(r, name));
    if (!m || m->type != MT_ARRAY) return read_int(r, name, lo, hi, def, out);
    if (m->n != (uint64_t)n_layer)
        return error_set(r->e, QN_EDATA, "model: '%s' has %llu elements for %d layers", r->key,
                         (unsigned long long)m->n, n_layer);
    int64_t first = 0;
    for (uint64_t i = 0; i < m->n; i++) {
        int64_t v;
        int rc = meta_elem_i64(m, i, &v, r->e);
        if (rc < 0) return rc;
        if (v < lo || v > hi)
            return error_set(r->e, QN_EDATA, "model: '%s' element %llu is %lld, not in %lld..%lld", r->key,
                             (unsigned long long)i, (long long)v, (long long)lo, (long long)hi);
        if (i == 0) first = v;
        if (v != first)
            return error_set(r->e, QN_EUNSUP, "model: '%s' differs between layers (%lld, then %lld at layer %llu)",
                             r->key, (long long)first, (long long)v, (unsigned long long)i);
    }
    *out = (int)first;
    return 0;
}

/* An optional float in (lo, hi]. */
static int read_float(struct reader *r, const char *name, double lo, double hi, double def, double *out)
{
    float v = (float)def;
    int rc = meta_f32(r->w, key_of(r, name), &v, r->e);
    if (rc < 0) return rc;
    if (!(v > lo && v <= hi))
        return error_set(r->e, QN_EDATA, "model: '%s' is %g, not in (%g, %g]", r->key, (double)v, lo, hi);
    *out = rc == 0 ? def : (double)v;
    return 0;
}

static int read_rope_type(struct reader *r, struct hparams *h)
{
    struct str s;
    int rc = meta_str(r->w, key_of(r, "rope.scaling.type"), &s, r->e);
    if (rc < 0) return rc;
    static const struct {
        const char *name;
        enum rope_scaling v;
    } names[] = {{"none", ROPE_NONE}, {"linear", ROPE_LINEAR}, {"yarn", ROPE_YARN}, {"longrope", ROPE_LONG}};
    h->rope_scaling = ROPE_NONE;
    if (rc == 0) return 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (s.n == strlen(names[i].name) && memcmp(s.p, names[i].name, s.n) == 0) {
            h->rope_scaling = names[i].v;
            return 0;
        }
    return error_set(r->e, QN_EUNSUP, "model: '%s' is '%.*s', not none, linear, yarn or longrope", r->key,
                     (int)(s.n > 40 ? 40 : s.n), s.p);
}

static int read_rope(struct reader *r, struct hparams *h)
{
    int rc;
    double old_linear = 0;
    if ((rc = read_int(r, "rope.dimension_count", 2, h->head_dim, h->head_dim, &h->n_rot))) return rc;
    if (h->n_rot % 2) return error_set(r->e, QN_EDATA, "model: '%s' is %d, an odd number", r->key, h->n_rot);
    if ((rc = read_float(r, "rope.freq_base", 0, 1e30, 10000, &h->rope_base))) return rc;
    if ((rc = read_rope_type(r, h))) return rc;
    if ((rc = read_float(r, "rope.scaling.factor", 0, 1e6, 1, &h->rope_factor))) return rc;
    if ((rc = read_float(r, "rope.scale_linear", 0, 1e6, 1, &old_linear))) return rc;
    if (old_linear != 1 && h->rope_scaling == ROPE_NONE) { /* the key of old files */
        h->rope_scaling = ROPE_LINEAR;
        h->rope_factor = old_linear;
    }
    /* A factor whose type is not said is a linear one; a factor of type `none` is none. */
    if (h->rope_factor != 1 && !weights_meta(r->w, key_of(r, "rope.scaling.type"))) h->rope_scaling = ROPE_LINEAR;
    if ((rc = read_float(r, "rope.scaling.attn_factor", 0, 1e6, 1, &h->rope_attn_factor))) return rc;
    if ((rc = read_float(r, "rope.scaling.yarn_ext_factor", -1e-9, 1, 1, &h->yarn_ext_factor))) return rc;
    if ((rc = read_float(r, "rope.scaling.yarn_beta_fast", 0, 1e6, 32, &h->yarn_beta_fast))) return rc;
    if ((rc = read_float(r, "rope.scaling.yarn_beta_slow", 0, 1e6, 1, &h->yarn_beta_slow))) return rc;
    return read_int(r, "rope.scaling.original_context_length", 1, HP_MAX_CTX, h->n_ctx_train, &h->rope_ctx_orig);
}

/* A number or a truth value as a number. */
static int read_any(const struct meta *m, double *out, struct qn_error *e)
{
    int64_t v;
    if (m->type == MT_BOOL) {
        *out = m->data[0] != 0;
        return 0;
    }
    if (m->elem == MT_F32 || m->elem == MT_F64) return meta_elem_f64(m, 0, out, e);
    int rc = meta_elem_i64(m, 0, &v, e);
    if (!rc) *out = (double)v;
    return rc;
}

/* Keys that change the forward pass of some family and that no family here uses: a file that sets one
 * to other than its neutral value is not run as if it had not. */
static int refuse_unknown(struct reader *r)
{
    static const struct {
        const char *name;
        double neutral;
    } keys[] = {{"logit_scale", 1},
                {"residual_scale", 1},
                {"embedding_scale", 1},
                {"attn_logit_softcapping", 0},
                {"final_logit_softcapping", 0},
                {"expert_count", 0},
                {"expert_used_count", 0},
                {"attention.scale", 0},
                {"attention.causal", 1},
                {"attention.clamp_kqv", 0},
                {"attention.max_alibi_bias", 0},
                {"attention.sliding_window_pattern", 0},
                {"rope.scaling.yarn_log_multiplier", 0},
                {"rope.scaling.yarn_attn_factor", 1},
                {"use_parallel_residual", 0}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct meta *m = weights_meta(r->w, key_of(r, keys[i].name));
        double v;
        if (!m) continue;
        int rc = read_any(m, &v, r->e);
        if (rc < 0) return rc;
        if (v != keys[i].neutral && !(v == 0 && keys[i].neutral == 1 && m->type != MT_BOOL)) /* a scale of 0: unset */
            return error_set(r->e, QN_EUNSUP, "model: '%s' is %g: not supported for architecture '%s'", r->key, v,
                             r->arch);
    }
    return 0;
}

int hparams_read(struct hparams *out, const struct weights *w, const char *arch, int n_vocab, struct qn_error *e)
{
    struct reader r = {.w = w, .arch = arch, .e = e};
    struct hparams h = {.arch = arch, .n_vocab = n_vocab};
    int rc, v_dim = 0, declared_vocab = 0;
    double eps = 0;
    if ((rc = read_int(&r, "block_count", 1, HP_MAX_LAYERS, -1, &h.n_layer))) return rc;
    if ((rc = read_int(&r, "embedding_length", 1, HP_MAX_DIM, -1, &h.n_embd))) return rc;
    if ((rc = read_int(&r, "context_length", 1, HP_MAX_CTX, -1, &h.n_ctx_train))) return rc;
    if ((rc = read_per_layer(&r, "feed_forward_length", h.n_layer, 1, HP_MAX_DIM, -1, &h.n_ff))) return rc;
    if ((rc = read_per_layer(&r, "attention.head_count", h.n_layer, 1, HP_MAX_HEADS, -1, &h.n_head))) return rc;
    if ((rc = read_per_layer(&r, "attention.head_count_kv", h.n_layer, 1, h.n_head, h.n_head, &h.n_head_kv))) return rc;
    if (h.n_head % h.n_head_kv)
        return error_set(e, QN_EDATA, "model: %d attention heads cannot be shared by %d KV heads", h.n_head,
                         h.n_head_kv);
    int dim = h.n_embd / h.n_head;
    if (!weights_meta(w, key_of(&r, "attention.key_length")) && (h.n_embd % h.n_head || dim < 2))
        return error_set(e, QN_EDATA, "model: embedding length %d is not a multiple of %d heads", h.n_embd, h.n_head);
    if ((rc = read_int(&r, "attention.key_length", 2, HP_MAX_HEAD_DIM, dim, &h.head_dim))) return rc;
    if ((rc = read_int(&r, "attention.value_length", 2, HP_MAX_HEAD_DIM, h.head_dim, &v_dim))) return rc;
    if (h.head_dim % 2 || h.head_dim > HP_MAX_HEAD_DIM)
        return error_set(e, QN_EDATA, "model: head dimension %d is odd or over %d", h.head_dim, HP_MAX_HEAD_DIM);
    if (v_dim != h.head_dim)
        return error_set(e, QN_EUNSUP, "model: key length %d and value length %d differ", h.head_dim, v_dim);
    if ((rc = read_int(&r, "vocab_size", 1, HP_MAX_CTX, n_vocab, &declared_vocab))) return rc;
    if (declared_vocab != n_vocab)
        return error_set(e, QN_EDATA, "model: '%s' is %d but the tokenizer has %d tokens", r.key, declared_vocab,
                         n_vocab);
    if (!weights_meta(w, key_of(&r, "attention.layer_norm_rms_epsilon")))
        return error_set(e, QN_EDATA, "model: key '%s' is missing", r.key);
    if ((rc = read_float(&r, "attention.layer_norm_rms_epsilon", 0, 1, 1e-5, &eps))) return rc;
    if ((rc = read_int(&r, "attention.sliding_window", 0, HP_MAX_CTX, 0, &h.n_swa))) return rc;
    h.norm_eps = (float)eps;
    h.attn_scale = 1.0f / sqrtf((float)h.head_dim);
    if ((rc = read_rope(&r, &h))) return rc;
    if ((rc = refuse_unknown(&r))) return rc;
    *out = h;
    return 0;
}
