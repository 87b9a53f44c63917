/* SPDX-License-Identifier: MIT
 *
 * fuzz_http.c: libFuzzer entry for the parts of a request's head that we read ourselves: the target, Host and Origin.
 *
 * The input is a byte that chooses which, then the text. What passes as ours has to be: a path that a route matches
 * begins with it, a host is one of three names and an address, an origin begins with a scheme and its host or is the
 * one that is allowed.
 */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "server/origin.h"
#include "server/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void nothing(struct http_request *r, void *ctx)
{
    (void)r;
    (void)ctx;
}

static const struct http_route routes[] = {
    {"GET", "/health", nothing, 0},
    {"POST", "/v1/requests/{id}/cancel", nothing, 0},
    {"POST", "/v1/messages", nothing, 0},
    {"POST", "/v1/messages/count_tokens", nothing, 0},
};

static void read_target(char *s)
{
    char *question = strchr(s, '?');
    char *copy = question ? mem_dup(question + 1, strlen(question + 1)) : NULL;
    if (question) *question = '\0';
    if (copy) {
        char *value = route_query(copy, "x");
        assert(!value || strlen(value) <= strlen(question + 1));
        mem_free(copy);
    }
    size_t before = strlen(s);
    long n = route_unescape(s);
    if (n < 0) return;
    assert((size_t)n <= before && s[n] == '\0' && strlen(s) == (size_t)n);
    struct route_match m = route_find(routes, 4, "POST", s);
    assert(!m.route || m.has_path);
    if (!m.route) return;
    if (m.param_len)
        assert(m.param + m.param_len + strlen("/cancel") == strlen(s) && !memchr(s + m.param, '/', m.param_len));
    else
        assert(!strcmp(s, m.route->pattern));
    struct buf allow = {0};
    assert(!route_allow(&allow, routes, 4, s, NULL) && strstr((char *)allow.data, "POST"));
    buf_deinit(&allow);
}

static void read_host(const char *s)
{
    static const char *const names[] = {"quern.example"};
    static const char *const known[] = {"localhost",     "127.0.0.1",   "[::1]",
                                        "[2001:db8::1]", "2001:db8::1", "quern.example"};
    if (!origin_host_ok(s, "2001:db8::1", names, 1)) return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i]);
        if (!strncasecmp(s, known[i], n) &&
            (!s[n] || (s[n] == ':' && strspn(s + n + 1, "0123456789") == strlen(s + n + 1))))
            return;
    }
    assert(!"a host that is not ours");
}

static void read_origin(const char *s)
{
    static const char *const origins[] = {"https://app.example"};
    int ok = origin_ok(s, "localhost:1", 0, origins, 1);
    assert(ok == (!strcasecmp(s, "https://app.example") || !strcasecmp(s, "http://localhost:1")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char *s = mem_dup(data + 1, size - 1); /* up to its first NUL byte, as the parser gives it */
    assert(s);
    switch (data[0] % 3) {
    case 0: read_target(s); break;
    case 1: read_host(s); break;
    default: read_origin(s);
    }
    mem_free(s);
    return 0;
}
