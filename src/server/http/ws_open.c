/* SPDX-License-Identifier: MIT
 *
 * ws_open.c: the opening handshake of a WebSocket: whether a request for one is in order, and its answer.
 *
 * Source: RFC 6455 sections 4.1 and 4.2.
 */
#include "server/http/impl.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KEY_CHARS  24 /* 16 bytes in base64 */
#define KEY_PREFIX "openai-insecure-api-key."

static const char *const subprotocols[] = {"quern", "realtime", "responses"};

/* Calls found() for each subprotocol that is offered, until it returns true. */
static bool each_subprotocol(const struct head *h, bool (*found)(const char *name, size_t n, void *arg), void *arg)
{
    for (int i = 0; i < h->n; i++) {
        if (strcasecmp(h->header[i].name, "Sec-WebSocket-Protocol") != 0) continue;
        for (const char *p = h->header[i].value; *p;) {
            p += strspn(p, " \t,");
            size_t n = strcspn(p, " \t,");
            if (n > 0 && found(p, n, arg)) return true;
            p += n;
        }
    }
    return false;
}

struct key_room {
    char *text;
    size_t cap;
};

static bool take_key(const char *name, size_t n, void *arg)
{
    const struct key_room *room = arg;
    size_t before = strlen(KEY_PREFIX);

    if (n <= before || n - before >= room->cap || memcmp(name, KEY_PREFIX, before) != 0) return false;
    memcpy(room->text, name + before, n - before);
    room->text[n - before] = '\0';
    return true;
}

const char *websocket_key(const struct head *h, char *room, size_t cap)
{
    return each_subprotocol(h, take_key, &(struct key_room){room, cap}) ? room : NULL;
}

static bool take_subprotocol(const char *name, size_t n, void *arg)
{
    for (size_t i = 0; i < sizeof subprotocols / sizeof *subprotocols; i++)
        if (strlen(subprotocols[i]) == n && memcmp(name, subprotocols[i], n) == 0) {
            *(const char **)arg = subprotocols[i];
            return true;
        }
    return false;
}

/* The header's elements, in all lines that have it. */
static bool has_element(const struct head *h, const char *name, const char *element)
{
    for (int i = 0; i < h->n; i++)
        if (strcasecmp(h->header[i].name, name) == 0 && head_has(h->header[i].value, element)) return true;
    return false;
}

static bool is_key(const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    return text && strlen(text) == KEY_CHARS && strspn(text, digits) == KEY_CHARS - 2 &&
           strcmp(text + KEY_CHARS - 2, "==") == 0;
}

bool websocket_check(struct http_request *r)
{
    const char *version = http_header(r, "Sec-WebSocket-Version");
    bool asks = has_element(&r->head, "Upgrade", "websocket") && has_element(&r->head, "Connection", "upgrade");

    if (!asks || strcmp(r->method, "GET") != 0 || r->head_minor == 0 || !version || strcmp(version, "13") != 0) {
        http_set_header(r, "Upgrade", "websocket");
        http_set_header(r, "Connection", "Upgrade");
        http_set_header(r, "Sec-WebSocket-Version", "13");
        http_error(r, 426, NULL, NULL, "%s is a WebSocket of version 13 (RFC 6455)", r->path);
    } else if (!is_key(http_header(r, "Sec-WebSocket-Key"))) {
        http_error(r, 400, NULL, NULL, "Sec-WebSocket-Key is not 16 bytes in base64");
    } else if (r->n_body != 0) {
        http_error(r, 400, NULL, NULL, "a request for a WebSocket has no body");
    } else if (http_header(r, "Quern-Resume")) {
        http_error(r, 400, "Quern-Resume", "unsupported_value", "streams over a WebSocket cannot be resumed");
    } else {
        return false;
    }
    return true;
}

/* Sets the header that proves that the request was understood. */
static int set_proof(struct http_request *r)
{
    char text[KEY_CHARS + 40];
    uint8_t digest[20];
    gnutls_datum_t base64 = {0};
    int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", http_header(r, "Sec-WebSocket-Key"));

    if (gnutls_hash_fast(GNUTLS_DIG_SHA1, text, (size_t)n, digest)) return -1;
    if (gnutls_base64_encode2(&(gnutls_datum_t){digest, sizeof digest}, &base64)) return -1;
    http_set_header(r, "Sec-WebSocket-Accept", (char *)base64.data);
    gnutls_free(base64.data);
    return 0;
}

void websocket_accept(struct http_request *r)
{
    struct conn *c = r->conn;
    struct http *h = r->http;
    struct websocket *w = mem_calloc(1, sizeof *w);
    const char *subprotocol = NULL;

    if (!w || set_proof(r)) {
        mem_free(w);
        http_error(r, 503, NULL, "no_memory", "no memory for a WebSocket now");
        return;
    }
    http_set_header(r, "Upgrade", "websocket");
    http_set_header(r, "Connection", "Upgrade");
    each_subprotocol(&r->head, take_subprotocol, &subprotocol);
    if (subprotocol) http_set_header(r, "Sec-WebSocket-Protocol", subprotocol);
    for (int i = 0; i < h->c.n_routes; i++)
        if (h->c.routes[i].flags & HTTP_WEBSOCKET && strcmp(h->c.routes[i].pattern, r->path) == 0)
            w->route = &h->c.routes[i];
    assert(w->route);
    w->who = r->who;
    w->frames.max_bytes = h->c.max_body_bytes;
    pthread_mutex_lock(&h->lock);
    w->id = h->id_base + h->n_requests; /* no other WebSocket's: at least its own request came in between */
    c->websocket = w;
    pthread_mutex_unlock(&h->lock);
    http_reply(r, 101, NULL, "", 0);
}
