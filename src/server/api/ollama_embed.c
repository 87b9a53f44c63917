/* SPDX-License-Identifier: MIT
 *
 * ollama_embed.c: POST /api/embed, and /api/embeddings, which is its older form for one text. The vectors of both have
 * the length 1.
 *
 * Source: the API document of Ollama (docs/api.md).
 */
#include "server/api/embed.h"
#include "server/api/ollama.h"

#include <limits.h>

#include "base/os.h"

#define AT(member) offsetof(struct embed_ask, member)

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
    ((struct embed_ask *)out)->input = v;
    return 0;
}

#define COMMON                                                                                                         \
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},                                              \
        {.name = "options", .type = FIELD_PARSE, .parse = parse_options},                                              \
    {                                                                                                                  \
        .name = "keep_alive", .type = FIELD_PARSE, .parse = parse_keep_alive                                           \
    }

const struct field ollama_embed_fields[] = {
    COMMON,
    {.name = "input", .type = FIELD_PARSE, .parse = embed_parse_input, .required = true},
    {.name = "truncate", .type = FIELD_BOOL, .at = AT(truncate)},
    {.name = "dimensions", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};

const struct field ollama_embeddings_fields[] = {
    COMMON,
    {.name = "prompt", .type = FIELD_PARSE, .parse = parse_prompt, .required = true},
    {0},
};

static void close_embeddings(struct json_out *o, const struct embed_done *d) { ollama_write_ignored(o, d->ignored); }

static void close_embed(struct json_out *o, const struct embed_done *d)
{
    json_out_str(o, "model", d->model);
    json_out_int(o, "total_duration", (int64_t)(clock_ns() - d->arrived_ns));
    json_out_int(o, "load_duration", (int64_t)(d->load_ms * 1e6));
    json_out_int(o, "prompt_eval_count", d->n_prompt);
    close_embeddings(o, d);
}

void ollama_embed(struct api_call *c)
{
    static const struct field *const tables[] = {ollama_embed_fields, NULL};
    static const struct embed_dialect dialect = {.tables = tables,
                                                 .truncates = true,
                                                 .names_ignored = true,
                                                 .refuse = api_refuse_ollama,
                                                 .list = "embeddings",
                                                 .close = close_embed};
    embed_begin(c, &dialect);
}

void ollama_embeddings(struct api_call *c)
{
    static const struct field *const tables[] = {ollama_embeddings_fields, NULL};
    static const struct embed_dialect dialect = {.tables = tables,
                                                 .truncates = true,
                                                 .names_ignored = true,
                                                 .refuse = api_refuse_ollama,
                                                 .close = close_embeddings};
    embed_begin(c, &dialect);
}
