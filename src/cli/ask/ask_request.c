/* SPDX-License-Identifier: MIT
 *
 * ask_request.c: builds requests, and asks the server about the model. See ask_run.h.
 *
 * A request has only the options that somebody has set; the server chooses the others.
 */
#include "cli/ask/ask_run.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "cli/place/sampling.h"
#include "text/token/unicode.h"

#define MAX_SCHEMA     ((size_t)1 << 20)
#define MAX_LIST_BYTES ((size_t)1 << 20)

/* The room for the answer without --max-tokens: a quarter of the context, and at most this. */
#define MOST_ANSWER 2048

/* An empty form would be none, and JSON has room for UTF-8 only. */
static int check_form(const char *name, const void *text, size_t n, struct qn_error *e)
{
    if (!n) return error_set(e, QN_EUSAGE, "%s: it is empty", name);
    return unicode_is_utf8(text, n) ? 0 : error_set(e, QN_EDATA, "%s: it is not UTF-8", name);
}

int ask_read_form(struct ask_run *a, struct qn_error *e)
{
    struct buf text = {0};
    json_error_t why;
    int rc;
    if (a->o->regex) return check_form("--regex", a->o->regex, strlen(a->o->regex), e);
    if (ask_choices(a->o))
        return check_form(a->o->choice ? "--choice" : "--choose", ask_choices(a->o), strlen(ask_choices(a->o)), e);
    if (a->o->grammar) {
        rc = os_read_file(&a->grammar, a->o->grammar, MAX_SCHEMA, e);
        return rc ? rc : check_form(a->o->grammar, a->grammar.data, a->grammar.len, e);
    }
    if (!a->o->schema) return 0;
    if ((rc = os_read_file(&text, a->o->schema, MAX_SCHEMA, e))) return rc;
    a->schema = json_loadb((char *)text.data, text.len, JSON_REJECT_DUPLICATES, &why);
    buf_deinit(&text);
    if (a->schema) return 0;
    return error_set(e, QN_EDATA, "%s:%d:%d: %s", a->o->schema, why.line, why.column, why.text);
}

const char *ask_choices(const struct ask_options *o)
{
    if (o->yes) return "yes,no";
    return o->choose ? o->choose : o->choice;
}

/* ---- the request ---- */

static int add_message(json_t *messages, const char *role, const char *text, size_t n)
{
    return json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", role, "content", text, n));
}

/* The texts between the commas. */
static json_t *choices(const char *list)
{
    json_t *all = json_array();
    for (const char *end; list; list = *end ? end + 1 : NULL) {
        end = strchrnul(list, ',');
        json_array_append_new(all, json_stringn(list, (size_t)(end - list)));
    }
    return all;
}

static int set_format(const struct ask_run *a, json_t *request)
{
    json_t *format = NULL;
    if (a->grammar.len)
        return json_object_set_new(request, "grammar", json_stringn((char *)a->grammar.data, a->grammar.len));
    if (a->o->regex) return json_object_set_new(request, "regex", json_string(a->o->regex));
    if (ask_choices(a->o)) return json_object_set_new(request, "choice", choices(ask_choices(a->o)));
    if (a->schema)
        format = json_pack("{s:s, s:{s:s, s:b, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "strict",
                           1, "schema", a->schema);
    else if (a->o->json_object)
        format = json_pack("{s:s}", "type", "json_object");
    else
        return 0;
    return json_object_set_new(request, "response_format", format);
}

static int set_stop(const struct ask_run *a, json_t *request)
{
    json_t *stop = json_array();
    int bad = 0;
    for (size_t i = 0; i < a->o->stop.n; i++) bad |= json_array_append_new(stop, json_string(a->o->stop.v[i]));
    if (a->o->stop.n) return json_object_set_new(request, "stop", stop) | bad;
    json_decref(stop);
    return 0;
}

/* Adds the model and the messages. Returns non-zero if there is no memory. */
static int begin(const struct ask_run *a, json_t *request, const char *text, size_t n)
{
    json_t *messages = talk_json(&a->talk, a->place.kind != PLACE_REMOTE);
    int bad = 0;
    if (a->place.model) bad |= json_object_set_new(request, "model", json_string(a->place.model));
    return bad | add_message(messages, "user", text, n) | json_object_set_new(request, "messages", messages);
}

static int done(json_t *request, int bad, json_t **out, struct qn_error *e)
{
    if (bad) {
        json_decref(request);
        return error_set(e, QN_ENOMEM, "ask: not enough memory for the request");
    }
    *out = request;
    return 0;
}

int ask_request(struct ask_run *a, const char *text, size_t n, json_t **out, struct qn_error *e)
{
    json_t *request = json_object();
    int bad = begin(a, request, text, n);
    bad |= sampling_add(request, a->v, a->persona);
    /* The same question gets the same answer, unless somebody wants another one. */
    if (options_origin(a->v, "seed") == ORIGIN_DEFAULT) bad |= json_object_set_new(request, "seed", json_integer(0));
    /* A decision is the likeliest choice, not a drawn one. */
    if ((a->o->yes || a->o->choose) && options_origin(a->v, "temperature") != ORIGIN_FLAG)
        bad |= json_object_set_new(request, "temperature", json_integer(0));
    if ((a->o->yes || a->o->choose) && a->place.kind != PLACE_REMOTE) /* thoughts could go on without end */
        bad |= json_object_set_new(request, "enable_thinking", json_false());
    if (a->o->max_tokens >= 0) bad |= json_object_set_new(request, "max_tokens", json_integer(a->o->max_tokens));
    return done(request, bad | set_stop(a, request) | set_format(a, request), out, e);
}

int ask_request_greedy(struct ask_run *a, const char *text, size_t n, int max_tokens, json_t **out, struct qn_error *e)
{
    json_t *request = json_object();
    int bad = begin(a, request, text, n);
    bad |= json_object_set_new(request, "temperature", json_integer(0));
    return done(request, bad | json_object_set_new(request, "max_tokens", json_integer(max_tokens)), out, e);
}

/* ---- the model ---- */

static int read_model(struct ask_run *a, const json_t *list, struct qn_error *e)
{
    size_t i;
    const json_t *entry, *found = a->place.model ? NULL : place_only_model(list, &i);
    json_array_foreach(json_object_get(list, "data"), i, entry)
    {
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (a->place.model && id && !strcmp(id, a->place.model)) found = entry;
    }
    json_int_t n = json_integer_value(json_object_get(found, "context_length"));
    if (n <= 0 || n > INT32_MAX)
        return error_set(e, QN_EUNSUP,
                         "%s does not say how large the context of %s is: without that, --overflow can only be fail",
                         a->place.name, a->place.model ? a->place.model : "its model");
    a->n_ctx = (int)n;
    const char *id = json_string_value(json_object_get(found, "id"));
    const char *fingerprint = json_string_value(json_object_get(found, "fingerprint"));
    return buf_printf(&a->model, e, "%s %s %d", id ? id : "", fingerprint ? fingerprint : "", a->n_ctx);
}

int ask_look(struct ask_run *a, struct qn_error *e)
{
    struct chat_result r = {0};
    json_t *list = NULL;
    int rc = chat_fetch(a->place.client, "GET", "/v1/models", NULL, MAX_LIST_BYTES, &list, &r, e);
    if (!rc) rc = read_model(a, list, e);
    json_decref(list);
    if (rc) return rc;
    int answer = a->n_ctx / 4 < MOST_ANSWER ? a->n_ctx / 4 : MOST_ANSWER;
    if (a->o->max_tokens >= 0) answer = a->o->max_tokens;
    a->n_room = a->n_ctx - answer;
    if (a->n_room > 0) return 0;
    return error_set(e, QN_EUSAGE, "--max-tokens %d leaves nothing of a context of %d tokens", answer, a->n_ctx);
}

int ask_count(struct ask_run *a, const struct message_text *texts, size_t n, const char *instruction, int *n_tokens,
              struct qn_error *e)
{
    struct buf text = {0};
    json_t *request = NULL;
    int rc = message_compose(&text, texts, n, instruction, e);
    if (!rc) rc = ask_request(a, text.data ? (char *)text.data : "", text.len, &request, e);
    if (!rc) rc = chat_count(a->place.client, request, n_tokens, e);
    json_decref(request);
    buf_deinit(&text);
    return rc;
}
