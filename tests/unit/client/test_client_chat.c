/* SPDX-License-Identifier: MIT
 *
 * test_client_chat.c: chats as streams of events, from servers that follow the API, almost follow it, and do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "client/client_chat.h"
#include "peer.h"

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"

struct heard {
    struct buf text[3]; /* by kind */
    int n_max;          /* pieces after which the sink stops; 0: no limit */
    int n;
};

static int hear(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    struct heard *h = arg;
    assert_int_equal(buf_add(&h->text[kind], text, n, NULL), 0);
    return h->n_max && ++h->n >= h->n_max;
}

static const char *text_of(const struct heard *h, enum chat_piece kind)
{
    return h->text[kind].data ? (char *)h->text[kind].data : "";
}

static void forget(struct heard *h)
{
    for (int i = 0; i < 3; i++) buf_deinit(&h->text[i]);
}

/* One chat with a server that answers so and then closes. *request: the request that the server got. */
static int chat(const char *answer, size_t step, struct heard *h, struct chat_result *r, struct qn_error *e,
                char **request)
{
    struct peer p = {.answer = {answer}, .step = step};
    struct client *c;
    json_t *ask = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", "hello");
    peer_start(&p, &c);
    int rc = chat_send(c, ask, hear, h, r, e);
    client_close(c);
    pthread_join(p.thread, NULL);
    assert_null(json_object_get(ask, "stream")); /* borrowed, and unchanged */
    json_decref(ask);
    if (request)
        *request = p.request[0];
    else
        free(p.request[0]);
    return rc;
}

static void as_the_daemon_answers(void **state)
{
    (void)state;
    const char *answer =
        HEAD ": queued, 3 before\n\n: prefill 5/9\n\n"
             "data: "
             "{\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"
             "\"\"},\"finish_reason\":null}]}\n\n"
             "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm \\u00e9\"}}]}\n\n"
             "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\u0000b\"}}]}\n\n"
             "data: "
             "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xe2\x82\xac\"},\"finish_reason\":"
             "null}]}\n\n"
             "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],"
             "\"quern\":{\"prefill_ms\":1.5,\"decode_ms\":2}}\n\n"
             "data: {\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,"
             "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n";
    for (size_t step = 1; step < 500; step = step * 3 + 1) {
        struct heard h = {0};
        struct chat_result r;
        struct qn_error e = {0};
        char *request;
        int rc = chat(answer, step, &h, &r, &e, &request);
        if (rc) fail_msg("%s", e.msg);
        assert_int_equal(h.text[CHAT_CONTENT].len, 6);
        assert_memory_equal(text_of(&h, CHAT_CONTENT), "a\0b\xe2\x82\xac", 6);
        assert_string_equal(text_of(&h, CHAT_REASONING), "hm \xc3\xa9");
        assert_string_equal(text_of(&h, CHAT_NOTE), "queued, 3 beforeprefill 5/9");
        assert_string_equal(r.finish, "length");
        assert_string_equal(r.model, "m");
        assert_int_equal(r.n_prompt, 9);
        assert_int_equal(r.n_cached, 3);
        assert_int_equal(r.n_generated, 4);
        assert_true(r.prefill_ms == 1.5 && r.decode_ms == 2);
        assert_int_equal(r.status, 0);
        assert_non_null(strstr(request, "POST /v1/chat/completions HTTP/1.1\r\n"));
        assert_non_null(strstr(request, "\"stream\":true,\"stream_options\":{\"include_usage\":true}}"));
        free(request);
        forget(&h);
    }
}

#define DONE       "data: [DONE]\n\n"
#define SAYS(text) "data: {\"choices\":[{\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define STOPS      "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"

/* Other servers leave members out, add some, and name some differently. */
static void as_others_answer(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *content, *reasoning;
    } t[] = {
        {HEAD SAYS("hi") STOPS DONE, "hi", ""},
        {HEAD SAYS("hi") STOPS, "hi", ""}, /* no [DONE] */
        {HEAD SAYS("hi") STOPS DONE SAYS("more") "data: garbage\n\n", "hi", ""},
        {HEAD
         "data:{\"choices\":[{\"delta\":{\"content\":null,\"reasoning\":\"hm\"},\"x\":1}],\"y\":[{}]}\r\n\r\n" STOPS,
         "", "hm"},
        {HEAD "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\",\"reasoning\":\"a\"}}]}\n\n" STOPS, "", "a"},
        {HEAD "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n" STOPS, "", ""},
        {HEAD "data: {\"error\":null,\"usage\":null,\"choices\":null}\n\n" STOPS, "", ""},
        {HEAD "data: {\"created\":123456789012345678901234567890,\"choices\":[]}\n\n" STOPS, "", ""},
        {HEAD "data: {\"usage\":{\"prompt_tokens\":\"many\",\"completion_tokens\":-1}}\n\n" STOPS, "", ""},
        {HEAD "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"\"}]}\n\n" STOPS, "", ""},
        {HEAD "event: ping\ndata: {}\n\n" STOPS, "", ""},
        {"HTTP/1.1 200 OK\r\ncontent-type: TEXT/Event-Stream\r\n\r\n" SAYS("hi") STOPS, "hi", ""},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct heard h = {0};
        struct chat_result r;
        struct qn_error e = {0};
        int rc = chat(t[i].answer, 0, &h, &r, &e, NULL);
        if (rc) fail_msg("%zu: %s", i, e.msg);
        assert_string_equal(text_of(&h, CHAT_CONTENT), t[i].content);
        assert_string_equal(text_of(&h, CHAT_REASONING), t[i].reasoning);
        assert_string_equal(r.finish, "stop");
        assert_true(r.n_prompt == -1 && r.n_generated == -1 && r.n_cached == -1 && r.prefill_ms == -1);
        forget(&h);
    }
}

static void what_is_no_answer(void **state)
{
    (void)state;
    static const char *const t[] = {
        HEAD,
        HEAD SAYS("hi"),
        HEAD SAYS("hi") DONE, /* no finish reason */
        HEAD SAYS(
            "hi") "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n", /* the event is not whole */
        HEAD SAYS("hi") "data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\n" DONE,
        HEAD "data: {\n\n",
        HEAD "data: []\n\n" STOPS,
        HEAD "data: 1\n\n" STOPS,
        HEAD "data: {\"choices\":{}}\n\n" STOPS,
        HEAD "data: {\"choices\":[1]}\n\n" STOPS,
        HEAD "data: {\"choices\":[{\"delta\":[]}]}\n\n" STOPS,
        HEAD "data: {\"choices\":[{\"delta\":{\"content\":{}}}]}\n\n" STOPS,
        HEAD "data: {\"choices\":[{\"delta\":{},\"finish_reason\":1}]}\n\n" STOPS,
        HEAD SAYS("\xe2\x82") STOPS, /* half a character */
        HEAD SAYS("\\ud83d") STOPS,  /* half a pair */
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>",
        ("HTTP/1.1 200 OK\r\n\r\n" STOPS), /* of no type */
        "HTTP/1.1 204 No Content\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct heard h = {0};
        struct chat_result r;
        struct qn_error e = {0};
        int rc = chat(t[i], 0, &h, &r, &e, NULL);
        if (rc != QN_EDATA) fail_msg("%zu: %d %s", i, rc, e.msg);
        forget(&h);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *words, *code;
        int rc, status;
    } t[] = {
        {"HTTP/1.1 400 x\r\n\r\n{\"error\":{\"message\":\"too "
         "long\",\"type\":\"t\",\"param\":null,\"code\":\"context_length_exceeded\"}}",
         "too long", "context_length_exceeded", QN_EUSAGE, 400},
        {"HTTP/1.1 404 x\r\n\r\n{\"error\":\"no model\"}", "no model", "", QN_EUSAGE, 404},
        {"HTTP/1.1 401 x\r\n\r\n{\"error\":{\"message\":\"bad key\",\"code\":401}}", "bad key", "", QN_ENOINPUT, 401},
        {"HTTP/1.1 422 x\r\n\r\n{\"detail\":\"missing\"}", "missing", "", QN_EUSAGE, 422},
        {"HTTP/1.1 413 x\r\n\r\n{\"message\":\"big\",\"code\":\"large\"}", "big", "large", QN_EUSAGE, 413},
        {"HTTP/1.1 503 x\r\nRetry-After: 3\r\n\r\n{}", "status 503", "", QN_EBUSY, 503},
        {"HTTP/1.1 429 x\r\n\r\n{\"error\":[]}", "status 429", "", QN_EBUSY, 429},
        {"HTTP/1.1 502 x\r\nContent-Type: text/html\r\n\r\n<html>", "status 502", "", QN_EIO, 502},
        {"HTTP/1.1 301 x\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n", "status 301", "", QN_EIO,
         301},
        {"HTTP/1.1 500 x\r\n\r\n{\"error\":{\"message\":\"bad\\u001b[31m\\nline\"}}", "bad\\x1B[31m\\x0Aline", "",
         QN_EIO, 500},
        {HEAD SAYS("hi") "data: {\"error\":{\"message\":\"ending\",\"code\":\"stopping\"}}\n\n", "ending", "stopping",
         QN_EBUSY, 0},
        {HEAD "event: error\ndata: {\"error\":{\"message\":\"lost\",\"code\":\"model_failed\"}}\n\n", "lost",
         "model_failed", QN_EIO, 0},
        {HEAD "data: {\"error\":{}}\n\n", "not how", "", QN_EIO, 0},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct heard h = {0};
        struct chat_result r;
        struct qn_error e = {0};
        int rc = chat(t[i].answer, 0, &h, &r, &e, NULL);
        if (rc != t[i].rc || !strstr(e.msg, t[i].words)) fail_msg("%zu: %d %s", i, rc, e.msg);
        assert_string_equal(r.code, t[i].code);
        assert_int_equal(r.status, t[i].status);
        assert_int_equal(r.retry_after_s, t[i].status == 503 ? 3 : -1);
        forget(&h);
    }
}

/* It is the field that counts, and not the words. */
static void a_missing_model_is_told_by_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bool is_model;
    } t[] = {
        {"{\"error\":{\"message\":\"say which\",\"param\":\"model\",\"code\":\"missing_field\"}}", true},
        {"{\"error\":{\"message\":\"model is missing\",\"param\":\"messages\",\"code\":\"missing_field\"}}", false},
        {"{\"error\":{\"message\":\"model is missing\",\"param\":\"model\",\"code\":\"invalid_type\"}}", false},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct heard h = {0};
        struct chat_result r;
        struct qn_error e;
        char answer[200];
        snprintf(answer, sizeof answer, "HTTP/1.1 400 x\r\n\r\n%s", t[i].answer);
        assert_int_equal(chat(answer, 0, &h, &r, &e, NULL), QN_EUSAGE);
        assert_int_equal(chat_wants_model(&r), t[i].is_model);
        forget(&h);
    }
}

static void a_refusal_without_end(void **state)
{
    (void)state;
    struct buf answer = {0};
    struct heard h = {0};
    struct chat_result r;
    struct qn_error e = {0};
    assert_int_equal(buf_str(&answer, "HTTP/1.1 500 x\r\nContent-Type: text/html\r\n\r\n", NULL), 0);
    while (answer.len < 100000) assert_int_equal(buf_str(&answer, "sorry ", NULL), 0);
    assert_int_equal(chat((char *)answer.data, 0, &h, &r, &e, NULL), QN_EDATA);
    assert_non_null(strstr(e.msg, "500"));
    buf_deinit(&answer);
}

static void a_listener_that_has_enough(void **state)
{
    (void)state;
    struct heard h = {.n_max = 2};
    struct chat_result r;
    struct qn_error e = {0};
    assert_int_equal(chat(HEAD SAYS("a") SAYS("b") SAYS("c") STOPS DONE, 0, &h, &r, &e, NULL), QN_ECANCEL);
    assert_string_equal(text_of(&h, CHAT_CONTENT), "ab");
    forget(&h);
}

/* ---- whole answers ---- */

static int fetch(const char *answer, size_t limit, json_t **out, struct chat_result *r, struct qn_error *e)
{
    struct peer p = {.answer = {answer}};
    struct client *c;
    peer_start(&p, &c);
    int rc = chat_fetch(c, "GET", "/v1/models", NULL, limit, out, r, e);
    client_close(c);
    peer_join(&p);
    return rc;
}

static void documents(void **state)
{
    (void)state;
    struct chat_result r;
    struct qn_error e = {0};
    json_t *j = NULL;
    assert_int_equal(fetch("HTTP/1.1 200 x\r\n\r\n{\"data\":[1]}", 12, &j, &r, &e), 0);
    assert_int_equal(json_array_size(json_object_get(j, "data")), 1);
    json_decref(j);
    j = NULL;
    assert_int_equal(fetch("HTTP/1.1 200 x\r\n\r\n{\"data\":[1]}", 11, &j, &r, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "more than 11 bytes"));
    assert_int_equal(fetch("HTTP/1.1 200 x\r\n\r\nhello", 100, &j, &r, &e), QN_EDATA);
    assert_int_equal(fetch("HTTP/1.1 200 x\r\n\r\n", 100, &j, &r, &e), QN_EDATA);
    assert_int_equal(fetch("HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\n{}", 100, &j, &r, &e), QN_EIO);
    assert_int_equal(fetch("HTTP/1.1 403 x\r\n\r\n{\"error\":{\"message\":\"no\"}}", 5, &j, &r, &e), QN_ENOINPUT);
    assert_int_equal(r.status, 403);
    assert_null(j);
}

static void counts(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        int rc;
    } t[] = {{"HTTP/1.1 200 x\r\n\r\n{\"prompt\":\"p\",\"count\":42,\"tokens\":[]}", 0},
             {"HTTP/1.1 200 x\r\n\r\n{\"count\":\"42\"}", QN_EDATA},
             {"HTTP/1.1 200 x\r\n\r\n[]", QN_EDATA},
             {"HTTP/1.1 404 x\r\n\r\n{\"detail\":\"Not Found\"}", QN_EUNSUP},
             {"HTTP/1.1 405 x\r\n\r\n", QN_EUNSUP},
             {"HTTP/1.1 404 x\r\n\r\n{\"error\":{\"message\":\"which?\",\"code\":\"model_not_found\"}}", QN_EUSAGE},
             {"HTTP/1.1 400 x\r\n\r\n{\"error\":{\"message\":\"bad\"}}", QN_EUSAGE}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct peer p = {.answer = {t[i].answer}};
        struct client *c;
        struct qn_error e = {0};
        json_t *request = json_object();
        int n = -2;
        peer_start(&p, &c);
        int rc = chat_count(c, request, &n, &e);
        if (rc != t[i].rc) fail_msg("%zu: %d %s", i, rc, e.msg);
        if (!rc) assert_int_equal(n, 42);
        client_close(c);
        peer_join(&p);
        json_decref(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_daemon_answers),
        cmocka_unit_test(as_others_answer),
        cmocka_unit_test(what_is_no_answer),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_missing_model_is_told_by_its_field),
        cmocka_unit_test(a_refusal_without_end),
        cmocka_unit_test(a_listener_that_has_enough),
        cmocka_unit_test(documents),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
