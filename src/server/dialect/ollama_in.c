/* SPDX-License-Identifier: MIT
 *
 * ollama_in.c: reads requests of POST /api/chat and /api/generate, and turns them into the conversation that a chat
 * template takes: arguments of calls are objects already, a result names its tool instead of its call.
 *
 * Options that say how Ollama shall compute (num_gpu, num_batch, ...) change no answer here, and neither does
 * keep_alive. They are accepted, and the answer names them. Everything else is honoured or refused.
 *
 * Source: the API document of Ollama (docs/api.md), and what its clients send.
 */
#include "server/dialect/ollama.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct answer_params, member)
#define MANY       (1 << 28) /* bytes: no limit of its own, because the body's limit comes first */

/* ---- fields that change nothing ---- */

/* A whole number, and nothing beyond the duration's text after it. */
int ollama_check_keep_alive(const char *name, const json_t *v, struct fault *f)
{
    const char *s = json_string_value(v);
    if (!s && !json_is_number(v)) return field_wrong_type(f, name, "seconds, or a text such as \"5m\"", v);
    if (!s || (json_string_length(v) == strlen(s) && *s && !s[strspn(s, "+-.0123456789hmsunµ")])) return 0;
    return fault_set(f, 400, "invalid_value", name, "%s: '%s' is no duration, such as \"5m\" or -1", name, s);
}

static int parse_keep_alive(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    (void)out;
    return ollama_check_keep_alive(name, v, f) || field_ignore(f, name) ? -1 : 0;
}

/* ---- options ---- */

/* A smaller context than the model's changes nothing. */
static int parse_num_ctx(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    const struct answer_params *a = out;
    double x = json_number_value(v);
    (void)field;
    if (!json_is_number(v)) return field_wrong_type(f, name, "a whole number", v);
    if (x >= 0 && x <= a->n_ctx) return field_ignore(f, name);
    return fault_set(f, 400, "out_of_range", name,
                     "%s is %.17g, and the model is served with a context of %d tokens (quern serve --ctx)", name, x,
                     a->n_ctx);
}

/* 0: off; 2: on (parse_options() does the rest). */
static int parse_mirostat(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    double x = json_number_value(v);
    (void)out;
    (void)field;
    if (!json_is_number(v)) return field_wrong_type(f, name, "0 or 2", v);
    return x == 0 || x == 2 ? 0 : field_unsupported(f, name, "anything but 0 (off) and 2 is");
}

/* Tail-free sampling at 1 is off, and there is nothing else. */
static int parse_tfs(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)out;
    (void)field;
    if (!json_is_number(v)) return field_wrong_type(f, name, "a number", v);
    return json_number_value(v) == 1 ? 0 : field_unsupported(f, name, "anything but 1 (off) is");
}

static int parse_seed(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field row[] = {{.name = "seed", .type = FIELD_INT64, .at = AT(seed)}, {0}};
    struct answer_params *a = out;
    char prefix[64]; /* of the name, which ends in "seed" */
    json_t *one = json_pack("{s:O}", field->name, v);
    if (!one) return api_no_memory(f);
    snprintf(prefix, sizeof prefix, "%.*s", (int)(strlen(name) - strlen(field->name)), name);
    int rc = field_read((const struct field *const[]){row, NULL}, prefix, one, out, f);
    json_decref(one);
    a->has_seed = a->seed != -1; /* -1 asks for a random one */
    return rc;
}

#define FLOAT(field, member, low, high)                                                                                \
    {                                                                                                                  \
        .name = field, .type = FIELD_FLOAT, .at = AT(member), .lo = low, .hi = high                                    \
    }
#define INT(field, member, low, high)                                                                                  \
    {                                                                                                                  \
        .name = field, .type = FIELD_INT, .at = AT(member), .lo = low, .hi = high                                      \
    }
#define PARSE(field, parser)                                                                                           \
    {                                                                                                                  \
        .name = field, .type = FIELD_PARSE, .parse = parser                                                            \
    }

const struct field ollama_options[] = {
    FLOAT("temperature", sampling.temperature, 0, 100),
    INT("top_k", sampling.top_k, 0, INT_MAX),
    FLOAT("top_p", sampling.top_p, 0, 1),
    FLOAT("min_p", sampling.min_p, 0, 1),
    FLOAT("typical_p", sampling.typical_p, 0, 1),
    FLOAT("repeat_penalty", sampling.repetition_penalty, 0.01, 100),
    INT("repeat_last_n", sampling.penalty_last_n, -1, INT_MAX),
    FLOAT("presence_penalty", sampling.presence_penalty, -2, 2),
    FLOAT("frequency_penalty", sampling.frequency_penalty, -2, 2),
    PARSE("mirostat", parse_mirostat),
    FLOAT("mirostat_tau", sampling.mirostat_tau, 0, 1000),
    FLOAT("mirostat_eta", sampling.mirostat_eta, 0, 1),
    PARSE("seed", parse_seed),
    INT("num_predict", max_tokens, -2, INT_MAX),
    PARSE("num_ctx", parse_num_ctx),
    PARSE("stop", params_parse_stop),
    PARSE("tfs_z", parse_tfs),
    IGNORED("num_keep", "snb"),
    IGNORED("num_batch", "snb"),
    IGNORED("num_gpu", "snb"),
    IGNORED("main_gpu", "snb"),
    IGNORED("num_thread", "snb"),
    IGNORED("num_gqa", "snb"),
    IGNORED("numa", "snb"),
    IGNORED("low_vram", "snb"),
    IGNORED("f16_kv", "snb"),
    IGNORED("logits_all", "snb"),
    IGNORED("vocab_only", "snb"),
    IGNORED("embedding_only", "snb"),
    IGNORED("use_mmap", "snb"),
    IGNORED("use_mlock", "snb"),
    IGNORED("penalize_newline", "snb"),
    {0},
};

/* mirostat 0 is off, whatever the other two say; 2 is on, with their defaults. */
static int parse_options(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    bool on = json_number_value(json_object_get(v, "mirostat")) == 2;
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    if (on) a->sampling.mirostat_tau = 5;
    if (field_read((const struct field *const[]){ollama_options, NULL}, "options.", v, out, f)) return -1;
    if (on) return 0;
    a->sampling.mirostat_tau = 0;
    if (json_is_number(json_object_get(v, "mirostat_tau")) && field_ignore(f, "options.mirostat_tau")) return -1;
    return json_is_number(json_object_get(v, "mirostat_eta")) ? field_ignore(f, "options.mirostat_eta") : 0;
}

/* ---- fields ---- */

static int parse_think(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    bool is_level = field_is(v, "low") || field_is(v, "medium") || field_is(v, "high");
    (void)field;
    if (!json_is_boolean(v) && !json_is_string(v))
        return field_wrong_type(f, name, "true, false or one of \"low\", \"medium\", \"high\"", v);
    if (json_is_string(v) && !is_level)
        return fault_set(f, 400, "unsupported_value", name, "%s: a level is \"low\", \"medium\" or \"high\", not '%s'",
                         name, json_string_value(v));
    if (is_level) a->reasoning_effort = json_string_value(v);
    a->thinking = json_is_false(v) ? PARAMS_THINKING_OFF : PARAMS_THINKING_ON;
    return 0;
}

static int parse_images(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)out;
    (void)field;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array", v);
    return json_array_size(v) ? field_unsupported(f, name, "images are") : 0;
}

static int parse_prompt(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
    a->text = json_string_value(v);
    a->n_text = json_string_length(v);
    return 0;
}

const struct field ollama_fields[] = {
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},
    {.name = "stream", .type = FIELD_BOOL, .at = AT(stream)},
    PARSE("options", parse_options),
    PARSE("keep_alive", parse_keep_alive),
    PARSE("think", parse_think),
    PARSE("format", format_parse_ollama),
    {.name = "logprobs", .type = FIELD_BOOL, .at = AT(logprobs)},
    INT("top_logprobs", n_top, 0, QN_MAX_TOP_LOGPROBS),
    IGNORED("truncate", "snb"),
    IGNORED("shift", "snb"),
    {0},
};

const struct field ollama_chat_fields[] = {
    {.name = "messages", .type = FIELD_ARRAY, .at = AT(messages), .hi = MANY},
    {.name = "tools", .type = FIELD_ARRAY, .at = AT(tools), .hi = 1024},
    {0},
};

const struct field ollama_text_fields[] = {
    PARSE("prompt", parse_prompt),
    {.name = "system", .type = FIELD_TEXT, .at = AT(system), .hi = MANY},
    {.name = "raw", .type = FIELD_BOOL, .at = AT(parse_special)}, /* no template: control tokens are read as such */
    PARSE("images", parse_images),
    ONLY("template", "[\"\"]"),
    {.name = "suffix", .type = FIELD_TEXT, .at = AT(suffix), .hi = MANY},
    ONLY("context", "[[]]"),
    {0},
};

/* ---- messages ---- */

#define MAX_CALLS 64 /* of one message, whose results find their calls by name */
#define MESSAGE_BYTES                                                                                                  \
    640                 /* members that are added to a message: its content, the name of its tool, the id of its call */
#define CALL_BYTES 1024 /* to a call: id, type, arguments */

/* The calls of the last message that had any, which the results after it answer. */
struct open_calls {
    const struct answer_params *params;
    const json_t *calls; /* NULL: none */
    uint64_t answered;   /* a bit for each of the first MAX_CALLS */
    int n_messages;      /* with calls, for ids */
};

static void call_id(char id[32], const struct open_calls *o, size_t k)
{
    snprintf(id, 32, "call_%d_%zu", o->n_messages, k);
}

/* Gives a call what the OpenAI API's has. */
static int complete_call(json_t *call, size_t k, const struct open_calls *o)
{
    char made[32];
    json_t *function = json_object_get(call, "function"), *id = json_object_get(call, "id");
    int bad = 0;
    call_id(made, o, k);
    if (!json_is_string(id) || !json_string_length(id)) bad = json_object_set_new(call, "id", json_string(made));
    bad = bad || json_object_set_new(call, "type", json_string("function"));
    json_object_del(function, "index");
    if (!json_object_get(function, "arguments")) bad = bad || json_object_set_new(function, "arguments", json_object());
    return bad;
}

/* Copies of calls, completed. A malformed one is left as it is: qn_chat_prompt() refuses it by its place. */
static json_t *make_calls(const json_t *calls, const struct open_calls *o, struct fault *f)
{
    json_t *all = json_array();
    int bad = !all;
    for (size_t i = 0; i < json_array_size(calls) && !bad; i++) {
        json_t *call = json_array_get(calls, i), *copy = NULL;
        bool is_whole = json_is_string(json_object_get(json_object_get(call, "function"), "name"));
        if (is_whole && (!(copy = json_deep_copy(call)) || complete_call(copy, i, o))) bad = 1;
        bad = bad || json_array_append(all, copy ? copy : call) || params_is_over(o->params, i, f);
        json_decref(copy);
    }
    if (!bad) return all;
    json_decref(all);
    return NULL;
}

/* The call that a result answers: the first one of its tool, or else the first that has no result. -1: none. */
static int answered_call(struct open_calls *o, const char *tool)
{
    int n = (int)json_array_size(o->calls), first = -1;
    for (int i = 0; i < n && i < MAX_CALLS; i++) {
        const json_t *function = json_object_get(json_array_get(o->calls, (size_t)i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (o->answered >> i & 1) continue;
        if (first < 0) first = i;
        if (tool && name && !strcmp(tool, name)) return i;
    }
    return first;
}

/* A result has the name of its tool and the id of its call. */
static int link_result(json_t *m, struct open_calls *o, struct fault *f)
{
    json_t *tool = json_object_get(m, "tool_name");
    const json_t *id = json_object_get(m, "tool_call_id");
    int bad = 0, k = answered_call(o, json_string_value(tool));
    if (json_is_string(tool) && !json_object_get(m, "name")) bad = json_object_set(m, "name", tool);
    json_object_del(m, "tool_name");
    if (k >= 0) o->answered |= (uint64_t)1 << k;
    if (json_is_string(id) && json_string_length(id)) return bad ? api_no_memory(f) : 0;
    const json_t *own = json_object_get(json_array_get(o->calls, k < 0 ? 0 : (size_t)k), "id");
    bad = bad ||
          json_object_set_new(m, "tool_call_id", own ? json_incref((json_t *)(uintptr_t)own) : json_string("call"));
    return bad ? api_no_memory(f) : 0;
}

/* Makes a message of the OpenAI API's shape; further members go to the template. */
static json_t *make_message(const json_t *v, struct open_calls *o, struct fault *f)
{
    json_t *m = json_copy((json_t *)(uintptr_t)v);
    const json_t *thinking = json_object_get(v, "thinking"), *calls = json_object_get(v, "tool_calls");
    const json_t *content = json_object_get(v, "content");
    int bad = !m;
    json_object_del(m, "images");
    json_object_del(m, "thinking");
    if (json_is_string(thinking) && json_string_length(thinking))
        bad = bad || json_object_set(m, "reasoning_content", (json_t *)(uintptr_t)thinking);
    if (!content || json_is_null(content)) bad = bad || json_object_set_new(m, "content", json_string(""));
    if (json_is_array(calls) && json_array_size(calls)) {
        json_t *made = make_calls(calls, o, f);
        bad = bad || json_object_set(m, "tool_calls", made);
        *o = (struct open_calls){.params = o->params, .calls = made, .n_messages = o->n_messages + 1};
        json_decref(made); /* the message has it */
    }
    if (!bad && field_is(json_object_get(v, "role"), "tool") && link_result(m, o, f)) bad = 1;
    if (!bad) return m;
    json_decref(m);
    o->calls = NULL;
    if (!f->status) api_no_memory(f);
    return NULL;
}

/* Takes the memory for what is added to messages and calls, which may be more than they had. */
static int take_memory(struct job *j, struct fault *f)
{
    const json_t *messages = j->params.messages;
    size_t n_calls = 0, n = json_array_size(messages);
    for (size_t i = 0; i < n; i++)
        n_calls += json_array_size(json_object_get(json_array_get(messages, i), "tool_calls"));
    return ticket_take(j->ticket, n * MESSAGE_BYTES + n_calls * CALL_BYTES, "a conversation", f);
}

static int make_messages(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct open_calls o = {.params = a};
    if (take_memory(j, f)) return -1;
    json_t *out = params_keep(a, json_array(), f);
    char name[64];
    for (size_t i = 0; out && i < json_array_size(a->messages); i++) {
        const json_t *v = json_array_get(a->messages, i), *images = json_object_get(v, "images");
        if (!json_is_object(v)) return field_wrong_type(f, "messages", "an array of objects", v);
        snprintf(name, sizeof name, "messages[%zu].images", i);
        if (images && !json_is_null(images) && parse_images(NULL, NULL, name, images, f)) return -1;
        json_t *m = make_message(v, &o, f);
        if (!m) return -1;
        if (json_array_append_new(out, m)) return api_no_memory(f);
        if (params_is_over(a, i, f)) return -1;
    }
    a->messages = out;
    return out ? 0 : -1;
}

/* ---- prompts ---- */

/* A model without thoughts cannot think. If it always thinks, or knows no levels, false or a level change nothing. */
static int check_think(struct job *j, const json_t *think, struct fault *f)
{
    struct qn_chat_capabilities can = {.size = sizeof can};
    if (j->served->chat) qn_chat_capabilities(&can, j->served->chat, NULL); /* cannot fail */
    bool ignored = (json_is_string(think) && !can.levels) || (json_is_false(think) && !can.switches);
    if (!can.thinking && !json_is_false(think))
        return fault_set(f, 400, "unsupported_value", "think", "\"%s\" does not support thinking", j->served->name);
    return can.thinking && ignored ? field_ignore(f, "think") : 0;
}

/* Checks that concern several fields or the model. */
static int check(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    const json_t *think = json_object_get(a->body, "think");
    if (a->max_tokens <= 0) a->max_tokens = -1; /* 0, -1 and -2: as many as there is room for */
    return !think || json_is_null(think) ? 0 : check_think(j, think, f);
}

int ollama_prepare_chat(struct job *j, struct fault *f)
{
    return check(j, f) || make_messages(j, f) || job_prepare_chat(j, f) ? -1 : 0;
}

/* Many raw prompts begin with the text of the token that is added in front: then one of the two is dropped. */
static void drop_second_bos(const qn_model *m, struct answer_params *a)
{
    qn_token *bos = NULL;
    size_t n = 0;
    if (qn_tokenize(m, "", 0, QN_ADD_BOS, NULL, &bos, &n, NULL) || n == 0 || a->n_tokens < n + 1) n = 0;
    if (n == 1 && a->tokens[0] == bos[0] && a->tokens[1] == bos[0])
        memmove(a->tokens, a->tokens + 1, --a->n_tokens * sizeof *a->tokens);
    qn_free(bos);
}

/* A prompt that no template changes. */
static int prepare_raw(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct qn_error e = {0};
    const qn_model *m = j->served->model;
    size_t taken;
    if (a->n_text > qn_model_max_text(m, j->served->n_ctx))
        return fault_set(f, 400, "context_length_exceeded", "prompt",
                         "the context holds %d tokens; a prompt of %zu bytes cannot fit", j->served->n_ctx, a->n_text);
    if (api_take_work(j->ticket, a->n_text, &taken, f)) return -1;
    int rc = qn_tokenize(m, a->text, a->n_text, QN_ADD_BOS | (a->parse_special ? QN_PARSE_SPECIAL : 0),
                         &j->ticket->cancel, &a->tokens, &a->n_tokens, &e);
    ticket_give(j->ticket, taken);
    if (rc) return ticket_failed(j->ticket, f, &e);
    if (a->parse_special) drop_second_bos(m, a);
    j->tokens = a->tokens;
    j->n_tokens = a->n_tokens;
    return 0;
}

/* A prompt for the gap between the prompt and the suffix, which has no place for anything else. */
static int prepare_gap(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct qn_infill p;
    if (a->parse_special) return field_unsupported(f, "suffix", "a suffix of a prompt that is raw is");
    if (json_string_length(a->system) > 0) return field_unsupported(f, "system", "a system message for a gap is");
    qn_infill_init(&p);
    p.prefix = a->text;
    p.n_prefix = a->n_text;
    p.suffix = json_string_value(a->suffix);
    p.n_suffix = json_string_length(a->suffix);
    if (infill_tokens(j, &p, "suffix", f)) return -1;
    j->tokens = a->tokens;
    j->n_tokens = a->n_tokens;
    return 0;
}

/* A model without a template continues the prompt, as Ollama does it. */
int ollama_prepare_text(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    bool raw = a->parse_special || !j->served->chat, has_system = json_string_length(a->system) > 0;
    if (check(j, f)) return -1;
    if (json_string_length(a->suffix) > 0) return prepare_gap(j, f);
    if (raw && has_system)
        return fault_set(f, 400, "invalid_value", "system", "system: there is no template that it could go into: %s",
                         a->parse_special ? "raw is true" : "the model has none");
    if (raw) return prepare_raw(j, f);
    json_t *all = params_keep(a, json_array(), f);
    int bad = !all;
    if (has_system)
        bad = bad || json_array_append_new(all, json_pack("{s:s,s:O}", "role", "system", "content", a->system));
    bad = bad || json_array_append_new(all, json_pack("{s:s,s:s%}", "role", "user", "content", a->text, a->n_text));
    if (bad) return api_no_memory(f);
    a->messages = all;
    return job_prepare_chat(j, f);
}
