/* SPDX-License-Identifier: MIT
 *
 * url.c: judges URLs. Source: RFC 3986 and RFC 6454 (origins).
 */
#include "fetch/url.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/inline/digits.h"
#include "base/mem.h"
#include "client/curl.h"

/* The parts of a URL that name the server; strings of libcurl. */
struct url_parts {
    const struct curl *curl;
    CURLU *u;
    char *scheme, *host, *port, *user;
};

static void parts_deinit(struct url_parts *p)
{
    if (!p->curl) return;
    p->curl->free(p->scheme);
    p->curl->free(p->host);
    p->curl->free(p->port);
    p->curl->free(p->user);
    p->curl->url_cleanup(p->u);
    *p = (struct url_parts){0};
}

static int parts_of(struct url_parts *p, const char *url, struct qn_error *e)
{
    CURLUcode rc = CURLUE_OK;

    *p = (struct url_parts){.curl = curl_load(e)};
    if (!p->curl) return QN_EUNSUP;
    p->u = p->curl->url();
    if (!p->u) return error_nomem(e, "a URL", strlen(url));
    rc = p->curl->url_set(p->u, CURLUPART_URL, url, 0);
    if (!rc) rc = p->curl->url_get(p->u, CURLUPART_SCHEME, &p->scheme, 0);
    if (!rc) rc = p->curl->url_get(p->u, CURLUPART_HOST, &p->host, 0);
    if (!rc) rc = p->curl->url_get(p->u, CURLUPART_PORT, &p->port, CURLU_DEFAULT_PORT);
    if (!rc && p->curl->url_get(p->u, CURLUPART_USER, &p->user, 0)) p->user = NULL;
    if (!rc) return 0;
    error_set(e, QN_EUSAGE, "'%s' is not a URL: %s", url, p->curl->url_strerror(rc));
    parts_deinit(p);
    return QN_EUSAGE;
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;

    if (!strcasecmp(host, "localhost") || !strcmp(host, "[::1]")) return true;
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static int check(const struct url_parts *p, const char *url, bool http_is_fine, struct qn_error *e)
{
    if (p->user) return error_set(e, QN_EUSAGE, "'%s': a user's name and password do not belong in a URL", url);
    if (!strcmp(p->scheme, "https")) return 0;
    if (strcmp(p->scheme, "http"))
        return error_set(e, QN_EUSAGE, "'%s': %s:// is not fetched, only https://", url, p->scheme);
    if (http_is_fine || is_loopback(p->host)) return 0;
    return error_set(e, QN_EUSAGE, "'%s': anybody on the way can read and change what comes over http://; use https://",
                     url);
}

int url_check(const char *url, bool insecure_http, struct qn_error *e)
{
    struct url_parts p;
    int r = parts_of(&p, url, e);

    if (r) return r;
    r = check(&p, url, insecure_http, e);
    parts_deinit(&p);
    return r;
}

int url_may_follow(const char *source, const char *to, bool insecure_http, struct qn_error *e)
{
    struct url_parts from, p;
    int r = parts_of(&from, source, e);

    if (r) return r;
    r = parts_of(&p, to, e);
    if (r == 0) {
        if (!strcmp(from.scheme, "https") && strcmp(p.scheme, "https"))
            r = error_set(e, QN_EUSAGE, "'%s' redirects to '%s', which is not https://", source, to);
        else
            r = check(&p, to, insecure_http, e);
        parts_deinit(&p);
    }
    parts_deinit(&from);
    return r;
}

bool url_same_origin(const char *a, const char *b)
{
    struct url_parts p, q;
    bool same = false;

    if (parts_of(&p, a, NULL)) return false;
    if (!parts_of(&q, b, NULL)) {
        same = !strcmp(p.scheme, q.scheme) && !strcasecmp(p.host, q.host) && !strcmp(p.port, q.port);
        parts_deinit(&q);
    }
    parts_deinit(&p);
    return same;
}

int url_judge(struct url_verdict *v, const char *source, const char *url, bool insecure_http, struct qn_error *e)
{
    struct url_parts p;
    int r = url_check(source, insecure_http, e);

    *v = (struct url_verdict){0};
    if (r == 0) r = url_may_follow(source, url, insecure_http, e);
    if (r == 0) r = parts_of(&p, url, e);
    if (r) return r;
    v->hears_secret = url_same_origin(source, url);
    v->is_here = !strcmp(p.scheme, "http") && is_loopback(p.host);
    parts_deinit(&p);
    return 0;
}

/* Decodes %XX in place. -1: a NUL byte or a slash would come out. A % without two digits after it stays. */
static int decode(char *s)
{
    char *out = s;

    for (; *s; s++) {
        int hi = -1, lo = -1;
        if (*s == '%') hi = hex_digit(s[1]);
        if (hi >= 0) lo = hex_digit(s[2]);
        if (lo >= 0) s += 2;
        *out = lo >= 0 ? (char)(hi << 4 | lo) : *s;
        if (lo >= 0 && (!*out || *out == '/')) return -1;
        out++;
    }
    *out = 0;
    return 0;
}

int url_last_part(char **out, const char *url, struct qn_error *e)
{
    struct url_parts p;
    char *path = NULL, *copy = NULL;
    int r = parts_of(&p, url, e);

    if (r) return r;
    if (p.curl->url_get(p.u, CURLUPART_PATH, &path, 0)) {
        r = error_set(e, QN_EUSAGE, "'%s' has no path", url);
    } else {
        const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
        copy = mem_dup(last, strlen(last));
        if (!copy)
            r = error_nomem(e, "a name", strlen(last));
        else if (decode(copy))
            r = error_set(e, QN_EUSAGE, "'%s': the name has a NUL byte or a slash in it", url);
    }
    p.curl->free(path);
    parts_deinit(&p);
    if (r)
        mem_free(copy);
    else
        *out = copy;
    return r;
}
