/* SPDX-License-Identifier: MIT
 *
 * hf_packed.c: finds the three tensors of a packed matrix, and checks that they fit together.
 *
 * X.weight is U32 [rows][k * bits / 32]. A row is a stream of bits, with the first element in the lowest bits of the
 * first word. (The words are little-endian, so it is a stream of bytes too.) X.scales and X.biases are [rows][k /
 * group_size] in F16, BF16 or F32. Element = scale * code + bias. `quantization` of config.json has group_size and bits
 * for all matrices, and under the name X the values of a matrix that differs.
 *
 * Source: the quantisation described in the documentation of MLX (mlx.core.quantize) and written by mlx-lm.
 */
#include "format/hf/hf_packed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/hf/hf_value.h"

#define NAME_BYTES 256

int hf_packed_read(struct hf_packed *p, const struct hf_config *c, const struct st_tensor *const *tensor, size_t n,
                   struct qn_error *e)
{
    const char *method = NULL, *mode = "affine";
    const json_t *q = json_object_get(c->top, "quantization"), *other = json_object_get(c->top, "quantization_config");
    struct hf_value v = {.object = q, .e = e};
    if (json_is_null(other)) other = NULL;
    if (!other) other = json_object_get(c->main, "quantization_config");
    *p = (struct hf_packed){0};
    if (!q || json_is_null(q)) {
        if (!other || json_is_null(other)) return 0;
        method = json_string_value(json_object_get(other, "quant_method"));
        return error_set(e, QN_EUNSUP, "config.json: quantised weights (%.40s) are not supported",
                         method ? method : "quantization_config");
    }
    int rc = hf_text(&v, "mode", &mode);
    if (rc) return rc;
    if (!json_is_object(q) || strcmp(mode, "affine"))
        return error_set(e, QN_EUNSUP, "config.json: 'quantization' of mode '%.40s' is not supported, affine is",
                         json_is_object(q) ? mode : "(no object)");
    if ((rc = names_init(&p->names, n, e))) return rc;
    for (size_t i = 0; i < n; i++)
        names_add(&p->names, (struct str){tensor[i]->name, strlen(tensor[i]->name)}, (uint32_t)i);
    p->config = q;
    p->tensor = tensor;
    return 0;
}

void hf_packed_deinit(struct hf_packed *p)
{
    names_deinit(&p->names);
    *p = (struct hf_packed){0};
}

/* The tensor STEM + suffix. */
static const struct st_tensor *find(const struct hf_packed *p, const char *stem, size_t n, const char *suffix)
{
    char name[NAME_BYTES];
    uint32_t i;
    int m = snprintf(name, sizeof name, "%.*s%s", (int)n, stem, suffix);
    if (m < 0 || m >= (int)sizeof name || !names_find(&p->names, (struct str){name, (size_t)m}, &i)) return NULL;
    return p->tensor[i];
}

/* Whether name ends in suffix. *stem: the length of the text before it. */
static bool ends(const char *name, const char *suffix, size_t *stem)
{
    size_t n = strlen(name), m = strlen(suffix);
    if (n <= m || n >= NAME_BYTES || strcmp(name + n - m, suffix)) return false;
    *stem = n - m;
    return true;
}

bool hf_packed_is_part(const struct hf_packed *p, const char *name)
{
    size_t stem;
    if (!p->config || (!ends(name, ".scales", &stem) && !ends(name, ".biases", &stem))) return false;
    const struct st_tensor *w = find(p, name, stem, ".weight");
    return w && w->is_u32;
}

/* Reads the group size and the bits of one matrix from the configuration. */
static int read_numbers(const struct hf_packed *p, const char *stem, int *group, int *bits, struct qn_error *e)
{
    const json_t *own = json_object_get(p->config, stem);
    struct hf_value v = {.object = p->config, .e = e};
    int rc;
    if ((rc = hf_int(&v, "group_size", 1, 1 << 20, HF_REQUIRED, group)) ||
        (rc = hf_int(&v, "bits", 1, 32, HF_REQUIRED, bits)))
        return rc;
    v.object = own; /* if it is not an object, both keep their values */
    if ((rc = hf_int(&v, "group_size", 1, 1 << 20, *group, group)) || (rc = hf_int(&v, "bits", 1, 32, *bits, bits)))
        return rc;
    if ((*group != 32 && *group != 64 && *group != 128) || *bits < 2 || *bits > 8 || *bits == 7)
        return error_set(
            e, QN_EUNSUP,
            "tensor '%.100s': packed %d bits in groups of %d; 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 "
            "and 128 are supported",
            stem, *bits, *group);
    return 0;
}

/* Checks scales or biases: they must have as many rows as the words, with n_groups = k / group in each. */
static int check_part(const struct st_tensor *w, const struct st_tensor *part, const char *what, int64_t n_groups,
                      struct qn_error *e)
{
    if (!part) return error_set(e, QN_EDATA, "tensor '%.100s' is packed, and its %s are missing", w->name, what);
    if (part->type != DT_F16 && part->type != DT_BF16 && part->type != DT_F32)
        return error_set(e, QN_EUNSUP, "tensor '%.100s' has type %s; F32, F16 and BF16 are supported", part->name,
                         part->type_name);
    bool fits = part->n_dims == w->n_dims;
    for (int d = 0; fits && d < w->n_dims; d++) fits = part->dim[d] == (d == w->n_dims - 1 ? n_groups : w->dim[d]);
    if (fits) return 0;
    return error_set(e, QN_EDATA, "tensor '%.100s' has not the shape of '%.100s' with %" PRId64 " in a row", part->name,
                     w->name, n_groups);
}

int hf_packed_view(const struct hf_packed *p, const struct st_tensor *w, enum dtype *type, int64_t *k,
                   struct side *side, struct qn_error *e)
{
    static const enum dtype types[] = {
        [2] = DT_MLX2, [3] = DT_MLX3, [4] = DT_MLX4, [5] = DT_MLX5, [6] = DT_MLX6, [8] = DT_MLX8};
    char stem[NAME_BYTES];
    size_t n;
    int rc, group, bits;
    if (!p->config || !w->is_u32 || !ends(w->name, ".weight", &n)) return 0;
    memcpy(stem, w->name, n);
    stem[n] = 0;
    if ((rc = read_numbers(p, stem, &group, &bits, e))) return rc;
    int64_t n_words = w->n_dims ? w->dim[w->n_dims - 1] : 0, n_bits;
    if (n_words < 1 || __builtin_mul_overflow(n_words, (int64_t)32, &n_bits) || n_bits % bits || n_bits / bits % group)
        return error_set(e, QN_EDATA,
                         "tensor '%.100s': rows of %" PRId64 " words are not whole groups of %d of %d bits", w->name,
                         n_words, group, bits);
    const struct st_tensor *scales = find(p, stem, n, ".scales"), *biases = find(p, stem, n, ".biases");
    if ((rc = check_part(w, scales, "scales", n_bits / bits / group, e)) ||
        (rc = check_part(w, biases, "biases", n_bits / bits / group, e)))
        return rc;
    if (scales->type != biases->type)
        return error_set(e, QN_EUNSUP, "tensor '%.100s': scales of type %s and biases of type %s", w->name,
                         scales->type_name, biases->type_name);
    *type = types[bits];
    *k = n_bits / bits;
    *side = (struct side){scales->data, biases->data, (enum dtype)scales->type, group};
    return 1;
}
