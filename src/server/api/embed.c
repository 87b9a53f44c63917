/* SPDX-License-Identifier: MIT
 *
 * embed.c: POST /v1/embeddings: vectors of texts.
 *
 * Source: the OpenAI API reference, "Embeddings".
 */
#include "server/api/endpoints.h"

#include <math.h>
#include <string.h>

#include "server/api/vectors.h"

struct embed {
    struct vectors v; /* first member */
    const json_t *input;
    const char *input_type; /* has no effect */
    bool base64, has_pooling;
    int dimensions; /* 0: all */
};

/* ---- fields ---- */

#define AT(member) offsetof(struct embed, member)

static int parse_input(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_string(v) && !(json_is_array(v) && json_array_size(v) > 0))
        return field_wrong_type(f, name, "a text, token ids, or an array of either", v);
    ((struct embed *)out)->input = v;
    return 0;
}

static int parse_format(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    const char *s = json_string_value(v);
    (void)field;
    if (!s) return field_wrong_type(f, name, "\"float\" or \"base64\"", v);
    if (!field_is(v, "float") && !field_is(v, "base64"))
        return fault_set(f, 400, "unsupported_value", name, "%s has to be float or base64, not '%s'", name, s);
    ((struct embed *)out)->base64 = !strcmp(s, "base64");
    return 0;
}

static int parse_pooling(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    const char *s = json_string_value(v);
    (void)field;
    if (!s) return field_wrong_type(f, name, "\"mean\" or \"last\"", v);
    if (!field_is(v, "mean") && !field_is(v, "last"))
        return fault_set(f, 400, "unsupported_value", name, "%s has to be mean or last, not '%s'", name, s);
    ((struct embed *)out)->v.pooling = !strcmp(s, "mean") ? QN_POOL_MEAN : QN_POOL_LAST;
    return 0;
}

const struct field embed_fields[] = {
    {.name = "input", .type = FIELD_PARSE, .parse = parse_input, .required = true},
    {.name = "model", .type = FIELD_STRING, .at = AT(v.model), .hi = 1024},
    {.name = "user", .type = FIELD_STRING, .at = AT(v.user), .hi = 1024},
    {.name = "cache_salt", .type = FIELD_STRING, .at = AT(v.cache_salt), .hi = 1024},
    {.name = "encoding_format", .type = FIELD_PARSE, .parse = parse_format},
    {.name = "pooling", .type = FIELD_PARSE, .parse = parse_pooling, .present = AT(has_pooling)},
    {.name = "dimensions", .type = FIELD_INT, .at = AT(dimensions), .lo = 1, .hi = 1 << 28},
    {.name = "input_type", .type = FIELD_STRING, .at = AT(input_type), .hi = 64},
    {.name = "truncate_prompt_tokens", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};

static const struct field *const tables[] = {embed_fields, NULL};

/* A model that ranks has vectors, too, but they mean nothing unless the client knows better. */
static int choose_pooling(struct embed *m, struct fault *f)
{
    enum qn_pooling said = qn_model_pooling(m->v.served->model);
    if (m->has_pooling) return 0;
    if (said == QN_POOL_RANK)
        return fault_set(f, 400, "unsupported_value", "model",
                         "the model ranks documents (/v1/rerank); for its vectors, set pooling to mean or last");
    m->v.pooling = said == QN_POOL_NONE ? QN_POOL_LAST : said;
    return 0;
}

static int read_inputs(struct vectors *v, struct fault *f)
{
    struct embed *m = (struct embed *)v;
    bool one = json_is_string(m->input) || json_is_number(json_array_get(m->input, 0));
    size_t n = one ? 1 : json_array_size(m->input);
    int n_embd = qn_model_n_embd(v->served->model);
    m->input_type = NULL;
    if (choose_pooling(m, f)) return -1;
    if (m->dimensions > n_embd)
        return fault_set(f, 400, "out_of_range", "dimensions", "the model's vectors have %d dimensions, not %d", n_embd,
                         m->dimensions);
    if (vectors_reserve(v, n, "input", f)) return -1;
    for (size_t i = 0; i < n; i++)
        if (vectors_add(v, one ? m->input : json_array_get(m->input, i), "input", f)) return -1;
    m->input = NULL;
    json_out_open(&v->out, NULL, '{');
    json_out_str(&v->out, "object", "list");
    json_out_open(&v->out, "data", '[');
    return 0;
}

/* ---- answers ---- */

/* Little-endian floats, as clients decode them. */
static void write_base64(struct json_out *o, const float *v, int n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)v;
    size_t n_bytes = (size_t)n * sizeof *v, k = 0;
    char *text = mem_alloc((n_bytes + 2) / 3 * 4);
    if (!text) {
        o->failed = true;
        return;
    }
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t left = n_bytes - i;
        uint32_t x = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0u);
        text[k++] = digits[x >> 18];
        text[k++] = digits[x >> 12 & 63];
        text[k++] = left > 1 ? digits[x >> 6 & 63] : '=';
        text[k++] = left > 2 ? digits[x & 63] : '=';
    }
    json_out_text(o, "embedding", text, k);
    mem_free(text);
}

static void write_floats(struct json_out *o, const float *x, int n)
{
    json_out_open(o, "embedding", '[');
    for (int i = 0; i < n; i++) json_out_num(o, NULL, (double)x[i]);
    json_out_close(o, ']');
}

/* Copies the first n numbers of a vector, with a length of 1. */
static void shorten(const float *x, int n, float *out)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int i = 0; i < n; i++) out[i] = (float)((double)x[i] * scale);
}

/* Writes the vector into the answer at once, so that it need not be kept. */
static void take(struct vectors *v, const float *x, int n)
{
    struct embed *m = (struct embed *)v;
    struct json_out *o = &v->out;
    float *part = NULL;
    if (m->dimensions && m->dimensions < n) {
        n = m->dimensions;
        part = mem_alloc((size_t)n * sizeof *part);
        if (!part) {
            o->failed = true;
            return;
        }
        shorten(x, n, part);
    }
    json_out_open(o, NULL, '{');
    json_out_str(o, "object", "embedding");
    json_out_int(o, "index", (int64_t)v->at);
    (m->base64 ? write_base64 : write_floats)(o, part ? part : x, n);
    json_out_close(o, '}');
    mem_free(part);
}

static void answer(struct vectors *v)
{
    json_out_close(&v->out, ']');
    json_out_str(&v->out, "model", v->served->name);
    vectors_write_usage(v);
    json_out_close(&v->out, '}');
}

void endpoint_embeddings(struct api_call *c)
{
    static const struct vectors_kind kind = {
        .size = sizeof(struct embed), .tables = tables, .read = read_inputs, .take = take, .answer = answer};
    vectors_begin(c, &kind);
}
