/* SPDX-License-Identifier: MIT
 *
 * keys.c: the check of the file's keys that no code has read.
 *
 * Keys that were read are known (hp_key()). Of the others, a key whose name says that it changes the computation is
 * refused, unless it has a value that changes nothing by the table below. Any other key is logged and ignored. So no
 * statement of a file about its network is ignored in silence.
 *
 * Source of the names: the GGUF specification and the keys that converters write (tests/golden/real-keys).
 */
#include "model/hparams.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/model.h"

/* Keys whose names begin like these change the computation. */
static const char *const network[] = {
    "attention.",   "rope.",
    "ssm.",         "expert",
    "moe_",         "nextn",
    "pooling",      "logit_",
    "attn_",        "final_",
    "router_",      "residual_",
    "embedding_",   "feed_forward",
    "leading_",     "interleave_",
    "full_att",     "use_parallel",
    "swiglu_",      "altup.",
    "activation_",  "hyper_connection.",
    "kda.",         "wkv.",
    "shortconv.",   "token_shift",
    "rescale_",     "time_",
    "decoder_",     "swin_norm",
    "posnet.",      "convnext.",
    "hidden_",      "dense_",
    "sliding_",     "norm_",
    "n_deepstack_",
};

enum neutral {
    ANY,       /* every value */
    THE_VALUE, /* 0, false or `value` */
    THE_TRUTH, /* `value` only, because false has a meaning */
    BASE,      /* the rotation's base */
    HEAD_DIM,
    HEAD_DIM_V,
    N_ROT,
};

/* Keys that a file may have in addition to those that were read, and the values that change nothing. */
static const struct row {
    const char *name; /* if it ends in '.', all keys that begin like it */
    enum neutral neutral;
    double value;
    const char *why;
} rows[] = {
    {"logit_scale", THE_VALUE, 1, "a factor of 1, or unset"},
    {"residual_scale", THE_VALUE, 1, "the same"},
    {"embedding_scale", THE_VALUE, 1, "the same"},
    {"attention.scale", THE_VALUE, 0, "unset: by the head's length"},
    {"attention.output_scale", THE_VALUE, 1, "a factor of 1, or unset"},
    {"attn_logit_softcapping", THE_VALUE, 0, "no cap"},
    {"final_logit_softcapping", THE_VALUE, 0, "no cap"},
    {"router_logit_softcapping", THE_VALUE, 0, "no cap"},
    {"attention.causal", THE_TRUTH, 1, "a token sees those before it"},
    {"attention.clamp_kqv", THE_VALUE, 0, "no limit"},
    {"attention.max_alibi_bias", THE_VALUE, 0, "no bias"},
    {"attention.temperature_scale", THE_VALUE, 0, "no temperature"},
    {"attention.temperature_length", ANY, 0, "of a temperature, whose scale would be refused"},
    {"attention.layer_norm_epsilon", ANY, 0, "of LayerNorm, which no family here has"},
    {"attention.sliding_window_pattern", THE_VALUE, 0, "no layer has a window"},
    {"attention.key_length_swa", HEAD_DIM, 0, "windowed layers have heads like the others"},
    {"attention.value_length_swa", HEAD_DIM_V, 0, "the same"},
    {"attention.shared_kv_layers", THE_VALUE, 0, "each layer has keys and values of its own"},
    {"rope.freq_base_swa", BASE, 0, "windowed layers rotate like the others"},
    {"rope.dimension_count_swa", N_ROT, 0, "the same"},
    {"rope.dimension_sections", THE_VALUE, 0, "no sections"},
    {"rope.scaling.alpha", THE_VALUE, 1, "a factor of 1, or unset"},
    {"rope.scaling.yarn_log_multiplier", THE_VALUE, 0, "unset"},
    {"rope.scaling.yarn_attn_factor", THE_VALUE, 1, "a factor of 1"},
    {"rope.scaling.finetuned", ANY, 0, "says how the model was trained"},
    {"expert_count", THE_VALUE, 0, "no experts"},
    {"expert_used_count", THE_VALUE, 0, "no experts"},
    {"expert_feed_forward_length", THE_VALUE, 0, "no experts"},
    {"expert_shared_count", THE_VALUE, 0, "no expert of all tokens"},
    {"expert_shared_feed_forward_length", THE_VALUE, 0, "the same"},
    {"expert_group_count", THE_VALUE, 1, "no groups"},
    {"expert_group_used_count", THE_VALUE, 1, "no groups"},
    {"expert_group_scale", THE_VALUE, 1, "no groups"},
    {"experts_per_group", THE_VALUE, 0, "no groups"},
    {"expert_weights_scale", THE_VALUE, 1, "a factor of 1, or unset"},
    {"expert_weights_norm", THE_VALUE, 0, "weights as they are"},
    {"expert_gating_func", THE_VALUE, 0, "unset"},
    {"moe_every_n_layers", THE_VALUE, 1, "every layer"},
    {"interleave_moe_layer_step", THE_VALUE, 1, "every layer"},
    {"leading_dense_block_count", THE_VALUE, 0, "every layer has experts"},
    {"use_parallel_residual", THE_VALUE, 0, "blocks follow each other"},
    {"n_deepstack_layers", ANY, 0, "of images"},
    {"vision.", ANY, 0, "of images"},
    {"audio.", ANY, 0, "of sounds"},
    {"mm.", ANY, 0, "of images"},
    {"classifier.output_labels", ANY, 0, "names of what a head says; rank_head.c checks them"},
    {"tensor_data_layout", ANY, 0, "a note of who converted the file"},
};

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

static const struct row *row_of(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = strlen(rows[i].name);
        if (rows[i].name[n - 1] == '.' ? begins(name, rows[i].name) : !strcmp(name, rows[i].name)) return &rows[i];
    }
    return NULL;
}

static bool is_of_the_network(const char *name)
{
    for (size_t i = 0; i < sizeof network / sizeof network[0]; i++)
        if (begins(name, network[i])) return true;
    return false;
}

static bool was_asked(const struct hp_reader *r, const char *name)
{
    for (int i = 0; i < r->n_asked; i++)
        if (!strcmp(r->asked[i], name)) return true;
    return false;
}

/* Element i as a number; a truth value is 0 or 1. */
static int read_number(const struct meta *m, uint64_t i, double *out, struct qn_error *e)
{
    int64_t v;
    if (m->elem == MT_BOOL) {
        *out = m->data[i] != 0;
        return 0;
    }
    if (m->elem == MT_F32 || m->elem == MT_F64) return meta_elem_f64(m, i, out, e);
    int rc = meta_elem_i64(m, i, &v, e);
    if (!rc) *out = (double)v;
    return rc;
}

static bool is_neutral(const struct row *row, const struct hparams *h, double v)
{
    switch (row->neutral) {
    case ANY: return true;
    case THE_VALUE: return v == 0 || v == row->value;
    case THE_TRUTH: return v == row->value;
    case BASE: return (float)v == (float)h->rope_base;
    case HEAD_DIM: return v == h->head_dim;
    case HEAD_DIM_V: return v == h->head_dim_v;
    case N_ROT: return v == h->n_rot;
    }
    return false;
}

static int refuse_number(struct hp_reader *r, const struct meta *m, double v)
{
    char which[32] = "";
    if (m->type == MT_ARRAY) snprintf(which, sizeof which, " (of %llu)", (unsigned long long)m->n);
    return error_set(r->e, QN_EUNSUP, "model: '%.*s' is %g%s: not supported for architecture '%s'", (int)m->key.n,
                     m->key.p, v, which, r->arch->name);
}

/* Whether every element of a key has the value that changes nothing. row: the key's line in the table, or NULL. */
static int check_value(struct hp_reader *r, const struct hparams *h, const struct meta *m, const struct row *row)
{
    double v = 0;
    if (row && row->neutral == ANY) return 0;
    if (m->elem == MT_STRING && !row) {
        struct str s = {"", 0};
        uint64_t cursor = 0;
        meta_next_str(m, &cursor, &s);
        return error_set(r->e, QN_EUNSUP, "model: '%.*s' is '%.*s': not supported for architecture '%s'", (int)m->key.n,
                         m->key.p, (int)(s.n > 40 ? 40 : s.n), s.p, r->arch->name);
    }
    for (uint64_t i = 0; i < m->n; i++) {
        int rc = read_number(m, i, &v, r->e);
        if (rc) return rc;
        if (!row || !is_neutral(row, h, v)) return refuse_number(r, m, v);
    }
    return 0;
}

int hp_refuse_unknown(struct hp_reader *r, const struct hparams *h)
{
    size_t prefix = strlen(r->arch->name);
    for (size_t i = 0; i < weights_n_meta(r->w); i++) {
        const struct meta *m = weights_meta_at(r->w, i);
        char name[128];
        if (m->key.n <= prefix + 1 || memcmp(m->key.p, r->arch->name, prefix) != 0 || m->key.p[prefix] != '.') continue;
        snprintf(name, sizeof name, "%.*s", (int)(m->key.n - prefix - 1), m->key.p + prefix + 1);
        if (was_asked(r, name)) continue;
        const struct row *row = row_of(name);
        int rc = row || is_of_the_network(name) ? check_value(r, h, m, row) : 0;
        if (rc) return rc;
        if (!row && !is_of_the_network(name))
            log_at(LOG_WARN, "model: key '%.*s' is not known: passed over", (int)(m->key.n > 100 ? 100 : m->key.n),
                   m->key.p);
    }
    return 0;
}
