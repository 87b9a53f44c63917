/* SPDX-License-Identifier: MIT
 *
 * test_response.c: HTTP/1.1 responses: whole, cut at every byte, cut short, and malformed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "client/response.h"

struct outcome {
    int rc; /* the result of the first refused part, or of the end */
    struct client_reply reply;
    struct buf body;
    size_t n_unused; /* bytes behind the end */
    bool keep;
    struct qn_error e;
};

/* Reads parts of `step` bytes, and ends the connection after the last. */
static struct outcome read_all(const char *text, size_t n, size_t step)
{
    struct outcome o = {0};
    struct response *r = malloc(sizeof *r);
    response_init(r, &o.reply);
    for (size_t at = 0; at < n && !o.rc;) {
        const char *body;
        size_t n_body, k = n - at < step ? n - at : step;
        char *copy = malloc(k); /* so that reading beyond it is seen */
        memcpy(copy, text + at, k);
        int64_t used = response_read(r, copy, k, &body, &n_body, &o.e);
        if (used > 0) {
            assert_true((size_t)used <= k && body >= copy && body + n_body <= copy + k);
            assert_int_equal(buf_add(&o.body, body, n_body, NULL), 0);
            at += (size_t)used;
        }
        free(copy);
        if (used < 0) o.rc = (int)used;
        if (used == 0) {
            assert_int_equal(r->state, RESPONSE_DONE);
            o.n_unused = n - at;
            break;
        }
    }
    if (!o.rc) o.rc = response_end(r, &o.e);
    o.keep = r->keep;
    free(r);
    return o;
}

static const struct {
    const char *text;
    int status;
    const char *type, *body;
    bool keep;
    int retry;
} good[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nhello", 200, "text/plain",
     "hello", true, -1},
    {"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, "", "", true, -1},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", "", true, -1},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, "", "hello", true, -1},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1;a=\"b\"\r\nh\r\n00a ; x\r\nello world\r\n000\r\nX: "
     "y\r\n\r\n",
     200, "", "hello world", true, -1},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n\r\n0\r\n\r\n0\r\n\r\n", 200, "", "\r\n0\r\n", true,
     -1},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\nHTTP/1.1 200 "
     "OK\r\nContent-Length: 1\r\n\r\nx",
     200, "", "x", true, -1},
    {"HTTP/1.1 429 Slow\r\nRetry-After:  7 \r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 429, "", "{}", true,
     7},
    {"HTTP/1.1 503 x\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n", 503, "", "", true,
     -1},
    {"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", 200, "", "x", false, -1},
    {"HTTP/1.1 200 OK\r\nConnection: te, close\r\nContent-Length: 1\r\n\r\nx", 200, "", "x", false, -1},
    {"HTTP/1.1 200 OK\r\nConnection: closed\r\nContent-Length: 1\r\n\r\nx", 200, "", "x", true, -1},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "", "x", false, -1},
    {"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, "", "until the end", false, -1},
};

static void whole_and_in_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (size_t step = 1, n = strlen(good[i].text); step <= n; step++) {
            struct outcome o = read_all(good[i].text, n, step);
            if (o.rc) fail_msg("%zu by %zu: %s", i, step, o.e.msg);
            assert_int_equal(o.reply.status, good[i].status);
            assert_string_equal(o.reply.type, good[i].type);
            assert_int_equal(o.reply.retry_after_s, good[i].retry);
            assert_string_equal(o.body.data ? (char *)o.body.data : "", good[i].body);
            assert_int_equal(o.keep, good[i].keep);
            assert_int_equal(o.n_unused, 0);
            buf_deinit(&o.body);
        }
}

/* Everything that is missing at the end is reported, unless the end of the connection is the end of the body. */
static void cut_short(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t n = strlen(good[i].text), head = (size_t)(strstr(good[i].text, "200") - good[i].text);
        bool open = !strncmp(good[i].body, "until", 5);
        if (good[i].status != 200) continue;
        for (size_t cut = 0; cut < n; cut++) {
            struct outcome o = read_all(good[i].text, cut, 7);
            bool whole = open && cut >= n - strlen(good[i].body);
            if ((o.rc == QN_EIO) == whole) fail_msg("%zu cut at %zu of %zu (%zu): %d", i, cut, n, head, o.rc);
            buf_deinit(&o.body);
        }
    }
}

static void bytes_behind_the_end_are_not_the_body(void **state)
{
    (void)state;
    const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n";
    struct outcome o = read_all(text, strlen(text), 1000);
    assert_int_equal(o.rc, 0);
    assert_string_equal((char *)o.body.data, "ab");
    assert_int_equal(o.n_unused, 17);
    buf_deinit(&o.body);
}

static void what_is_no_response(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\na\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t step = 1; step < 200; step += 198) {
            struct outcome o = read_all(bad[i], strlen(bad[i]), step);
            if (o.rc != QN_EDATA) fail_msg("%zu is taken: %d %s", i, o.rc, o.e.msg);
            buf_deinit(&o.body);
        }
    struct outcome o = read_all("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", 26, 100);
    assert_int_equal(o.rc, QN_EDATA);
    buf_deinit(&o.body);
}

/* A head, an interim head, a chunk's first line, and trailers that do not end. */
static void what_does_not_end(void **state)
{
    (void)state;
    static const struct {
        const char *head, *again;
    } t[] = {{"HTTP/1.1 200 ", "a"},
             {"HTTP/1.1 200 OK\r\nA: ", "b"},
             {"HTTP/1.1 200 OK\r\n", "A: b\r\n"},
             {"", "HTTP/1.1 100 Continue\r\n\r\n"},
             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "a"},
             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf b = {0};
        assert_int_equal(buf_str(&b, t[i].head, NULL), 0);
        while (b.len < 100000) assert_int_equal(buf_str(&b, t[i].again, NULL), 0);
        struct outcome o = read_all((char *)b.data, b.len, 4096);
        if (o.rc != QN_EDATA || !strstr(o.e.msg, "too long")) fail_msg("%zu: %d %s", i, o.rc, o.e.msg);
        buf_deinit(&b);
        buf_deinit(&o.body);
    }
}

/* Many chunks do not count as a long head. */
static void many_chunks(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_str(&b, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", NULL), 0);
    for (int i = 0; i < 50000; i++) assert_int_equal(buf_str(&b, "1\r\na\r\n", NULL), 0);
    assert_int_equal(buf_str(&b, "0\r\n\r\n", NULL), 0);
    struct outcome o = read_all((char *)b.data, b.len, 4096);
    assert_int_equal(o.rc, 0);
    assert_int_equal(o.body.len, 50000);
    buf_deinit(&b);
    buf_deinit(&o.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_and_in_pieces),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(bytes_behind_the_end_are_not_the_body),
        cmocka_unit_test(what_is_no_response),
        cmocka_unit_test(what_does_not_end),
        cmocka_unit_test(many_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
