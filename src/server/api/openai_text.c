/* SPDX-License-Identifier: MIT
 *
 * openai_text.c: POST /v1/completions: continues a text. The prompt's text becomes control tokens only with
 * parse_special.
 *
 * Source: the OpenAI API reference, "Completions".
 */
#include "server/api/api_impl.h"

#include <string.h>

static const struct field *const tables[] = {params_completion_fields, params_openai_fields, params_sampling_fields,
                                             NULL};

#define DEFAULT_MAX_TOKENS 16

/* Refuses a text that is too long for any tokens to fit before the work of making them. */
static int prepare(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct qn_error e = {0};
    const qn_model *m = j->served->model;
    if (a->max_tokens < 0) a->max_tokens = DEFAULT_MAX_TOKENS;
    if (a->text) {
        if (a->n_text > qn_model_max_text(m, j->served->n_ctx))
            return fault_set(f, 400, "context_length_exceeded", "prompt",
                             "the context holds %d tokens; a prompt of %zu bytes cannot fit", j->served->n_ctx,
                             a->n_text);
        unsigned flags = QN_ADD_BOS | (a->parse_special ? QN_PARSE_SPECIAL : 0);
        size_t taken;
        if (api_take_work(j->ticket, a->n_text, &taken, f)) return -1;
        int rc = qn_tokenize(m, a->text, a->n_text, flags, &j->ticket->cancel, &a->tokens, &a->n_tokens, &e);
        ticket_give(j->ticket, taken);
        if (rc) return ticket_failed(j->ticket, f, &e);
    }
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

/* Echoes the prompt at the beginning of each answer. */
static void start(struct job *j)
{
    struct buf text = {0};
    if (!j->params.echo) return;
    if (prompt_text(j, &text)) j->out.failed = true;
    for (int i = 0; i < j->params.n && !j->out.failed; i++)
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
    for (int i = 0; i < j->params.n; i++)
        write_choice(j, i, (char *)j->answer[i].content.data, j->answer[i].content.len, true);
    json_out_close(&j->out, ']');
    openai_end_whole(j);
}

const struct dialect openai_text = {
    .tables = tables,
    .id_prefix = "cmpl-",
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
