/* SPDX-License-Identifier: MIT
 *
 * openai_text.c: POST /v1/completions: continues a text, or fills the gap between a text and a suffix.
 *
 * Editors write the tokens that mark a gap into the prompt, so these are recognised, unless `parse_special` is false.
 * All other control tokens are recognised only if it is true.
 *
 * Source: the OpenAI API reference, "Completions".
 */
#include "server/api/api_impl.h"

#include <string.h>

static const struct field *const tables[] = {params_completion_fields, params_openai_fields, params_shared_fields,
                                             params_sampling_fields, NULL};

#define DEFAULT_MAX_TOKENS 16

/* A prompt for the gap between the text and the suffix. */
static int fill_in(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    if (!a->text)
        return fault_set(f, 400, "unsupported_value", "suffix", "suffix needs a prompt that is a text, not token ids");
    struct qn_infill p;
    qn_infill_init(&p);
    p.prefix = a->text;
    p.n_prefix = a->n_text;
    p.suffix = json_string_value(a->suffix);
    p.n_suffix = json_string_length(a->suffix);
    return infill_tokens(j, &p, "suffix", f);
}

static unsigned flags_of(const struct answer_params *a)
{
    unsigned special = a->parse_special ? QN_PARSE_SPECIAL : 0;
    return QN_ADD_BOS | (a->has_parse_special ? special : QN_PARSE_FIM);
}

/* Refuses a text that is too long for any tokens to fit before the work of making them. */
static int tokenize(struct job *j, const char *text, size_t n_text, qn_token **out, size_t *n, struct fault *f)
{
    struct qn_error e = {0};
    const qn_model *m = j->served->model;
    size_t taken;
    if (n_text > qn_model_max_text(m, j->served->n_ctx))
        return fault_set(f, 400, "context_length_exceeded", "prompt",
                         "This model's maximum context length is %d tokens; a prompt of %zu bytes cannot fit",
                         j->served->n_ctx, n_text);
    if (api_take_work(j->ticket, n_text, &taken, f)) return -1;
    int rc = qn_tokenize(m, text, n_text, flags_of(&j->params), &j->ticket->cancel, out, n, &e);
    ticket_give(j->ticket, taken);
    return rc ? ticket_failed(j->ticket, f, &e) : 0;
}

/* Reads one of several prompts. */
static int read_prompt(struct job *j, const json_t *v, struct job_prompt *p, struct fault *f)
{
    const struct answer_params *a = &j->params;
    if (json_is_array(v)) return params_tokens("prompt", v, a->n_vocab, &p->tokens, &p->n_tokens, f);
    if (!json_is_string(v)) return field_wrong_type(f, "prompt", "an array of texts or of lists of token ids", v);
    if (a->echo) p->text = json_incref((json_t *)(uintptr_t)v);
    return tokenize(j, json_string_value(v), json_string_length(v), &p->tokens, &p->n_tokens, f);
}

static int read_prompts(struct job *j, struct fault *f)
{
    size_t n = json_array_size(j->params.prompts);
    if (n * (size_t)j->params.n > PARAMS_MAX_PROMPTS)
        return fault_set(f, 400, "out_of_range", "prompt",
                         "prompt: %zu prompts with %d answers each; at most %d answers", n, j->params.n,
                         PARAMS_MAX_PROMPTS);
    j->prompts = mem_calloc(n, sizeof *j->prompts);
    if (!j->prompts) return api_no_memory(f);
    j->n_prompts = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (ticket_is_over(j->ticket)) return ticket_fault(j->ticket, f);
        if (read_prompt(j, json_array_get(j->params.prompts, i), &j->prompts[i], f)) return -1;
    }
    return 0;
}

static int prepare(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    if (!a->has_max_tokens) a->max_tokens = DEFAULT_MAX_TOKENS;
    bool has_gap = json_string_length(a->suffix) > 0;
    if (a->prompts && !has_gap) return read_prompts(j, f);
    if (has_gap && fill_in(j, f)) return -1;
    if (a->text && !has_gap && tokenize(j, a->text, a->n_text, &a->tokens, &a->n_tokens, f)) return -1;
    j->tokens = a->tokens;
    j->n_tokens = a->n_tokens;
    return 0;
}

/* The prompt as text, for echo. */
static int prompt_text(struct job *j, struct buf *out)
{
    qn_text *t = NULL;
    const char *bytes;
    size_t n;
    const json_t *one = j->prompts ? j->prompts[j->at].text : NULL;
    if (one) return buf_add(out, json_string_value(one), json_string_length(one), NULL);
    if (j->params.text) return buf_add(out, j->params.text, j->params.n_text, NULL);
    int bad = qn_text_new(&t, j->served->model, false, NULL, 0, NULL);
    for (size_t i = 0; i < j->n_tokens && !bad; i++)
        bad = qn_text_push(t, j->tokens[i], &bytes, &n, NULL, NULL) || buf_add(out, bytes, n, NULL);
    bad = bad || qn_text_end(t, &bytes, &n, NULL) || buf_add(out, bytes, n, NULL);
    qn_text_free(t);
    return bad ? -1 : 0;
}

/* ---- writing ---- */

enum { TOKENS, LOGPROBS, TOP, OFFSETS, CONTENT }; /* the lists of a->logprobs */

/* Writes a token's text as a key or, if n_chars is not NULL, as an element, whose characters are added to *n_chars. */
static void token_key(struct job *j, struct json_out *o, qn_token t, size_t *n_chars)
{
    char *bytes = NULL;
    size_t n = 0;
    if (qn_token_bytes(j->served->model, t, true, &bytes, &n, NULL)) o->failed = true;
    if (n_chars) {
        json_out_text(o, NULL, bytes, n);
        for (size_t i = 0; i < n; i++) *n_chars += (bytes[i] & 0xC0) != 0x80;
    } else {
        json_out_key(o, bytes, n);
    }
    qn_free(bytes);
}

/* text_offset counts characters of the tokens' own texts. They are those of the answer as long as it is UTF-8.
 * The last list has the answer's tokens as in conversations: with their ids, which tell tokens of the same text apart.
 */
static void logprob(struct job *j, struct job_answer *a, const struct qn_event *e)
{
    struct json_out *l = a->logprobs;
    json_out_int(&l[OFFSETS], NULL, (int64_t)a->n_chars);
    token_key(j, &l[TOKENS], e->token, &a->n_chars);
    json_out_num(&l[LOGPROBS], NULL, e->logprob);
    json_out_open(&l[TOP], NULL, '{');
    for (int i = 0; i < e->n_top; i++) {
        token_key(j, &l[TOP], e->top[i].token, NULL);
        json_out_num(&l[TOP], NULL, e->top[i].logprob);
    }
    json_out_close(&l[TOP], '}');
    if (e->type == QN_EVENT_TOKEN) openai_write_logprob(j, &l[CONTENT], e);
}

static void write_logprobs(struct job *j, struct job_answer *a)
{
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset", "content"};
    if (!j->params.logprobs) {
        json_out_str(&j->out, "logprobs", NULL);
        return;
    }
    json_out_open(&j->out, "logprobs", '{');
    for (int i = 0; i < JOB_LOGPROB_LISTS; i++) openai_take_list(j, names[i], &a->logprobs[i]);
    json_out_close(&j->out, '}');
}

static void write_head(struct job *j) { openai_open_head(j, "text_completion"); }

static void write_choice(struct job *j, int i, const char *text, size_t n, bool ended)
{
    json_out_open(&j->out, NULL, '{');
    json_out_int(&j->out, "index", i);
    json_out_text(&j->out, "text", text, n);
    write_logprobs(j, &j->answer[i]);
    json_out_str(&j->out, "finish_reason", ended ? job_finish_reason(j, i) : NULL);
    json_out_close(&j->out, '}');
}

/* Sends a chunk with one choice. The last one of all has the timings too. */
static void write_chunk(struct job *j, int i, const char *text, size_t n, bool ended, bool last)
{
    job_event(j, NULL);
    write_head(j);
    json_out_open(&j->out, "choices", '[');
    write_choice(j, i, text, n, ended);
    json_out_close(&j->out, ']');
    openai_end_chunk(j, last);
}

/* Echoes the prompt at the beginning of each of its answers. */
static void start(struct job *j)
{
    struct buf text = {0};
    int first = j->at * j->params.n;
    if (!j->params.echo) return;
    if (prompt_text(j, &text)) j->out.failed = true;
    for (int i = first; i < first + j->params.n && !j->out.failed; i++)
        if (j->params.stream)
            write_chunk(j, i, (char *)text.data, text.len, false, false);
        else if (buf_add(&j->answer[i].content, text.data, text.len, NULL))
            j->out.failed = true;
    buf_deinit(&text);
}

static void text_stream(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    (void)kind;
    write_chunk(j, i, text, n, false, false);
}

static void finish_stream(struct job *j, int i, bool last) { write_chunk(j, i, "", 0, true, last); }

static void whole(struct job *j)
{
    write_head(j);
    json_out_open(&j->out, "choices", '[');
    for (int i = 0; i < j->n_answers; i++)
        write_choice(j, i, (char *)j->answer[i].content.data, j->answer[i].content.len, true);
    json_out_close(&j->out, ']');
    openai_end_whole(j);
}

const struct dialect openai_text = {
    .tables = tables,
    .id_prefix = "cmpl-",
    .prompt_field = "prompt",
    .refuse = api_refuse_openai,
    .prepare = prepare,
    .start = start,
    .text_stream = text_stream,
    .finish_stream = finish_stream,
    .close_stream = openai_close_stream,
    .error_stream = openai_error_stream,
    .whole = whole,
    .logprob = logprob,
    .write_head = write_head,
};
