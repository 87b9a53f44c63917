/* SPDX-License-Identifier: MIT
 *
 * get.c: one GET over HTTP. Source: RFC 9110 (HTTP semantics).
 */
#include "fetch/get.h"

#include <stdio.h>
#include <string.h>

#include "fetch/url.h"

#define SLOWEST 100 /* bytes a second: a slower connection counts as silent */

/* ---- a handle ---- */

static int add_token(const struct curl *curl, struct curl_slist **headers, const char *token, struct qn_error *e)
{
    struct buf line = {0};
    struct curl_slist *more = NULL;
    int r;

    for (const char *p = token; *p; p++)
        if (*p <= ' ' || *p > '~') return error_set(e, QN_EUSAGE, "the token has a character that no token has");
    r = buf_printf(&line, e, "Authorization: Bearer %s", token);
    if (r == 0) more = curl->slist_append(*headers, (const char *)line.data);
    if (r == 0 && !more) r = error_nomem(e, "a request", line.len);
    if (more) *headers = more;
    buf_deinit(&line);
    return r;
}

/* libcurl calls this several times a second while it waits. Progress itself is told elsewhere. */
static int on_wait(void *arg, curl_off_t total, curl_off_t done, curl_off_t up_total, curl_off_t up_done)
{
    const struct fetch_options *o = arg;

    (void)total, (void)done, (void)up_total, (void)up_done;
    return o->watch(o->arg, NULL, 0, 0) ? 0 : 1;
}

CURL *get_handle(const struct curl *curl, const struct fetch_options *o, const char *source, const char *url,
                 struct curl_slist **headers, struct qn_error *e)
{
    struct url_verdict v;
    CURLcode rc = CURLE_OK;
    CURL *h;

    *headers = NULL;
    if (url_judge(&v, source, url, o->insecure_http, e)) return NULL;
    h = curl->easy_init();
    if (!h) {
        error_nomem(e, "a transfer", 0);
        return NULL;
    }
    if (o->token && v.hears_secret && add_token(curl, headers, o->token, e)) goto fail;
    rc = curl->easy_setopt(h, CURLOPT_URL, url);
    /* Each transfer gets a connection of its own; HTTP/2 would put all of them on one. */
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_USERAGENT, "quern");
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_HTTPHEADER, *headers);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* a proxy gets none of them */
    if (!rc && v.is_here) rc = curl->easy_setopt(h, CURLOPT_PROXY, "");
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)o->timeout_s);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, (long)SLOWEST);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)o->timeout_s);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)o->bytes_per_s);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_wait);
    if (!rc) rc = curl->easy_setopt(h, CURLOPT_XFERINFODATA, o);
    if (!rc && o->ca) rc = curl->easy_setopt(h, CURLOPT_CAINFO, o->ca);
    if (!rc) return h;
    error_set(e, QN_EIO, "'%s': %s", url, curl->easy_strerror(rc));
fail:
    curl->slist_free_all(*headers);
    curl->easy_cleanup(h);
    return NULL;
}

const char *get_header(const struct curl *curl, CURL *h, const char *name)
{
    struct curl_header *found;

    return curl->easy_header(h, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value : NULL;
}

const char *get_why(const struct curl *curl, CURLcode rc)
{
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT: return "nothing came for too long";
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR: return "the connection was lost";
    default: return curl->easy_strerror(rc);
    }
}

int get_status_error(const char *url, long status, bool has_token, struct qn_error *e)
{
    if (status == 404 || status == 410)
        return error_set(e, QN_ENOINPUT, "'%s' is not there: its server says %ld", url, status);
    if (status == 401 || status == 403)
        return error_set(e, QN_EUSAGE, "'%s' may not be had: its server says %ld; %s", url, status,
                         has_token ? "the token is not one that it takes"
                                   : "if it needs a token, --token-file has it read from a file");
    if (status == 429 || status == 503)
        return error_set(e, QN_EBUSY, "'%s': its server says %ld, which means to try later", url, status);
    return error_set(e, QN_EIO, "'%s': its server says %ld", url, status);
}

/* ---- a GET ---- */

struct taker {
    struct get_reply *r;
    const struct curl *curl;
    size_t max_body;
    bool is_range;
};

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct taker *t = arg;
    struct buf *body = &t->r->body;
    size_t room = t->max_body - body->len, take;
    long status = 0;

    n *= size;
    t->curl->easy_getinfo(t->r->h, CURLINFO_RESPONSE_CODE, &status);
    /* The bodies of redirects and errors are not read; nor is a whole file if a part was asked for. */
    if (status / 100 != 2 || (t->is_range && status != 206)) room = 0;
    take = n < room ? n : room;
    if (buf_add(body, data, take, NULL)) return 0;
    t->r->is_cut = take < n;
    return take;
}

static void keep_linked(struct get_reply *r, const struct curl *curl)
{
    static const char *const names[2] = {"X-Linked-Etag", "X-Linked-Size"};

    for (int i = 0; i < 2; i++) {
        const char *v = get_header(curl, r->h, names[i]);
        if (v) snprintf(r->linked[i], sizeof r->linked[i], "%s", v);
    }
}

/* One request to r->url. 0: it is answered; 1: it redirects, and r->url is the new address; or an error. */
static int ask_once(struct get_reply *r, const struct curl *curl, const struct fetch_options *o, const char *source,
                    const char *range, size_t max_body, struct qn_error *e)
{
    struct taker t = {.r = r, .curl = curl, .max_body = max_body, .is_range = range};
    char *to = NULL;
    CURLcode rc;

    curl->easy_cleanup(r->h);
    curl->slist_free_all(r->headers);
    r->is_cut = false;
    r->h = get_handle(curl, o, source, r->url, &r->headers, e);
    if (!r->h) return e->code;
    curl->easy_setopt(r->h, CURLOPT_WRITEFUNCTION, on_body);
    curl->easy_setopt(r->h, CURLOPT_WRITEDATA, &t);
    curl->easy_setopt(r->h, CURLOPT_RANGE, range);
    curl->easy_setopt(r->h, CURLOPT_FILETIME, 1L);
    rc = curl->easy_perform(r->h);
    if (rc == CURLE_WRITE_ERROR && r->is_cut) rc = CURLE_OK;
    if (rc == CURLE_ABORTED_BY_CALLBACK)
        return error_set(e, QN_ECANCEL, "stopped while '%s' was being asked for", source);
    if (rc) return error_set(e, QN_EIO, "cannot fetch '%s': %s", r->url, get_why(curl, rc));
    curl->easy_getinfo(r->h, CURLINFO_RESPONSE_CODE, &r->status);
    if (url_same_origin(source, r->url)) keep_linked(r, curl);
    if (r->status / 100 == 3 && !curl->easy_getinfo(r->h, CURLINFO_REDIRECT_URL, &to) && to) {
        if (url_may_follow(source, to, o->insecure_http, e)) return e->code;
        mem_free(r->url);
        r->url = mem_dup(to, strlen(to));
        return r->url ? 1 : error_nomem(e, "a URL", strlen(to));
    }
    if (r->status / 100 == 2 || (range && r->status == 416)) return 0;
    return get_status_error(r->url, r->status, o->token, e);
}

int get_url(struct get_reply *r, const struct fetch_options *o, const char *url, const char *range, size_t max_body,
            struct qn_error *e)
{
    struct get_reply out = {.url = mem_dup(url, strlen(url))};
    const struct curl *curl = curl_load(e);
    struct qn_error local;
    int n = 0, rc = 1; /* 1: another address is to be asked */

    if (!curl)
        rc = QN_EUNSUP;
    else if (!out.url)
        rc = error_nomem(e, "a URL", strlen(url));
    if (!e) e = &local;
    while (rc == 1 && n++ <= GET_MAX_REDIRECTS) rc = ask_once(&out, curl, o, url, range, max_body, e);
    if (rc == 1) rc = error_set(e, QN_EIO, "'%s' redirects more than %d times", url, GET_MAX_REDIRECTS);
    if (rc)
        get_reply_deinit(&out);
    else
        *r = out;
    return rc;
}

void get_reply_deinit(struct get_reply *r)
{
    const struct curl *curl = curl_load(NULL);

    if (curl) {
        curl->easy_cleanup(r->h);
        curl->slist_free_all(r->headers);
    }
    mem_free(r->url);
    buf_deinit(&r->body);
    *r = (struct get_reply){0};
}
