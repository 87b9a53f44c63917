/* SPDX-License-Identifier: MIT
 *
 * hf.c: gives the tensors of a folder the names and shapes of a GGUF file.
 *
 * Nearly every tensor of a folder is a tensor of a GGUF file under another name, with its dimensions written the other
 * way round; it stays where it is. A few have another form in GGUF: norms centred on 0, decays as logarithms, factors
 * of the rotation that config.json only describes. These are small, and are made in memory. Where GGUF files have
 * another order (rotated pairs, heads of values), tensors stay as they are, and the metadata says so
 * (quern.rope_half_split, quern.value_heads_grouped).
 *
 * Sources: docs/FORMATS.md.
 */
#include "format/hf/hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/math.h"
#include "format/hf/hf_config.h"
#include "format/hf/hf_json.h"
#include "format/hf/hf_packed.h"
#include "format/hf/hf_shards.h"
#include "format/hf/hf_tokenizer.h"

#define MAX_MADE     ((int64_t)1 << 22) /* elements of a tensor made in memory */
#define N_FACTORS    3                  /* tensors made from config.json alone */
#define MAX_LOG_RATE 80.0               /* exp of it is an f32 */

/* The folder while it is read. */
struct hf_reader {
    struct hf_folder f;
    struct hf_config c;
    struct hf_shards s;
    struct hf_packed packed;
    bool is_centred;                 /* norms: 1 is to be added to their weights */
    const struct st_tensor **source; /* [f.n_tensors], NULL: from config.json */
    enum hf_change *change;          /* [f.n_tensors] */
    struct model_files *files;       /* borrowed */
    struct qn_error *e;
};

static int no_kind(struct hf_reader *r, const struct st_tensor *t)
{
    return error_set(r->e, QN_EUNSUP, "tensor '%.100s' has type %s; F32, F16 and BF16 are supported", t->name,
                     t->type_name);
}

/* ---- which tensors ---- */

/* Adds an entry for a tensor. Its data is set later. */
static struct tensor *new_tensor(struct hf_reader *r, const char *name, const struct st_tensor *from,
                                 enum hf_change change)
{
    struct hf_folder *f = &r->f;
    size_t i = f->n_tensors++;
    memcpy(f->names[i], name, strlen(name) + 1);
    f->tensors[i].name = f->names[i];
    r->source[i] = from;
    r->change[i] = change;
    return &f->tensors[i];
}

/* Sets the dimensions, the other way round; for a tensor that is made, without its dimensions of 1. */
static int set_shape(struct hf_reader *r, struct tensor *t, const struct st_tensor *from, bool squeeze)
{
    for (int d = 0; d < TENSOR_MAX_DIMS; d++) t->ne[d] = 1;
    for (int d = from->n_dims - 1; d >= 0; d--) {
        if (from->dim[d] < 1) return error_set(r->e, QN_EDATA, "tensor '%.100s': dimension %d is 0", from->name, d);
        if (squeeze && from->dim[d] == 1) continue;
        if (t->n_dims == TENSOR_MAX_DIMS)
            return error_set(r->e, QN_EUNSUP, "tensor '%.100s' has %d dimensions, the most accepted is %d", from->name,
                             from->n_dims, TENSOR_MAX_DIMS);
        t->ne[t->n_dims++] = from->dim[d];
    }
    if (!t->n_dims) t->n_dims = 1;
    return 0;
}

static void set_bytes(struct tensor *t)
{
    t->row_bytes = dtype_row_bytes(t->type, t->ne[0]);
    t->bytes = t->row_bytes * (size_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

static bool is_float(int type) { return type == DT_F32 || type == DT_F16 || type == DT_BF16 || type == DT_F64; }

/* Takes one tensor of the files: its role, shape and place. */
static int take(struct hf_reader *r, const struct st_tensor *from)
{
    struct hf_role role;
    int rc;
    if (hf_packed_is_part(&r->packed, from->name)) return 0;
    if (!hf_role_of(r->c.family, r->c.n_layer, from->name, &role))
        return error_set(r->e, QN_EUNSUP, "tensor '%.100s' has no role in a '%s' of %d layers", from->name,
                         r->c.family->model_type, r->c.n_layer);
    if (!role.name[0] || (r->c.is_tied && !strcmp(role.name, "output.weight"))) return 0;
    bool is_made = role.change == HF_FLOAT || role.change == HF_DECAY || (role.change == HF_NORM && r->is_centred);
    struct tensor *t = new_tensor(r, role.name, from, is_made ? role.change : HF_KEEP);
    if ((rc = set_shape(r, t, from, is_made))) return rc;
    t->type = (enum dtype)from->type;
    if ((rc = hf_packed_view(&r->packed, from, &t->type, &t->ne[0], &t->side, r->e)) < 0) return rc;
    if (!rc && (!is_float(from->type) || (!is_made && from->type == DT_F64))) return no_kind(r, from);
    if (is_made) t->type = DT_F32;
    t->data = from->data;
    if (is_made && t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] > MAX_MADE)
        return error_set(r->e, QN_EDATA, "tensor '%.100s' has %" PRId64 " elements, the most accepted is %" PRId64,
                         from->name, t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3], MAX_MADE);
    set_bytes(t);
    return 0;
}

static int begin_tensors(struct hf_reader *r)
{
    size_t n = r->s.n_tensors + N_FACTORS;
    r->f.tensors = mem_calloc(n, sizeof *r->f.tensors);
    r->f.names = mem_calloc(n, sizeof *r->f.names);
    r->source = mem_calloc(n, sizeof *r->source);
    r->change = mem_calloc(n, sizeof *r->change);
    if (r->f.tensors && r->f.names && r->source && r->change) return 0;
    return error_nomem(r->e, "a list of tensors", n * (sizeof *r->f.tensors + sizeof *r->f.names));
}

static bool is_there(const struct hf_reader *r, const char *prefix)
{
    for (size_t i = 0; i < r->f.n_tensors; i++)
        if (!strncmp(r->f.names[i], prefix, strlen(prefix))) return true;
    return false;
}

/* Adds a tensor of factors that config.json describes. */
static void add_factors(struct hf_reader *r, const char *name, int n, const float *values)
{
    if (!n) return;
    struct tensor *t = new_tensor(r, name, NULL, HF_FLOAT);
    *t = (struct tensor){.name = t->name, .type = DT_F32, .n_dims = 1, .ne = {n, 1, 1, 1}};
    t->data = (const uint8_t *)values; /* until it is copied */
    set_bytes(t);
}

/* ---- those that are made ---- */

/* One element as a double, which holds every value of these types exactly. */
static double element(int type, const uint8_t *p)
{
    double d;
    float s;
    uint32_t bits;
    uint16_t h;
    switch (type) {
    case DT_F64: memcpy(&d, p, 8); return d;
    case DT_F32: memcpy(&s, p, 4); return (double)s;
    default: break;
    }
    memcpy(&h, p, 2);
    if (type == DT_BF16) {
        bits = (uint32_t)h << 16;
        memcpy(&s, &bits, 4);
        return (double)s;
    }
    unsigned exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        d = fraction ? __builtin_nan("") : __builtin_inf();
    else
        d = exponent ? (1024 + fraction) * (double)(1u << exponent) * 0x1p-25 : fraction * 0x1p-24;
    return h & 0x8000 ? -d : d;
}

static int change_value(struct hf_reader *r, enum hf_change change, const struct st_tensor *t, int64_t i, double *x)
{
    if (change == HF_NORM) *x += 1;
    if (change != HF_DECAY) return 0;
    if (!(*x >= -MAX_LOG_RATE && *x <= MAX_LOG_RATE))
        return error_set(r->e, QN_EDATA, "tensor '%.100s': element %" PRId64 " is %g, not in [%g, %g]", t->name, i, *x,
                         -MAX_LOG_RATE, MAX_LOG_RATE);
    *x = -math_exp(*x);
    return 0;
}

/* Element i of packed words, with the kernels' arithmetic. Rows are whole words, so all rows are one stream of bits. */
static double packed_element(const struct side *s, const struct st_tensor *from, int64_t n, int64_t i)
{
    size_t bits = from->bytes * 8 / (size_t)n, at = (size_t)i * bits, size = s->type == DT_F32 ? 4 : 2;
    unsigned v = from->data[at / 8];
    if (at % 8 + bits > 8) v |= (unsigned)from->data[at / 8 + 1] << 8;
    float code = (float)(v >> at % 8 & ((1u << bits) - 1));
    size_t group = (size_t)(i / s->group) * size;
    float scaled = (float)element(s->type, s->scale + group) * code;
    return (double)(scaled + (float)element(s->type, s->bias + group));
}

static int fill(struct hf_reader *r, const struct tensor *t, const struct st_tensor *from, enum hf_change change,
                float *out)
{
    bool is_packed = t->side.scale != NULL;
    size_t size = is_packed ? 0 : dtype_get(from->type)->bytes;
    int64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    for (int64_t i = 0; i < n; i++) {
        double x =
            is_packed ? packed_element(&t->side, from, n, i) : element(from->type, from->data + (size_t)i * size);
        int rc = change_value(r, change, from, i, &x);
        if (rc) return rc;
        out[i] = (float)x;
    }
    return 0;
}

/* Makes the small tensors that have another form in GGUF, and gives them memory. */
static int make_tensors(struct hf_reader *r)
{
    struct hf_folder *f = &r->f;
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < f->n_tensors; i++)
        if (r->change[i] != HF_KEEP) bytes += (f->tensors[i].bytes + 63) / 64 * 64;
    f->made = mem_aligned(64, bytes + 64);
    if (!f->made) return error_nomem(r->e, "small tensors", bytes);
    for (size_t i = 0; i < f->n_tensors; i++) {
        struct tensor *t = &f->tensors[i];
        int rc = 0;
        if (r->change[i] == HF_KEEP) continue;
        float *out = (float *)(void *)(f->made + at);
        if (r->source[i])
            rc = fill(r, t, r->source[i], r->change[i], out);
        else
            memcpy(out, t->data, t->bytes);
        if (rc) return rc;
        t->data = f->made + at;
        t->side = (struct side){0};
        at += (t->bytes + 63) / 64 * 64;
    }
    return 0;
}

/* ---- the folder ---- */

/* Puts the last part of the path as general.name. */
static int put_name(struct meta_build *b, const char *dir, struct qn_error *e)
{
    size_t n = strlen(dir), begin;
    while (n > 1 && dir[n - 1] == '/') n--;
    for (begin = n; begin > 0 && dir[begin - 1] != '/';) begin--;
    return meta_build_str(b, "general.name", dir + begin, n - begin, e);
}

static int make_meta(struct hf_reader *r, const char *dir, const json_t *config, bool has_mtp)
{
    struct meta_build b = {0};
    int rc;
    if ((rc = hf_config_meta(&r->c, &b, has_mtp, r->e)) || (rc = put_name(&b, dir, r->e)) ||
        (rc = hf_tokenizer_meta(&b, dir, config, r->e)) || (rc = hf_config_tokens(&r->c, &b, r->e)))
        goto done;
    rc = meta_build_finish(&b, &r->f.meta, r->e);
done:
    meta_build_deinit(&b);
    return rc;
}

/* Whether MLX wrote the files, which adds the 1 to the norms of hybrids itself. It is recognised by the weights of
 * convolutions, which MLX turns from [channel][1][tap] to [channel][tap][1]. */
static bool was_shifted(const struct hf_reader *r)
{
    for (size_t i = 0; i < r->s.n_tensors; i++) {
        const struct st_tensor *t = r->s.tensor[i];
        if (strstr(t->name, ".conv1d.weight") && t->n_dims == 3 && t->dim[1] > 1 && t->dim[2] == 1) return true;
    }
    return false;
}

/* Gemma 3's folders may not say how many tokens there are. Then there are as many as the embedding has rows. */
static int complete_vocab(struct hf_reader *r)
{
    json_t *main = (json_t *)(uintptr_t)r->c.main; /* a part of the tree that hf_folder_open() owns */
    if (json_is_integer(json_object_get(main, "vocab_size"))) return 0;
    for (size_t i = 0; i < r->f.n_tensors; i++)
        if (!strcmp(r->f.names[i], "token_embd.weight") &&
            json_object_set_new(main, "vocab_size", json_integer(r->f.tensors[i].ne[1])))
            return error_nomem(r->e, "config.json", sizeof(json_int_t));
    return 0;
}

static int read_folder(struct hf_reader *r, const char *dir, const json_t *config)
{
    char mtp[32];
    int rc;
    if ((rc = hf_config_read(&r->c, config, r->e)) || (rc = hf_shards_open(&r->s, r->files, dir, r->e)) ||
        (rc = hf_packed_read(&r->packed, &r->c, r->s.tensor, r->s.n_tensors, r->e)) || (rc = begin_tensors(r)))
        return rc;
    r->is_centred = (r->c.family->traits & HF_CENTRED) && !was_shifted(r);
    for (size_t i = 0; i < r->s.n_tensors; i++)
        if ((rc = take(r, r->s.tensor[i]))) return rc;
    if (!r->c.is_tied && !is_there(r, "output.weight"))
        return error_set(r->e, QN_EDATA, "no lm_head.weight, and config.json does not say tie_word_embeddings");
    if (r->c.bias >= 0 && is_there(r, "blk.0.attn_q.bias") != r->c.bias)
        return error_set(r->e, QN_EDATA, "config.json: 'attention_bias' is %s, but self_attn.q_proj.bias is %s",
                         r->c.bias ? "true" : "false", r->c.bias ? "missing" : "there");
    if ((rc = complete_vocab(r))) return rc;
    snprintf(mtp, sizeof mtp, "blk.%d.", r->c.n_layer);
    if ((rc = make_meta(r, dir, config, r->c.n_mtp && is_there(r, mtp)))) return rc;
    add_factors(r, "rope_freqs.weight", r->c.n_freqs, r->c.freqs);
    add_factors(r, "rope_factors_long.weight", r->c.n_long, r->c.longs);
    add_factors(r, "rope_factors_short.weight", r->c.n_long, r->c.shorts);
    return make_tensors(r);
}

int hf_folder_open(struct hf_folder *out, struct model_files *files, const char *dir, struct qn_error *e)
{
    struct hf_reader r = {.e = e, .files = files};
    json_t *config = NULL;
    int rc = hf_json_read(&config, dir, "config.json", HF_CONFIG_BYTES, true, e);
    if (!rc) rc = read_folder(&r, dir, config);
    if (!rc) { /* keep the mappings; the headers are no longer needed */
        r.f.shard = r.s.map;
        r.f.n_shards = r.s.n;
        for (size_t i = 0; i < r.s.n; i++) safetensors_deinit(&r.s.head[i]);
        r.s.map = NULL;
        r.s.n = 0;
        *out = r.f;
    } else {
        hf_folder_close(&r.f);
    }
    hf_packed_deinit(&r.packed);
    hf_shards_close(&r.s);
    mem_free(r.source);
    mem_free(r.change);
    json_decref(config);
    return rc;
}

void hf_folder_close(struct hf_folder *f)
{
    for (size_t i = 0; i < f->n_shards; i++) map_close(&f->shard[i]);
    meta_list_deinit(&f->meta);
    mem_free(f->shard);
    mem_free(f->tensors);
    mem_free(f->names);
    mem_free(f->made);
    *f = (struct hf_folder){0};
}
