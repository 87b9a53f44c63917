/* SPDX-License-Identifier: MIT
 *
 * bind.c: tensor names to roles. See bind.h.
 *
 * Two passes over the same rules: the first adds up the bytes of the vectors to copy, the
 * second copies them, so that one arena of the right size holds them all.
 */
#include "model/bind.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernel/kernel.h"

struct binder {
    struct model *m;
    struct qn_error *e;
    size_t n_bound;      /* tensors that found their role */
    size_t vector_bytes; /* of the vectors seen */
    bool copy;           /* second pass */
};

static int64_t dim_of(const struct hparams *h, enum bind_dim d)
{
    switch (d) {
    case DIM_NONE: return 1;
    case DIM_EMBD: return h->n_embd;
    case DIM_VOCAB: return h->n_vocab;
    case DIM_FF: return h->n_ff;
    case DIM_Q: return (int64_t)h->n_head * h->head_dim;
    case DIM_KV: return (int64_t)h->n_head_kv * h->head_dim;
    case DIM_HEAD: return h->head_dim;
    case DIM_PAIRS: return h->n_rot / 2;
    }
    return 0;
}

static int check_shape(struct binder *b, const struct tensor *t, int64_t in, int64_t out)
{
    if (t->ne[0] == in && t->ne[1] == out && t->ne[2] == 1 && t->ne[3] == 1) return 0;
    return error_set(b->e, QN_EDATA, "model: tensor '%s' is %lld x %lld x %lld x %lld, not %lld x %lld", t->name,
                     (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], (long long)in,
                     (long long)out);
}

/* A vector of n floats: checked and, in the second pass, copied. Absent and optional: NULL. */
static int bind_vector(struct binder *b, const char *name, int64_t n, bool optional, const float **out)
{
    const struct tensor *t = weights_tensor(b->m->weights, name);
    if (!t) {
        *out = NULL;
        return optional ? 0 : error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", name);
    }
    int rc = check_shape(b, t, n, 1);
    if (rc) return rc;
    if (t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16)
        return error_set(b->e, QN_EUNSUP, "model: vector '%s' is %s, not F32, F16 or BF16", name,
                         dtype_get(t->type)->name);
    b->n_bound++;
    size_t bytes = act_round64((size_t)n * sizeof(float));
    b->vector_bytes += bytes;
    if (!b->copy) return 0;
    float *v = arena_get(&b->m->vectors, bytes);
    dequant_row(t->type, t->data, n, v);
    *out = v;
    return 0;
}

static int bind_matrix(struct binder *b, const char *name, int64_t in, int64_t out, bool optional,
                       const struct tensor **result)
{
    const struct tensor *t = weights_tensor(b->m->weights, name);
    *result = t;
    if (!t) return optional ? 0 : error_set(b->e, QN_EDATA, "model: tensor '%s' is missing", name);
    int rc = check_shape(b, t, in, out);
    if (rc) return rc;
    if (kernel_act_of(t->type) == ACT_N)
        return error_set(b->e, QN_EUNSUP, "model: tensor '%s' has type %s, which no kernel multiplies", name,
                         dtype_get(t->type)->name);
    b->n_bound++;
    return 0;
}

static int bind_layer(struct binder *b, int il)
{
    const struct hparams *h = &b->m->hp;
    for (const struct bind_rule *r = b->m->arch->rules; r->name; r++) {
        char name[96];
        void *slot = (char *)&b->m->layers[il] + r->offset;
        int rc;
        snprintf(name, sizeof name, "blk.%d.%s.weight", il, r->name);
        if (r->kind == BIND_VECTOR) {
            if ((rc = bind_vector(b, name, dim_of(h, r->in), r->optional, slot))) return rc;
            continue;
        }
        struct linear *l = slot;
        if ((rc = bind_matrix(b, name, dim_of(h, r->in), dim_of(h, r->out), r->optional, &l->w))) return rc;
        snprintf(name, sizeof name, "blk.%d.%s.bias", il, r->name);
        if ((rc = bind_vector(b, name, dim_of(h, r->out), true, &l->b))) return rc;
    }
    return 0;
}

static int bind_all(struct binder *b)
{
    struct model *m = b->m;
    const struct hparams *h = &m->hp;
    int rc;
    b->n_bound = 0;
    b->vector_bytes = 0;
    if ((rc = bind_matrix(b, "token_embd.weight", h->n_embd, h->n_vocab, false, &m->token_embd))) return rc;
    if ((rc = bind_matrix(b, "output.weight", h->n_embd, h->n_vocab, true, &m->output))) return rc;
    if (!m->output) m->output = m->token_embd;
    if ((rc = bind_vector(b, "output_norm.weight", h->n_embd, false, &m->output_norm))) return rc;
    if ((rc = bind_vector(b, "rope_freqs.weight", h->n_rot / 2, true, &m->rope_freqs))) return rc;
    if ((rc = bind_vector(b, "rope_factors_long.weight", h->n_rot / 2, true, &m->rope_long))) return rc;
    if ((rc = bind_vector(b, "rope_factors_short.weight", h->n_rot / 2, true, &m->rope_short))) return rc;
    for (int il = 0; il < h->n_layer; il++)
        if ((rc = bind_layer(b, il))) return rc;
    return 0;
}

/* A tensor that no rule asked for changes the function the file describes: say which. */
static int refuse_unbound(struct binder *b)
{
    const struct weights *w = b->m->weights;
    if (b->n_bound == weights_n_tensors(w)) return 0;
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        int il;
        char part[64], end[64];
        bool known = false;
        static const char *const top[] = {"token_embd.weight",        "output.weight",
                                          "output_norm.weight",       "rope_freqs.weight",
                                          "rope_factors_long.weight", "rope_factors_short.weight"};
        for (size_t j = 0; j < sizeof top / sizeof top[0]; j++) known |= strcmp(t->name, top[j]) == 0;
        if (!known && sscanf(t->name, "blk.%d.%63[^.].%63s", &il, part, end) == 3 && il >= 0 && il < b->m->hp.n_layer)
            for (const struct bind_rule *r = b->m->arch->rules; r->name; r++)
                known |= strcmp(part, r->name) == 0 &&
                         (strcmp(end, "weight") == 0 || (strcmp(end, "bias") == 0 && r->kind == BIND_MATRIX));
        if (!known)
            return error_set(b->e, QN_EUNSUP, "model: tensor '%s' has no role in architecture '%s'", t->name,
                             b->m->arch->name);
    }
    return error_set(b->e, QN_EDATA, "model: %zu of %zu tensors have a role", b->n_bound, weights_n_tensors(w));
}

int bind_model(struct model *m, struct qn_error *e)
{
    struct binder b = {.m = m, .e = e};
    int rc;
    m->layers = mem_calloc((size_t)m->hp.n_layer, sizeof *m->layers);
    if (!m->layers) return error_nomem(e, "the layer table", (size_t)m->hp.n_layer * sizeof *m->layers);
    if ((rc = bind_all(&b))) return rc;
    if ((rc = refuse_unbound(&b))) return rc;
    if ((rc = arena_init(&m->vectors, b.vector_bytes, e))) return rc;
    b.copy = true;
    return bind_all(&b);
}
