/* SPDX-License-Identifier: MIT
 *
 * url.h: which URLs are asked, which redirects are followed, and who may hear a secret. libcurl parses the URLs, so the
 * host that is judged is the host that is connected to.
 *
 * https is always allowed. http is allowed on this machine, or if the user said so. A redirect never leads from https
 * to http, nor from http on this machine to another machine.
 */
#ifndef QUERN_FETCH_URL_H
#define QUERN_FETCH_URL_H

#include <stdbool.h>

#include "base/error.h"

/* 0, or QN_EUSAGE if this URL is not asked; the message says why. A user and password in it are refused, because lists
 * of processes would show them. */
int url_check(const char *url, bool insecure_http, struct qn_error *e);
/* 0, or QN_EUSAGE if a redirect while fetching `source` may not lead to `to`. */
int url_may_follow(const char *source, const char *to, bool insecure_http, struct qn_error *e);

struct url_verdict {
    bool hears_secret; /* it may get the secret of `source` */
    bool is_here;      /* it is on this machine, in clear text: no proxy is used */
};
/* Judges a request before it is made: whether `url` may be asked while `source` is fetched, and whether it may get the
 * secret. Errors as those of the two functions above. */
int url_judge(struct url_verdict *v, const char *source, const char *url, bool insecure_http, struct qn_error *e);
/* Whether scheme, host and port are the same. "localhost" and "127.0.0.1" are two hosts. */
bool url_same_origin(const char *a, const char *b);
/* The last part of the path, decoded, in *out, which is freed with mem_free(). It is empty when the path ends with a
 * slash. QN_EUSAGE: it contains a NUL byte or a slash, or this is not a URL. */
int url_last_part(char **out, const char *url, struct qn_error *e);

#endif
