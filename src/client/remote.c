/* SPDX-License-Identifier: MIT
 *
 * remote.c: exchanges over a URL, through libcurl.
 *
 * There is one easy handle, which keeps its connection between exchanges. A multi handle drives it, because that can
 * also wait for the descriptor that cancels. Certificates are always checked, and redirections are never followed.
 * Unencrypted requests go to this machine only, and to no proxy. So only the host of the URL sees the key.
 *
 * The time of an answer has no limit, because a model may think for long. A host that cannot be reached is given up.
 */
#include "client/remote.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "client/curl.h"

#define CONNECT_MS 30000

struct remote {
    const struct curl *curl;
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers;
    char *base; /* the URL without a slash or "/v1" at the end */
    char why[CURL_ERROR_SIZE];
};

/* ---- the URL ---- */

static bool is_loopback(const char *host)
{
    size_t n = strspn(host, "0123456789.");
    return !strcasecmp(host, "localhost") || !strcmp(host, "[::1]") || (!strncmp(host, "127.", 4) && !host[n]);
}

/* Refuses what a URL may not contain, and text that is not a URL. */
static int check_url(const struct curl *curl, CURLU *u, const char *url, bool *plain, struct qn_error *e)
{
    static const struct {
        CURLUPart part;
        const char *name;
    } none[] = {{CURLUPART_USER, "a user's name"},
                {CURLUPART_PASSWORD, "a password"},
                {CURLUPART_QUERY, "a query"},
                {CURLUPART_FRAGMENT, "a fragment"}};
    char *scheme = NULL, *host = NULL, *text = NULL;
    CURLUcode code = curl->url_set(u, CURLUPART_URL, url, 0);
    int rc = 0;
    if (!code) code = curl->url_get(u, CURLUPART_SCHEME, &scheme, 0);
    if (!code) code = curl->url_get(u, CURLUPART_HOST, &host, 0);
    if (code) {
        rc = error_set(e, QN_EUSAGE, "'%s' is no URL of a server: %s", url, curl->url_strerror(code));
    } else if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0) {
        rc = error_set(e, QN_EUSAGE, "a server's URL begins with https://, not with %s://", scheme);
    } else if (!strcmp(scheme, "http") && !is_loopback(host)) {
        rc = error_set(e, QN_EUSAGE, "http:// goes to this machine only, not to %s: use https://", host);
    }
    for (size_t i = 0; !rc && i < sizeof none / sizeof *none; i++)
        if (!curl->url_get(u, none[i].part, &text, 0)) {
            rc = error_set(e, QN_EUSAGE, "a server's URL cannot have %s in it", none[i].name);
            curl->free(text);
        }
    *plain = scheme && !strcmp(scheme, "http");
    curl->free(scheme);
    curl->free(host);
    return rc;
}

/* Reads the URL and writes it again with curl, so that the URL that was checked is the one that is used. */
static int read_url(struct remote *r, const char *url, bool *plain, struct qn_error *e)
{
    CURLU *u = r->curl->url();
    char *text = NULL;
    int rc = u ? check_url(r->curl, u, url, plain, e) : error_nomem(e, "a URL", strlen(url));
    if (!rc && r->curl->url_get(u, CURLUPART_URL, &text, 0)) rc = error_nomem(e, "a URL", strlen(url));
    if (!rc) {
        size_t n = strlen(text);
        while (n && text[n - 1] == '/') n--;
        if (n > 3 && !memcmp(text + n - 3, "/v1", 3)) n -= 3;
        while (n && text[n - 1] == '/') n--;
        r->base = mem_dup(text, n);
        if (!r->base) rc = error_nomem(e, "a URL", n + 1);
    }
    r->curl->free(text);
    r->curl->url_cleanup(u);
    return rc;
}

/* ---- opening ---- */

static int add_header(struct remote *r, const char *line, struct qn_error *e)
{
    struct curl_slist *more = r->curl->slist_append(r->headers, line);
    if (!more) return error_nomem(e, "a header", strlen(line));
    r->headers = more;
    return 0;
}

/* A key has to be one word, because a line break would begin another header. */
static int add_key(struct remote *r, const char *key, struct qn_error *e)
{
    struct buf line = {0};
    for (const char *p = key; *p; p++)
        if (*p <= ' ' || *p > '~')
            return error_set(e, QN_EDATA, "the API key has a blank or a control character in it");
    if (!*key) return error_set(e, QN_EDATA, "the API key is empty");
    int rc = buf_printf(&line, e, "Authorization: Bearer %s", key);
    if (!rc) rc = add_header(r, (char *)line.data, e);
    if (line.data) explicit_bzero(line.data, line.len);
    buf_deinit(&line);
    return rc;
}

/* Sets the options that are the same for all exchanges. */
static int set_up(struct remote *r, bool plain, const char *authorities, struct qn_error *e)
{
    const struct curl *c = r->curl;
    int bad = 0;
    bad |= c->easy_setopt(r->easy, CURLOPT_PROTOCOLS_STR, plain ? "http" : "https");
    bad |= c->easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->why);
    bad |= c->easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
    bad |= c->easy_setopt(r->easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* a proxy must not get the key */
    bad |= c->easy_setopt(r->easy, CURLOPT_FOLLOWLOCATION, 0L);
    bad |= c->easy_setopt(r->easy, CURLOPT_SSL_VERIFYPEER, 1L);
    bad |= c->easy_setopt(r->easy, CURLOPT_SSL_VERIFYHOST, 2L);
    bad |= c->easy_setopt(r->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    bad |= c->easy_setopt(r->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    bad |= c->easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
    if (plain) bad |= c->easy_setopt(r->easy, CURLOPT_PROXY, "");
    if (authorities) bad |= c->easy_setopt(r->easy, CURLOPT_CAINFO, authorities);
    return bad ? error_set(e, QN_EUNSUP, "libcurl is too old: it does not know an option that this needs") : 0;
}

int remote_open(struct remote **out, const char *url, const char *key, const char *authorities, struct qn_error *e)
{
    const struct curl *curl = curl_load(e);
    struct remote *r = curl ? mem_calloc(1, sizeof *r) : NULL;
    bool plain = false;
    int rc;
    if (!curl) return QN_EUNSUP;
    if (!r) return error_nomem(e, "a client", sizeof *r);
    r->curl = curl;
    r->easy = curl->easy_init();
    r->multi = curl->multi_init();
    rc = r->easy && r->multi ? 0 : error_nomem(e, "a client", sizeof *r);
    if (!rc) rc = read_url(r, url, &plain, e);
    if (!rc) rc = add_header(r, "Expect:", e); /* the body is sent without waiting for 100 Continue */
    if (!rc) rc = add_header(r, "Content-Type: application/json", e);
    if (!rc && key) rc = add_key(r, key, e);
    if (!rc) rc = set_up(r, plain, authorities, e);
    if (rc)
        remote_close(r);
    else
        *out = r;
    return rc;
}

void remote_close(struct remote *r)
{
    if (!r) return;
    if (r->easy) r->curl->easy_cleanup(r->easy);
    if (r->multi) r->curl->multi_cleanup(r->multi);
    for (struct curl_slist *h = r->headers; h; h = h->next) explicit_bzero(h->data, strlen(h->data));
    r->curl->slist_free_all(r->headers);
    mem_free(r->base);
    mem_free(r);
}

/* ---- an exchange ---- */

struct url_exchange {
    struct remote *r;
    client_sink *sink;
    void *arg;
    struct client_reply *reply;
    bool headed, ended; /* the reply is filled; the sink wanted no more */
};

static void fill_reply(struct url_exchange *x)
{
    const struct curl *c = x->r->curl;
    long status = 0;
    char *type = NULL;
    curl_off_t wait = 0;
    if (x->headed) return;
    x->headed = true;
    c->easy_getinfo(x->r->easy, CURLINFO_RESPONSE_CODE, &status);
    c->easy_getinfo(x->r->easy, CURLINFO_CONTENT_TYPE, &type);
    c->easy_getinfo(x->r->easy, CURLINFO_RETRY_AFTER, &wait);
    x->reply->status = (int)status;
    if (wait > 0) x->reply->retry_after_s = wait > 1000000 ? 1000000 : (int)wait;
    size_t n = type ? strcspn(type, "; \t") : 0;
    if (n >= sizeof x->reply->type) n = sizeof x->reply->type - 1;
    if (n) memcpy(x->reply->type, type, n);
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct url_exchange *x = arg;
    fill_reply(x);
    if (n && x->sink && x->sink(x->arg, x->reply, bytes, n)) x->ended = true;
    return x->ended ? CURL_WRITEFUNC_ERROR : size * n;
}

static int fail(const struct url_exchange *x, CURLcode code, struct qn_error *e)
{
    const char *why = x->r->why[0] ? x->r->why : x->r->curl->easy_strerror(code);
    if (x->ended) return error_set(e, QN_ECANCEL, "the answer was not read to its end");
    if (code == CURLE_OUT_OF_MEMORY) return error_nomem(e, "an exchange", 0);
    return error_set(e, code == CURLE_WEIRD_SERVER_REPLY ? QN_EDATA : QN_EIO, "%s: %s", x->r->base, why);
}

/* Runs until the exchange is over or cancelled. */
static int run(struct url_exchange *x, int cancel_fd, struct qn_error *e)
{
    const struct curl *c = x->r->curl;
    for (;;) {
        struct curl_waitfd w = {.fd = cancel_fd, .events = CURL_WAIT_POLLIN};
        int n_running, n_left;
        CURLMcode code = c->multi_perform(x->r->multi, &n_running);
        CURLMsg *m = code ? NULL : c->multi_info_read(x->r->multi, &n_left);
        if (m && m->msg == CURLMSG_DONE) return m->data.result ? fail(x, m->data.result, e) : 0;
        if (!code) code = c->multi_poll(x->r->multi, &w, 1, 60000, NULL);
        if (code) return error_set(e, QN_EIO, "%s: %s", x->r->base, c->multi_strerror(code));
        if (w.revents) return client_cancelled(cancel_fd, e);
    }
}

/* Sets the options that differ between exchanges. */
static int prepare(struct url_exchange *x, const char *url, const char *method, const char *body, size_t n_body,
                   struct qn_error *e)
{
    const struct curl *c = x->r->curl;
    CURL *h = x->r->easy;
    int bad = 0;
    bad |= c->easy_setopt(h, CURLOPT_URL, url);
    if (body) {
        bad |= c->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n_body);
        bad |= c->easy_setopt(h, CURLOPT_POSTFIELDS, body);
    } else {
        bad |= c->easy_setopt(h, CURLOPT_HTTPGET, 1L);
    }
    bad |= c->easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    bad |= c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes);
    bad |= c->easy_setopt(h, CURLOPT_WRITEDATA, x);
    return bad ? error_nomem(e, "a request", n_body) : 0;
}

int remote_send(struct remote *r, int cancel_fd, const char *method, const char *path, const char *body, size_t n_body,
                client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e)
{
    struct url_exchange x = {.r = r, .sink = sink, .arg = arg, .reply = reply};
    struct buf url = {0};
    CURLMcode code;
    int rc = buf_printf(&url, e, "%s%s", r->base, path);
    *reply = (struct client_reply){.retry_after_s = -1};
    r->why[0] = '\0';
    if (!rc) rc = prepare(&x, (char *)url.data, method, body, n_body, e);
    if (!rc && (code = r->curl->multi_add_handle(r->multi, r->easy)))
        rc = error_set(e, QN_EIO, "%s: %s", r->base, r->curl->multi_strerror(code));
    if (!rc) {
        rc = run(&x, cancel_fd, e);
        if (!rc) fill_reply(&x);
        r->curl->multi_remove_handle(r->multi, r->easy);
    }
    buf_deinit(&url);
    return rc;
}
