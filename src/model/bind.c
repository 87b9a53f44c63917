/* SPDX-License-Identifier: MIT
 *
 * bind.c: finds the tensor for each role of a model and checks its shape and type.
 *
 * There are two passes over the same rules. The first adds up the bytes of the vectors to copy; the second copies them
 * into one arena of that size.
 */
#include "model/bind.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel/kernel.h"
#include "model/block.h"
#include "model/rank_head.h"

/* What the block that predicts the token after the next one has in addition to a layer (nextn.h). */
static const struct bind_rule nextn_rules[] = {
    RULE(MATRIX, "nextn.eh_proj", joint, DIM_2EMBD, DIM_EMBD, IN_ALL),
    RULE(VECTOR, "nextn.enorm", embd_norm, DIM_EMBD, DIM_NONE, IN_ALL),
    RULE(VECTOR, "nextn.hnorm", hidden_norm, DIM_EMBD, DIM_NONE, IN_ALL),
    RULE_OPTIONAL(VECTOR, "nextn.shared_head_norm", head_norm, DIM_EMBD, DIM_NONE, IN_ALL),
    RULE_OPTIONAL(MATRIX, "nextn.embed_tokens", own_embd, DIM_EMBD, DIM_VOCAB, IN_ALL),
    RULE_OPTIONAL(MATRIX, "nextn.shared_head_head", own_head, DIM_EMBD, DIM_VOCAB, IN_ALL),
    {0}};

struct binder {
    struct model *m;
    struct qn_error *e;
    size_t n_bound;      /* tensors that have a role */
    size_t vector_bytes; /* of the vectors seen */
    bool copy;           /* second pass */
};

static int64_t dim_of(const struct hparams *h, enum bind_dim d)
{
    switch (d) {
    case DIM_NONE: return 1;
    case DIM_EMBD: return h->n_embd;
    case DIM_2EMBD: return 2 * (int64_t)h->n_embd;
    case DIM_VOCAB: return h->n_vocab;
    case DIM_FF: return h->n_ff;
    case DIM_2FF: return 2 * (int64_t)h->n_ff;
    case DIM_Q:
        if (h->n_lora_kv) return (int64_t)h->n_head * (h->latent_dim_nope + h->n_rot);
        return (int64_t)h->n_head * h->head_dim * (h->has_attn_gate ? 2 : 1);
    case DIM_LORA_Q: return h->n_lora_q;
    case DIM_LORA_KV: return h->n_lora_kv;
    case DIM_LATENT: return h->n_lora_kv + h->n_rot;
    case DIM_KV_B: return (int64_t)h->n_head * (h->latent_dim_nope + h->latent_dim_v);
    case DIM_NOPE: return h->latent_dim_nope;
    case DIM_LATENT_V: return h->latent_dim_v;
    case DIM_K: return (int64_t)h->n_head_kv * h->head_dim;
    case DIM_V: return (int64_t)h->n_head_kv * h->head_dim_v;
    case DIM_QKV: return dim_of(h, DIM_Q) + dim_of(h, DIM_K) + dim_of(h, DIM_V);
    case DIM_ATT: return hp_att_width(h);
    case DIM_HEAD: return h->head_dim;
    case DIM_N_HEAD: return h->n_head;
    case DIM_CONV: return 2 * (int64_t)h->delta_n_head_k * h->delta_dim_k + dim_of(h, DIM_DELTA_V);
    case DIM_CONV_KERNEL: return h->conv_kernel;
    case DIM_DELTA_V: return (int64_t)h->delta_n_head_v * h->delta_dim_v;
    case DIM_DELTA_IN: return dim_of(h, DIM_CONV) + dim_of(h, DIM_DELTA_V);
    case DIM_DELTA_BA: return 2 * (int64_t)h->delta_n_head_v;
    case DIM_DELTA_HEADS: return h->delta_n_head_v;
    case DIM_DELTA_HEAD_V: return h->delta_dim_v;
    case DIM_EXPERTS: return h->n_expert;
    case DIM_FF_EXP: return h->n_ff_exp;
    case DIM_2FF_EXP: return 2 * (int64_t)h->n_ff_exp;
    case DIM_FF_SHEXP: return h->n_ff_shexp;
    case DIM_PAIRS: return h->n_rot / 2;
    }
    return 0;
}

static int check_shape(struct binder *b, const struct tensor *t, int64_t in, int64_t out, int64_t n)
{
    char third[32] = "";
    if (t->ne[0] == in && t->ne[1] == out && t->ne[2] == n && t->ne[3] == 1) return 0;
    if (n != 1) snprintf(third, sizeof third, " x %lld", (long long)n);
    return error_set(b->e, QN_EDATA, "model: tensor '%s' is %lld x %lld x %lld x %lld, not %lld x %lld%s", t->name,
                     (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], (long long)in,
                     (long long)out, third);
}

/* Checks the shape and type of a matrix, or of n matrices in one tensor. */
static int check_matrix(struct binder *b, const struct tensor *t, int64_t in, int64_t out, int64_t n)
{
    int rc = check_shape(b, t, in, out, n);
    if (!rc && kernel_act_of(t->type) == ACT_N)
        rc = error_set(b->e, QN_EUNSUP, "model: tensor '%s' has type %s, which no kernel multiplies", t->name,
                       dtype_get(t->type)->name);
    if (!rc) b->n_bound++;
    return rc;
}

/* Checks n vectors of `in` floats and copies them in the second pass. NULL: the tensor is optional and absent. */
static int bind_vector(struct binder *b, const char *name, int64_t in, int64_t n, bool optional, const float **out)
{
    const struct tensor *t = weights_tensor(b->m->weights, name);
    if (!t) {
        *out = NULL;
        return optional ? 0 : error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", name);
    }
    int rc = check_shape(b, t, in, n, 1);
    if (rc) return rc;
    if (t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16)
        return error_set(b->e, QN_EUNSUP, "model: vector '%s' is %s, not F32, F16 or BF16", name,
                         dtype_get(t->type)->name);
    b->n_bound++;
    size_t bytes = act_round64((size_t)(in * n) * sizeof(float));
    b->vector_bytes += bytes;
    if (!b->copy) return 0;
    float *v = arena_get(&b->m->vectors, bytes);
    dequant_row(t->type, t->data, NULL, in * n, v);
    *out = v;
    return 0;
}

static int bind_matrix(struct binder *b, const char *name, int64_t in, int64_t out, bool optional,
                       const struct tensor **result)
{
    const struct tensor *t = weights_tensor(b->m->weights, name);
    *result = t;
    if (!t) return optional ? 0 : error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", name);
    return check_matrix(b, t, in, out, 1);
}

/* NVFP4 files have NAME.input_scale, by which processors that multiply FP4 numbers divide activations before they round
 * them. Our activations have a scale for each 32 values, which is finer, so this one is checked but not used. */
static int pass_input_scale(struct binder *b, int il, const char *stem, int64_t n)
{
    char name[128];
    snprintf(name, sizeof name, "blk.%d.%s.input_scale", il, stem);
    const struct tensor *t = weights_tensor(b->m->weights, name);
    if (!t) return 0;
    b->n_bound++;
    return check_shape(b, t, n, 1, 1);
}

/* The length of NAME without "_exps": an expert's own tensor has the same name without it. */
static int each_stem(const char *name)
{
    static const char suffix[] = "_exps";
    size_t n = strlen(name), cut = sizeof suffix - 1;
    return (int)(n > cut && strcmp(name + n - cut, suffix) == 0 ? n - cut : n);
}

static void each_name(const char *name, int i, char *out, size_t bytes)
{
    snprintf(out, bytes, "%.*s.%d.weight", each_stem(name), name, i);
}

/* Whether part is the name of such a tensor, of one of n experts. */
static bool is_each_name(const char *name, const char *part, int n)
{
    int stem = each_stem(name), expert, end = 0;
    return strncmp(part, name, (size_t)stem) == 0 && sscanf(part + stem, ".%d.weight%n", &expert, &end) == 1 && end &&
           !part[stem + end] && expert >= 0 && expert < n;
}

/* Refuses a scale for the whole tensor, for which only struct linear has room. */
static int refuse_tail(struct binder *b, const struct tensor *t)
{
    if (!t || !dtype_get(t->type)->tail) return 0;
    return error_set(b->e, QN_EUNSUP, "model: tensor '%s' has type %s, which only the dense matrices of layers may",
                     t->name, dtype_get(t->type)->name);
}

/* The experts' matrices in tensors of their own. */
static int bind_each_expert(struct binder *b, const char *name, struct experts *x)
{
    const struct weights *w = b->m->weights;
    for (int i = 0; i < b->m->hp.n_expert; i++) {
        char one[128];
        each_name(name, i, one, sizeof one);
        const struct tensor *t = weights_tensor(w, one);
        if (!t) return error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", one);
        int rc = check_matrix(b, t, x->in, x->out, 1);
        if (rc || (rc = refuse_tail(b, t))) return rc;
        if (i == 0) x->type = t->type, x->row_bytes = t->row_bytes;
        if (t->type != x->type || t->row_bytes != x->row_bytes)
            return error_set(b->e, QN_EUNSUP,
                             "model: tensor '%s' has type %s and rows of %zu bytes, unlike expert 0's (%s, %zu)", one,
                             dtype_get(t->type)->name, t->row_bytes, dtype_get(x->type)->name, x->row_bytes);
        if (b->copy) x->each[i] = t;
    }
    return 0;
}

/* n_expert matrices, in one tensor or in one tensor for each expert. */
static int bind_experts(struct binder *b, const char *name, int64_t in, int64_t out, bool optional, struct experts *x)
{
    const struct weights *w = b->m->weights;
    int n = b->m->hp.n_expert, rc;
    char one[128];
    *x = (struct experts){.in = (int)in, .out = (int)out};
    bool is_each = false;
    for (int i = 0; i < n && !is_each; i++) {
        each_name(name, i, one, sizeof one);
        is_each = weights_tensor(w, one) != NULL;
    }
    snprintf(one, sizeof one, "%s.weight", name);
    const struct tensor *t = weights_tensor(w, one);
    if (!t && !is_each) return optional ? 0 : error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", one);
    if (t && is_each) return error_set(b->e, QN_EDATA, "model: tensor '%s' and its experts' own are both there", one);
    if (t) {
        if ((rc = check_matrix(b, t, in, out, n)) || (rc = refuse_tail(b, t))) return rc;
        x->type = t->type;
        x->row_bytes = t->row_bytes;
        x->w = t;
    } else {
        size_t bytes = act_round64((size_t)n * sizeof *x->each);
        b->vector_bytes += bytes;
        if (b->copy) x->each = arena_get(&b->m->vectors, bytes);
        if ((rc = bind_each_expert(b, name, x))) return rc;
    }
    snprintf(one, sizeof one, "%s.scale", name);
    if ((rc = bind_vector(b, one, n, 1, true, &x->s))) return rc;
    snprintf(one, sizeof one, "%s.bias", name);
    return bind_vector(b, one, out, n, true, &x->b);
}

/* A matrix for each head, in one tensor. */
static int bind_heads(struct binder *b, const char *name, int64_t in, int64_t out, struct experts *x)
{
    const struct tensor *t = weights_tensor(b->m->weights, name);
    if (!t) return error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", name);
    *x = (struct experts){.type = t->type, .in = (int)in, .out = (int)out, .row_bytes = t->row_bytes, .w = t};
    return check_matrix(b, t, in, out, b->m->hp.n_head);
}

static bool is_in(const struct hparams *h, int il, enum bind_when when)
{
    switch (when) {
    case IN_ALL: return true;
    case IN_ATTN: return !h->layer[il].is_recurrent;
    case IN_RECURRENT: return h->layer[il].is_recurrent;
    case IN_DENSE: return !h->layer[il].has_experts;
    case IN_EXPERTS: return h->layer[il].has_experts;
    case IN_Q_DIRECT: return h->n_lora_q == 0;
    case IN_Q_LORA: return h->n_lora_q > 0;
    case IN_ABSORBED: return h->latent_is_absorbed;
    case IN_EXPANDED: return !h->latent_is_absorbed;
    }
    return false;
}

/* I2_S stores the one scale of a matrix after its rows. The type's id once had another meaning, so the type is accepted
 * in BitNet's files only. */
static int bind_tail(struct binder *b, const struct tensor *t, const float **out)
{
    const size_t bytes = act_round64(sizeof(float));
    float scale;
    memcpy(&scale, t->data + t->bytes, sizeof scale);
    if (strncmp(b->m->arch->name, "bitnet", 6) != 0)
        return error_set(b->e, QN_EUNSUP, "model: tensor '%s' has type I2_S, which only bitnet files may", t->name);
    if (!isfinite(scale))
        return error_set(b->e, QN_EDATA, "model: tensor '%s' has a scale that is not finite", t->name);
    b->vector_bytes += bytes;
    if (!b->copy) return 0;
    float *s = arena_get(&b->m->vectors, bytes);
    *s = scale;
    *out = s;
    return 0;
}

static int bind_bias(struct binder *b, int il, const struct bind_rule *r, struct linear *l)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.bias", il, r->name);
    return bind_vector(b, name, dim_of(&b->m->hp, r->out), 1, true, &l->b);
}

/* Rows of the matrix of q, k and v, which may have biases. */
static bool is_part_of_qkv(const struct layer *l, const struct linear *part)
{
    return l->wqkv.w && (part == &l->wq || part == &l->wk || part == &l->wv);
}

static int bind_rule(struct binder *b, int il, const struct bind_rule *r)
{
    const struct hparams *h = &b->m->hp;
    char name[96];
    void *slot = (char *)&b->m->layers[il] + r->offset;
    int64_t in = dim_of(h, r->in), out = dim_of(h, r->out);
    int rc;
    if (r->kind == BIND_EXPERTS) {
        snprintf(name, sizeof name, "blk.%d.%s", il, r->name);
        if ((rc = bind_experts(b, name, in, out, r->optional, slot))) return rc;
        return ((struct experts *)slot)->row_bytes ? pass_input_scale(b, il, r->name, h->n_expert) : 0;
    }
    if (r->kind == BIND_HEADS) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", il, r->name);
        return bind_heads(b, name, in, out, slot);
    }
    snprintf(name, sizeof name, r->kind == BIND_BARE ? "blk.%d.%s" : "blk.%d.%s.weight", il, r->name);
    if (r->kind != BIND_MATRIX) return bind_vector(b, name, in, out, r->optional, slot);
    struct linear *l = slot;
    if ((rc = bind_matrix(b, name, in, out, r->optional, &l->w))) return rc;
    if (!l->w) return is_part_of_qkv(&b->m->layers[il], l) ? bind_bias(b, il, r, l) : 0;
    if ((rc = pass_input_scale(b, il, r->name, 1))) return rc;
    snprintf(name, sizeof name, "blk.%d.%s.scale", il, r->name);
    if (l->w->type == DT_I2_S && weights_tensor(b->m->weights, name))
        return error_set(b->e, QN_EDATA, "model: '%s' beside a matrix that has a scale of its own", name);
    rc = l->w->type == DT_I2_S ? bind_tail(b, l->w, &l->s) : bind_vector(b, name, 1, 1, true, &l->s);
    return rc ? rc : bind_bias(b, il, r, l);
}

/* The experts' gate and up are in two tensors or in one. */
static int check_experts(struct binder *b, int il)
{
    const struct layer *l = &b->m->layers[il];
    bool gate = l->gate_exps.row_bytes != 0, up = l->up_exps.row_bytes != 0;
    if (l->gate_up_exps.row_bytes ? !gate && !up : gate && up) return 0;
    if (l->gate_up_exps.row_bytes)
        return error_set(b->e, QN_EDATA, "model: layer %d has tensor 'blk.%d.ffn_gate_up_exps.weight' and '%s' too", il,
                         il, gate ? "ffn_gate_exps" : "ffn_up_exps");
    return error_set(b->e, QN_EDATA, "model: tensor 'blk.%d.%s.weight' is missing", il,
                     gate ? "ffn_up_exps" : "ffn_gate_exps");
}

/* A view of outputs [*at, *at + n) of a matrix; *at += n. */
static void bind_view(struct binder *b, const struct linear *of, int64_t *at, int64_t n, struct linear *out)
{
    size_t bytes = act_round64(sizeof(struct tensor));
    b->vector_bytes += bytes;
    if (!b->copy) return;
    struct tensor *t = arena_get(&b->m->vectors, bytes);
    *t = *of->w;
    t->ne[1] = n;
    t->data += (size_t)*at * t->row_bytes;
    t->side = side_from(t->side, t->ne[0], *at);
    t->bytes = (size_t)n * t->row_bytes;
    *out = (struct linear){t, of->b ? of->b + *at : out->b, of->s};
    *at += n;
}

static bool may_fuse_qkv(const struct arch *a)
{
    for (const struct bind_rule *r = a->rules; r->name; r++)
        if (r->offset == offsetof(struct layer, wqkv)) return true;
    return false;
}

static int check_one_bias(struct binder *b, int il, const char *part)
{
    char all[96], one[96];
    snprintf(all, sizeof all, "blk.%d.attn_qkv.bias", il);
    snprintf(one, sizeof one, "blk.%d.%s.bias", il, part);
    if (!weights_tensor(b->m->weights, all) || !weights_tensor(b->m->weights, one)) return 0;
    return error_set(b->e, QN_EDATA, "model: tensors '%s' and '%s' are both there", all, one);
}

/* The file must have q, k and v completely in one of the family's layouts. */
static int check_qkv(struct binder *b, int il, const struct layer *l)
{
    const struct linear *const one[] = {&l->wq, &l->wk, &l->wv};
    static const char *const names[] = {"attn_q", "attn_k", "attn_v"};
    int rc;
    for (int i = 0; i < 3; i++) {
        if (l->wqkv.w && one[i]->w)
            return error_set(b->e, QN_EDATA,
                             "model: tensors 'blk.%d.attn_qkv.weight' and 'blk.%d.%s.weight' are both there", il, il,
                             names[i]);
        if (l->wqkv.w && (rc = check_one_bias(b, il, names[i]))) return rc;
        if (!l->wqkv.w && !one[i]->w)
            return error_set(b->e, QN_EDATA,
                             "model: tensor 'blk.%d.%s.weight' is missing, and so is 'blk.%d.attn_qkv.weight'", il,
                             names[i], il);
    }
    return 0;
}

/* Makes views of matrices that the file has joined in one. */
static int bind_views(struct binder *b, int il)
{
    const struct hparams *h = &b->m->hp;
    struct layer *l = &b->m->layers[il];
    int64_t at = 0;
    if (!b->copy && may_fuse_qkv(b->m->arch) && is_in(h, il, IN_ATTN)) {
        int rc = check_qkv(b, il, l);
        if (rc) return rc;
    }
    if (l->wqkv.w) {
        bind_view(b, &l->wqkv, &at, dim_of(h, DIM_Q), &l->wq);
        bind_view(b, &l->wqkv, &at, dim_of(h, DIM_K), &l->wk);
        bind_view(b, &l->wqkv, &at, dim_of(h, DIM_V), &l->wv);
    }
    at = 0;
    if (l->gate_up.w) {
        bind_view(b, &l->gate_up, &at, h->n_ff, &l->gate);
        bind_view(b, &l->gate_up, &at, h->n_ff, &l->up);
    }
    return 0;
}

static int bind_rules(struct binder *b, int il, const struct bind_rule *rules)
{
    int rc = 0;
    for (const struct bind_rule *r = rules; r->name && !rc; r++)
        if (is_in(&b->m->hp, il, r->when)) rc = bind_rule(b, il, r);
    return rc;
}

static int bind_layer(struct binder *b, int il)
{
    int rc = bind_rules(b, il, b->m->arch->rules);
    if (!rc && il == b->m->hp.n_layer) rc = bind_rules(b, il, nextn_rules);
    if (!rc && b->m->hp.layer[il].has_experts) rc = check_experts(b, il);
    return rc ? rc : bind_views(b, il);
}

/* The layers of a pass, and the block that predicts the token after the next one. */
static int n_bound_layers(const struct model *m) { return m->hp.n_layer + m->has_nextn; }

static int bind_all(struct binder *b)
{
    struct model *m = b->m;
    const struct hparams *h = &m->hp;
    int rc;
    b->n_bound = 0;
    b->vector_bytes = 0;
    if ((rc = bind_matrix(b, "token_embd.weight", h->n_embd, h->n_vocab, false, &m->token_embd))) return rc;
    if ((rc = bind_matrix(b, "output.weight", h->n_embd, h->n_vocab, true, &m->output))) return rc;
    if ((rc = refuse_tail(b, m->token_embd)) || (rc = refuse_tail(b, m->output))) return rc;
    if (!m->output) m->output = m->token_embd;
    if ((rc = bind_vector(b, "output_norm.weight", h->n_embd, 1, false, &m->output_norm))) return rc;
    if ((rc = bind_vector(b, "rope_freqs.weight", h->n_rot / 2, 1, true, &m->rope_freqs))) return rc;
    if ((rc = bind_vector(b, "rope_factors_long.weight", h->n_rot / 2, 1, true, &m->rope_long))) return rc;
    if ((rc = bind_vector(b, "rope_factors_short.weight", h->n_rot / 2, 1, true, &m->rope_short))) return rc;
    for (int il = 0; il < n_bound_layers(m); il++)
        if ((rc = bind_layer(b, il))) return rc;
    return 0;
}

/* Whether one of the rules asks for "PART" (after "blk.N.") in layer il. */
static bool is_asked_by(const struct model *m, const struct bind_rule *rules, int il, const char *part)
{
    for (const struct bind_rule *r = rules; r->name; r++) {
        size_t n = strlen(r->name);
        if (!is_in(&m->hp, il, r->when)) continue;
        if (r->kind == BIND_EXPERTS && is_each_name(r->name, part, m->hp.n_expert)) return true;
        if (strncmp(part, r->name, n)) continue;
        const char *rest = part + n;
        if (r->kind == BIND_BARE ? !*rest : !strcmp(rest, ".weight")) return true;
        if ((r->kind == BIND_MATRIX || r->kind == BIND_EXPERTS) && !strcmp(rest, ".bias")) return true;
        if ((r->kind == BIND_MATRIX || r->kind == BIND_EXPERTS) &&
            (!strcmp(rest, ".scale") || !strcmp(rest, ".input_scale")))
            return true;
    }
    return false;
}

static bool is_asked_for(const struct model *m, int il, const char *part)
{
    if (is_asked_by(m, m->arch->rules, il, part)) return true;
    return il == m->hp.n_layer && is_asked_by(m, nextn_rules, il, part);
}

/* Refuses a tensor that no rule asked for, by name, because it would change the function that the file describes.
 * Layers that only predict further tokens are passed over, except the first one in families that use it. */
static int refuse_unbound(struct binder *b)
{
    const struct weights *w = b->m->weights;
    const struct hparams *h = &b->m->hp;
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        int il, at = 0;
        bool known = false;
        static const char *const top[] = {"token_embd.weight",        "output.weight",
                                          "output_norm.weight",       "rope_freqs.weight",
                                          "rope_factors_long.weight", "rope_factors_short.weight"};
        for (size_t j = 0; j < sizeof top / sizeof top[0]; j++) known |= strcmp(t->name, top[j]) == 0;
        if (!known && t == b->m->rank_head) b->n_bound++, known = true;
        if (!known && sscanf(t->name, "blk.%d.%n", &il, &at) == 1 && at && il >= 0) {
            if (il >= n_bound_layers(b->m) && il < h->n_layer + h->n_nextn)
                b->n_bound++, known = true;
            else
                known = il < n_bound_layers(b->m) && is_asked_for(b->m, il, t->name + at);
        }
        if (!known)
            return error_set(b->e, QN_EUNSUP, "model: tensor '%s' has no role in architecture '%s'", t->name,
                             b->m->arch->name);
    }
    if (b->n_bound == weights_n_tensors(w)) return 0;
    return error_set(b->e, QN_EDATA, "model: %zu of %zu tensors have a role", b->n_bound, weights_n_tensors(w));
}

/* If a layer that nextn_predict_layers counts has tensors, they must include those of a prediction layer. Otherwise the
 * number was copied from the original model, and the layer is an ordinary one. */
static int check_nextn(struct binder *b)
{
    const struct weights *w = b->m->weights;
    int first = b->m->hp.n_layer, n = b->m->hp.n_nextn;
    bool has_any[HP_MAX_LAYERS] = {0}, has_nextn[HP_MAX_LAYERS] = {0};
    for (size_t i = 0; n && i < weights_n_tensors(w); i++) {
        const char *name = weights_tensor_at(w, i)->name;
        int il, at = 0;
        if (sscanf(name, "blk.%d.%n", &il, &at) != 1 || !at || il < first || il >= first + n) continue;
        has_any[il - first] = true;
        has_nextn[il - first] |= strncmp(name + at, "nextn.", 6) == 0;
    }
    for (int i = 0; i < n; i++)
        if (has_any[i] && !has_nextn[i])
            return error_set(b->e, QN_EDATA,
                             "model: '%s.nextn_predict_layers' is %d, but layer %d has no tensor 'blk.%d.nextn.*'",
                             b->m->arch->name, n, first + i, first + i);
    return 0;
}

/* Whether the layer after the last one has tensors of a block that predicts the token after the next one. */
static bool find_nextn(const struct model *m)
{
    char prefix[32];
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.nextn.", m->hp.n_layer);
    if (!m->arch->has_nextn || !m->hp.n_nextn) return false;
    for (size_t i = 0; i < weights_n_tensors(m->weights); i++)
        if (!strncmp(weights_tensor_at(m->weights, i)->name, prefix, n)) return true;
    return false;
}

int bind_model(struct model *m, struct qn_error *e)
{
    struct binder b = {.m = m, .e = e};
    int rc;
    m->has_nextn = find_nextn(m);
    size_t n = (size_t)n_bound_layers(m);
    m->layers = mem_calloc(n, sizeof *m->layers);
    if (!m->layers) return error_nomem(e, "the layer table", n * sizeof *m->layers);
    if ((rc = bind_all(&b))) return rc;
    if ((rc = rank_head_find(m, e))) return rc;
    if ((rc = refuse_unbound(&b))) return rc;
    if ((rc = check_nextn(&b))) return rc;
    if ((rc = arena_init(&m->vectors, b.vector_bytes, e))) return rc;
    b.copy = true;
    return bind_all(&b);
}
