/* SPDX-License-Identifier: MIT
 *
 * get.h: one GET over HTTP, with redirects by our own rules (url.h), and the parts of a reply that fetching needs.
 *
 * Redirects are followed here and not by libcurl. So each address is judged before it is connected to, the secret goes
 * only to the source's own origin, and the final address can be asked again without the redirects.
 */
#ifndef QUERN_FETCH_GET_H
#define QUERN_FETCH_GET_H

#include "base/buf.h"
#include "client/curl.h"
#include "fetch/fetch.h"

#define GET_MAX_REDIRECTS 10

/* A handle for `url` with all options set, for the caller to clean up; *headers is freed with slist_free_all() after
 * it. source: the URL that the user named, whose origin may hear the secret (url_judge). NULL: *e says why; here e must
 * not be NULL. */
CURL *get_handle(const struct curl *curl, const struct fetch_options *o, const char *source, const char *url,
                 struct curl_slist **headers, struct qn_error *e);
/* The value of a header of the last reply, or of its first redirect; it belongs to the handle. NULL: there is none. */
const char *get_header(const struct curl *curl, CURL *h, const char *name);
/* The cause of a failed transfer, as text for a message. */
const char *get_why(const struct curl *curl, CURLcode rc);
/* Sets and returns the error for a GET with this status: not there, not allowed, busy, broken. */
int get_status_error(const char *url, long status, bool has_token, struct qn_error *e);

struct get_reply {
    CURL *h;                    /* the handle of the last reply, for get_header(); owned */
    struct curl_slist *headers; /* of the request */
    long status;                /* 2xx; or 416, if a range was asked for */
    char *url;                  /* the address where the redirects ended; owned */
    char linked[2][128];        /* X-Linked-Etag and X-Linked-Size, if the source's own origin sent them; "": none */
    struct buf body;
    bool is_cut; /* the body is longer than max_body */
};

/* Gets a URL. range: "0-0" for example; NULL: the whole file. Reads at most max_body bytes. QN_ECANCEL; QN_ENOINPUT
 * (not there); QN_EBUSY (try later); QN_EIO (no connection, or an error status); QN_EUSAGE (not allowed, or a redirect
 * that is not followed). After success, and only then, *r is freed with get_reply_deinit(). */
int get_url(struct get_reply *r, const struct fetch_options *o, const char *url, const char *range, size_t max_body,
            struct qn_error *e);
void get_reply_deinit(struct get_reply *r);

#endif
