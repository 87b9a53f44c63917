/* SPDX-License-Identifier: MIT
 *
 * test_api.c: the tables of fields row by row, also compared with docs/openapi.json, which is the argument; the JSON
 * writer; identities. Nothing is served here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/dialect/anthropic.h"
#include "server/api/endpoints.h"
#include "server/dialect/ollama.h"
#include "server/dialect/responses.h"

#define N_VOCAB 100

/* ---- every row with every kind of value ---- */

static const char *const values[] = {
    "-1",
    "0",
    "1",
    "0.5",
    "2147483648",
    "9223372036854775808",
    "1e308",
    "\"\"",
    "\"x\"",
    "\"auto\"",
    "null",
    "true",
    "false",
    "[]",
    "[1]",
    "[-1]",
    "[100]",
    "[\"x\"]",
    "[\"\"]",
    "[[]]",
    "{}",
    "{\"x\":1}",
    "{\"1\":1}",
    "{\"100\":1}",
    "[{\"x\":1}]",
    "[null]",
    "[[1],[2]]",
    "\"auto\\u0000\"",
    "[\"x\\u0000\"]",
};
#define N_VALUES (sizeof values / sizeof values[0])

#define NO_FORM      "\"\" false [] {}"
#define FORM_TEXTS   NO_FORM " \"x\" \"auto\" \"auto\\u0000\""
#define FORM_CHOICES NO_FORM " [\"x\"] [\"\"] [\"x\\u0000\"]"
#define FORM_SCHEMAS "\"\" \"x\" \"auto\" \"auto\\u0000\" true false {} {\"x\":1} {\"1\":1} {\"100\":1}"

#define NUMBERS "-1 0 1 0.5 2147483648 9223372036854775808 1e308"

/* The values that rows with parsers of their own take. */
static const struct {
    const char *name, *accepted;
    const struct field *rows; /* NULL: in all tables */
} parsed[] = {
    {"tool_choice", "", anthropic_count_fields},
    {"options", "{}", NULL},
    {"keep_alive", NUMBERS, NULL},
    {"format", "\"\" {} {\"x\":1} {\"1\":1} {\"100\":1}", NULL},
    {"images", "[]", NULL},
    {"prompt", "\"\" \"x\" \"auto\" \"auto\\u0000\"", ollama_text_fields},
    {"prompt", "\"\" \"x\" \"auto\" \"auto\\u0000\"", ollama_embeddings_fields},
    {"stream", "true false", ollama_pull_fields},
    {"mirostat", "0", NULL},
    {"tfs_z", "1", NULL},
    {"seed", "-1 0 1 2147483648", ollama_options},
    {"stop", "\"\" \"x\" \"auto\" [] [\"x\"] [\"\"]", NULL},
    {"stop_sequences", "[] [\"x\"] [\"\"]", NULL},
    {"logit_bias", "{} {\"1\":1}", NULL},
    {"stop_token_ids", "[] [1]", NULL},
    {"receipt", "true false \"private\"", NULL},
    {"draft", "\"off\" \"auto\" \"ngram\" \"mtp\" \"model\" \"wedlm\" \"default\"", NULL},
    {"decoder", "\"auto\" \"plain\" \"wedlm\"", NULL},
    {"wedlm_verify", "true false", NULL},
    {"context", "", NULL}, /* its values are in test_serve.py */
    {"stream_options", "{}", NULL},
    {"prompt", "\"\" \"x\" \"auto\" \"auto\\u0000\" [1] [\"x\"] [\"x\\u0000\"] [\"\"] [[1],[2]]", NULL},
    {"tool_choice", "\"auto\"", NULL},
    {"parallel_tool_calls", "true false", NULL},
    {"input",
     "\"\" \"x\" \"auto\" \"auto\\u0000\" [1] [-1] [100] [\"x\"] [\"x\\u0000\"] [\"\"] [[]] [{\"x\":1}] [null] "
     "[[1],[2]]",
     NULL}, /* looked at later */
    {"tools", "[]", NULL},
    {"thinking", "true false", NULL},
    {"enable_thinking", "true false", NULL},
    {"think", "true false", NULL},
    {"num_ctx", "0", NULL},
    {"output_config", "{}", NULL},
    {"context_management", "\"\" false [] {}", NULL},
    {"instructions", "\"\" \"x\" \"auto\" \"auto\\u0000\"", NULL},
    {"reasoning", "{}", NULL},
    {"include", "[]", NULL},
    {"previous_response_id", "\"x\" \"auto\"", NULL},
    {"text", "{}", NULL},
    {"encoding_format", "", NULL},
    {"pooling", "", NULL},
    {"samplers", "[]", NULL},
    {"text_1", "\"\" \"x\" \"auto\" \"auto\\u0000\" [\"x\"] [\"\"] [\"x\\u0000\"]", NULL},
    {"text_2", "\"\" \"x\" \"auto\" \"auto\\u0000\" [\"x\"] [\"\"] [\"x\\u0000\"]", NULL},
    {"queries", "\"\" \"x\" \"auto\" \"auto\\u0000\" [\"x\"] [\"\"] [\"x\\u0000\"]", NULL},
    {"documents", "\"\" \"x\" \"auto\" \"auto\\u0000\" [\"x\"] [\"\"] [\"x\\u0000\"]", score_fields},
    {"response_fields", "[] [\"x\"] [\"\"]", NULL},
    {"grammar", FORM_TEXTS, NULL},
    {"regex", FORM_TEXTS, NULL},
    {"guided_grammar", FORM_TEXTS, NULL},
    {"guided_regex", FORM_TEXTS, NULL},
    {"json_schema", FORM_SCHEMAS, NULL},
    {"guided_json", FORM_SCHEMAS, NULL},
    {"choice", FORM_CHOICES, NULL},
    {"guided_choice", FORM_CHOICES, NULL},
    {"structured_outputs", NO_FORM, NULL},
    {"response_format", NO_FORM, NULL},
    {"output_format", NO_FORM, NULL},
};

static bool listed(const char *list, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = list; (p = strstr(p, value)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

static char type_letter(const json_t *v)
{
    if (json_is_string(v)) return 's';
    if (json_is_boolean(v)) return 'b';
    if (json_is_number(v)) return 'n';
    return json_is_array(v) ? 'a' : 'o';
}

static bool is_accepted(const struct field *rows, const struct field *d, const char *value)
{
    json_t *v = json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    double x = v ? json_number_value(v) : 0x1p63, n = v ? (double)json_string_length(v) : 0;
    bool number = !v || json_is_number(v), ok = false;
    switch (d->type) {
    case FIELD_BOOL: ok = json_is_boolean(v); break;
    case FIELD_INT: ok = number && x >= d->lo && x <= d->hi && x != 0.5; break;
    case FIELD_INT64: ok = number && x < 0x1p63 && x != 0.5; break;
    case FIELD_FLOAT: ok = number && x >= d->lo && x <= d->hi; break;
    case FIELD_STRING:
        ok = json_is_string(v) && n >= d->lo && n <= d->hi && strlen(json_string_value(v)) == json_string_length(v);
        break;
    case FIELD_TEXT: ok = json_is_string(v) && n >= d->lo && n <= d->hi; break;
    case FIELD_ARRAY: ok = json_is_array(v) && (double)json_array_size(v) >= d->lo; break;
    case FIELD_OBJECT: ok = json_is_object(v); break;
    case FIELD_ANY: ok = true; break;
    case FIELD_ONE_OF: {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "%s", value);
        ok = strstr(d->allowed, quoted) && strlen(d->allowed) == strlen(quoted) + 2;
        ok = ok || (strchr(d->allowed, ',') && !strcmp(quoted, "\"auto\"") && strstr(d->allowed, quoted));
        ok = ok || (!d->exact && v && field_is_empty(v));
        break;
    }
    case FIELD_IGNORED:
        ok = !v ? strchr(d->allowed, 'n') != NULL : field_is_empty(v) || strchr(d->allowed, type_letter(v));
        break;
    case FIELD_PARSE:
        for (size_t i = 0; i < sizeof parsed / sizeof parsed[0]; i++)
            if (!strcmp(parsed[i].name, d->name) && (!parsed[i].rows || parsed[i].rows == rows)) {
                ok = listed(parsed[i].accepted, value);
                break;
            } else if (i + 1 == sizeof parsed / sizeof parsed[0]) {
                fail_msg("no values for the parsed field %s", d->name);
            }
    }
    ok = ok || !strcmp(value, "null");
    json_decref(v);
    return ok;
}

static void try_row(const struct field *rows, const struct field *d, const char *value, size_t size)
{
    static _Alignas(16) char room[4096];
    struct fault f = {0};
    char text[256];
    bool is_ask = size == sizeof(struct answer_params);
    memset(room, 0, sizeof room);
    if (is_ask) params_init((struct answer_params *)room, N_VOCAB);
    snprintf(text, sizeof text, "{\"%s\":%s}", d->name, value);
    json_t *body = field_parse_body(text, strlen(text), NULL, &f);
    assert_non_null(body);
    int rc = field_read((const struct field *const[]){rows, NULL}, "", body, room, &f);
    /* another member is missing, or null where a value is required; not a member inside this one */
    bool missing = rc && !strcmp(f.code, "missing_field") && !strchr(f.param, '.');
    if (is_accepted(rows, d, value) != (!rc || missing))
        fail_msg("%s: %s: %s", d->name, value, rc ? f.message : "was accepted");
    if (rc) {
        assert_int_equal(f.status, 400);
        assert_non_null(f.code);
        if (!missing) assert_int_equal(strncmp(f.param, d->name, strlen(d->name)), 0);
        assert_non_null(strstr(f.message, f.param));
    }
    if (is_ask) params_deinit((struct answer_params *)room);
    json_decref(body);
}

static void test_every_field_takes_its_values_and_refuses_all_others_by_name(void **state)
{
    const struct {
        const struct field *rows;
        size_t size;
    } tables[] = {
        {params_sampling_fields, sizeof(struct answer_params)},
        {params_openai_fields, sizeof(struct answer_params)},
        {params_completion_fields, sizeof(struct answer_params)},
        {params_chat_fields, sizeof(struct answer_params)},
        {params_thinking_fields, sizeof(struct answer_params)},
        {params_shared_fields, sizeof(struct answer_params)},
        {anthropic_count_fields, sizeof(struct answer_params)},
        {anthropic_fields, sizeof(struct answer_params)},
        {responses_fields, sizeof(struct answer_params)},
        {infill_fields, sizeof(struct answer_params)},
        {tokenize_fields, 0},
        {detokenize_fields, 0},
        {embed_fields, 0},
        {rerank_fields, 0},
        {score_fields, 0},
        {ollama_fields, sizeof(struct answer_params)},
        {ollama_chat_fields, sizeof(struct answer_params)},
        {ollama_text_fields, sizeof(struct answer_params)},
        {ollama_options, sizeof(struct answer_params)},
        {ollama_embed_fields, 0},
        {ollama_embeddings_fields, 0},
        {ollama_show_fields, 0},
        {ollama_pull_fields, 0},
    };
    (void)state;
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct field *d = tables[t].rows; d->name; d++)
            for (size_t i = 0; i < N_VALUES; i++) try_row(tables[t].rows, d, values[i], tables[t].size);
}

/* ---- the description ---- */

static json_t *description;

static bool has_type(const json_t *schema, const char *type)
{
    const char *t = json_string_value(json_object_get(schema, "type"));
    return t && !strcmp(t, type);
}

/* Whether the schema allows exactly the types of these letters. */
static bool has_types(const json_t *schema, const char *letters)
{
    static const char *const names[] = {"array", "boolean", "number", "object", "string"};
    const json_t *type = json_object_get(schema, "type");
    size_t n = 0, n_types = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < 5; i++) {
        bool listed = has_type(schema, names[i]);
        for (size_t k = 0; k < json_array_size(type); k++)
            listed = listed || field_is(json_array_get(type, k), names[i]);
        if (listed != (strchr(letters, names[i][0]) != NULL)) return false;
        n += listed;
    }
    return n == n_types;
}

static void check_schema(const struct field *d, const json_t *s)
{
    bool ok = true;
    if (d->type == FIELD_BOOL) ok = has_type(s, "boolean");
    if (d->type == FIELD_STRING || d->type == FIELD_TEXT) ok = has_type(s, "string");
    if (d->type == FIELD_ARRAY) ok = has_type(s, "array");
    if (d->type == FIELD_OBJECT) ok = has_type(s, "object");
    if (d->type == FIELD_INT || d->type == FIELD_FLOAT)
        ok = has_type(s, d->type == FIELD_INT ? "integer" : "number") &&
             json_number_value(json_object_get(s, "minimum")) == d->lo &&
             json_number_value(json_object_get(s, "maximum")) == d->hi;
    if (d->type == FIELD_ONE_OF) {
        json_t *allowed = json_loads(d->allowed, 0, NULL);
        ok = json_array_size(allowed) ? json_equal(json_object_get(s, "enum"), allowed)
                                      : json_object_get(s, "not") != NULL;
        json_decref(allowed);
    }
    if (d->type == FIELD_IGNORED)
        ok = has_types(s, d->allowed) &&
             !strcmp(json_string_value(json_object_get(s, "description")), "Changes nothing.");
    if (!ok) fail_msg("%s is described otherwise", d->name);
}

static void test_the_description_has_these_fields_and_routes(void **state)
{
    const struct {
        const char *name;
        const struct field *tables[6];
    } all[] = {
        {"CompletionRequest",
         {params_completion_fields, params_openai_fields, params_shared_fields, params_sampling_fields}},
        {"ChatRequest",
         {params_chat_fields, params_thinking_fields, params_openai_fields, params_shared_fields,
          params_sampling_fields}},
        {"MessagesRequest", {anthropic_count_fields, anthropic_fields, params_shared_fields, params_sampling_fields}},
        {"CountTokensRequest", {anthropic_count_fields}},
        {"ResponsesRequest", {responses_fields, params_shared_fields, params_sampling_fields}},
        {"EmbeddingsRequest", {embed_fields}},
        {"RerankRequest", {rerank_fields}},
        {"ScoreRequest", {score_fields}},
        {"InfillRequest", {infill_fields, params_openai_fields, params_sampling_fields, params_shared_fields}},
        {"OllamaChatRequest", {ollama_chat_fields, ollama_fields, params_sampling_fields}},
        {"OllamaGenerateRequest", {ollama_text_fields, ollama_fields, params_sampling_fields}},
        {"OllamaOptions", {ollama_options}},
        {"OllamaEmbedRequest", {ollama_embed_fields}},
        {"OllamaEmbeddingsRequest", {ollama_embeddings_fields}},
        {"OllamaShowRequest", {ollama_show_fields}},
        {"OllamaPullRequest", {ollama_pull_fields}},
        {"TokenizeRequest", {tokenize_fields}},
        {"DetokenizeRequest", {detokenize_fields}},
    };
    json_t *schemas = json_object_get(json_object_get(description, "components"), "schemas");
    json_t *paths = json_object_get(description, "paths");
    int n_routes;
    const struct http_route *routes = api_routes(&n_routes);
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        json_t *properties = json_object_get(json_object_get(schemas, all[i].name), "properties");
        size_t n = 0;
        for (int t = 0; all[i].tables[t]; t++)
            for (const struct field *d = all[i].tables[t]; d->name; d++, n++) {
                json_t *s = json_object_get(properties, d->name);
                if (!s) fail_msg("%s: %s is not described", all[i].name, d->name);
                check_schema(d, s);
            }
        assert_int_equal(json_object_size(properties), n);
    }
    size_t n_described = 0;
    const char *path;
    json_t *methods;
    json_object_foreach(paths, path, methods) n_described += json_object_size(methods);
    assert_int_equal(n_described, n_routes);
    for (int i = 0; i < n_routes; i++) {
        char method[8] = {0};
        for (size_t k = 0; routes[i].method[k]; k++) method[k] = (char)(routes[i].method[k] | 0x20);
        if (!json_object_get(json_object_get(paths, routes[i].pattern), method))
            fail_msg("%s %s is not described", routes[i].method, routes[i].pattern);
    }
}

/* ---- single cases ---- */

static const struct field *const chat[] = {params_chat_fields,   params_thinking_fields, params_openai_fields,
                                           params_shared_fields, params_sampling_fields, NULL};

/* Reads a chat request. Returns the fault's code, "" for none. */
static const char *read_chat(const char *members, struct answer_params *a)
{
    static struct fault f;
    char text[512];
    f = (struct fault){0};
    params_init(a, N_VOCAB);
    snprintf(text, sizeof text, "{\"messages\":[{}]%s}", members);
    json_t *body = field_parse_body(text, strlen(text), NULL, &f);
    return !body || params_read(a, chat, body, &f) ? f.code : "";
}

/* What is named in both ways has to agree; `auto` and `default` of drafts name nothing. */
static void test_a_decoder_means_drafts(void **state)
{
    (void)state;
    for (enum decoder d = DECODER_AUTO; d <= DECODER_WEDLM; d++)
        for (enum qn_draft said = QN_DRAFT_OFF; said <= QN_DRAFT_DEFAULT; said++) {
            struct qn_error e = {0};
            enum qn_draft meant = d == DECODER_PLAIN ? QN_DRAFT_OFF : QN_DRAFT_WEDLM, draft = said;
            bool agree = said == meant || said == QN_DRAFT_AUTO || said == QN_DRAFT_DEFAULT;
            int rc = decoder_draft(d, &draft, &e);
            assert_int_equal(rc, d == DECODER_AUTO || agree ? 0 : QN_EUSAGE);
            assert_int_equal(draft, d == DECODER_AUTO || rc ? said : meant);
            if (rc) assert_true(strstr(e.msg, decoder_name(d)) && strstr(e.msg, qn_draft_name(said)));
        }
    assert_null(decoder_name(DECODER_WEDLM + 1));
}

static void test_fields_set_what_they_say(void **state)
{
    struct answer_params a;
    (void)state;
    assert_string_equal(read_chat(",\"temperature\":0.25,\"top_k\":7,\"max_completion_tokens\":9,\"seed\":-3,\"stop\":"
                                  "[\"a\",\"b\"],\"logit_bias\":{\"5\":-100},\"stream\":true,\"n\":3,"
                                  "\"stream_options\":{\"include_usage\":true},\"top_p\":null",
                                  &a),
                        "");
    assert_true(a.sampling.temperature == 0.25f && a.sampling.top_k == 7 && a.max_tokens == 9);
    assert_true(a.has_seed && a.seed == -3 && a.n_stop == 2 && !strcmp(a.stop[1], "b"));
    assert_true(a.sampling.n_logit_bias == 1 && a.sampling.logit_bias[0].token == 5);
    assert_true(a.stream && a.n == 3 && a.include_usage && json_array_size(a.messages) == 1);
    params_deinit(&a);
    assert_string_equal(read_chat(",\"tool_choice\":\"none\",\"parallel_tool_calls\":false", &a), "");
    assert_true(a.no_tools && a.one_call && !a.has_seed && a.max_tokens == -1);
    params_deinit(&a);
}

static void test_what_is_not_honoured_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {",\"wobble\":1", "unknown_field"},
        {",\"response_format\":{\"type\":\"json_object\"}", ""},
        {",\"response_format\":{\"type\":\"xml\"}", "unsupported_value"},
        {",\"response_format\":{\"type\":\"text\"}", ""},
        {",\"tool_choice\":\"required\"", ""},
        {",\"tool_choice\":\"sometimes\"", "unsupported_value"},
        {",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", ""},
        {",\"tool_choice\":{\"type\":\"function\"}", "invalid_value"},
        {",\"tool_choice\":{\"type\":\"function\",\"name\":\"f\\u0000\"}", "invalid_value"},
        {",\"tool_choice\":{\"type\":\"custom\",\"name\":\"f\"}", "unsupported_value"},
        {",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"any\"}", "invalid_value"},
        {",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[]}", "invalid_value"},
        {",\"grammar\":\"root ::= x\"", ""},
        {",\"grammar\":\"root ::= x\",\"regex\":\"x\"", "invalid_value"},
        {",\"stream_options\":{\"x\":1}", "unknown_field"},
        {",\"max_tokens\":16.0", ""},
        {",\"max_tokens\":16.5", "invalid_type"},
        {",\"seed\":9223372036854775807", ""},
        {",\"seed\":9223372036854775808", "out_of_range"},
        {",\"max_tokens\":1,\"max_tokens\":1", "invalid_json"},
        {",\"stop_token_ids\":[1.0]", ""},
        {",\"stop_token_ids\":[1.5]", "out_of_range"},
    };
    struct answer_params a;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(read_chat(cases[i][0], &a), cases[i][1]);
        params_deinit(&a);
    }
}

static void test_what_changes_nothing_is_noted_by_name(void **state)
{
    static const struct {
        const char *members;
        const char *names[4]; /* in the order of the request */
    } cases[] = {
        {",\"n\":1,\"user\":\"a\",\"metadata\":{\"a\":1},\"store\":true", {"user", "metadata", "store"}},
        {",\"user\":\"\",\"metadata\":{},\"store\":false,\"grammar\":\"\",\"json_schema\":null,\"functions\":[]", {0}},
        {",\"lora\":[],\"wobble\":null,\"wibble\":{}", {"lora", "wobble", "wibble"}},
        {",\"stream_options\":{\"include_obfuscation\":true,\"x\":false}",
         {"stream_options.include_obfuscation", "stream_options.x"}},
        {",\"top_logprobs\":3", {"top_logprobs"}},
        {",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":100}", {"thinking.budget_tokens"}},
    };
    struct answer_params a;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(read_chat(cases[i].members, &a), "");
        const char *p = (const char *)a.ignored.names.data;
        int n = 0;
        for (; n < 4 && cases[i].names[n]; n++, p += strlen(p) + 1) {
            assert_true(n < a.ignored.n);
            assert_string_equal(p, cases[i].names[n]);
        }
        assert_int_equal(a.ignored.n, n);
        params_deinit(&a);
    }
}

static void test_the_list_of_names_has_an_end(void **state)
{
    struct field_ignored l = {0};
    struct fault f = {.ignored = &l};
    char name[16];
    (void)state;
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "x%d", i / 2);
        assert_int_equal(field_ignore(&f, name), 0);
    }
    assert_int_equal(l.n, FIELD_MAX_IGNORED);
    assert_string_equal((char *)l.names.data + l.names.len - 4, "...");
    assert_string_equal((char *)l.names.data, "x0");
    assert_string_equal((char *)l.names.data + 3, "x1");
    buf_deinit(&l.names);
}

static void test_bodies_that_are_no_objects_are_refused(void **state)
{
    static const char *const bodies[] = {
        "", "x", "[]", "1", "{\"a\":1", "{} {}", "{\"a\":\"\xff\"}", "{\"a\":1e999}", "{\"a\":1,\"a\":2}"};
    static char deep[200000];
    struct fault f;
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        f = (struct fault){0};
        assert_null(field_parse_body(bodies[i], strlen(bodies[i]), NULL, &f));
        assert_int_equal(f.status, 400);
        assert_string_equal(f.code, "invalid_json");
    }
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    assert_null(field_parse_body(deep, sizeof deep, NULL, &f));
    assert_non_null(strstr(f.message, "depth"));
}

/* Parses {"a":[UNIT,UNIT,...]} with n units; commas inside of texts do not count. */
static int parse_many(const char *unit, int n, struct fault *f)
{
    struct buf b = {0};
    buf_str(&b, "{\"a\":[\",[\\\"{,\"", NULL);
    for (int i = 1; i < n; i++) {
        buf_str(&b, ",", NULL);
        buf_str(&b, unit, NULL);
    }
    buf_str(&b, "]}", NULL);
    *f = (struct fault){0};
    json_t *j = field_parse_body(b.data, b.len, NULL, f);
    json_decref(j);
    buf_deinit(&b);
    return j ? 0 : -1;
}

static void test_the_values_of_a_body_are_counted(void **state)
{
    struct fault f;
    (void)state;
    assert_int_equal(parse_many("0", FIELD_MAX_VALUES, &f), 0);
    assert_int_equal(parse_many("0", FIELD_MAX_VALUES + 1, &f), -1);
    assert_string_equal(f.code, "out_of_range");
    assert_int_equal(parse_many("{}", FIELD_MAX_BRACKETS - 1, &f), 0);
    assert_int_equal(parse_many("[]", FIELD_MAX_BRACKETS, &f), -1);
    assert_string_equal(f.code, "out_of_range");
}

/* FIRST, n units with commas between, LAST. unit: with %d, its number. */
static void fill(struct buf *b, const char *first, const char *unit, int n, const char *last)
{
    buf_clear(b);
    buf_str(b, first, NULL);
    for (int i = 0; i < n; i++) {
        if (i) buf_str(b, ",", NULL);
        buf_printf(b, NULL, unit, i);
    }
    buf_str(b, last, NULL);
}

/* The memory that documents really take, of many and of long values, is within the estimate and not much less. */
static void test_the_memory_of_a_body_is_known_before_it_is_read(void **state)
{
    static const struct {
        const char *first, *unit, *last;
        int n;
    } cases[] = {
        {"{\"a\":[", "%d", "]}", 1000000},
        {"{\"a\":[", "\"\"", "]}", 1000000},
        {"{\"a\":[", "\"some text %d\"", "]}", 500000},
        {"{\"a\":[", "[]", "]}", 131000},
        {"{\"a\":[", "{}", "]}", 131000},
        {"{\"a\":[", "[0,0,0,0,0,0,0,0,0]", "]}", 100000},
        {"{\"a\":[", "{\"a\":0}", "]}", 131000},
        {"{\"a\":[", "{\"a\":0,\"b\":0,\"c\":\"\"}", "]}", 131000},
        {"{", "\"%d\":0", "}", 1000000},
        {"{", "\"%d\":\"\"", "}", 530000},
        {"{\"a\":\"", "0123456789 0123456789 0123456789 0123456789", "\"}", 200000},
    };
    struct buf b = {0};
    struct field_size size;
    struct fault f;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fill(&b, cases[i].first, cases[i].unit, cases[i].n, cases[i].last);
        assert_int_equal(field_measure(b.data, b.len, &size, &f), 0);
        size_t before = mem_in_use();
        json_t *j = field_parse_body(b.data, b.len, NULL, &f);
        size_t took = mem_in_use() - before;
        assert_non_null(j);
        json_decref(j);
        printf("%s%s: %.1f MB of %.1f\n", cases[i].first, cases[i].unit, 1e-6 * (double)took, 1e-6 * (double)size.kept);
        if (mem_in_use() == 0) continue; /* a sanitizer's allocator does not say */
        assert_in_range(took, size.kept / 4, size.kept);
    }
    buf_deinit(&b);
}

/* Answers yes from the n-th time on. */
static bool after_some(void *n) { return (*(int *)n)-- <= 1; }

static void test_a_body_is_read_as_long_as_it_is_wanted(void **state)
{
    struct buf b = {0};
    struct fault f = {0};
    int n = 3;
    const struct qn_cancel cancel = {after_some, &n};
    (void)state;
    fill(&b, "{\"a\":[", "%d", 100000, "]}");
    assert_null(field_parse_body(b.data, b.len, &cancel, &f));
    assert_true(f.status == 503 && !f.code);
    n = 1000;
    json_t *j = field_parse_body(b.data, b.len, &cancel, &f);
    assert_non_null(j);
    assert_in_range(n, 970, 990); /* about once for 32 KB */
    json_decref(j);
    buf_deinit(&b);
}

static void test_no_memory_for_a_body_is_not_the_clients_fault(void **state)
{
    struct fault f = {0};
    (void)state;
    mem_fault_set(1);
    assert_null(field_parse_body("{}", 2, NULL, &f));
    mem_fault_set(0);
    assert_int_equal(f.status, 503);
    assert_string_equal(f.code, "no_memory");
}

static void test_json_is_written_as_it_is_read(void **state)
{
    struct json_out o = {0};
    (void)state;
    json_out_open(&o, NULL, '{');
    json_out_text(&o, "a", "q\"\\\n\x01\x7f\xc3\xa4\xff\xed\xa0\x80z", 13);
    json_out_open(&o, "b", '[');
    json_out_int(&o, NULL, -5);
    json_out_num(&o, NULL, 0.5);
    json_out_num(&o, NULL, 1.0 / 0.0);
    json_out_raw(&o, NULL, "", 0);
    json_out_bool(&o, NULL, true);
    json_out_close(&o, ']');
    json_out_key(&o, "c\"", 2);
    json_out_str(&o, NULL, NULL);
    json_out_close(&o, '}');
    assert_false(o.failed);
    assert_string_equal((char *)o.b.data,
                        "{\"a\":\"q\\\"\\\\\\n\\u0001\\u007f\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                        "\xef\xbf\xbdz\",\"b\":[-5,0.5,null,true],\"c\\\"\":null}");
    json_t *j = json_loads((char *)o.b.data, 0, NULL);
    assert_non_null(j);
    json_decref(j);
    json_out_deinit(&o);
}

static void test_long_answers_take_their_memory_from_a_ledger(void **state)
{
    (void)state;
    struct ledger l;
    struct json_out o = {.ledger = &l};
    ledger_init(&l, 1u << 20);
    for (int i = 0; i < 100; i++) json_out_str(&o, NULL, "small ones are not counted");
    assert_int_equal(ledger_used(&l), 0);
    for (int i = 0; i < 1000; i++) json_out_str(&o, NULL, "large ones are");
    assert_int_equal(ledger_used(&l), o.b.cap);
    for (int i = 0; i < 100000 && !o.failed; i++) json_out_str(&o, NULL, "and have an end");
    assert_true(o.failed && ledger_used(&l) == o.b.cap);
    json_out_deinit(&o);
    assert_int_equal(ledger_used(&l), 0);

    ledger_take(&l, 1u << 20, "others", NULL); /* nothing is left */
    for (int i = 0; i < 100; i++) json_out_str(&o, NULL, "small ones need nothing");
    assert_false(o.failed);
    for (int i = 0; i < 1000; i++) json_out_str(&o, NULL, "large ones fail");
    assert_true(o.failed);
    json_out_deinit(&o);
    assert_int_equal(ledger_used(&l), 1u << 20);
}

static void test_texts_of_two_servers_count_for_their_own_ledgers(void **state)
{
    (void)state;
    struct ledger one, two;
    ledger_init(&one, 1u << 20);
    ledger_init(&two, 1u << 20);
    struct json_out a = {.ledger = &one}, b = {.ledger = &two}, none = {0};
    for (int i = 0; i < 1000; i++) {
        json_out_str(&a, NULL, "in the first server");
        json_out_str(&none, NULL, "in no server");
    }
    for (int i = 0; i < 500; i++) json_out_str(&b, NULL, "in the second server");
    assert_int_equal(ledger_used(&one), a.b.cap);
    assert_int_equal(ledger_used(&two), b.b.cap);
    json_out_deinit(&a);
    assert_int_equal(ledger_used(&one), 0);
    assert_int_equal(ledger_used(&two), b.b.cap);
    json_out_deinit(&b);
    json_out_deinit(&none);
    assert_int_equal(ledger_used(&two), 0);
}

static void test_identities_differ_by_kind_name_and_salt(void **state)
{
    struct http_identity local = {.kind = HTTP_LOCAL, .name = "local"}, key = {.kind = HTTP_KEY, .name = "local"};
    struct who a = who_of(&local, NULL), b = who_of(&key, NULL), c = who_of(&key, "x"), d = who_of(&key, NULL);
    (void)state;
    assert_true(a.identity != b.identity && a.salt[0] != b.salt[0] && a.salt[0] != a.salt[1]);
    assert_true(c.identity == b.identity && c.salt[0] != b.salt[0] && c.salt[1] != b.salt[1]);
    assert_memory_equal(&b, &d, sizeof b);
}

/* Checks the messages that a template gets for a conversation of one of the APIs, as JSON. */
static void check_messages(int (*make)(struct answer_params *, struct fault *), const char *given, const char *want)
{
    struct answer_params a;
    struct fault f = {0};
    params_init(&a, N_VOCAB);
    json_t *messages = json_loads(given, 0, NULL);
    assert_non_null(messages);
    a.messages = messages;
    assert_int_equal(make(&a, &f), 0);
    char *got = json_dumps(a.messages, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(got, want);
    free(got);
    params_deinit(&a);
    json_decref(messages);
}

static void test_no_thought_of_a_turn_is_lost(void **state)
{
    (void)state;
    check_messages(responses_messages,
                   "[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"a\"}],\"content\":[]},"
                   "{\"role\":\"assistant\",\"content\":\"b\"}]",
                   "[{\"content\":\"b\",\"reasoning_content\":\"a\",\"role\":\"assistant\"}]");
    check_messages(
        anthropic_messages,
        "[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"a\",\"signature\":\"\"},"
        "{\"type\":\"thinking\",\"thinking\":\"b\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"c\"}]},"
        "{\"role\":\"user\",\"content\":\"d\"}]",
        "[{\"content\":\"c\",\"reasoning_content\":\"ab\",\"role\":\"assistant\"},"
        "{\"content\":\"d\",\"role\":\"user\"}]");
#define THOUGHT(text) "{\"type\":\"reasoning\",\"content\":[{\"type\":\"reasoning_text\",\"text\":\"" text "\"}]},"
    check_messages(responses_messages,
                   "[" THOUGHT("a") THOUGHT("b") "{\"role\":\"assistant\",\"content\":\"c\"},"
                                                 "{\"role\":\"user\",\"content\":\"d\"}," THOUGHT(
                                                     "e") "{\"type\":\"function_call\",\"call_id\":\"1\","
                                                          "\"name\":\"f\",\"arguments\":\"{}\"}," THOUGHT(
                                                              "g") "{\"type\":\"function_call_output\","
                                                                   "\"call_id\":\"1\",\"output\":\"h\"}]",
                   "[{\"content\":\"c\",\"reasoning_content\":\"ab\",\"role\":\"assistant\"},"
                   "{\"content\":\"d\",\"role\":\"user\"},"
                   "{\"content\":\"\",\"reasoning_content\":\"eg\",\"role\":\"assistant\",\"tool_calls\":["
                   "{\"function\":{\"arguments\":\"{}\",\"name\":\"f\"},\"id\":\"1\",\"type\":\"function\"}]},"
                   "{\"content\":\"h\",\"role\":\"tool\",\"tool_call_id\":\"1\"}]");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_takes_its_values_and_refuses_all_others_by_name),
        cmocka_unit_test(test_the_description_has_these_fields_and_routes),
        cmocka_unit_test(test_a_decoder_means_drafts),
        cmocka_unit_test(test_fields_set_what_they_say),
        cmocka_unit_test(test_what_is_not_honoured_is_refused),
        cmocka_unit_test(test_what_changes_nothing_is_noted_by_name),
        cmocka_unit_test(test_the_list_of_names_has_an_end),
        cmocka_unit_test(test_bodies_that_are_no_objects_are_refused),
        cmocka_unit_test(test_the_values_of_a_body_are_counted),
        cmocka_unit_test(test_the_memory_of_a_body_is_known_before_it_is_read),
        cmocka_unit_test(test_a_body_is_read_as_long_as_it_is_wanted),
        cmocka_unit_test(test_no_memory_for_a_body_is_not_the_clients_fault),
        cmocka_unit_test(test_json_is_written_as_it_is_read),
        cmocka_unit_test(test_long_answers_take_their_memory_from_a_ledger),
        cmocka_unit_test(test_texts_of_two_servers_count_for_their_own_ledgers),
        cmocka_unit_test(test_no_thought_of_a_turn_is_lost),
        cmocka_unit_test(test_identities_differ_by_kind_name_and_salt),
    };
    description = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(description);
    return failed;
}
