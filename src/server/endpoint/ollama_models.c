/* SPDX-License-Identifier: MIT
 *
 * ollama_models.c: what clients of Ollama ask about models: GET /api/version, /api/tags and /api/ps, POST /api/show and
 * /api/pull; and the requests that would change models, which the daemon cannot do.
 *
 * A model has the tag ":latest" in these lists unless its name has a tag, because clients look for names with tags.
 * Models are shown by their cards, so that none is loaded for it.
 *
 * Source: the API document of Ollama (docs/api.md).
 */
#include "server/dialect/ollama.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/sha256.h"

/* The version of Ollama whose API this is; clients refuse to talk to old ones. */
#define VERSION "0.12.11"

void ollama_version(struct http_request *r, void *ctx)
{
    static const char text[] = "{\"version\":\"" VERSION "\"}";
    (void)ctx;
    http_reply(r, 200, "application/json", text, sizeof text - 1);
}

/* ---- models ---- */

static void write_name(struct json_out *o, const char *key, const char *name)
{
    char tagged[1100];
    snprintf(tagged, sizeof tagged, "%s%s", name, strchr(name, ':') ? "" : ":latest");
    json_out_str(o, key, tagged);
}

/* 64 digits, as clients expect of a digest; it changes when the fingerprint does. */
static void write_digest(struct json_out *o, uint64_t fingerprint)
{
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    sha256_init(&s);
    sha256_add(&s, &fingerprint, sizeof fingerprint);
    sha256_end(&s, hash);
    sha256_hex(hash, hex);
    json_out_str(o, "digest", hex);
}

static void write_size(struct json_out *o, uint64_t n)
{
    char text[32];
    double x = (double)n;
    if (n >= 1000000000)
        snprintf(text, sizeof text, "%.1fB", x * 1e-9);
    else if (n >= 1000000)
        snprintf(text, sizeof text, "%.2fM", x * 1e-6);
    else
        snprintf(text, sizeof text, "%.2fK", x * 1e-3);
    json_out_str(o, "parameter_size", text);
}

static void write_details(struct json_out *o, const struct model_card *c)
{
    const char *family = (const char *)c->family.data;
    json_out_open(o, "details", '{');
    json_out_str(o, "parent_model", "");
    json_out_str(o, "format", c->is_folder ? "safetensors" : "gguf");
    json_out_text(o, "family", family, c->family.len);
    json_out_open(o, "families", '[');
    json_out_text(o, NULL, family, c->family.len);
    json_out_close(o, ']');
    write_size(o, c->n_params);
    json_out_str(o, "quantization_level", c->type ? c->type : "unknown");
    json_out_close(o, '}');
}

static void write_capabilities(struct json_out *o, const struct models_info *m, const struct model_card *c)
{
    bool tools = m->can.tools == QN_CHAT_NATIVE || m->can.tools == QN_CHAT_ADAPTED;
    json_out_open(o, "capabilities", '[');
    json_out_str(o, NULL, "completion");
    if (m->chat && tools) json_out_str(o, NULL, "tools");
    if (c->fills_gaps) json_out_str(o, NULL, "insert");
    if (m->chat && m->can.thinking) json_out_str(o, NULL, "thinking");
    if (c->pools) json_out_str(o, NULL, "embedding");
    json_out_close(o, ']');
}

/* What both lists have. in_memory: the size is that in memory, and not that of the files. Not 0: there is no memory. */
static int open_model(struct json_out *o, struct api *a, int i, const struct models_info *m, bool in_memory,
                      struct model_card *c)
{
    if (models_card(a->c.models, i, c, NULL)) return -1;
    json_out_open(o, NULL, '{');
    write_name(o, "name", m->name);
    write_name(o, "model", m->name);
    json_out_int(o, "size", (int64_t)(in_memory ? m->stats.used_bytes : c->file_bytes));
    write_digest(o, m->fingerprint);
    write_details(o, c);
    return 0;
}

void ollama_tags(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    json_out_open(&o, NULL, '{');
    json_out_open(&o, "models", '[');
    for (int i = 0; i < models_count(a->c.models); i++) {
        struct models_info m;
        struct model_card c = {0};
        models_look(a->c.models, i, &m);
        if (open_model(&o, a, i, &m, false, &c)) {
            o.failed = true;
            break;
        }
        ollama_write_time(&o, "modified_at", c.modified_s, 0);
        json_out_close(&o, '}');
        model_card_deinit(&c);
    }
    json_out_close(&o, ']');
    json_out_close(&o, '}');
    api_send(r, &o);
}

#define FOREVER_S (292.0 * 365.25 * 86400) /* as far from now as Ollama says it of a model that stays */

/* No memory is a graphics card's. */
void ollama_ps(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    json_out_open(&o, NULL, '{');
    json_out_open(&o, "models", '[');
    for (int i = 0; i < models_count(a->c.models); i++) {
        struct models_info m;
        struct model_card c = {0};
        models_look(a->c.models, i, &m);
        if (m.state != MODEL_LOADED) continue;
        if (open_model(&o, a, i, &m, true, &c)) {
            o.failed = true;
            break;
        }
        ollama_write_time(&o, "expires_at", time(NULL) + (int64_t)(m.idle_left_s < 0 ? FOREVER_S : m.idle_left_s), 0);
        json_out_int(&o, "size_vram", 0);
        json_out_int(&o, "context_length", m.n_ctx);
        json_out_close(&o, '}');
        model_card_deinit(&c);
    }
    json_out_close(&o, ']');
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* ---- one model ---- */

struct model_ask {
    const char *model, *name; /* the same; older clients say `name` */
    const json_t *options;
    bool whole; /* no stream */
};

#define AT(member) offsetof(struct model_ask, member)
#define NAMES                                                                                                          \
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},                                              \
    {                                                                                                                  \
        .name = "name", .type = FIELD_STRING, .at = AT(name), .hi = 1024                                               \
    }

const struct field ollama_show_fields[] = {
    NAMES,
    {.name = "verbose", .type = FIELD_ONE_OF, .allowed = "[false]"},
    {.name = "system", .type = FIELD_ONE_OF, .allowed = "[\"\"]"},
    {.name = "template", .type = FIELD_ONE_OF, .allowed = "[\"\"]"},
    {.name = "options", .type = FIELD_OBJECT, .at = AT(options)},
    {0},
};

static int parse_stream(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_boolean(v)) return field_wrong_type(f, name, "true or false", v);
    ((struct model_ask *)out)->whole = json_is_false(v);
    return 0;
}

const struct field ollama_pull_fields[] = {
    NAMES,
    {.name = "stream", .type = FIELD_PARSE, .parse = parse_stream},
    {.name = "insecure", .type = FIELD_ONE_OF, .allowed = "[false]"},
    {0},
};

/* Reads the request, and finds its model: its number, or -1 after the request was refused. */
static int read_ask(struct api_call *c, const struct field *rows, struct model_ask *ask, struct fault *f)
{
    if (field_read((const struct field *const[]){rows, NULL}, "", c->body, ask, f)) return -1;
    if (!ask->model || !*ask->model) ask->model = ask->name;
    if (ask->model && *ask->model) return models_find(c->api->c.models, ask->model, f);
    return fault_set(f, 400, "missing_field", "model", "model is missing");
}

/* Clients take the length of the context from here, so it is the one that requests may have. */
static void write_info(struct json_out *o, const struct models_info *m, const struct model_card *c)
{
    char key[300];
    int n = snprintf(key, sizeof key, "%.*s.context_length", (int)c->family.len, (const char *)c->family.data);
    json_out_open(o, "model_info", '{');
    json_out_raw(o, NULL, c->metadata.data, c->metadata.len);
    json_out_int(o, "general.parameter_count", (int64_t)c->n_params);
    json_out_key(o, key, n < (int)sizeof key ? (size_t)n : sizeof key - 1);
    json_out_int(o, NULL, m->n_ctx);
    json_out_close(o, '}');
}

static void write_show(struct json_out *o, const struct models_info *m, const struct model_card *c)
{
    char parameters[48];
    snprintf(parameters, sizeof parameters, "num_ctx                        %d", m->n_ctx);
    json_out_open(o, NULL, '{');
    json_out_str(o, "license", "");
    json_out_str(o, "modelfile", "");
    json_out_str(o, "parameters", parameters);
    json_out_text(o, "template", (const char *)c->chat_template.data, c->chat_template.len);
    write_details(o, c);
    write_info(o, m, c);
    write_capabilities(o, m, c);
    ollama_write_time(o, "modified_at", c->modified_s, 0);
    json_out_close(o, '}');
}

void ollama_show(struct api_call *c)
{
    struct model_ask ask = {0};
    struct fault f = {0};
    struct models_info m;
    struct model_card card = {0};
    struct json_out o = {.ledger = c->api->c.requests};
    int i = read_ask(c, ollama_show_fields, &ask, &f);
    if (i >= 0 && models_card(c->api->c.models, i, &card, NULL)) i = api_no_memory(&f);
    if (i < 0) {
        api_end_refused(c, &f);
        return;
    }
    models_look(c->api->c.models, i, &m);
    write_show(&o, &m, &card);
    model_card_deinit(&card);
    api_end(c, &o);
}

/* A model that is served needs no download, and others the daemon cannot download: it cannot write files. */
void ollama_pull(struct api_call *c)
{
    static const char text[] = "{\"status\":\"success\"}\n";
    struct model_ask ask = {0};
    struct fault f = {0};
    int i = read_ask(c, ollama_pull_fields, &ask, &f);
    if (f.status == 404)
        fault_set(&f, 501, "not_supported", "model",
                  "model '%s' not found, and the daemon downloads none: run 'quern pull', and serve the file",
                  ask.model);
    if (i < 0) {
        api_end_refused(c, &f);
        return;
    }
    ticket_unlist(c->ticket);
    http_reply(c->req, 200, ask.whole ? "application/json" : "application/x-ndjson", text, sizeof text - 1);
}

/* ---- models are not changed here ---- */

static void refuse(struct http_request *r, int status, const char *message)
{
    struct fault f = {0};
    fault_set(&f, status, "not_supported", NULL, "%s", message);
    api_refuse_ollama(r, &f);
}

/* Defines the handler of a route that clients may ask for and that is always refused. */
#define REFUSES(name, status, message)                                                                                 \
    void ollama_##name(struct http_request *r, void *ctx)                                                              \
    {                                                                                                                  \
        (void)ctx;                                                                                                     \
        refuse(r, status, message);                                                                                    \
    }
REFUSES(create, 501, "the daemon makes no models: a model is a file, which 'quern serve' is given")
REFUSES(copy, 501, "the daemon copies no models: 'quern serve NAME=FILE' gives a model another name")
REFUSES(delete, 501, "the daemon deletes no models: 'quern rm NAME' does")
REFUSES(push, 501, "the daemon uploads no models: 'quern serve --share' offers them to the local network")
REFUSES(blob, 404, "there are no blobs here")
