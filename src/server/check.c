/* SPDX-License-Identifier: MIT
 *
 * check.c: whether a request may come in, as soon as its headers are there.
 *
 * In this order: is it well-formed and meant for us (Host), may this web page ask (Origin), who is it (keys), is there
 * such a thing (route), does the body suit. Somebody without a key learns nothing about what there is.
 *
 * Two lengths, a length and chunks, names of headers with a space in them, and transfer codings but chunked are refused
 * although they could be read: proxies disagree about what they mean, and requests are smuggled through the difference.
 *
 * Source: RFC 9112 sections 5.1 (names) and 6.3 (length), RFC 9110 sections 5.6.2 (tokens), 15.5.20 (421) and 11.6.1
 * (WWW-Authenticate), the Fetch standard (preflight), W3C Trace Context (traceparent).
 *
 * Runs in libmicrohttpd's thread, without the lock.
 */
#include "server/impl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/origin.h"
#include "server/route.h"

struct known_headers {
    const char *host, *origin, *authorization, *api_key, *content_type, *content_length, *transfer, *expect,
        *traceparent, *preflight;
    int n_host, n_length, n_transfer, n_bad_names;
};

static int is_token(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~");

    return n > 0 && s[n] == '\0';
}

static enum MHD_Result collect(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct known_headers *k = cls;

    (void)kind;
    if (!value) value = "";
    k->n_bad_names += !is_token(name);
    if (strcasecmp(name, "Host") == 0)
        k->host = value, k->n_host++;
    else if (strcasecmp(name, "Content-Length") == 0)
        k->content_length = value, k->n_length++;
    else if (strcasecmp(name, "Transfer-Encoding") == 0)
        k->transfer = value, k->n_transfer++;
    else if (strcasecmp(name, "Origin") == 0)
        k->origin = value;
    else if (strcasecmp(name, "Authorization") == 0)
        k->authorization = value;
    else if (strcasecmp(name, "x-api-key") == 0)
        k->api_key = value;
    else if (strcasecmp(name, "Content-Type") == 0)
        k->content_type = value;
    else if (strcasecmp(name, "Expect") == 0)
        k->expect = value;
    else if (strcasecmp(name, "traceparent") == 0)
        k->traceparent = value;
    else if (strcasecmp(name, "Access-Control-Request-Method") == 0)
        k->preflight = value;
    return MHD_YES;
}

/* As declared; libmicrohttpd has refused what is not a number. */
static uint64_t body_bytes(const struct known_headers *k)
{
    return k->content_length ? strtoull(k->content_length, NULL, 10) : 0;
}

/* W3C Trace Context, version 00: 2-32-16-2 lower-case hexadecimal digits */
static int is_traceparent(const char *s)
{
    if (strlen(s) != 55) return 0;
    for (int i = 0; i < 55; i++)
        if (i == 2 || i == 35 || i == 52 ? s[i] != '-' : !strchr("0123456789abcdef", s[i])) return 0;
    return 1;
}

static int host_ok(const struct http_request *r, const char *host)
{
    const struct http_config *c = &r->http->c;
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    char local[INET6_ADDRSTRLEN] = "";
    const void *from;

    if (r->conn->listener->is_unix) return 1;
    if (getsockname(r->conn->fd, (struct sockaddr *)&at, &n) == 0) {
        from = at.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)(void *)&at)->sin6_addr
                                        : (void *)&((struct sockaddr_in *)(void *)&at)->sin_addr;
        inet_ntop(at.ss_family, from, local, sizeof local);
    }
    return origin_host_ok(host, local[0] ? local : NULL, c->hosts, c->n_hosts);
}

/* Fills r->who; 0 if nobody may ask without saying who it is. */
static int identify(struct http_request *r, const struct known_headers *k)
{
    struct http *h = r->http;
    const char *secret = k->api_key;
    const struct key *key;

    if (r->conn->listener->is_unix) {
        r->who = (struct http_identity){.kind = HTTP_UID, .uid = r->conn->uid};
        snprintf(r->who.name, sizeof r->who.name, "uid:%u", (unsigned)r->who.uid);
        return 1;
    }
    if (!h->c.keys_path) {
        r->who = (struct http_identity){.kind = HTTP_LOCAL, .name = "local"};
        return 1;
    }
    if (k->authorization && strncasecmp(k->authorization, "Bearer ", 7) == 0) secret = k->authorization + 7;
    pthread_rwlock_rdlock(&h->keys_lock);
    key = secret ? keys_find(&h->keys, secret) : NULL;
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
    http_set_header(r, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key, traceparent");
    http_set_header(r, "Access-Control-Max-Age", "600");
    http_reply(r, 204, NULL, "", 0);
}

static int is_json(const char *type)
{
    size_t n = strlen("application/json");

    return type && strncasecmp(type, "application/json", n) == 0 && strchr("; \t", type[n]);
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

/* Route, type and length. Returns 1 when it has answered. */
static int check_route(struct http_request *r, const struct known_headers *k, int known)
{
    const struct http_config *c = &r->http->c;
    struct route_match m = route_find(c->routes, c->n_routes, r->method, r->path);

    if (!known && !(m.route && m.route->flags & HTTP_PUBLIC)) {
        http_set_header(r, "WWW-Authenticate", "Bearer");
        http_error(r, 401, NULL, "invalid_api_key",
                   "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    } else if (!m.has_path) {
        http_error(r, 404, NULL, NULL, "nothing is served at %s", r->path);
    } else if (!m.route) {
        refuse_method(r);
    } else if (m.route->flags & HTTP_JSON_BODY && !is_json(k->content_type)) {
        http_error(r, 415, NULL, NULL, "Content-Type is '%s', not application/json",
                   k->content_type ? k->content_type : "");
    } else if (body_bytes(k) > c->max_body_bytes) {
        http_error(r, 413, NULL, NULL, "a body of %s bytes; %zu are allowed", k->content_length, c->max_body_bytes);
    } else if (m.param_len > 0 && !(r->param = mem_dup(r->path + m.param, m.param_len))) {
        http_error(r, 503, NULL, NULL, "out of memory");
    } else {
        return 0;
    }
    return 1;
}

/* Whether nobody can take it for something else: then its end is known, and the connection can go on. */
static int is_plain(const struct http_request *r, const struct known_headers *k)
{
    if (!is_token(r->method) || k->n_bad_names || k->n_length + k->n_transfer > 1) return 0;
    if (k->n_length && (!*k->content_length || strspn(k->content_length, "0123456789") != strlen(k->content_length)))
        return 0;
    return !k->n_transfer || strcasecmp(k->transfer, "chunked") == 0;
}

/* Returns 1 when it has answered. */
static int check_all(struct http_request *r, const struct known_headers *k)
{
    const struct http_config *c = &r->http->c;

    if (r->path[0] != '/' || route_unescape(r->path) < 0)
        http_error(r, 400, NULL, NULL, "the request's target is not a path");
    else if (k->n_host > 1 || k->n_length + k->n_transfer > 1)
        http_error(r, 400, NULL, NULL, "Host, or the body's length, is given more than once");
    else if (!is_plain(r, k))
        http_error(r, 400, NULL, NULL,
                   "the method, the name of a header, Content-Length or Transfer-Encoding is malformed");
    else if (!host_ok(r, k->host))
        http_error(r, 421, NULL, NULL, "this server is not called '%s'", k->host ? k->host : "");
    else if (k->origin && !origin_ok(k->origin, k->host, r->conn->listener->tls, c->origins, c->n_origins))
        http_error(r, 403, NULL, NULL, "pages of '%s' may not use this server", k->origin);
    else {
        if (k->origin) r->origin = mem_dup(k->origin, strlen(k->origin));
        if (k->origin && k->preflight && strcmp(r->method, "OPTIONS") == 0) {
            answer_preflight(r);
            return 1;
        }
        return check_route(r, k, identify(r, k));
    }
    return 1;
}

enum check_result check_headers(struct http_request *r)
{
    struct known_headers k = {0};
    int refused;

    MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, collect, &k);
    if (k.traceparent && is_traceparent(k.traceparent)) memcpy(r->trace, k.traceparent, sizeof r->trace);
    refused = check_all(r, &k);
    if (!refused) return CHECK_OK;
    /* Without the body being read: when the client waits for a word before it sends it, when it sends too much, or when
     * nobody can tell where it ends. */
    return k.expect || !is_plain(r, &k) || body_bytes(&k) > DISCARD_BYTES ? CHECK_CLOSE : CHECK_DISCARD;
}
