/* SPDX-License-Identifier: MIT
 *
 * embed.c: POST /v1/embeddings: vectors of texts.
 *
 * Source: the OpenAI API reference, "Embeddings".
 */
#include "server/api/endpoints.h"

#include <string.h>

#include "server/api/vectors.h"

struct embed {
    struct vectors v; /* first member */
    const json_t *input;
    const char *input_type; /* has no effect */
    bool base64;
};

/* ---- fields ---- */

#define AT(member) offsetof(struct embed, member)

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
    {.name = "input", .type = FIELD_PARSE, .at = AT(input), .parse = vectors_parse_input, .required = true},
    {.name = "model", .type = FIELD_STRING, .at = AT(v.model), .hi = 1024},
    {.name = "user", .type = FIELD_STRING, .at = AT(v.user), .hi = 1024},
    {.name = "cache_salt", .type = FIELD_STRING, .at = AT(v.cache_salt), .hi = 1024},
    {.name = "encoding_format", .type = FIELD_PARSE, .parse = parse_format},
    {.name = "pooling", .type = FIELD_PARSE, .parse = parse_pooling, .present = AT(v.has_pooling)},
    {.name = "dimensions", .type = FIELD_INT, .at = AT(v.dimensions), .lo = 1, .hi = 1 << 28},
    {.name = "input_type", .type = FIELD_STRING, .at = AT(input_type), .hi = 64},
    {.name = "truncate_prompt_tokens", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};

static const struct field *const tables[] = {embed_fields, NULL};

static int read_inputs(struct vectors *v, struct fault *f)
{
    struct embed *m = (struct embed *)v;
    m->input_type = NULL;
    if (vectors_add_input(v, m->input, "input", f)) return -1;
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

/* Writes the vector into the answer at once, so that it need not be kept. */
static void take(struct vectors *v, const float *x, int n)
{
    struct json_out *o = &v->out;
    json_out_open(o, NULL, '{');
    json_out_str(o, "object", "embedding");
    json_out_int(o, "index", (int64_t)v->at);
    if (((struct embed *)v)->base64)
        write_base64(o, x, n);
    else
        vectors_write(o, "embedding", x, n);
    json_out_close(o, '}');
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
    static const struct vectors_kind kind = {.size = sizeof(struct embed),
                                             .tables = tables,
                                             .refuse = api_refuse_openai,
                                             .read = read_inputs,
                                             .take = take,
                                             .answer = answer};
    vectors_begin(c, &kind);
}
