/* SPDX-License-Identifier: MIT
 *
 * test_http.c: the parts of the HTTP layer that need no connection: paths, hosts, keys, errors, the service manager,
 * and opening without memory. tests/e2e/test_http.py has the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/http/impl.h"
#include "server/http/web_origin.h"
#include "server/http/route.h"
#include "server/http/systemd.h"

static char dir[] = "/tmp/quern-test-http-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state) { return (void)state, mkdtemp(dir) ? 0 : -1; }
static int remove_dir(void **state) { return (void)state, rmdir(dir); }

/* ---- paths ---- */

static void escapes_are_undone(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out; /* NULL: refused */
    } t[] = {{"/a%20b", "/a b"}, {"%41%4a%4A", "AJJ"}, {"", ""},      {"%e2%82%AC", "\xe2\x82\xac"},
             {"%2525", "%25"},   {"a+b", "a+b"},       {"%00", NULL}, {"%", NULL},
             {"%4", NULL},       {"%4g", NULL},        {"%g4", NULL}, {"a%", NULL}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char s[32];
        snprintf(s, sizeof s, "%s", t[i].in);
        long n = route_unescape(s);
        if (!t[i].out)
            assert_int_equal(n, -1);
        else {
            assert_int_equal(n, strlen(t[i].out));
            assert_string_equal(s, t[i].out);
        }
    }
}

static const struct http_route routes[] = {
    {"GET", "/v1/models", NULL, 0},
    {"GET", "/v1/models/{id}", NULL, 0},
    {"POST", "/v1/requests/{id}/cancel", NULL, 0},
    {"DELETE", "/v1/models/{id}", NULL, 0},
    {"GET", "/all/{path}", NULL, 0},
};
#define N_ROUTES (int)(sizeof routes / sizeof *routes)

static void routes_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        int route; /* -1: no such path, -2: not with this method */
        const char *param;
    } t[] = {{"GET", "/v1/models", 0, ""},
             {"HEAD", "/v1/models", 0, ""},
             {"POST", "/v1/models", -2, ""},
             {"GET", "/v1/models/", -1, ""},
             {"GET", "/v1/models/x y", 1, "x y"},
             {"DELETE", "/v1/models/..", 3, ".."},
             {"GET", "/v1/models/a/b", -1, ""},
             {"get", "/v1/models", -2, ""},
             {"POST", "/v1/requests/7/cancel", 2, "7"},
             {"POST", "/v1/requests//cancel", -1, ""},
             {"POST", "/v1/requests/cancel", -1, ""},
             {"POST", "/v1/requests/7/cancel/", -1, ""},
             {"GET", "/v1/models/{id}", 1, "{id}"},
             {"GET", "/all/a", 4, "a"},
             {"GET", "/all/a//b/", 4, "a//b/"},
             {"GET", "/all//", 4, "/"},
             {"GET", "/all/", -1, ""},
             {"GET", "/all", -1, ""},
             {"GET", "/all/a/end", 4, "a/end"},
             {"POST", "/all/a", -2, ""},
             {"GET", "", -1, ""}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct route_match m = route_find(routes, N_ROUTES, t[i].method, t[i].path);
        assert_ptr_equal(m.route, t[i].route < 0 ? NULL : &routes[t[i].route]);
        assert_int_equal(m.has_path, t[i].route != -1);
        assert_int_equal(m.param_len, strlen(t[i].param));
        assert_memory_equal(t[i].path + m.param, t[i].param, m.param_len);
    }
}

static void methods_are_listed(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(route_allow(&b, routes, N_ROUTES, "/v1/models/x", NULL), 0);
    assert_string_equal((char *)b.data, "GET, HEAD, DELETE");
    buf_deinit(&b);
    assert_int_equal(route_allow(&b, routes, N_ROUTES, "/v2", NULL), 0);
    assert_int_equal(b.len, 0);
}

static void queries_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *query, *name, *value; /* NULL: absent */
    } t[] = {{"a=1&b=2", "b", "2"},   {"a=1&b=2", "c", NULL},   {"a", "a", ""},          {"a=", "a", ""},
             {"a=x%26y", "a", "x&y"}, {"a=1+1", "a", "1 1"},    {"%61=7", "a", "7"},     {"a=%zz&a=2", "a", NULL},
             {"", "a", NULL},         {"&&a=1=2&", "a", "1=2"}, {"%zz=1&a=2", "a", "2"}, {"aa=1", "a", NULL}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char s[32];
        snprintf(s, sizeof s, "%s", t[i].query);
        const char *v = route_query(s, t[i].name);
        if (!t[i].value)
            assert_null(v);
        else
            assert_string_equal(v, t[i].value);
    }
}

/* ---- heads and chunks ---- */

static void lengths_are_digits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t n;
    } t[] = {{"0", 0},
             {"44", 44},
             {"00044", 44},
             {"999999999999999999", 999999999999999999},
             {"", -1},
             {"+44", -1},
             {"-44", -1},
             {"0x2c", -1},
             {"44 ", -1},
             {"44, 44", -1},
             {"4_4", -1},
             {"44\v", -1},
             {"1e3", -1},
             {"18446744073709551660", -1},
             {"9223372036854775808", -1}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) assert_int_equal(head_length(t[i].text), t[i].n);
}

static void blanks_around_a_value_are_not_its_own(void **state)
{
    (void)state;
    char text[] = "GET / HTTP/1.1\r\nA: \t one \t\r\nB:two\t\r\nC: \r\n\r\n";
    struct head h;
    const char *why;
    assert_int_equal(head_parse(&h, text, sizeof text - 1, &why), 0);
    assert_string_equal(head_value(&h, "a"), "one");
    assert_string_equal(head_value(&h, "b"), "two");
    assert_string_equal(head_value(&h, "c"), "");
}

static void lists_have_elements(void **state)
{
    (void)state;
    assert_true(head_has("close", "close"));
    assert_true(head_has("keep-alive,\t CLOSE ,x", "close"));
    assert_false(head_has("closed, xclose, clo se", "close"));
    assert_false(head_has("", "close"));
    assert_false(head_has(",, ,", "close"));
}

static void a_head_ends_with_an_empty_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        long n;
    } t[] = {{"GET / HTTP/1.1\r\n\r\n", 18},
             {"A\r\n\r\nmore", 5},
             {"A\r\n\r", 0},
             {"A\r\n", 0},
             {"", 0},
             {"A\n", -1},
             {"\n", -1},
             {"A\rB", -1},
             {"A\b", -1},
             {"\x7f", -1}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        size_t at = 0;
        assert_int_equal(head_scan((const uint8_t *)t[i].text, strlen(t[i].text), &at), t[i].n);
    }
    size_t at = 0;
    assert_int_equal(head_scan((const uint8_t *)"A: \0\r\n\r\n", 8, &at), -1);
}

/* ---- whose connection it is ---- */

static void peers_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        int same;
    } t[] = {{"192.0.2.1", "192.0.2.1", 1},
             {"192.0.2.1", "192.0.2.2", 0},
             {"192.0.2.1", "::ffff:192.0.2.1", 1},
             {"192.0.2.1", "::ffff:192.0.2.2", 0},
             {"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", 1},
             {"2001:db8:0:1::1", "2001:db8:0:2::1", 0},
             {"::1", "0.0.0.0", 0}};
    struct qn_error e;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct peer a, b;
        assert_int_equal(peer_read(&a, t[i].one, &e), 0);
        assert_int_equal(peer_read(&b, t[i].other, &e), 0);
        assert_int_equal(memcmp(&a, &b, sizeof a) == 0, t[i].same);
    }
    const struct sockaddr unix_socket = {.sa_family = AF_UNIX};
    struct peer a = peer_of(&unix_socket, 1000), b = peer_of(&unix_socket, 1001), c = peer_of(&unix_socket, 1000);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_equal(&a, &c, sizeof a);
    assert_int_equal(peer_read(&a, "localhost", &e), QN_EUSAGE);
    assert_int_equal(peer_read(&a, "10.0.0.0/8", &e), QN_EUSAGE);
}

/* A proxy has as many connections as there are; anybody else has a share. */
static void a_proxy_may_have_all_places(void **state)
{
    (void)state;
    struct peer proxy, other;
    struct qn_error e;
    struct conn conns[3] = {0}, *slots[3];
    struct http h = {.c = {.max_connections = 10, .peer_connections = 3, .n_proxies = 1}, .proxy = &proxy};
    const char *why = NULL;
    assert_int_equal(peer_read(&proxy, "10.0.0.1", &e), 0);
    assert_int_equal(peer_read(&other, "10.0.0.2", &e), 0);
    h.conn = slots;
    h.n_slots = 3;
    h.n_conns = 3;
    for (int is_proxy = 0; is_proxy < 2; is_proxy++) {
        for (int i = 0; i < 3; i++) {
            slots[i] = &conns[i];
            conns[i].peer = is_proxy ? proxy : other;
        }
        assert_int_equal(place_for(&h, is_proxy ? &proxy : &other, 0, &why), is_proxy ? PLACE_ANY : PLACE_NONE);
        assert_int_equal(place_for(&h, is_proxy ? &other : &proxy, 0, &why), PLACE_ANY);
    }
    assert_int_equal(h.refused.peer, 1);
    h.n_conns = 10; /* no more than there are */
    assert_int_equal(place_for(&h, &proxy, 0, &why), PLACE_NONE);
    assert_int_equal(h.refused.full, 1);
}

/* ---- hosts and origins ---- */

static void hosts_are_ours(void **state)
{
    (void)state;
    static const char *const names[] = {"Quern.example"};
    static const char *const good[] = {"localhost",   "LocalHost:80",    "127.0.0.1:", "[::1]",        "[::1]:8080",
                                       "192.0.2.1:5", "quern.example:1", "192.0.2.1",  "quern.EXAMPLE"};
    static const char *const bad[] = {"",
                                      "localhost.",
                                      "a.localhost",
                                      "127.0.0.2",
                                      "::1",
                                      "[::1",
                                      "[::1]x",
                                      "localhost:80a",
                                      "localhost:80:80",
                                      "192.0.2.10",
                                      "xquern.example",
                                      ":80",
                                      "localhost ",
                                      "[localhost]",
                                      "[]",
                                      "127.0.0.1@x",
                                      "2001:db8::1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(web_origin_host_ok(good[i], "192.0.2.1", names, 1));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(web_origin_host_ok(bad[i], "192.0.2.1", names, 1));
    assert_true(web_origin_host_ok("[2001:db8::1]:80", "2001:db8::1", NULL, 0));
    assert_false(web_origin_host_ok("192.0.2.1", NULL, NULL, 0));
    assert_false(web_origin_host_ok(NULL, "192.0.2.1", NULL, 0));
}

static void origins_are_ours_or_configured(void **state)
{
    (void)state;
    static const char *const list[] = {"https://app.example", "http://localhost:3000"};
    assert_true(web_origin_ok("https://app.example", "localhost", 0, list, 2));
    assert_true(web_origin_ok("http://localhost:3000", "localhost:8080", 0, list, 2));
    assert_true(web_origin_ok("http://localhost:8080", "localhost:8080", 0, list, 2));
    assert_true(web_origin_ok("https://localhost:8080", "localhost:8080", 1, NULL, 0));
    assert_false(web_origin_ok("http://localhost:8080", "localhost:8080", 1, NULL, 0));
    assert_false(web_origin_ok("http://localhost", "localhost:8080", 0, NULL, 0));
    assert_false(web_origin_ok("https://app.example.evil", "localhost", 0, list, 2));
    assert_false(web_origin_ok("null", "localhost", 0, list, 2));
    assert_false(web_origin_ok("", NULL, 0, list, 2));
}

/* ---- keys ---- */

#define SHA_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* of "abc": FIPS 180-4 */
#define ZEROS   "0000000000000000000000000000000000000000000000000000000000000000"

static int load(struct api_keys *k, const char *text, struct qn_error *e)
{
    const char *path = in_dir("keys");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    static const char *const limits[] = {"requests", "tokens", NULL};
    int r = api_keys_load(k, path, limits, e);
    unlink(path);
    return r;
}

static void keys_are_found(void **state)
{
    (void)state;
    struct api_keys k = {0};
    struct qn_error e;
    assert_int_equal(load(&k, "# who\r\n\n  " SHA_ABC "  alice\ttokens=100000 requests=4 \n" ZEROS " bob@home", &e), 0);
    assert_int_equal(k.n, 2);
    const struct api_key *a = api_keys_find(&k, "abc");
    assert_non_null(a);
    assert_string_equal(a->name, "alice");
    assert_string_equal(a->limits, "tokens=100000 requests=4");
    assert_int_equal(api_keys_limit(a->limits, "requests", -1), 4);
    assert_int_equal(api_keys_limit(a->limits, "tokens", -1), 100000);
    assert_int_equal(api_keys_limit(a->limits, "token", -1), -1);
    assert_int_equal(api_keys_limit("", "tokens", -1), -1);
    assert_null(api_keys_find(&k, "abcd"));
    assert_null(api_keys_find(&k, ""));
    assert_null(api_keys_find(&k, SHA_ABC));
    api_keys_deinit(&k);
}

static void bad_key_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } t[] = {{"", "no API key"},
             {"# nobody\n", "no API key"},
             {"\n" SHA_ABC "\n", ":2: the digest is followed by a name"},
             {SHA_ABC " a/b\n", ":1: the digest is followed by a name"},
             {SHA_ABC "0 a\n", ":1: a line begins with"},
             {"sk-secret a\n", ":1: a line begins with"},
             {"g" ZEROS " a\n", ":1: a line begins with"},
             {SHA_ABC " a requests=1 request=1\n", "'request=1': no limit has this name"},
             {SHA_ABC " a requests1=1\n", "no limit has this name"},
             {SHA_ABC " a x=\n", "'x=' is not name=number"},
             {SHA_ABC " a x=-1\n", "'x=-1' is not"},
             {SHA_ABC " a x=99999999999999999999\n", "is not name=number"},
             {SHA_ABC " a\n" SHA_ABC " b\n", ":2: the key of 'a' again"}};
    struct api_keys k = {0};
    struct qn_error e;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(load(&k, t[i].text, &e), QN_EDATA);
        assert_non_null(strstr(e.msg, t[i].says));
    }
    char text[1000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(load(&k, text, &e), QN_EDATA);
    assert_int_equal(api_keys_load(&k, "/nonexistent/keys", NULL, &e), QN_ENOINPUT);
    assert_null(k.key);
}

/* ---- errors ---- */

static void errors_are_json(void **state)
{
    (void)state;
    char text[512];
    size_t n = error_json(text, sizeof text, 404, NULL, "model_not_found", "no \"x\"\\ \xe2\x82\xac");
    assert_int_equal(n, strlen(text));
    json_t *j = json_loadb(text, n, 0, NULL), *e = json_object_get(j, "error");
    assert_string_equal(json_string_value(json_object_get(e, "message")), "no \"x\"\\ \xe2\x82\xac");
    assert_string_equal(json_string_value(json_object_get(e, "type")), "not_found_error");
    assert_string_equal(json_string_value(json_object_get(e, "code")), "model_not_found");
    assert_true(json_is_null(json_object_get(e, "param")));
    json_decref(j);
    /* a message that does not fit, or is not UTF-8, leaves an error of the right shape */
    n = error_json(
        text, 128, 500, NULL, NULL,
        "a message that is longer than the room that there is for it, with all that stands around it, all in all");
    assert_int_equal(n, strlen(text));
    assert_string_equal(text,
                        "{\"error\":{\"message\":\"(lost)\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
    error_json(text, sizeof text, 400, NULL, NULL, "\xff");
    assert_string_equal(
        text, "{\"error\":{\"message\":\"(lost)\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
}

/* ---- the service manager ---- */

static void activation_is_for_this_process(void **state)
{
    (void)state;
    struct qn_error e;
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_int_equal(systemd_listen_fds(NULL, "1", &e), 0);
    assert_int_equal(systemd_listen_fds(pid, NULL, &e), 0);
    assert_int_equal(systemd_listen_fds("1", "1", &e), 0);
    assert_int_equal(systemd_listen_fds(pid, "0", &e), 0);
    assert_int_equal(systemd_listen_fds(pid, "x", &e), QN_EUSAGE);
    assert_int_equal(systemd_listen_fds(pid, "", &e), QN_EUSAGE);
    assert_int_equal(systemd_listen_fds(pid, "65", &e), QN_EUSAGE);
}

static void readiness_is_a_datagram(void **state)
{
    (void)state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct qn_error e;
    char got[32];
    int to, fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", in_dir("notify"));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(systemd_notify_open(&to, at.sun_path, &e), 0);
    assert_int_equal(systemd_notify(to, "READY=1", &e), 0);
    assert_int_equal(recv(fd, got, sizeof got, 0), 7);
    assert_memory_equal(got, "READY=1", 7);
    close(fd);
    assert_int_equal(systemd_notify(to, "READY=1", &e), QN_EIO);
    close(to);
    assert_int_equal(systemd_notify_open(&to, at.sun_path, &e), QN_EIO);
    assert_int_equal(to, -1);
    unlink(at.sun_path);
    assert_int_equal(systemd_notify_open(&to, NULL, &e), 0);
    assert_int_equal(systemd_notify(to, "READY=1", &e), 0);
    assert_int_equal(systemd_notify_open(&to, "relative", &e), QN_EUSAGE);

    /* an abstract name: the length counts, no NUL byte at the end */
    char name[32];
    int n = snprintf(name, sizeof name, "@quern-test-%d", (int)getpid());
    fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    memcpy(at.sun_path, name, (size_t)n);
    at.sun_path[0] = '\0';
    assert_int_equal(bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)),
                     0);
    assert_int_equal(systemd_notify_open(&to, name, &e), 0);
    assert_int_equal(systemd_notify(to, "STOPPING=1", &e), 0);
    assert_int_equal(recv(fd, got, sizeof got, 0), 10);
    close(fd);
    close(to);
}

/* ---- opening ---- */

static void opening_without_memory_leaves_nothing(void **state)
{
    (void)state;
    struct http_listen l[2] = {{.address = in_dir("new/sock")}, {.address = "127.0.0.1:0"}};
    struct http_config c;
    struct http *h = NULL;
    struct qn_error e;
    char sock[64], made[64];
    snprintf(sock, sizeof sock, "%s", in_dir("new/sock"));
    snprintf(made, sizeof made, "%s", in_dir("new"));
    l[0].address = sock;
    http_config_init(&c);
    c.listen = l;
    c.n_listen = 2;
    for (uint64_t n = 1;; n++) {
        mem_fault_set(n);
        int r = http_open(&h, &c, &e);
        if (r == 0 && (r = http_start(h, NULL, &e))) {
            http_close(h);
            h = NULL;
        }
        int hit = mem_fault_hit();
        mem_fault_set(0);
        if (!hit) {
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, QN_ENOMEM);
        assert_null(h);
        assert_int_not_equal(access(sock, F_OK), 0);
    }
    assert_int_equal(access(sock, F_OK), 0);
    assert_true(http_port(h, 1) > 0);

    /* handed over: the path stays */
    int fd = http_listen_fd(h, 0, &e);
    assert_true(fd >= 0);
    assert_int_equal(http_drain(h, 1000), 0);
    http_close(h);
    assert_int_equal(access(sock, F_OK), 0);
    l[0] = (struct http_listen){.fd = fd};
    c.n_listen = 1;
    assert_int_equal(http_open(&h, &c, &e), 0);
    http_close(h); /* never started */
    unlink(sock);
    rmdir(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_are_undone),
        cmocka_unit_test(routes_are_found),
        cmocka_unit_test(methods_are_listed),
        cmocka_unit_test(queries_are_read),
        cmocka_unit_test(lengths_are_digits),
        cmocka_unit_test(blanks_around_a_value_are_not_its_own),
        cmocka_unit_test(lists_have_elements),
        cmocka_unit_test(a_proxy_may_have_all_places),
        cmocka_unit_test(a_head_ends_with_an_empty_line),
        cmocka_unit_test(peers_are_told_apart),
        cmocka_unit_test(hosts_are_ours),
        cmocka_unit_test(origins_are_ours_or_configured),
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(bad_key_files_are_refused),
        cmocka_unit_test(errors_are_json),
        cmocka_unit_test(activation_is_for_this_process),
        cmocka_unit_test(readiness_is_a_datagram),
        cmocka_unit_test(opening_without_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
