/* SPDX-License-Identifier: MIT
 *
 * client_chat.c: requests and whole answers as JSON. chat_stream.c has answers as streams of events.
 *
 * Source: the OpenAI API's reference of errors. Other servers send a text as `error`, a number as `code`, or `detail`
 * instead of all that.
 */
#include "client/client_chat.h"

#include <limits.h>
#include <string.h>

#include "base/json/json_text.h"
#include "client/chat_impl.h"

#define ERROR_MAX  ((size_t)64 << 10) /* the most bytes that are read of a refusal's body */
#define RENDER_MAX ((size_t)64 << 20)

/* ---- JSON ---- */

json_t *chat_parse(const char *text, size_t n)
{
    json_error_t why;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!j && json_error_code(&why) == json_error_numeric_overflow)
        j = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    return j;
}

int chat_number(const json_t *object, const char *name)
{
    double v = json_number_value(json_object_get(object, name));
    return json_is_number(json_object_get(object, name)) && v >= 0 && v <= INT_MAX ? (int)v : -1;
}

/* ---- errors ---- */

static int code_of_status(int status)
{
    switch (status) {
    case 400:
    case 404:
    case 413:
    case 422: return QN_EUSAGE;
    case 429:
    case 503:
    case 504: return QN_EBUSY;
    case 401:
    case 403: return QN_ENOINPUT;
    default: return QN_EIO;
    }
}

/* The error code for an error within a stream, where there is no HTTP status any more. */
static int code_of_name(const char *code)
{
    static const char *const busy[] = {"stopping",    "no_memory",         "stalled",
                                       "models_busy", "deadline_exceeded", "queue_full"};
    for (size_t i = 0; i < sizeof busy / sizeof *busy; i++)
        if (!strcmp(code, busy[i])) return QN_EBUSY;
    return QN_EIO;
}

int chat_refused(const json_t *answer, int status, struct chat_result *result, struct qn_error *e)
{
    const json_t *error = json_object_get(answer, "error"), *in = json_is_object(error) ? error : answer;
    const char *code = json_string_value(json_object_get(in, "code")), *words = json_string_value(error);
    if (!words) words = json_string_value(json_object_get(in, "message"));
    if (!words) words = json_string_value(json_object_get(in, "detail"));
    const char *param = json_string_value(json_object_get(in, "param"));
    error_clean(result->code, sizeof result->code, code ? code : "");
    error_clean(result->param, sizeof result->param, param ? param : "");
    result->status = status;
    if (words && *words) return error_set(e, status ? code_of_status(status) : code_of_name(result->code), "%s", words);
    if (!status) return error_set(e, code_of_name(result->code), "the server says that it failed, and not how");
    return error_set(e, code_of_status(status), "the server answers with status %d", status);
}

bool chat_wants_model(const struct chat_result *r)
{
    return !strcmp(r->code, "missing_field") && !strcmp(r->param, "model");
}

/* ---- whole answers ---- */

struct whole {
    struct buf body;
    size_t limit;
    int rc; /* an error in the bytes, described in `why` */
    struct qn_error why;
};

static int collect(void *arg, const struct client_reply *r, const char *bytes, size_t n)
{
    struct whole *w = arg;
    size_t limit = r->status >= 200 && r->status < 300 ? w->limit : ERROR_MAX;
    if (w->body.len + n > limit)
        w->rc = error_set(&w->why, QN_EDATA, "the server's answer has more than %zu bytes", limit);
    else
        w->rc = buf_add(&w->body, bytes, n, &w->why);
    return w->rc;
}

void chat_result_init(struct chat_result *r)
{
    *r = (struct chat_result){.n_prompt = -1,
                              .n_cached = -1,
                              .n_generated = -1,
                              .n_dropped = -1,
                              .n_passes = -1,
                              .n_drafted = -1,
                              .n_accepted = -1,
                              .prefill_ms = -1,
                              .decode_ms = -1,
                              .retry_after_s = -1};
}

int chat_fetch(struct client *c, const char *method, const char *path, json_t *body, size_t limit, json_t **out,
               struct chat_result *result, struct qn_error *e)
{
    struct whole w = {.limit = limit};
    struct client_reply reply;
    struct buf text = {0};
    json_t *j = NULL;
    int rc;
    chat_result_init(result);
    if (body && (rc = json_text_add(&text, body, JSON_COMPACT, "a request", e))) goto out;
    rc = client_send(c, method, path, body ? (char *)text.data : NULL, text.len, collect, &w, &reply, e);
    if (w.rc && e) *e = w.why;
    if (w.rc) rc = w.rc;
    if (rc) goto out;
    j = chat_parse((char *)w.body.data, w.body.len);
    result->retry_after_s = reply.retry_after_s;
    if (reply.status < 200 || reply.status > 299) {
        rc = chat_refused(j, reply.status, result, e);
    } else if (!j) {
        rc = error_set(e, QN_EDATA, "the server's answer is not JSON (%zu bytes of '%s')", w.body.len, reply.type);
    } else {
        *out = j;
        j = NULL;
    }
out:
    json_decref(j);
    buf_deinit(&text);
    buf_deinit(&w.body);
    return rc;
}

int chat_count(struct client *c, json_t *request, int *n_tokens, struct qn_error *e)
{
    struct chat_result result;
    json_t *answer = NULL;
    int rc = chat_fetch(c, "POST", "/v1/chat/render", request, RENDER_MAX, &answer, &result, e);
    bool no_route = (result.status == 404 && strcmp(result.code, "model_not_found") != 0) || result.status == 405 ||
                    result.status == 501;
    if (rc && no_route) return error_set(e, QN_EUNSUP, "the server does not count tokens");
    if (rc) return rc;
    *n_tokens = chat_number(answer, "count");
    if (*n_tokens < 0) rc = error_set(e, QN_EDATA, "the server's answer has no count of tokens");
    json_decref(answer);
    return rc;
}
