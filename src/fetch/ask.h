/* SPDX-License-Identifier: MIT
 *
 * ask.h: one GET over HTTP, redirects followed by our rules (url.h), and the parts of a reply that fetching needs.
 *
 * Redirects are followed here and not by libcurl: so each address is judged before it is connected to, the secret goes
 * to the source's own origin only, and where the file really is can be asked again without the way to it.
 */
#ifndef QUERN_FETCH_ASK_H
#define QUERN_FETCH_ASK_H

#include "base/buf.h"
#include "client/curl.h"
#include "fetch/fetch.h"

#define ASK_MAX_REDIRECTS 10

/* A handle for `url` with everything set that options say; *headers is freed with slist_free_all() after the handle.
 * source: the URL that the user named, whose origin may hear the secret (url_judge). NULL: *e says why, and must be
 * there. */
CURL *ask_handle(const struct curl *curl, const struct fetch_options *o, const char *source, const char *url,
                 struct curl_slist **headers, struct qn_error *e);
/* The value of a header of the last reply, or of its first redirect; NULL when there is none. The handle's. */
const char *ask_header(const struct curl *curl, CURL *h, const char *name);
/* What went wrong with a transfer, for a message. */
const char *ask_why(const struct curl *curl, CURLcode rc);
/* The error for a reply of this status to a GET: not there, not allowed, busy, broken. */
int ask_status_error(const char *url, long status, bool has_token, struct qn_error *e);

struct ask_reply {
    CURL *h;                    /* the last reply's; for ask_header() */
    struct curl_slist *headers; /* of the request */
    long status;                /* 2xx, or 416 to a request for a range */
    char *url;                  /* where the redirects ended */
    char linked[2][128];        /* X-Linked-Etag and X-Linked-Size of the source's own origin; "" */
    struct buf body;
    bool is_cut; /* the body had more than was asked for */
};

/* range: as in "0-0"; NULL: all of it. Reads max_body bytes at most. QN_ECANCEL, QN_ENOINPUT (not there), QN_EBUSY (try
 * later), QN_EIO (no connection, or a status of an error), QN_EUSAGE (not allowed, or a redirect that is not followed).
 * *r is to be given to ask_reply_deinit() after success only. */
int ask(struct ask_reply *r, const struct fetch_options *o, const char *url, const char *range, size_t max_body,
        struct qn_error *e);
void ask_reply_deinit(struct ask_reply *r);

#endif
