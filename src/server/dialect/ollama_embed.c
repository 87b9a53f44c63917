/* SPDX-License-Identifier: MIT
 *
 * ollama_embed.c: POST /api/embed, and /api/embeddings, which is its older form for one text. The vectors of both have
 * the length 1.
 *
 * Source: the API document of Ollama (docs/api.md).
 */
#include "server/dialect/ollama.h"

#include <limits.h>

#include "base/os.h"
#include "server/api/vectors.h"

struct ollama_embed {
    struct vectors v; /* first member */
    const json_t *input;
    bool truncate, has_truncate;
};

#define AT(member) offsetof(struct ollama_embed, member)

static int parse_keep_alive(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)out;
    (void)field;
    return ollama_check_keep_alive(name, v, f) || field_ignore(f, name) ? -1 : 0;
}

/* They have the types of a chat's, but none of them changes a vector. */
static int parse_options(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params scratch;
    (void)out;
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    params_init(&scratch, 1);
    scratch.n_ctx = INT_MAX;
    int rc = field_read((const struct field *const[]){ollama_options, NULL}, "options.", v, &scratch, f);
    params_deinit(&scratch);
    return rc || !json_object_size(v) ? rc : field_ignore(f, name);
}

static int parse_prompt(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
    ((struct ollama_embed *)out)->input = v;
    return 0;
}

#define COMMON                                                                                                         \
    {.name = "model", .type = FIELD_STRING, .at = AT(v.model), .hi = 1024},                                            \
        {.name = "options", .type = FIELD_PARSE, .parse = parse_options},                                              \
    {                                                                                                                  \
        .name = "keep_alive", .type = FIELD_PARSE, .parse = parse_keep_alive                                           \
    }

const struct field ollama_embed_fields[] = {
    COMMON,
    {.name = "input", .type = FIELD_PARSE, .at = AT(input), .parse = vectors_parse_input, .required = true},
    {.name = "truncate", .type = FIELD_BOOL, .at = AT(truncate), .present = AT(has_truncate)},
    {.name = "dimensions", .type = FIELD_INT, .at = AT(v.dimensions), .lo = 1, .hi = 1 << 28},
    {0},
};

const struct field ollama_embeddings_fields[] = {
    COMMON,
    {.name = "prompt", .type = FIELD_PARSE, .parse = parse_prompt, .required = true},
    {0},
};

/* Texts that are too long lose their end, unless the request says otherwise. */
static int read_texts(struct vectors *v, const char *what, struct fault *f)
{
    struct ollama_embed *m = (struct ollama_embed *)v;
    v->truncate = !m->has_truncate || m->truncate;
    if (vectors_add_input(v, m->input, what, f)) return -1;
    m->input = NULL;
    json_out_open(&v->out, NULL, '{');
    return 0;
}

/* ---- POST /api/embed ---- */

static int read_several(struct vectors *v, struct fault *f)
{
    if (read_texts(v, "input", f)) return -1;
    json_out_open(&v->out, "embeddings", '[');
    return 0;
}

static void take_several(struct vectors *v, const float *x, int n) { vectors_write(&v->out, NULL, x, n); }

static void answer_several(struct vectors *v)
{
    struct json_out *o = &v->out;
    json_out_close(o, ']');
    json_out_str(o, "model", v->served->name);
    json_out_int(o, "total_duration", (int64_t)(clock_ns() - v->ticket->arrived_ns));
    json_out_int(o, "load_duration", (int64_t)(v->load_ms * 1e6));
    json_out_int(o, "prompt_eval_count", v->n_prompt);
    ollama_write_ignored(o, &v->ignored);
    json_out_close(o, '}');
}

void ollama_embed(struct api_call *c)
{
    static const struct field *const tables[] = {ollama_embed_fields, NULL};
    static const struct vectors_kind kind = {.size = sizeof(struct ollama_embed),
                                             .tables = tables,
                                             .refuse = api_refuse_ollama,
                                             .names_ignored = true,
                                             .read = read_several,
                                             .take = take_several,
                                             .answer = answer_several};
    vectors_begin(c, &kind);
}

/* ---- POST /api/embeddings ---- */

static int read_one(struct vectors *v, struct fault *f) { return read_texts(v, "prompt", f); }

static void take_one(struct vectors *v, const float *x, int n) { vectors_write(&v->out, "embedding", x, n); }

static void answer_one(struct vectors *v)
{
    ollama_write_ignored(&v->out, &v->ignored);
    json_out_close(&v->out, '}');
}

void ollama_embeddings(struct api_call *c)
{
    static const struct field *const tables[] = {ollama_embeddings_fields, NULL};
    static const struct vectors_kind kind = {.size = sizeof(struct ollama_embed),
                                             .tables = tables,
                                             .refuse = api_refuse_ollama,
                                             .names_ignored = true,
                                             .read = read_one,
                                             .take = take_one,
                                             .answer = answer_one};
    vectors_begin(c, &kind);
}
