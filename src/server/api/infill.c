/* SPDX-License-Identifier: MIT
 *
 * infill.c: POST /infill: fills the gap between two texts, for editors that speak llama.cpp's API (llama.vim,
 * llama.vscode). What does not fit the context is left out, as these editors expect, and the answer says so in
 * `truncated`.
 *
 * Source: llama.cpp's description of its server, "/infill" and "/completion".
 */
#include "server/api/api_impl.h"

#include <limits.h>
#include <string.h>

#include "base/json/json_text.h"
#include "base/os.h"

#define MAX_FILES  1024
#define MAX_FIELDS 64 /* of response_fields */

/* ---- fields ---- */

#define AT(member) offsetof(struct answer_params, member)
#define ANY_TEXT   (1 << 24) /* bytes: the body's limit comes first */

/* A filter that a request may leave out of its list, and the value at which it is off. */
struct infill_filter {
    const char *name, *other; /* two spellings */
    size_t at;                /* of a float in struct qn_sampling */
    float off;
};

#define SAMPLING(member) offsetof(struct qn_sampling, member)
static const struct infill_filter filters[] = {
    {"top_p", "top-p", SAMPLING(top_p), 1},
    {"min_p", "min-p", SAMPLING(min_p), 0},
    {"typ_p", "typical_p", SAMPLING(typical_p), 1},
    {"top_n_sigma", "top-n-sigma", SAMPLING(top_n_sigma), 0},
    {"xtc", "xtc", SAMPLING(xtc_probability), 0},
    {"dry", "dry", SAMPLING(dry_multiplier), 0},
    {"penalties", "penalties", SAMPLING(repetition_penalty), 1},
    {"penalties", "penalties", SAMPLING(frequency_penalty), 0},
    {"penalties", "penalties", SAMPLING(presence_penalty), 0},
};
#define N_FILTERS (sizeof filters / sizeof filters[0])

static bool is_listed(const json_t *list, const char *name, const char *other)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (field_is(json_array_get(list, i), name) || field_is(json_array_get(list, i), other)) return true;
    return false;
}

static bool is_filter(const json_t *name)
{
    if (field_is(name, "top_k") || field_is(name, "top-k") || field_is(name, "temperature")) return true;
    for (size_t i = 0; i < N_FILTERS; i++)
        if (field_is(name, filters[i].name) || field_is(name, filters[i].other)) return true;
    return field_is(name, "infill"); /* a filter that Quern does not have; without it, more answers are possible */
}

static int parse_samplers(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array of names", v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        if (!json_is_string(one)) return field_wrong_type(f, name, "an array of names", one);
        if (!is_filter(one))
            return fault_set(f, 400, "unsupported_value", name, "%s: there is no filter '%s'", name,
                             json_string_value(one));
    }
    ((struct answer_params *)out)->samplers = v;
    return 0;
}

/* Turns off the filters that are not in the list. Fields come in any order, so this follows when all were read. */
static void apply_samplers(struct answer_params *a)
{
    struct qn_sampling *s = &a->sampling;
    if (!a->samplers) return;
    for (size_t i = 0; i < N_FILTERS; i++)
        if (!is_listed(a->samplers, filters[i].name, filters[i].other))
            *(float *)((char *)s + filters[i].at) = filters[i].off;
    if (!is_listed(a->samplers, "top_k", "top-k")) s->top_k = 0;
    if (!is_listed(a->samplers, "temperature", "temperature") && s->temperature > 0) s->temperature = 1;
}

static int parse_response_fields(void *out, const struct field *field, const char *name, const json_t *v,
                                 struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array of names", v);
    if (json_array_size(v) > MAX_FIELDS)
        return fault_set(f, 400, "out_of_range", name, "%s: at most %d names", name, MAX_FIELDS);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        if (!json_is_string(one)) return field_wrong_type(f, name, "an array of names", one);
        if (json_string_length(one) > 256 || field_no_nul(name, one, f))
            return f->status ? -1 : fault_set(f, 400, "out_of_range", name, "%s: a name has 256 bytes at most", name);
    }
    if (json_array_size(v) == 0) return 0;
    a->response_fields = json_deep_copy(v);
    return a->response_fields ? 0 : api_no_memory(f);
}

#define INT(field, member, low, high)                                                                                  \
    {                                                                                                                  \
        .name = field, .type = FIELD_INT, .at = AT(member), .lo = low, .hi = high                                      \
    }
#define TEXT(field, member)                                                                                            \
    {                                                                                                                  \
        .name = field, .type = FIELD_TEXT, .at = AT(member), .hi = ANY_TEXT                                            \
    }
const struct field infill_fields[] = {
    TEXT("input_prefix", input_prefix),
    TEXT("input_suffix", suffix),
    TEXT("prompt", prompt),
    {.name = "input_extra", .type = FIELD_ARRAY, .at = AT(input_extra), .hi = MAX_FILES},
    INT("n_cmpl", n, 1, PARAMS_MAX_ANSWERS),
    INT("n_indent", n_indent, 0, 4096),
    INT("t_max_predict_ms", predict_ms, 0, INT_MAX),
    {.name = "samplers", .type = FIELD_PARSE, .parse = parse_samplers},
    {.name = "response_fields", .type = FIELD_PARSE, .parse = parse_response_fields},
    {.name = "lora", .type = FIELD_ONE_OF, .allowed = "[[]]"},
    {.name = "n_probs", .type = FIELD_ONE_OF, .allowed = "[0]"},
    {.name = "t_max_prompt_ms", .type = FIELD_IGNORED, .allowed = "n"},
    {0},
};

static const struct field *const tables[] = {infill_fields, params_openai_fields, params_sampling_fields,
                                            params_shared_fields, NULL};

/* ---- the prompt ---- */

int infill_tokens(struct job *j, const struct qn_infill *p, const char *param, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct qn_error e = {0};
    size_t n_text = p->n_prefix + p->n_suffix, taken;
    for (size_t i = 0; i < p->n_files; i++) n_text += p->files[i].n_name + p->files[i].n_text;
    if (api_take_work(j->ticket, n_text, &taken, f)) return -1;
    int rc = qn_infill_prompt(j->served->model, p, &j->ticket->cancel, &a->tokens, &a->n_tokens, &a->was_cut, &e);
    ticket_give(j->ticket, taken);
    if (rc == QN_EUNSUP) return fault_set(f, 400, "unsupported_value", param, "%s: %s", param, e.msg);
    return rc ? ticket_failed(j->ticket, f, &e) : 0;
}

/* One element of input_extra. */
struct extra {
    const json_t *text, *filename, *time;
};

static int read_extra(const json_t *v, size_t i, struct qn_infill_file *out, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "text", .type = FIELD_TEXT, .at = offsetof(struct extra, text), .hi = ANY_TEXT, .required = true},
        {.name = "filename", .type = FIELD_TEXT, .at = offsetof(struct extra, filename), .hi = ANY_TEXT},
        {.name = "time", .type = FIELD_ANY, .at = offsetof(struct extra, time)}, /* the editor's own */
        {0},
    };
    struct extra x = {0};
    char prefix[48];
    snprintf(prefix, sizeof prefix, "input_extra[%zu]", i);
    if (!json_is_object(v)) return field_wrong_type(f, prefix, "an object", v);
    strcat(prefix, ".");
    if (field_read((const struct field *const[]){rows, NULL}, prefix, v, &x, f)) return -1;
    *out = (struct qn_infill_file){.name = x.filename ? json_string_value(x.filename) : "tmp",
                                   .n_name = x.filename ? json_string_length(x.filename) : strlen("tmp"),
                                   .text = json_string_value(x.text),
                                   .n_text = json_string_length(x.text)};
    return 0;
}

/* The tokens that a prompt may have: at least half of the context. */
static size_t prompt_room(const struct job *j)
{
    int n_ctx = j->served->n_ctx, most = j->params.max_tokens < 0 ? n_ctx / 4 : n_ctx / 2;
    int more = j->params.max_tokens < 0 || j->params.max_tokens > most ? most : j->params.max_tokens;
    return (size_t)(n_ctx - more);
}

/* The prompt belongs to the text before the gap: it is what the user has typed last. */
static int make_tokens(struct job *j, struct buf *before, struct qn_infill_file *files, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct qn_infill p;
    for (size_t i = 0; i < json_array_size(a->input_extra); i++)
        if (read_extra(json_array_get(a->input_extra, i), i, &files[i], f)) return -1;
    if (buf_add(before, json_string_value(a->input_prefix), json_string_length(a->input_prefix), NULL) ||
        buf_add(before, json_string_value(a->prompt), json_string_length(a->prompt), NULL))
        return api_no_memory(f);
    qn_infill_init(&p);
    p.prefix = (char *)before->data;
    p.n_prefix = before->len;
    p.suffix = json_string_value(a->suffix);
    p.n_suffix = json_string_length(a->suffix);
    p.files = files;
    p.n_files = json_array_size(a->input_extra);
    p.max_tokens = prompt_room(j);
    return infill_tokens(j, &p, "input_prefix", f);
}

static int prepare(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct buf before = {0};
    size_t n_files = json_array_size(a->input_extra);
    if (a->response_fields && a->stream)
        return field_unsupported(f, "response_fields", "a choice of members in a stream is");
    struct qn_infill_file *files = mem_calloc(n_files + 1, sizeof *files);
    if (!files) return api_no_memory(f);
    apply_samplers(a);
    int rc = make_tokens(j, &before, files, f);
    buf_deinit(&before);
    mem_free(files);
    if (rc) return rc;
    int room = j->served->n_ctx - (int)a->n_tokens;
    if (a->max_tokens > room) a->max_tokens = room;
    j->tokens = a->tokens;
    j->n_tokens = a->n_tokens;
    return 0;
}

/* ---- where an answer ends ---- */

/* Takes one character. A line break and the space after it are held back until it is clear how far the line is
 * indented. Lines of white space alone do not count. Returns true if the line is indented less than asked for. */
static bool take_char(struct job *j, struct job_answer *a, char c, struct buf *out)
{
    bool is_space = c == ' ' || c == '\t';
    if (c == '\n') {
        a->in_line = false;
        a->has_line = true;
        a->n_indent = 0;
    } else if (a->has_line && !a->in_line && is_space) {
        a->n_indent++;
    } else if (a->has_line && !a->in_line && c != '\r') {
        if (a->n_indent < j->params.n_indent) return true;
        a->in_line = true;
    }
    bool hold = j->params.n_indent > 0 && a->has_line && !a->in_line;
    if (!hold && a->held.len) {
        if (buf_add(out, a->held.data, a->held.len, NULL)) j->out.failed = true;
        buf_clear(&a->held);
    }
    if (buf_add(hold ? &a->held : out, &c, 1, NULL)) j->out.failed = true;
    return false;
}

static bool is_late(const struct job *j)
{
    uint64_t ms = (uint64_t)j->params.predict_ms;
    return ms && j->first_token_ns && clock_ns() - j->first_token_ns > ms * 1000000;
}

static bool limit(struct job *j, int i, const char *text, size_t n, struct buf *out)
{
    struct job_answer *a = &j->answer[i];
    if (!text && a->held.len && buf_add(out, a->held.data, a->held.len, NULL)) j->out.failed = true;
    if (!text) return false;
    for (size_t k = 0; k < n; k++)
        if (take_char(j, a, text[k], out)) return true;
    return a->has_line && is_late(j);
}

/* ---- writing ---- */

static const char *stop_type(const struct job_answer *a)
{
    switch (a->finish) {
    case QN_FINISH_STOP_TOKEN: return "eos";
    case QN_FINISH_STOP_STRING: return "word";
    case QN_FINISH_LENGTH: return "limit";
    default: return "none";
    }
}

/* A rate in each direction: of n tokens in ms. */
static void write_pace(struct json_out *o, const char *const keys[4], int n, double ms)
{
    json_out_int(o, keys[0], n);
    json_out_num(o, keys[1], ms);
    json_out_num(o, keys[2], n > 0 ? ms / n : 0);
    json_out_num(o, keys[3], ms > 0 ? n * 1000.0 / ms : 0);
}

static void write_timings(struct job *j, struct json_out *o)
{
    static const char *const prompt[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second"};
    static const char *const answer[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms",
                                         "predicted_per_second"};
    json_out_open(o, "timings", '{');
    write_pace(o, prompt, j->usage.n_prompt - j->usage.n_cached, j->timings.prefill_ms);
    write_pace(o, answer, j->usage.n_generated, j->timings.decode_ms);
    json_out_close(o, '}');
}

static void write_head(struct job *j, int i, const char *text, size_t n, bool ended)
{
    struct json_out *o = &j->out;
    json_out_open(o, NULL, '{');
    json_out_int(o, "index", i);
    json_out_text(o, "content", text, n);
    json_out_bool(o, "stop", ended);
    json_out_int(o, "tokens_predicted", j->answer[i].n_tokens);
    json_out_int(o, "tokens_evaluated", (int64_t)j->n_tokens);
}

/* The members of the last chunk and of a whole answer. Only the last one of all knows the counts and times. */
static void write_end(struct job *j, int i, bool last)
{
    struct json_out *o = &j->out;
    const struct job_answer *a = &j->answer[i];
    bool is_word = a->finish == QN_FINISH_STOP_STRING && a->stop_index >= 0;
    json_out_str(o, "model", j->served->name);
    json_out_int(o, "tokens_cached", (int64_t)j->n_tokens + a->n_tokens);
    json_out_bool(o, "has_new_line", a->has_line);
    json_out_bool(o, "truncated", j->params.was_cut);
    json_out_str(o, "stop_type", stop_type(a));
    json_out_str(o, "stopping_word", is_word ? j->params.stop[a->stop_index] : "");
    if (last) write_timings(j, o);
    if (last) job_write_quern(j);
}

static void text_stream(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    (void)kind;
    job_event(j, NULL);
    write_head(j, i, text, n, false);
    json_out_close(&j->out, '}');
    job_event_end(j);
}

static void finish_stream(struct job *j, int i, bool last)
{
    job_event(j, NULL);
    write_head(j, i, "", 0, true);
    write_end(j, i, last);
    json_out_close(&j->out, '}');
    job_event_end(j);
}

static void close_stream(struct job *j) { (void)j; /* the last chunk says `stop` */ }

/* The value at "timings/prompt_n"; NULL: there is none. */
static json_t *value_at(json_t *v, const char *way)
{
    char name[257];
    for (; v; way += strcspn(way, "/") + 1) {
        size_t n = strcspn(way, "/");
        memcpy(name, way, n);
        name[n] = 0;
        v = json_object_get(v, name);
        if (!way[n]) break;
    }
    return v;
}

/* Replaces the object in j->out by one with the members that were asked for. */
static void pick_fields(struct job *j)
{
    struct json_out *o = &j->out;
    struct buf text = {0};
    json_t *all = o->failed ? NULL : json_loadb((char *)o->b.data, o->b.len, JSON_ALLOW_NUL, NULL);
    json_t *some = json_object(), *name;
    size_t i;
    bool bad = !all || !some;
    json_array_foreach(j->params.response_fields, i, name)
    {
        json_t *v = bad ? NULL : value_at(all, json_string_value(name));
        if (v && json_object_set(some, json_string_value(name), v)) bad = true;
    }
    bad = bad || json_text_add(&text, some, JSON_COMPACT, "an answer", NULL);
    json_out_deinit(o);
    if (bad)
        o->failed = true;
    else
        json_out_raw(o, NULL, text.data, text.len);
    buf_deinit(&text);
    json_decref(all);
    json_decref(some);
}

static void whole_one(struct job *j, int i)
{
    const struct job_answer *a = &j->answer[i];
    write_head(j, i, (char *)a->content.data, a->content.len, true);
    write_end(j, i, true);
    json_out_close(&j->out, '}');
}

/* Several answers are an array. */
static void whole(struct job *j)
{
    struct json_out all = {.ledger = j->out.ledger};
    if (j->params.n > 1) json_out_open(&all, NULL, '[');
    for (int i = 0; i < j->params.n && !j->out.failed; i++) {
        whole_one(j, i);
        if (j->params.response_fields) pick_fields(j);
        json_out_raw(&all, NULL, j->out.b.data, j->out.b.len);
        all.failed = all.failed || j->out.failed;
        json_out_deinit(&j->out);
    }
    if (j->params.n > 1) json_out_close(&all, ']');
    j->out = all;
}

const struct dialect infill = {
    .tables = tables,
    .id_prefix = "infill-",
    .prompt_field = "prompt",
    .refuse = api_refuse_openai,
    .prepare = prepare,
    .limit = limit,
    .text_stream = text_stream,
    .finish_stream = finish_stream,
    .close_stream = close_stream,
    .error_stream = openai_error_stream,
    .whole = whole,
};
