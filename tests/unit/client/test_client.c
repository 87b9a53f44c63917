/* SPDX-License-Identifier: MIT
 *
 * test_client.c: exchanges over a socket with a peer that sends prepared answers. test_response.c tests the contents of
 * answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "base/buf.h"
#include "peer.h"

static int collect(void *arg, const struct client_reply *r, const char *bytes, size_t n)
{
    assert_true(r->status >= 200);
    return buf_add(arg, bytes, n, NULL);
}

static int enough(void *arg, const struct client_reply *r, const char *bytes, size_t n)
{
    (void)arg, (void)r, (void)bytes, (void)n;
    return 1;
}

/* One exchange with a peer that answers so. Returns its body or, in *e, the fault. */
static int ask(struct client *c, const char *body, size_t n, struct buf *out, struct client_reply *reply,
               struct qn_error *e)
{
    buf_clear(out);
    return client_send(c, body ? "POST" : "GET", "/v1/models", body, n, collect, out, reply, e);
}

static void one_connection_for_several_exchanges(void **state)
{
    (void)state;
    struct peer p = {.answer = {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
                                "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nc\r\n2\r\nde\r\n0\r\n\r\n",
                                "HTTP/1.1 204 No\r\n\r\n"},
                     .step = 1};
    struct client *c;
    struct client_reply r;
    struct buf b = {0};
    struct qn_error e = {0};
    peer_start(&p, &c);
    assert_int_equal(ask(c, NULL, 0, &b, &r, &e), 0);
    assert_int_equal(r.status, 200);
    assert_string_equal((char *)b.data, "ab");
    assert_int_equal(ask(c, "{\"a\":1}", 7, &b, &r, &e), 0);
    assert_int_equal(r.status, 404);
    assert_string_equal((char *)b.data, "cde");
    assert_int_equal(ask(c, NULL, 0, &b, &r, &e), 0);
    assert_int_equal(r.status, 204);
    client_close(c);
    pthread_join(p.thread, NULL);
    assert_int_equal(p.n_requests, 3);
    assert_string_equal(p.request[0], "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_string_equal(p.request[1],
                        "POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        "Content-Length: 7\r\n\r\n{\"a\":1}");
    for (int i = 0; i < 3; i++) free(p.request[i]);
    buf_deinit(&b);
}

/* A body that is too long for any socket's buffer, and a peer that answers before it has read it. */
static void a_long_body(void **state)
{
    (void)state;
    size_t n = (size_t)8 << 20;
    char *body = malloc(n);
    for (size_t i = 0; i < n; i++) body[i] = (char)('a' + i * 7 % 23 + i / 4096 % 3);
    for (int early = 0; early < 2; early++) {
        struct peer p = {.answer = {"HTTP/1.1 413 Long\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"},
                         .early = early};
        struct client *c;
        struct client_reply r;
        struct buf b = {0};
        struct qn_error e = {0};
        peer_start(&p, &c);
        assert_int_equal(ask(c, body, n, &b, &r, &e), 0);
        assert_int_equal(r.status, 413);
        assert_string_equal((char *)b.data, "no");
        assert_int_equal(ask(c, NULL, 0, &b, &r, &e), QN_EIO); /* it cannot be dialled again */
        client_close(c);
        pthread_join(p.thread, NULL);
        if (!early) assert_memory_equal(strstr(p.request[0], "\r\n\r\n") + 4, body, n);
        free(p.request[0]);
        buf_deinit(&b);
    }
    free(body);
}

static void a_path_is_one_word(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/sessions/a b", "/v1/x\r\nHost: y", "/v1/\x7f", "/v1/\xc3\xa9", "/v1/\t"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct peer p = {.stays = true};
        struct client *c;
        struct client_reply r;
        peer_start(&p, &c);
        assert_int_equal(client_send(c, "DELETE", paths[i], NULL, 0, NULL, NULL, &r, NULL), QN_EUSAGE);
        client_close(c);
        peer_join(&p);
        assert_int_equal(p.n_requests, 0);
    }
}

static void a_broken_connection_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *words;
        int code;
    } t[] = {{"", "without an answer", QN_EIO},
             {"HTTP/1.1 200", "within the head", QN_EIO},
             {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "7 bytes before", QN_EIO},
             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "before the end", QN_EIO},
             {"220 mail.example ESMTP\r\n", "does not speak HTTP", QN_EDATA}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct peer p = {.answer = {t[i].answer}};
        struct client *c;
        struct client_reply r;
        struct buf b = {0};
        struct qn_error e = {0};
        peer_start(&p, &c);
        assert_int_equal(ask(c, NULL, 0, &b, &r, &e), t[i].code);
        if (!strstr(e.msg, t[i].words)) fail_msg("%zu: %s", i, e.msg);
        client_close(c);
        peer_join(&p);
        buf_deinit(&b);
    }
}

static void cancelled_while_it_waits(void **state)
{
    (void)state;
    struct client *c = NULL;
    struct peer p = {.stays = true, .cancel = (struct client *)&p};
    struct client_reply r;
    struct buf b = {0};
    struct qn_error e = {0};
    peer_start(&p, &c);
    assert_int_equal(ask(c, NULL, 0, &b, &r, &e), QN_ECANCEL);
    client_close(c);
    peer_join(&p);
    assert_true(p.left); /* closing is what the other side sees */
    buf_deinit(&b);
}

static void cancelled_before_it_begins(void **state)
{
    (void)state;
    struct peer p = {.stays = true};
    struct client *c;
    struct client_reply r;
    struct buf b = {0};
    struct qn_error e = {0};
    peer_start(&p, &c);
    client_cancel(c);
    assert_int_equal(ask(c, NULL, 0, &b, &r, &e), QN_ECANCEL);
    client_close(c);
    peer_join(&p);
    buf_deinit(&b);
}

static void a_sink_that_has_enough(void **state)
{
    (void)state;
    struct peer p = {.answer = {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab"}, .stays = true};
    struct client *c;
    struct client_reply r;
    struct qn_error e = {0};
    peer_start(&p, &c);
    assert_int_equal(client_send(c, "GET", "/", NULL, 0, enough, NULL, &r, &e), QN_ECANCEL);
    assert_int_equal(client_send(c, "GET", "/", NULL, 0, enough, NULL, &r, &e), QN_EUSAGE); /* it can only be closed */
    client_close(c);
    peer_join(&p);
    assert_true(p.left);
}

/* ---- dialling ---- */

struct dialled {
    struct peer p[2];
    int n;
};

static int dial(void *arg, int *fd, struct qn_error *e)
{
    struct dialled *d = arg;
    int ends[2];
    if (d->n == 2) return error_set(e, QN_EIO, "no more");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    d->p[d->n].fd = ends[1];
    assert_int_equal(pthread_create(&d->p[d->n].thread, NULL, peer_run, &d->p[d->n]), 0);
    d->n++;
    *fd = ends[0];
    return 0;
}

/* The peer is gone after its answer, whether the answer said so or not. */
static void dialled_again_when_the_server_has_closed(void **state)
{
    (void)state;
    static const char *const first[] = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1",
                                        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"};
    for (int i = 0; i < 2; i++) {
        struct dialled d = {
            .p = {{.answer = {first[i]}}, {.answer = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2"}}}};
        struct client *c;
        struct client_reply r;
        struct buf b = {0};
        struct qn_error e = {0};
        assert_int_equal(client_open_dial(&c, dial, &d, &e), 0);
        assert_int_equal(ask(c, NULL, 0, &b, &r, &e), 0);
        assert_string_equal((char *)b.data, "1");
        peer_join(&d.p[0]);
        assert_int_equal(ask(c, NULL, 0, &b, &r, &e), 0);
        assert_string_equal((char *)b.data, "2");
        peer_join(&d.p[1]);
        assert_int_equal(ask(c, NULL, 0, &b, &r, &e), QN_EIO);
        assert_string_equal(e.msg, "no more");
        client_close(c);
        buf_deinit(&b);
    }
}

/* A peer that says that it will close but waits for the client to do so; and one that has not read all of a request. */
static void dialled_again_when_the_connection_cannot_be_used(void **state)
{
    (void)state;
    size_t n = (size_t)8 << 20;
    char *body = malloc(n);
    memset(body, 'x', n);
    for (int early = 0; early < 2; early++) {
        struct dialled d = {
            .p = {{.answer = {early ? "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
                                    : "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1"},
                   .early = early,
                   .waits = true},
                  {.answer = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2"}}}};
        struct client *c;
        struct client_reply r;
        struct buf b = {0};
        struct qn_error e = {0};
        assert_int_equal(client_open_dial(&c, dial, &d, &e), 0);
        assert_int_equal(ask(c, early ? body : NULL, early ? n : 0, &b, &r, &e), 0);
        assert_int_equal(ask(c, NULL, 0, &b, &r, &e), 0);
        assert_string_equal((char *)b.data, "2");
        assert_int_equal(d.n, 2);
        client_close(c);
        peer_join(&d.p[0]);
        peer_join(&d.p[1]);
        buf_deinit(&b);
    }
    free(body);
}

static void sockets_that_do_not_answer(void **state)
{
    (void)state;
    char dir[] = "/tmp/quern-test-client-XXXXXX", path[64], longer[200];
    struct client *c;
    struct qn_error e = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/sock", dir);
    assert_int_equal(client_open_socket(&c, path, 0, &e), QN_ENOINPUT); /* no such file */
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    assert_int_equal(client_open_socket(&c, path, 0, &e), QN_ENOINPUT); /* left over */
    assert_non_null(strstr(e.msg, path));
    unlink(path);
    rmdir(dir);
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(client_open_socket(&c, longer, 0, &e), QN_EUSAGE);
    assert_int_equal(client_open_socket(&c, "", 0, &e), QN_EUSAGE);
}

static void urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *key;
        int rc;
    } t[] = {
        {"https://api.example/v1", "sk-1", 0},
        {"https://api.example:8443/some/prefix/", NULL, 0},
        {"http://127.0.0.1:8080", "k", 0},
        {"http://127.9.9.9", "k", 0},
        {"http://localhost:8080/v1/", "k", 0},
        {"http://[::1]:8080", "k", 0},
        {"http://api.example", "k", QN_EUSAGE},
        {"http://127.0.0.1.evil.example", "k", QN_EUSAGE},
        {"http://localhost.evil.example", "k", QN_EUSAGE},
        {"http://127.0.0.1@evil.example", "k", QN_EUSAGE},
        {"https://me@api.example", "k", QN_EUSAGE},
        {"https://me:pass@api.example", "k", QN_EUSAGE},
        {"https://api.example/?key=1", "k", QN_EUSAGE},
        {"https://api.example/#x", "k", QN_EUSAGE},
        {"ftp://api.example", "k", QN_EUSAGE},
        {"file:///etc/passwd", "k", QN_EUSAGE},
        {"api.example", "k", QN_EUSAGE},
        {"https://", "k", QN_EUSAGE},
        {"https://api .example", "k", QN_EUSAGE},
        {"", "k", QN_EUSAGE},
        {"https://api.example", "x y", QN_EDATA},
        {"https://api.example", "a\r\nX: y", QN_EDATA},
        {"https://api.example", "", QN_EDATA},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct client *c = NULL;
        struct qn_error e = {0};
        int rc = client_open_url(&c, t[i].url, t[i].key, NULL, &e);
        if (rc != t[i].rc) fail_msg("'%s': %d %s", t[i].url, rc, e.msg);
        if (t[i].key && *t[i].key && rc == QN_EDATA) assert_null(strstr(e.msg, t[i].key)); /* keys are not told */
        if (!rc) client_close(c);
    }
}

/* ---- over a URL ---- */

struct far {
    int listener;
    struct peer p;
};

static void *accept_one(void *arg)
{
    struct far *f = arg;
    f->p.fd = accept(f->listener, NULL, NULL);
    return peer_run(&f->p);
}

/* A server on this machine, and a client of it. */
static void far_start(struct far *f, struct client **c)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    char url[64];
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(f->listener, 4), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&at, &n), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/prefix/v1/", ntohs(at.sin_port));
    assert_int_equal(client_open_url(c, url, "the-key", NULL, NULL), 0);
    if (f->p.cancel) f->p.cancel = *c;
    assert_int_equal(pthread_create(&f->p.thread, NULL, accept_one, f), 0);
}

static void a_url_is_asked(void **state)
{
    (void)state;
    struct far f = {
        .p = {.answer = {"HTTP/1.1 429 Slow\r\nContent-Type: a/b; c=d\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nab",
                         "HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nTransfer-Encoding: "
                         "chunked\r\n\r\n1\r\nc\r\n0\r\n\r\n",
                         "HTTP/1.1 204 No\r\n\r\n"},
              .step = 1}};
    struct client *c;
    struct client_reply r;
    struct buf b = {0};
    struct qn_error e = {0};
    far_start(&f, &c);
    assert_int_equal(ask(c, "{\"a\":1}", 7, &b, &r, &e), 0);
    assert_true(r.status == 429 && r.retry_after_s == 7);
    assert_string_equal(r.type, "a/b");
    assert_string_equal((char *)b.data, "ab");
    assert_int_equal(ask(c, NULL, 0, &b, &r, &e), 0);
    assert_true(r.status == 302 && r.retry_after_s == -1 && !r.type[0]);
    assert_string_equal((char *)b.data, "c");
    assert_int_equal(client_send(c, "DELETE", "/v1/x", NULL, 0, collect, &b, &r, &e), 0);
    assert_int_equal(r.status, 204);
    client_close(c);
    pthread_join(f.p.thread, NULL);
    assert_int_equal(f.p.n_requests, 3); /* on one connection */
    assert_ptr_equal(strstr(f.p.request[0], "POST /prefix/v1/models HTTP/1.1\r\n"), f.p.request[0]);
    assert_ptr_equal(strstr(f.p.request[1], "GET /prefix/v1/models HTTP/1.1\r\n"), f.p.request[1]);
    assert_ptr_equal(strstr(f.p.request[2], "DELETE /prefix/v1/x HTTP/1.1\r\n"), f.p.request[2]);
    assert_null(strstr(f.p.request[0], "Expect"));
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(f.p.request[i], "\r\nAuthorization: Bearer the-key\r\n"));
        free(f.p.request[i]);
    }
    close(f.listener);
    buf_deinit(&b);
}

static void a_url_that_breaks_off(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        int code;
    } t[] = {{"", QN_EIO},
             {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", QN_EIO},
             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", QN_EIO},
             {"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nabc", QN_EDATA}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct far f = {.p = {.answer = {t[i].answer}}};
        struct client *c;
        struct client_reply r;
        struct buf b = {0};
        struct qn_error e = {0};
        far_start(&f, &c);
        int rc = ask(c, NULL, 0, &b, &r, &e);
        if (rc != t[i].code) fail_msg("%zu: %d %s", i, rc, e.msg);
        client_close(c);
        peer_join(&f.p);
        close(f.listener);
        buf_deinit(&b);
    }
}

static void a_url_is_cancelled(void **state)
{
    (void)state;
    struct far f = {.p = {.stays = true, .cancel = (struct client *)&f}};
    struct client *c;
    struct client_reply r;
    struct buf b = {0};
    struct qn_error e = {0};
    far_start(&f, &c);
    assert_int_equal(ask(c, "{}", 2, &b, &r, &e), QN_ECANCEL);
    client_close(c);
    peer_join(&f.p);
    assert_true(f.p.left);
    close(f.listener);
    struct far g = {.p = {.answer = {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab"}, .stays = true}};
    far_start(&g, &c);
    assert_int_equal(client_send(c, "GET", "/", NULL, 0, enough, NULL, &r, &e), QN_ECANCEL);
    client_close(c);
    peer_join(&g.p);
    assert_true(g.p.left);
    close(g.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_connection_for_several_exchanges),
        cmocka_unit_test(a_long_body),
        cmocka_unit_test(a_path_is_one_word),
        cmocka_unit_test(a_broken_connection_is_told),
        cmocka_unit_test(cancelled_while_it_waits),
        cmocka_unit_test(cancelled_before_it_begins),
        cmocka_unit_test(a_sink_that_has_enough),
        cmocka_unit_test(dialled_again_when_the_server_has_closed),
        cmocka_unit_test(dialled_again_when_the_connection_cannot_be_used),
        cmocka_unit_test(sockets_that_do_not_answer),
        cmocka_unit_test(urls),
        cmocka_unit_test(a_url_is_asked),
        cmocka_unit_test(a_url_that_breaks_off),
        cmocka_unit_test(a_url_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
