/* SPDX-License-Identifier: MIT
 *
 * check_head.c: whether a request may come in, decided as soon as its headers are there.
 *
 * The order of the checks: is it well-formed and meant for us (Host); may this web page call (Origin); who sends it
 * (keys); is there such a route; does the body suit it. A client without a key does not learn which routes exist.
 *
 * Requests that two programs could read differently are refused, even if they are readable: two lengths; a length and
 * chunks; transfer codings other than chunked; and headers that mean one thing and come twice, because one program
 * takes the first and another the last. Such differences let requests be smuggled and rights be borrowed.
 *
 * Source: RFC 9112 sections 3.2 (targets, Host), 6.1 and 6.3 (length), 9.3 (persistence), RFC 9110 sections 10.1.1
 * (Expect), 15.5.20 (421) and 11.6.1 (WWW-Authenticate), the Fetch standard (preflight), W3C Trace Context
 * (traceparent).
 *
 * Runs in the server's thread, without the lock.
 */
#include "server/http/impl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/http/web_origin.h"
#include "server/http/route.h"

/* The headers that are looked at. Each may come once; if traceparent comes more than once, none is believed. */
enum known_header {
    HOST,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    ORIGIN,
    AUTHORIZATION,
    API_KEY,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    EXPECT,
    PREFLIGHT,
    WEBSOCKET_KEY,
    WEBSOCKET_VERSION,
    UPGRADE,
    TRACEPARENT, /* from here on, repeated headers are no error */
    REFERER,
    COOKIE,
    USER_AGENT,
    N_KNOWN
};
static const char *const known_names[N_KNOWN] = {
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Origin",
    "Authorization",
    "x-api-key",
    "Content-Type",
    "Content-Encoding",
    "Expect",
    "Access-Control-Request-Method",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Upgrade",
    "traceparent",
    "Referer",
    "Cookie",
    "User-Agent",
};

struct known_headers {
    const char *value[N_KNOWN];
    int n[N_KNOWN];
    bool closes;      /* Connection: close */
    bool has_fetched; /* a Sec-Fetch-... header, which browsers add */
};

static void collect(struct known_headers *k, const struct head *h)
{
    for (int i = 0; i < h->n; i++) {
        if (strcasecmp(h->header[i].name, "Connection") == 0 && head_has(h->header[i].value, "close")) k->closes = true;
        if (strncasecmp(h->header[i].name, "Sec-Fetch-", 10) == 0) k->has_fetched = true;
        for (int j = 0; j < N_KNOWN; j++)
            if (strcasecmp(h->header[i].name, known_names[j]) == 0) {
                k->value[j] = h->header[i].value;
                k->n[j]++;
            }
    }
}

/* The name of a header that came twice but may come once; NULL: none. */
static const char *repeated(const struct known_headers *k)
{
    for (int j = 0; j < UPGRADE; j++)
        if (k->n[j] > 1) return known_names[j];
    return NULL;
}

/* W3C Trace Context, version 00: 2-32-16-2 lower-case hexadecimal digits */
static bool is_traceparent(const char *s)
{
    if (strlen(s) != 55) return false;
    for (int i = 0; i < 55; i++)
        if (i == 2 || i == 35 || i == 52 ? s[i] != '-' : !strchr("0123456789abcdef", s[i])) return false;
    return true;
}

static bool host_ok(const struct http_request *r, const char *host)
{
    const struct http_config *c = &r->http->c;
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    char local[INET6_ADDRSTRLEN] = "";
    const void *from;

    if (r->conn->listener->is_unix) return true;
    if (getsockname(r->conn->fd, (struct sockaddr *)&at, &n) == 0) {
        from = at.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)(void *)&at)->sin6_addr
                                        : (void *)&((struct sockaddr_in *)(void *)&at)->sin_addr;
        inet_ntop(at.ss_family, from, local, sizeof local);
    }
    return web_origin_host_ok(host, local[0] ? local : NULL, c->hosts, c->n_hosts);
}

static const char *bearer(const struct known_headers *k)
{
    const char *a = k->value[AUTHORIZATION];

    return a && strncasecmp(a, "Bearer ", 7) == 0 ? a + 7 : NULL;
}

/* Fills r->who; false if a client without a valid key may not call. */
static bool identify(struct http_request *r, const struct known_headers *k)
{
    struct http *h = r->http;
    const char *secret = bearer(k) ? bearer(k) : k->value[API_KEY];
    const struct api_key *key;
    char room[512];

    if (r->conn->listener->is_unix) {
        r->who = (struct http_identity){.kind = HTTP_UID, .uid = r->conn->uid};
        snprintf(r->who.name, sizeof r->who.name, "uid:%u", (unsigned)r->who.uid);
        return true;
    }
    if (!h->c.keys_path) {
        r->who = (struct http_identity){.kind = HTTP_LOCAL, .name = "local"};
        return true;
    }
    if (!secret && k->value[UPGRADE]) secret = websocket_key(&r->head, room, sizeof room);
    pthread_rwlock_rdlock(&h->keys_lock);
    key = secret ? api_keys_find(&h->keys, secret) : NULL;
    if (key) {
        r->who = (struct http_identity){.kind = HTTP_KEY};
        memcpy(r->who.name, key->name, sizeof key->name);
        memcpy(r->who.limits, key->limits, sizeof key->limits);
    }
    pthread_rwlock_unlock(&h->keys_lock);
    return key != NULL;
}

static void answer_preflight(struct http_request *r)
{
    const struct http_config *c = &r->http->c;
    struct buf allow = {0};

    if (route_allow(&allow, c->routes, c->n_routes, r->path, NULL) == 0 && allow.len > 0)
        http_set_header(r, "Access-Control-Allow-Methods", (char *)allow.data);
    buf_deinit(&allow);
    /* Any header, because clients send headers of their own. "*" does not include Authorization. */
    http_set_header(r, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key, *");
    http_set_header(r, "Access-Control-Max-Age", "600");
    http_reply(r, 204, NULL, "", 0);
}

static bool is_type(const char *type, const char *name)
{
    size_t n = strlen(name);

    return strncasecmp(type, name, n) == 0 && strchr("; \t", type[n]);
}

/* A mark of a browser: one of the headers that a page cannot keep a browser from sending. */
static const char *browser_mark(const struct known_headers *k)
{
    if (k->n[ORIGIN]) return "Origin";
    if (k->has_fetched) return "Sec-Fetch-...";
    if (k->n[REFERER]) return "Referer";
    if (k->n[COOKIE]) return "Cookie";
    return k->n[USER_AGENT] && strncasecmp(k->value[USER_AGENT], "Mozilla/", 8) == 0 ? "User-Agent: Mozilla" : NULL;
}

/* Bodies are JSON whatever they are called, because `curl -d` and others do not say so. But a page can make a browser
 * send the types below to any server without being asked. So they are not taken from a browser (docs/SECURITY.md).
 * Returns true when it has answered. */
static bool refuse_type(struct http_request *r, const struct known_headers *k)
{
    const char *type = k->value[CONTENT_TYPE] ? k->value[CONTENT_TYPE] : "", *mark = browser_mark(k);

    if (is_type(type, "application/json")) return false;
    bool is_simple = !*type || is_type(type, "text/plain") || is_type(type, "application/x-www-form-urlencoded");
    if (is_simple && (!mark || r->conn->listener->is_unix)) return false;
    if (is_simple)
        http_error(r, 415, NULL, NULL, "Content-Type is '%s', not application/json, which browsers have to send (%s)",
                   type, mark);
    else
        http_error(r, 415, NULL, NULL, "Content-Type is '%s', not application/json", type);
    return true;
}

static void refuse_method(struct http_request *r)
{
    const struct http_config *c = &r->http->c;
    struct buf allow = {0};

    if (route_allow(&allow, c->routes, c->n_routes, r->path, NULL) == 0 && allow.len > 0)
        http_set_header(r, "Allow", (char *)allow.data);
    buf_deinit(&allow);
    http_error(r, 405, NULL, NULL, "%s is not served at %s", r->method, r->path);
}

static const char *public_path(const struct http_config *c)
{
    for (int i = 0; i < c->n_routes; i++)
        if (c->routes[i].flags & HTTP_PUBLIC) return c->routes[i].pattern;
    return "nothing";
}

/* Route, type and length. Returns true when it has answered. */
static bool check_route(struct http_request *r, const struct known_headers *k, bool known)
{
    const struct http_config *c = &r->http->c;
    struct route_match m = route_find(c->routes, c->n_routes, r->method, r->path);

    r->route = m.route;
    if (!known && !(m.route && m.route->flags & HTTP_PUBLIC)) {
        http_set_header(r, "WWW-Authenticate", "Bearer");
        http_error(r, 401, NULL, "invalid_api_key",
                   "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    } else if (!m.has_path) {
        http_error(r, 404, NULL, NULL, "nothing is served at %s", r->path);
    } else if (!m.route) {
        refuse_method(r);
    } else if (r->conn->is_short && !(m.route->flags & HTTP_PUBLIC)) {
        http_set_header(r, "Retry-After", "1");
        http_error(r, 503, NULL, NULL, "too many connections; this one is for %s alone", public_path(c));
    } else if (m.route->flags & HTTP_WEBSOCKET && websocket_check(r)) {
        return true;
    } else if (m.route->flags & HTTP_JSON_BODY && refuse_type(r, k)) {
        return true;
    } else if (k->value[CONTENT_ENCODING] && strcasecmp(k->value[CONTENT_ENCODING], "identity") != 0) {
        http_error(r, 415, NULL, NULL, "Content-Encoding is '%s', which is not supported: send the body as it is",
                   k->value[CONTENT_ENCODING]);
    } else if (r->n_body > (int64_t)c->max_body_bytes) {
        http_error(r, 413, NULL, NULL, "a body of %s bytes; %zu are allowed", k->value[CONTENT_LENGTH],
                   c->max_body_bytes);
    } else if (m.param_len > 0 && !(r->param = mem_dup(r->path + m.param, m.param_len))) {
        http_error(r, 503, NULL, NULL, "out of memory");
    } else {
        return false;
    }
    return true;
}

/* Fills r->n_body, the length of the body. NULL, or why the length is not known. */
static const char *frame(struct http_request *r, const struct known_headers *k)
{
    const char *length = k->value[CONTENT_LENGTH], *coding = k->value[TRANSFER_ENCODING];

    if (k->n[CONTENT_LENGTH] + k->n[TRANSFER_ENCODING] > 1) return "the body's length is given more than once";
    if (coding && r->head_minor == 0) return "HTTP/1.0 has no Transfer-Encoding";
    if (coding && strcasecmp(coding, "chunked") != 0) return "Transfer-Encoding is not chunked";
    r->n_body = 0;
    if (coding)
        r->n_body = -1;
    else if (length)
        r->n_body = head_length(length);
    return length && r->n_body < 0 ? "Content-Length is not a number of bytes" : NULL;
}

/* The length of "http://" or "https://" at the beginning of a target; 0: it has neither. */
static size_t scheme_bytes(const char *target)
{
    if (strncasecmp(target, "http://", 7) == 0) return 7;
    return strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
}

/* Proxies are asked for http://host/path: the host has to be that of the Host header, and the path is kept. */
static int take_authority(struct http_request *r, const struct known_headers *k)
{
    const char *host = k->value[HOST];
    size_t scheme = scheme_bytes(r->path);
    size_t n = scheme ? strcspn(r->path + scheme, "/") : 0;

    if (!scheme) return 0;
    if (n == 0 || !host || strlen(host) != n || strncasecmp(host, r->path + scheme, n) != 0) return -1;
    if (r->path[scheme + n])
        memmove(r->path, r->path + scheme + n, strlen(r->path + scheme + n) + 1);
    else
        memcpy(r->path, "/", 2);
    return 0;
}

static const char *malformed(struct http_request *r, const struct known_headers *k)
{
    const char *why = frame(r, k);

    if (why) return why;
    if (k->n[HOST] == 0 && r->head_minor > 0) return "there is no Host";
    if (k->value[HOST] && strpbrk(k->value[HOST], " \t,/\\@?#")) return "Host is malformed";
    if (take_authority(r, k)) return "the request's target is not a path, or names another Host";
    return r->path[0] != '/' || route_unescape(r->path) < 0 ? "the request's target is not a path" : NULL;
}

/* Two secrets that differ are two identities. */
static bool is_two(const struct http_request *r, const struct known_headers *k)
{
    const char *one = bearer(k), *other = k->value[API_KEY];

    return r->http->c.keys_path && !r->conn->listener->is_unix && one && other && strcmp(one, other) != 0;
}

/* Returns true when it has answered. */
static bool check_all(struct http_request *r, const struct known_headers *k)
{
    const struct http_config *c = &r->http->c;
    const char *host = k->value[HOST], *origin = k->value[ORIGIN];

    if (!host_ok(r, host))
        http_error(r, 421, NULL, NULL,
                   "this server is not called '%s'; `quern serve --host NAME` gives it the name NAME",
                   host ? host : "");
    else if (origin && !web_origin_ok(origin, host, r->conn->listener->tls, c->origins, c->n_origins))
        http_error(r, 403, NULL, NULL,
                   "pages of '%s' may not use this server; `quern serve --origin URL` allows those of URL", origin);
    else if (k->value[EXPECT] && strcasecmp(k->value[EXPECT], "100-continue") != 0)
        http_error(r, 417, NULL, NULL, "Expect is '%s', not 100-continue", k->value[EXPECT]);
    else if (is_two(r, k))
        http_error(r, 400, NULL, NULL, "Authorization and x-api-key have different keys");
    else {
        if (origin) r->origin = mem_dup(origin, strlen(origin));
        if (origin && k->value[PREFLIGHT] && strcmp(r->method, "OPTIONS") == 0) {
            answer_preflight(r);
            return true;
        }
        return check_route(r, k, identify(r, k));
    }
    return true;
}

enum check_result check_headers(struct http_request *r)
{
    struct known_headers k = {0};
    const char *why, *trace, *twice;

    collect(&k, &r->head);
    trace = k.n[TRACEPARENT] == 1 ? k.value[TRACEPARENT] : NULL;
    if (trace && is_traceparent(trace)) memcpy(r->trace, trace, sizeof r->trace);
    r->expects = k.value[EXPECT] && r->head_minor > 0;
    r->close = k.closes || r->head_minor == 0 || r->conn->is_short;
    twice = repeated(&k);
    why = malformed(r, &k);
    if (twice)
        http_error(r, 400, NULL, NULL, "%s is given more than once", twice);
    else if (why)
        http_error(r, 400, NULL, NULL, "%s", why);
    else if (!check_all(r, &k))
        return CHECK_OK;
    /* The body is not read when its end is not known, when it is too long, or when the client waits for 100 Continue
     * before it sends it. */
    return twice || why || r->expects || r->n_body > (int64_t)DISCARD_BYTES ? CHECK_CLOSE : CHECK_DISCARD;
}
