/* SPDX-License-Identifier: MIT
 *
 * page.c: GET /: the page for browsers, if the daemon was started with --page.
 *
 * The page has no secrets and needs no key; it asks for one when the API wants it. The program has it only compressed,
 * so a client that does not take gzip is answered 406.
 *
 * Source: RFC 9110 section 12.5.3 (Accept-Encoding); Content Security Policy Level 3.
 */
#include "server/api/endpoints.h"
#include "server/page/page.h"

#include <string.h>
#include <strings.h>

/* Whether the weight of a coding, ";q=0.5" or nothing, is not 0. */
static bool has_weight(const char *s, size_t n)
{
    const char *q = memchr(s, '=', n);
    return !q || strcspn(q, "123456789") < n - (size_t)(q - s);
}

/* Whether a list of codings takes gzip. Its own entry counts before `*`. */
static bool takes_gzip(const char *s)
{
    bool any = false;
    while (s && *s) {
        s += strspn(s, " \t,");
        size_t n = strcspn(s, ","), word = strcspn(s, " \t,;");
        bool wanted = has_weight(s + word, n - word);
        if ((word == 4 && !strncasecmp(s, "gzip", 4)) || (word == 6 && !strncasecmp(s, "x-gzip", 6))) return wanted;
        if (word == 1 && *s == '*') any = wanted;
        s += n;
    }
    return any;
}

void endpoint_page(struct http_request *r, void *ctx)
{
    const struct api *a = ctx;
    if (!a->c.has_page) {
        http_error(r, 404, NULL, NULL, "nothing is served at /; quern serve --page serves a page for browsers here");
        return;
    }
    http_set_header(r, "Vary", "Accept-Encoding");
    if (!takes_gzip(http_header(r, "Accept-Encoding"))) {
        http_error(r, 406, NULL, NULL,
                   "the page is served with Content-Encoding: gzip only, and Accept-Encoding does not allow it");
        return;
    }
    http_set_header(r, "Content-Encoding", "gzip");
    http_set_header(r, "Content-Security-Policy", page_policy);
    http_set_header(r, "X-Content-Type-Options", "nosniff");
    http_set_header(r, "Referrer-Policy", "no-referrer");
    http_set_header(r, "Cross-Origin-Opener-Policy", "same-origin");
    http_set_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    http_set_header(r, "Cache-Control", "no-cache"); /* a new program may have another page */
    http_reply(r, 200, "text/html; charset=utf-8", page_gzip, page_gzip_bytes);
}
