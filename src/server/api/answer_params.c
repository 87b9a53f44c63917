/* SPDX-License-Identifier: MIT
 *
 * answer_params.c: the tables of fields of requests for an answer, and the parsers of fields that are more than one
 * value. docs/API.md says what the fields mean.
 *
 * Source: the OpenAI API reference (completions, chat completions). Fields with other names are extensions; they have
 * the names and the meaning of the members of struct qn_sampling.
 */
#include "server/api/answer_params.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

#define AT(member) offsetof(struct answer_params, member)
#define ASK_EVERY  1024      /* elements between two questions whether to go on: about a millisecond */
#define MANY       (1 << 24) /* bytes or elements: no limit of its own, because the body's limit comes first */

void params_init(struct answer_params *a, int n_vocab)
{
    *a = (struct answer_params){.n_vocab = n_vocab,
                                .n = 1,
                                .max_tokens = -1,
                                .add_generation_prompt = true,
                                .cache_prompt = true,
                                .store = true};
    qn_sampling_init(&a->sampling);
    a->draft = QN_DRAFT_DEFAULT;
    qn_wedlm_init(&a->wedlm);
}

void params_deinit(struct answer_params *a)
{
    mem_free((void *)(uintptr_t)a->sampling.logit_bias);
    mem_free(a->stop_tokens);
    mem_free(a->tokens);
    for (int i = 0; i <= PARAMS_MAX_STOP; i++) mem_free(a->kept[i]);
    json_decref(a->instructions);
    json_decref(a->response_fields);
    buf_deinit(&a->tools_again);
    buf_deinit(&a->format.text);
    call_params_deinit(&a->calls);
    buf_deinit(&a->ignored.names);
    json_decref(a->made);
    json_decref(a->body);
}

/* Checks that concern several fields. */
static int check(struct answer_params *a, struct fault *f)
{
    struct qn_error e = {0};
    if (decoder_draft(a->decoder, &a->draft, &e)) return fault_set(f, 400, "unsupported_value", "decoder", "%s", e.msg);
    if (a->has_best_of && a->best_of != a->n)
        return fault_set(f, 400, "unsupported_value", "best_of",
                         "best_of: only the value of n (%d) is supported, not %d", a->n, a->best_of);
    if (a->format.is_set && a->ignore_eos)
        return fault_set(f, 400, "unsupported_value", "ignore_eos",
                         "ignore_eos: an answer with a form (%s) ends where that is complete", a->format.field);
    if (a->n_top > 0 && !a->logprobs) {
        a->n_top = 0;
        if (field_ignore(f, "top_logprobs")) return -1;
    }
    if (a->continuous_usage && !a->include_usage) return field_ignore(f, "stream_options.continuous_usage_stats");
    return 0;
}

int params_read(struct answer_params *a, const struct field *const *tables, json_t *body, struct fault *f)
{
    a->body = body;
    f->ignored = &a->ignored;
    return field_read(tables, "", body, a, f) ? -1 : check(a, f);
}

static int no_memory(struct fault *f) { return fault_set(f, 503, "no_memory", NULL, "not enough memory"); }

static int keep_text(struct answer_params *a, int i, const char **text, size_t n, size_t *n_bytes, struct fault *f)
{
    a->kept[i] = mem_dup(*text, n);
    *n_bytes += n;
    *text = a->kept[i];
    return a->kept[i] ? 0 : no_memory(f);
}

int params_let_go(struct answer_params *a, size_t *n_bytes, struct fault *f)
{
    *n_bytes = 0;
    for (int i = 0; i < a->n_stop; i++)
        if (keep_text(a, i, &a->stop[i], strlen(a->stop[i]), n_bytes, f)) return -1;
    if (!a->echo)
        a->text = NULL;
    else if (a->text && keep_text(a, PARAMS_MAX_STOP, &a->text, a->n_text, n_bytes, f))
        return -1;
    *n_bytes += json_string_length(a->instructions) + a->tools_again.len + a->ignored.names.len + a->format.text.len +
                a->calls.again.len;
    a->prompts = NULL;
    a->model = a->cache_salt = a->reasoning_effort = NULL;
    a->input_prefix = a->prompt = a->suffix = a->input_extra = a->samplers = NULL;
    a->messages = a->tools = a->documents = a->template_kwargs = a->system = NULL;
    json_decref(a->made);
    json_decref(a->body);
    a->made = a->body = NULL;
    return 0;
}

json_t *params_keep(struct answer_params *a, json_t *made, struct fault *f)
{
    if (!a->made) a->made = json_array();
    if (!a->made) json_decref(made);
    if (made && a->made && json_array_append_new(a->made, made) == 0) return made;
    no_memory(f);
    return NULL;
}

json_t *params_joined(struct buf *text, struct fault *f)
{
    json_t *j = json_stringn(text->data ? (char *)text->data : "", text->len);
    buf_deinit(text);
    if (!j) no_memory(f);
    return j;
}

bool params_is_over(const struct answer_params *a, size_t i, struct fault *f)
{
    if (i % ASK_EVERY != ASK_EVERY - 1 || !a->cancel || !a->cancel->is_cancelled(a->cancel->arg)) return false;
    fault_set(f, 503, NULL, NULL, "the request was ended");
    return true;
}

/* ---- parsers ---- */

/* Reads a token of the vocabulary. It also rejects NaN, which JSON does not have but which a comparison would accept.
 */
static int token_id(const char *name, const json_t *v, int n_vocab, qn_token *out, struct fault *f)
{
    double x = json_number_value(v);
    if (!json_is_number(v)) return field_wrong_type(f, name, "a token id", v);
    if (!(x >= 0 && x < n_vocab) || x != trunc(x))
        return fault_set(f, 400, "out_of_range", name, "%s: the vocabulary has tokens 0..%d, not %.17g", name,
                         n_vocab - 1, x);
    *out = (qn_token)x;
    return 0;
}

int params_tokens(const char *name, const json_t *array, int n_vocab, qn_token **out, size_t *n, struct fault *f)
{
    size_t count = json_array_size(array);
    qn_token *t = mem_alloc(count * sizeof *t);
    if (!t) return no_memory(f);
    for (size_t i = 0; i < count; i++)
        if (token_id(name, json_array_get(array, i), n_vocab, &t[i], f)) {
            mem_free(t);
            return -1;
        }
    mem_free(*out);
    *out = t;
    *n = count;
    return 0;
}

static int add_stop(struct answer_params *a, const char *name, const json_t *v, struct fault *f)
{
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string or an array of strings", v);
    if (json_string_length(v) == 0) return 0; /* clients send it for "none" */
    if (json_string_length(v) > PARAMS_MAX_STOP_BYTES)
        return fault_set(f, 400, "out_of_range", name, "%s: a text may have %d bytes", name, PARAMS_MAX_STOP_BYTES);
    if (field_no_nul(name, v, f)) return -1;
    if (a->n_stop == PARAMS_MAX_STOP)
        return fault_set(f, 400, "out_of_range", name, "%s: at most %d texts", name, PARAMS_MAX_STOP);
    a->stop[a->n_stop++] = json_string_value(v);
    return 0;
}

int params_parse_stop(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (!json_is_array(v)) return add_stop(a, name, v, f);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (add_stop(a, name, json_array_get(v, i), f)) return -1;
    return 0;
}

/* Tokens that end the answer in addition to the model's own. */
static int parse_stop_tokens(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array of token ids", v);
    return params_tokens(name, v, a->n_vocab, &a->stop_tokens, &a->n_stop_tokens, f);
}

/* Who may guess the next tokens. */
static int parse_draft(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    for (enum qn_draft d = QN_DRAFT_OFF; d <= QN_DRAFT_DEFAULT; d++)
        if (field_is(v, qn_draft_name(d))) {
            a->draft = d;
            return 0;
        }
    return field_unsupported(f, name, "anything but off, auto, ngram, mtp, model, wedlm and default is");
}

/* How tokens are found: a coarser choice of who may guess. */
static int parse_decoder(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    for (enum decoder d = DECODER_AUTO; d <= DECODER_WEDLM; d++)
        if (field_is(v, decoder_name(d))) {
            a->decoder = d;
            return 0;
        }
    return field_unsupported(f, name, "anything but auto, plain and wedlm is");
}

/* Whether windows only guess, so that the answer is that of plain decoding. */
static int parse_verify(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (!json_is_boolean(v)) return field_wrong_type(f, name, "true or false", v);
    a->wedlm.verify = json_is_true(v);
    return 0;
}

/* {"ID": BIAS, ...} */
static int parse_logit_bias(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    size_t n = 0;
    const char *key;
    json_t *bias;
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    if (json_object_size(v) > PARAMS_MAX_BIAS)
        return fault_set(f, 400, "out_of_range", name, "%s: at most %d tokens", name, PARAMS_MAX_BIAS);
    struct qn_logit_bias *b = mem_alloc(json_object_size(v) * sizeof *b);
    if (!b) return no_memory(f);
    a->sampling.logit_bias = b;
    json_object_foreach((json_t *)(uintptr_t)v, key, bias)
    {
        size_t digits = strspn(key, "0123456789");
        long id = digits > 0 && digits < 10 && !key[digits] ? strtol(key, NULL, 10) : -1;
        double x = json_number_value(bias);
        if (id < 0 || id >= a->n_vocab)
            return fault_set(f, 400, "out_of_range", name, "%s: '%s' is no token id in 0..%d", name, key,
                             a->n_vocab - 1);
        if (!json_is_number(bias)) return field_wrong_type(f, name, "an object of numbers", bias);
        if (x < -100 || x > 100)
            return fault_set(f, 400, "out_of_range", name, "%s: a bias has to be in -100..100, not %g", name, x);
        b[n++] = (struct qn_logit_bias){(qn_token)id, (float)x};
    }
    a->sampling.n_logit_bias = n;
    return 0;
}

int params_parse_stream_options(void *out, const struct field *field, const char *name, const json_t *v,
                                struct fault *f)
{
    static const struct field rows[] = {
        {.name = "include_usage", .type = FIELD_BOOL, .at = AT(include_usage)},
        {.name = "continuous_usage_stats", .type = FIELD_BOOL, .at = AT(continuous_usage)},
        {.name = "include_obfuscation", .type = FIELD_IGNORED, .allowed = "b"},
        {0},
    };
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    return field_read((const struct field *const[]){rows, NULL}, "stream_options.", v, out, f);
}

/* A text, token ids, or an array of texts or of lists of token ids. */
static int parse_prompt(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    const json_t *first = json_array_get(v, 0);
    if (json_is_string(v)) {
        a->text = json_string_value(v);
        a->n_text = json_string_length(v);
        return 0;
    }
    if (!json_is_array(v) || !first) return field_wrong_type(f, name, "a text or an array of token ids", v);
    if (json_is_number(first)) return params_tokens(name, v, a->n_vocab, &a->tokens, &a->n_tokens, f);
    if (json_array_size(v) > PARAMS_MAX_PROMPTS)
        return fault_set(f, 400, "out_of_range", name, "%s: at most %d prompts, not %zu", name, PARAMS_MAX_PROMPTS,
                         json_array_size(v));
    if (json_array_size(v) > 1) {
        a->prompts = v;
        return 0;
    }
    if (json_is_array(first) && !json_is_number(json_array_get(first, 0)))
        return field_wrong_type(f, name, "a text or an array of token ids", v);
    return parse_prompt(out, field, name, first, f);
}

/* If false, the answer ends with its first call. */
int params_parse_parallel(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_boolean(v)) return field_wrong_type(f, name, "true or false", v);
    ((struct answer_params *)out)->one_call = json_is_false(v);
    return 0;
}

/* ---- the tables ---- */

#define FLOAT(field, member, low, high)                                                                                \
    {                                                                                                                  \
        .name = field, .type = FIELD_FLOAT, .at = AT(member), .lo = low, .hi = high                                    \
    }
#define INT(field, member, low, high)                                                                                  \
    {                                                                                                                  \
        .name = field, .type = FIELD_INT, .at = AT(member), .lo = low, .hi = high                                      \
    }
/* A limit of tokens; -1: there is none. */
#define LIMIT(field)                                                                                                   \
    {                                                                                                                  \
        .name = field, .type = FIELD_INT, .at = AT(max_tokens), .lo = -1, .hi = INT_MAX, .present = AT(has_max_tokens) \
    }
#define BOOL(field, member)                                                                                            \
    {                                                                                                                  \
        .name = field, .type = FIELD_BOOL, .at = AT(member)                                                            \
    }
#define STRING(field, member, high)                                                                                    \
    {                                                                                                                  \
        .name = field, .type = FIELD_STRING, .at = AT(member), .lo = 0, .hi = high                                     \
    }
#define PARSE(field, parser)                                                                                           \
    {                                                                                                                  \
        .name = field, .type = FIELD_PARSE, .parse = parser                                                            \
    }
#define EXACT(field, values)                                                                                           \
    {                                                                                                                  \
        .name = field, .type = FIELD_ONE_OF, .allowed = values, .exact = true                                          \
    }

const struct field params_sampling_fields[] = {
    {.name = "seed", .type = FIELD_INT64, .at = AT(seed), .present = AT(has_seed)},
    INT("top_k", sampling.top_k, 0, INT_MAX),
    FLOAT("min_p", sampling.min_p, 0, 1),
    FLOAT("typical_p", sampling.typical_p, 0, 1),
    FLOAT("top_n_sigma", sampling.top_n_sigma, 0, 1000),
    FLOAT("repetition_penalty", sampling.repetition_penalty, 0.01, 100),
    INT("penalty_last_n", sampling.penalty_last_n, -1, INT_MAX),
    FLOAT("repeat_penalty", sampling.repetition_penalty, 0.01, 100), /* the same, as other servers call them */
    INT("repeat_last_n", sampling.penalty_last_n, -1, INT_MAX),
    FLOAT("dry_multiplier", sampling.dry_multiplier, 0, 1000),
    FLOAT("dry_base", sampling.dry_base, 1, 1000),
    INT("dry_allowed_length", sampling.dry_allowed_length, 1, INT_MAX),
    INT("dry_last_n", sampling.dry_last_n, -1, INT_MAX),
    FLOAT("xtc_probability", sampling.xtc_probability, 0, 1),
    FLOAT("xtc_threshold", sampling.xtc_threshold, 0, 1),
    FLOAT("mirostat_tau", sampling.mirostat_tau, 0, 1000),
    FLOAT("mirostat_eta", sampling.mirostat_eta, 0, 1),
    PARSE("logit_bias", parse_logit_bias),
    PARSE("stop_token_ids", parse_stop_tokens),
    BOOL("ignore_eos", ignore_eos),
    INT("priority", priority, -1000, 0), /* nobody may push others back, so it is never above 0 */
    INT("deadline_ms", deadline_ms, 0, INT_MAX),
    STRING("cache_salt", cache_salt, 1024),
    PARSE("draft", parse_draft),
    PARSE("decoder", parse_decoder),
    PARSE("wedlm_verify", parse_verify),
    INT("window", wedlm.window, 1, 16),
    FLOAT("entropy_threshold", wedlm.entropy_threshold, 0, 100),
    FLOAT("pos_penalty", wedlm.pos_penalty, 0, 100),
    PARSE("receipt", receipt_parse_wish),
    PARSE("grammar", format_parse_grammar),
    PARSE("json_schema", format_parse_schema),
    PARSE("regex", format_parse_regex),
    PARSE("choice", format_parse_choice),
    PARSE("structured_outputs", format_parse_structured),
    PARSE("guided_json", format_parse_schema), /* the same, as older servers have them */
    PARSE("guided_grammar", format_parse_grammar),
    PARSE("guided_regex", format_parse_regex),
    PARSE("guided_choice", format_parse_choice),
    {0},
};

const struct field params_openai_fields[] = {
    STRING("model", model, 1024),
    BOOL("stream", stream),
    PARSE("stream_options", params_parse_stream_options),
    INT("n", n, 1, PARAMS_MAX_ANSWERS),
    FLOAT("temperature", sampling.temperature, 0, 2),
    FLOAT("top_p", sampling.top_p, 0, 1),
    FLOAT("frequency_penalty", sampling.frequency_penalty, -2, 2),
    FLOAT("presence_penalty", sampling.presence_penalty, -2, 2),
    PARSE("stop", params_parse_stop),
    LIMIT("max_tokens"),
    LIMIT("n_predict"),
    {.name = "best_of",
     .type = FIELD_INT,
     .at = AT(best_of),
     .lo = 1,
     .hi = PARAMS_MAX_ANSWERS,
     .present = AT(has_best_of)},
    IGNORED("store", "b"),
    IGNORED("metadata", "o"),
    PARSE("response_format", format_parse_response),
    {0},
};

const struct field params_completion_fields[] = {
    {.name = "prompt", .type = FIELD_PARSE, .parse = parse_prompt, .required = true},
    {.name = "logprobs", .type = FIELD_INT, .at = AT(n_top), .hi = QN_MAX_TOP_LOGPROBS, .present = AT(logprobs)},
    BOOL("echo", echo),
    {.name = "parse_special", .type = FIELD_BOOL, .at = AT(parse_special), .present = AT(has_parse_special)},
    {.name = "suffix", .type = FIELD_TEXT, .at = AT(suffix), .hi = MANY},
    {0},
};

const struct field params_chat_fields[] = {
    {.name = "messages", .type = FIELD_ARRAY, .at = AT(messages), .lo = 1, .hi = MANY, .required = true},
    {.name = "tools", .type = FIELD_ARRAY, .at = AT(tools), .hi = 1024},
    PARSE("tool_choice", call_parse_choice),
    PARSE("parallel_tool_calls", params_parse_parallel),
    {.name = "documents", .type = FIELD_ARRAY, .at = AT(documents), .hi = MANY},
    {.name = "chat_template_kwargs", .type = FIELD_OBJECT, .at = AT(template_kwargs)},
    BOOL("add_generation_prompt", add_generation_prompt),
    STRING("reasoning_effort", reasoning_effort, 32),
    LIMIT("max_completion_tokens"),
    BOOL("continue_final_message", continue_final),
    BOOL("logprobs", logprobs),
    INT("top_logprobs", n_top, 0, QN_MAX_TOP_LOGPROBS),
    ONLY("modalities", "[[\"text\"]]"),
    ONLY("audio", "[]"),
    IGNORED("prediction", "o"),
    EXACT("web_search_options", "[]"), /* an empty object asks for a search */
    ONLY("functions", "[]"),
    ONLY("function_call", "[\"none\",\"auto\"]"),
    {0},
};
