/* SPDX-License-Identifier: MIT
 *
 * remote_file.c: asks a server about a file. Source: RFC 9110, sections 8.8 (validators), 13.1.5 (If-Range), 14
 * (ranges).
 *
 * It asks for the first byte with GET, because servers that sign an address for one method refuse a HEAD.
 */
#include "fetch/remote_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "fetch/get.h"

static int number(const char **s, uint64_t *out)
{
    const char *p = *s;
    uint64_t v = 0;

    if (!isdigit((unsigned char)*p)) return -1;
    for (; isdigit((unsigned char)*p); p++) {
        if (v > (INT64_MAX - 9) / 10) return -1;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *s = p;
    *out = v;
    return 0;
}

int remote_file_content_range(const char *s, uint64_t *first, uint64_t *last, uint64_t *total)
{
    if (!s || strncasecmp(s, "bytes ", 6)) return -1;
    s += 6;
    *first = 1;
    *last = 0;
    if (*s == '*')
        s++;
    else if (number(&s, first) || *s++ != '-' || number(&s, last) || *last < *first)
        return -1;
    if (*s++ != '/' || number(&s, total) || *s) return -1;
    return *first <= *last && *last >= *total ? -1 : 0;
}

static int take_size(struct remote_file *p, const struct curl *curl, const struct get_reply *r, struct qn_error *e)
{
    uint64_t first, last;
    curl_off_t length = -1;

    if (r->status != 200) {
        if (remote_file_content_range(get_header(curl, r->h, "Content-Range"), &first, &last, &p->size) ||
            (r->status == 206 ? first != 0 || last != 0 : p->size > 0))
            return error_set(e, QN_EUNSUP, "'%s': its server does not say how long the file is", p->source);
        p->has_ranges = true;
        return 0;
    }
    curl->easy_getinfo(r->h, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length < 0) return error_set(e, QN_EUNSUP, "'%s': its server does not say how long the file is", p->source);
    p->size = (uint64_t)length;
    return 0;
}

/* Whether the value of a header that tells versions apart can be kept. */
static bool is_kept(const char *value)
{
    char clean[sizeof((struct remote_file *)0)->etag];

    if (!value || strlen(value) >= sizeof clean) return false;
    error_clean(clean, sizeof clean, value);
    return strcmp(clean, value) == 0;
}

const char *remote_file_etag(const char *value) { return is_kept(value) ? value : ""; }

static void take_version(struct remote_file *p, const struct curl *curl, CURL *h)
{
    char raw[280] = "";

    curl_off_t modified = -1;

    if (curl->easy_getinfo(h, CURLINFO_FILETIME_T, &modified)) modified = -1;
    p->modified_s = modified;
    snprintf(p->etag, sizeof p->etag, "%s", remote_file_etag(get_header(curl, h, "ETag")));
    if (*p->etag == '"')
        snprintf(p->if_range, sizeof p->if_range, "%s", p->etag); /* a weak one is not valid for parts */
    if (*p->sha256) {
        snprintf(raw, sizeof raw, "sha256 %s", p->sha256);
    } else if (*p->etag) {
        snprintf(raw, sizeof raw, "etag %s", p->etag);
    } else {
        const char *date = get_header(curl, h, "Last-Modified");
        if (is_kept(date)) {
            snprintf(p->if_range, sizeof p->if_range, "%s", date);
            snprintf(raw, sizeof raw, "date %s", date);
        }
    }
    error_clean(p->version, sizeof p->version, raw);
}

/* A hub gives the hash of a large file in quotes. For a small file it is another, shorter hash, which is not used. */
static int take_linked(struct remote_file *p, const struct get_reply *r, struct qn_error *e)
{
    const char *hex = r->linked[0] + (r->linked[0][0] == '"');
    size_t n = strspn(hex, "0123456789abcdef");

    if (*r->linked[1] && strtoull(r->linked[1], NULL, 10) != p->size)
        return error_set(e, QN_EDATA, "'%s' has %llu bytes where it is, and %s by its hub", p->source,
                         (unsigned long long)p->size, r->linked[1]);
    if (n == 64 && (!hex[64] || hex[64] == '"')) snprintf(p->sha256, sizeof p->sha256, "%.64s", hex);
    return 0;
}

int remote_file_open(struct remote_file *p, const struct fetch_options *o, const char *url, bool is_hub,
                     struct qn_error *e)
{
    const struct curl *curl = curl_load(e);
    struct remote_file out = {0};
    struct get_reply r;
    const char *coding;
    int rc = curl ? get_url(&r, o, url, "0-0", 1, e) : QN_EUNSUP;

    if (rc) return rc;
    out.source = mem_dup(url, strlen(url));
    out.url = r.url;
    r.url = NULL;
    coding = get_header(curl, r.h, "Content-Encoding");
    if (!out.source)
        rc = error_nomem(e, "a URL", strlen(url));
    else if (coding && strcasecmp(coding, "identity"))
        rc = error_set(e, QN_EUNSUP, "'%s' is sent compressed (%s), which was not asked for", url, coding);
    else
        rc = take_size(&out, curl, &r, e);
    if (rc == 0 && is_hub) rc = take_linked(&out, &r, e);
    if (rc == 0) take_version(&out, curl, r.h);
    get_reply_deinit(&r);
    if (rc)
        remote_file_close(&out);
    else
        *p = out;
    return rc;
}

void remote_file_close(struct remote_file *p)
{
    mem_free(p->source);
    mem_free(p->url);
    *p = (struct remote_file){0};
}
