/* SPDX-License-Identifier: MIT
 *
 * hparams.c: reading and bounding a model's hyper-parameters.
 *
 * A key may be stored as any integer type, and a per-layer value as a scalar or as an array with one element for each
 * layer. In no supported family do the numbers of heads or the widths differ between layers. A file in which they
 * differ is refused by name.
 */
#include "model/hparams.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel/kernel.h"
#include "model/model.h"

/* Only the sources choose which names are asked for, so no file can make this assertion fail. */
const char *hp_key(struct hp_reader *r, const char *name)
{
    int i = 0;
    while (i < r->n_asked && strcmp(r->asked[i], name) != 0) i++;
    assert(i < HP_MAX_ASKED);
    if (i == r->n_asked) r->asked[r->n_asked++] = name;
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch->name, name);
    return r->key;
}

bool hp_has(struct hp_reader *r, const char *name) { return weights_meta(r->w, hp_key(r, name)) != NULL; }

int hp_int(struct hp_reader *r, const char *name, int64_t lo, int64_t hi, int64_t def, int *out)
{
    uint64_t v = 0;
    int rc = meta_u64(r->w, hp_key(r, name), (uint64_t)lo, (uint64_t)hi, &v, r->e);
    if (rc < 0) return rc;
    if (rc == 0) {
        if (def < 0) return error_set(r->e, QN_EDATA, "model: key '%s' is missing", r->key);
        v = (uint64_t)def;
    }
    *out = (int)v;
    return 0;
}

int hp_each(struct hp_reader *r, const char *name, int n_layer, int64_t lo, int64_t hi, int64_t def, int *out)
{
    const struct meta *m = weights_meta(r->w, hp_key(r, name));
    if (!m || m->type != MT_ARRAY) {
        int rc = hp_int(r, name, lo, hi, def, out);
        for (int i = 1; i < n_layer && !rc; i++) out[i] = out[0];
        return rc;
    }
    if (m->n != (uint64_t)n_layer)
        return error_set(r->e, QN_EDATA, "model: '%s' has %llu elements for %d layers", r->key,
                         (unsigned long long)m->n, n_layer);
    for (uint64_t i = 0; i < m->n; i++) {
        int64_t v;
        int rc = meta_elem_i64(m, i, &v, r->e);
        if (rc < 0) return rc;
        if (v < lo || v > hi)
            return error_set(r->e, QN_EDATA, "model: '%s' element %llu is %lld, not in %lld..%lld", r->key,
                             (unsigned long long)i, (long long)v, (long long)lo, (long long)hi);
        out[i] = (int)v;
    }
    return 0;
}

/* The same for values that must be equal in all layers. */
static int read_equal(struct hp_reader *r, const char *name, int n_layer, int64_t lo, int64_t hi, int64_t def, int *out)
{
    int each[HP_MAX_LAYERS];
    int rc = hp_each(r, name, n_layer, lo, hi, def, each);
    if (rc) return rc;
    for (int i = 1; i < n_layer; i++)
        if (each[i] != each[0])
            return error_set(r->e, QN_EUNSUP, "model: '%s' differs between layers (%d, then %d at layer %d)", r->key,
                             each[0], each[i], i);
    *out = each[0];
    return 0;
}

int hp_float(struct hp_reader *r, const char *name, double lo, double hi, double def, double *out)
{
    float v = (float)def;
    int rc = meta_f32(r->w, hp_key(r, name), &v, r->e);
    if (rc < 0) return rc;
    if (!(v > lo && v <= hi))
        return error_set(r->e, QN_EDATA, "model: '%s' is %g, not in %c%g, %g]", r->key, (double)v, lo < 0 ? '[' : '(',
                         lo < 0 ? 0 : lo, hi); /* where 0 is allowed lo is a little less */
    *out = rc == 0 ? def : (double)v;
    return 0;
}

int hp_flag(struct hp_reader *r, const char *name, bool def, bool *out)
{
    *out = def;
    int rc = meta_bool(r->w, hp_key(r, name), out, r->e);
    return rc < 0 ? rc : 0;
}

int hp_windows(struct hp_reader *r, struct hparams *h, int period)
{
    static const char name[] = "attention.sliding_window_pattern";
    int each[HP_MAX_LAYERS] = {0}, n = h->n_layer + h->n_nextn;
    const struct meta *m = weights_meta(r->w, hp_key(r, name));
    bool is_each = m && m->type == MT_ARRAY;
    int rc = hp_each(r, name, n, 0, is_each ? 1 : HP_MAX_LAYERS, period, each);
    if (rc) return rc;
    for (int i = 0; i < h->n_layer; i++) {
        bool has_window = is_each ? each[i] != 0 : each[i] == 0 || i % each[i] < each[i] - 1;
        h->layer[i].n_swa = has_window ? h->n_swa : 0;
    }
    return 0;
}

static int read_rope_type(struct hp_reader *r, struct hparams *h)
{
    struct str s;
    int rc = meta_str(r->w, hp_key(r, "rope.scaling.type"), &s, r->e);
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

/* The converters' yarn_attn_factor is config.json's attention_factor, the whole multiplier of cos and sin. Only files
 * that are made from folders say whether the range is rounded; for other files the family decides. */
static int read_yarn(struct hp_reader *r, struct hparams *h)
{
    int rc;
    bool truncate = true;
    if ((rc = hp_float(r, "rope.scaling.yarn_ext_factor", -1e-9, 1, 1, &h->yarn_ext_factor))) return rc;
    if ((rc = hp_float(r, "rope.scaling.yarn_beta_fast", 0, 1e6, 32, &h->yarn_beta_fast))) return rc;
    if ((rc = hp_float(r, "rope.scaling.yarn_beta_slow", 0, 1e6, 1, &h->yarn_beta_slow))) return rc;
    if ((rc = meta_bool(r->w, HP_YARN_TRUNCATE, &truncate, r->e)) < 0) return rc;
    h->yarn_exact_range = !truncate;
    if ((rc = hp_float(r, "rope.scaling.yarn_attn_factor", -1e-30, 1e6, 0, &h->yarn_attn_factor))) return rc;
    if (h->rope_scaling != ROPE_YARN && h->yarn_attn_factor != 0 && h->yarn_attn_factor != 1)
        return error_set(r->e, QN_EUNSUP, "model: '%s' is %g without yarn scaling", r->key, h->yarn_attn_factor);
    if (h->yarn_attn_factor != 0 && h->rope_attn_factor != 1)
        return error_set(r->e, QN_EDATA, "model: '%s' is %g, which is all of it, and attn_factor is %g", r->key,
                         h->yarn_attn_factor, h->rope_attn_factor);
    return 0;
}

static int read_rope(struct hp_reader *r, struct hparams *h)
{
    int rc;
    double old_linear = 0;
    if ((rc = hp_int(r, "rope.dimension_count", 2, h->head_dim, h->head_dim, &h->n_rot))) return rc;
    if (h->n_rot % 2) return error_set(r->e, QN_EDATA, "model: '%s' is %d, an odd number", r->key, h->n_rot);
    if ((rc = hp_float(r, "rope.freq_base", 0, 1e30, 10000, &h->rope_base))) return rc;
    if ((rc = read_rope_type(r, h))) return rc;
    if ((rc = hp_float(r, "rope.scaling.factor", -1e-30, 1e6, 1, &h->rope_factor))) return rc;
    if ((rc = hp_float(r, "rope.scale_linear", -1e-30, 1e6, 1, &old_linear))) return rc;
    if (h->rope_factor <= 0) h->rope_factor = 1; /* 0: unset */
    if (old_linear <= 0) old_linear = 1;
    if (old_linear != 1 && h->rope_scaling == ROPE_NONE) { /* the key of old files */
        h->rope_scaling = ROPE_LINEAR;
        h->rope_factor = old_linear;
    }
    /* A factor without a type is a linear one. The factor of type `none` is not used. */
    if (h->rope_factor != 1 && !weights_meta(r->w, hp_key(r, "rope.scaling.type"))) h->rope_scaling = ROPE_LINEAR;
    if ((rc = hp_float(r, "rope.scaling.attn_factor", 0, 1e6, 1, &h->rope_attn_factor))) return rc;
    if ((rc = read_yarn(r, h))) return rc;
    return hp_int(r, "rope.scaling.original_context_length", 1, HP_MAX_CTX, h->n_ctx_train, &h->rope_ctx_orig);
}

/* Whether the family honours a key that is read here for some families only. */
static bool reads(const struct hp_reader *r, const char *name)
{
    for (const char *const *k = r->arch->keys; k && *k; k++)
        if (strcmp(*k, name) == 0) return true;
    return false;
}

/* Reads a scale. 0 means that it is unset; other values must be large enough for 1 / scale to be finite. */
static int read_scale(struct hp_reader *r, const char *name, float def, float *out)
{
    double v = def;
    int rc = reads(r, name) ? hp_float(r, name, -1e-30, 1e6, def, &v) : 0;
    if (rc) return rc;
    if (v != 0 && v < 1e-6)
        return error_set(r->e, QN_EDATA, "model: '%s' is %g, not 0 or in [1e-06, 1e+06]", r->key, v);
    *out = v == 0 ? def : (float)v;
    return 0;
}

static int read_scales(struct hp_reader *r, struct hparams *h)
{
    int rc;
    if ((rc = read_scale(r, "embedding_scale", 1, &h->embd_scale))) return rc;
    if ((rc = read_scale(r, "residual_scale", 1, &h->residual_scale))) return rc;
    if ((rc = read_scale(r, "logit_scale", 1, &h->logit_scale))) return rc;
    if ((rc = read_scale(r, "attn_logit_softcapping", 0, &h->attn_softcap))) return rc;
    if ((rc = read_scale(r, "final_logit_softcapping", 0, &h->logit_softcap))) return rc;
    return read_scale(r, "attention.scale", 1.0f / sqrtf((float)h->head_dim), &h->attn_scale);
}

/* Counts and widths of the experts, for families that have them. The family sets how experts are chosen. */
static int read_experts(struct hp_reader *r, struct hparams *h)
{
    int rc;
    h->expert_scale = 1;
    h->n_expert_groups = h->n_expert_groups_used = 1;
    if (!reads(r, "expert_count")) return 0;
    if ((rc = hp_int(r, "expert_count", 0, HP_MAX_EXPERTS, 0, &h->n_expert)) || !h->n_expert) return rc;
    if ((rc = hp_int(r, "expert_used_count", 1, HP_MAX_EXPERTS_USED, -1, &h->n_expert_used))) return rc;
    if (h->n_expert_used > h->n_expert)
        return error_set(r->e, QN_EDATA, "model: '%s' is %d of %d experts", r->key, h->n_expert_used, h->n_expert);
    return hp_int(r, "expert_feed_forward_length", 1, HP_MAX_DIM, h->n_ff ? h->n_ff : -1, &h->n_ff_exp);
}

int hp_shared_width(struct hp_reader *r, struct hparams *h)
{
    if (hp_has(r, "expert_feed_forward_length")) return 0;
    h->n_ff_exp = h->n_ff / h->n_expert_used;
    if (h->n_ff_exp > 0) return 0;
    return error_set(r->e, QN_EDATA, "model: '%s' is %d, which leaves none of %d experts a width",
                     hp_key(r, "feed_forward_length"), h->n_ff, h->n_expert_used);
}

int hp_routing(struct hp_reader *r, struct hparams *h, enum expert_gate gate, bool norm)
{
    static const enum expert_gate gates[] = {GATE_SOFTMAX, GATE_SIGMOID, GATE_SOFTMAX_OF_CHOSEN};
    int rc, func = 0;
    double scale = 0;
    if ((rc = hp_int(r, "expert_gating_func", 0, 3, 0, &func))) return rc;
    if ((rc = hp_flag(r, "expert_weights_norm", norm, &h->expert_norm))) return rc;
    if ((rc = hp_float(r, "expert_weights_scale", -1e-30, 1e6, 0, &scale))) return rc;
    h->expert_gate = func ? gates[func - 1] : gate;
    h->expert_scale = scale == 0 ? 1 : (float)scale; /* 0: unset */
    return 0;
}

/* The head's dimensions and counts. */
static int read_heads(struct hp_reader *r, struct hparams *h)
{
    int rc;
    if ((rc = read_equal(r, "attention.head_count", h->n_layer + h->n_nextn, 1, HP_MAX_HEADS, -1, &h->n_head)))
        return rc;
    if ((rc =
             read_equal(r, "attention.head_count_kv", h->n_layer + h->n_nextn, 1, h->n_head, h->n_head, &h->n_head_kv)))
        return rc;
    if (h->n_head % h->n_head_kv)
        return error_set(r->e, QN_EDATA, "model: %d attention heads cannot be shared by %d KV heads", h->n_head,
                         h->n_head_kv);
    int dim = h->n_embd / h->n_head;
    if (!hp_has(r, "attention.key_length") && (h->n_embd % h->n_head || dim < 2))
        return error_set(r->e, QN_EDATA, "model: embedding length %d is not a multiple of %d heads", h->n_embd,
                         h->n_head);
    if ((rc = hp_int(r, "attention.key_length", 2, HP_MAX_HEAD_DIM, dim, &h->head_dim))) return rc;
    if ((rc = hp_int(r, "attention.value_length", 2, HP_MAX_HEAD_DIM, h->head_dim, &h->head_dim_v))) return rc;
    if (h->head_dim % 2 || h->head_dim > HP_MAX_HEAD_DIM)
        return error_set(r->e, QN_EDATA, "model: head dimension %d is odd or over %d", h->head_dim, HP_MAX_HEAD_DIM);
    if (h->head_dim_v != h->head_dim && !reads(r, "attention.value_length"))
        return error_set(r->e, QN_EUNSUP, "model: key length %d and value length %d differ", h->head_dim,
                         h->head_dim_v);
    return 0;
}

/* The layers, and the width of the dense network, which may be missing if all layers have experts. */
static int read_layers(struct hp_reader *r, struct hparams *h)
{
    int rc, n_blocks = 0;
    if ((rc = hp_int(r, "block_count", 1, HP_MAX_LAYERS, -1, &n_blocks))) return rc;
    h->n_layer = n_blocks;
    if ((rc = hp_int(r, "nextn_predict_layers", 0, n_blocks - 1, 0, &h->n_nextn))) return rc;
    h->n_layer -= h->n_nextn;
    bool has_experts = reads(r, "expert_count") && hp_has(r, "expert_count");
    return read_equal(r, "feed_forward_length", n_blocks, has_experts ? 0 : 1, HP_MAX_DIM, has_experts ? 0 : -1,
                      &h->n_ff);
}

/* How a text's rows are combined to an embedding. Pooling by the first row is refused because in a causal model that
 * row has seen one token only. Ranking (4) needs a head (rank_head.h), which only one family has. */
static int read_pooling(struct hp_reader *r, struct hparams *h)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    int v = 0, rc = hp_int(r, "pooling_type", 0, 4, 0, &v);
    if (rc) return rc;
    h->pooling = POOL_UNSAID;
    if (v == 1) h->pooling = POOL_MEAN;
    if (v == 3) h->pooling = POOL_LAST;
    if (v == 4) h->pooling = POOL_RANK;
    if (v != 2 && (v != 4 || !strcmp(r->arch->name, "qwen3"))) return 0;
    return error_set(r->e, QN_EUNSUP, "model: '%s' is %d (%s): not none, mean or last", r->key, v, names[v]);
}

/* Bytes of one recurrent layer's state. */
static size_t layer_state_bytes(const struct hparams *h)
{
    size_t rule = (size_t)h->delta_n_head_v * (size_t)h->delta_dim_v * (size_t)h->delta_dim_k * sizeof(float);
    return hp_rule_offset(h) + act_round64(rule);
}

/* Numbers the layers with attention, and places the states of the others. */
static void number_layers(struct hparams *h)
{
    int n_full = 0, n_attn = 0;
    for (int i = h->layer_lo; i < h->layer_hi; i++) n_full += !h->layer[i].is_recurrent && !h->layer[i].n_swa;
    h->n_layer_win = 0;
    h->state_bytes = 0;
    h->has_local_rope = false;
    for (int i = h->layer_lo; i < h->layer_hi; i++) {
        struct hp_layer *l = &h->layer[i];
        l->kv = l->is_recurrent ? -1 : n_attn++;
        l->state_offset = h->state_bytes;
        if (l->is_recurrent) h->state_bytes += layer_state_bytes(h);
        /* A window that the context never leaves saves nothing. At least one layer keeps everything, so that every page
         * of the cache has a size. */
        l->is_windowed = !l->is_recurrent && l->n_swa && l->n_swa < h->n_ctx_train && (n_full || l->kv > 0);
        h->n_layer_win += l->is_windowed;
        l->kv_of_kind = l->is_windowed ? h->n_layer_win - 1 : l->kv - h->n_layer_win;
        h->has_local_rope |= l->rope == ROPE_LOCAL;
    }
    h->n_layer_kv = n_attn;
}

void hp_cut(struct hparams *h, int lo, int hi)
{
    assert(lo >= 0 && lo < hi && hi <= h->n_layer);
    h->layer_lo = lo;
    h->layer_hi = hi;
    number_layers(h);
}

int hparams_read(struct hparams *out, const struct weights *w, const struct arch *a, int n_vocab, struct qn_error *e)
{
    struct hp_reader r = {.w = w, .arch = a, .e = e};
    struct hparams h = {.arch = a->name, .n_vocab = n_vocab};
    int rc, declared_vocab = 0; /* old converters did not count added tokens, so the tokenizer's list is used */
    double eps = 0;
    if ((rc = read_layers(&r, &h))) return rc;
    if ((rc = hp_int(&r, "embedding_length", 1, HP_MAX_DIM, -1, &h.n_embd))) return rc;
    if ((rc = hp_int(&r, "context_length", 1, HP_MAX_CTX, -1, &h.n_ctx_train))) return rc;
    if ((rc = read_heads(&r, &h))) return rc;
    if ((rc = hp_int(&r, "vocab_size", 1, HP_MAX_CTX, n_vocab, &declared_vocab))) return rc;
    if (!hp_has(&r, "attention.layer_norm_rms_epsilon"))
        return error_set(e, QN_EDATA, "model: key '%s' is missing", r.key);
    if ((rc = hp_float(&r, "attention.layer_norm_rms_epsilon", 0, 1, 1e-5, &eps))) return rc;
    if ((rc = hp_int(&r, "attention.sliding_window", 0, HP_MAX_CTX, 0, &h.n_swa))) return rc;
    h.norm_eps = (float)eps;
    if ((rc = read_rope(&r, &h))) return rc;
    if ((rc = read_scales(&r, &h))) return rc;
    if ((rc = read_experts(&r, &h))) return rc;
    if ((rc = read_pooling(&r, &h))) return rc;
    for (int i = 0; i < h.n_layer; i++)
        h.layer[i] = (struct hp_layer){.n_swa = h.n_swa, .has_experts = h.n_expert > 0, .rope = ROPE_MAIN};
    if ((rc = a->hparams(&h, &r))) return rc;
    if ((rc = hp_refuse_unknown(&r, &h))) return rc;
    /* The first layer that predicts further tokens has a cache of its own, in which it is number 0. */
    if (h.n_nextn) h.layer[h.n_layer] = (struct hp_layer){.has_experts = h.n_expert > 0, .rope = ROPE_MAIN};
    hp_cut(&h, 0, h.n_layer);
    if (!h.n_layer_kv)
        return error_set(e, QN_EUNSUP, "model: none of the %d layers has attention, which the cache needs", h.n_layer);
    *out = h;
    return 0;
}
