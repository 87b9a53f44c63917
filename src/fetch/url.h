/* SPDX-License-Identifier: MIT
 *
 * url.h: which URLs are asked, which redirects are followed, and who may hear a secret. libcurl takes URLs apart, so
 * that what is judged here is what is connected to.
 *
 * https is always fine. http is fine on this machine, or if the user said so. A redirect never leads from https to
 * http, nor from this machine over http to another.
 */
#ifndef QUERN_FETCH_URL_H
#define QUERN_FETCH_URL_H

#include <stdbool.h>

#include "base/error.h"

/* QN_EUSAGE: not a URL that is asked; says why. No user and password in it: they would be seen in lists of processes.
 */
int url_check(const char *url, bool insecure_http, struct qn_error *e);
/* Whether a redirect that came while fetching `source` may lead to `to`. */
int url_may_follow(const char *source, const char *to, bool insecure_http, struct qn_error *e);

struct url_verdict {
    bool hears_secret; /* it may be told the secret of `source` */
    bool is_here;      /* what goes to this machine in clear goes past every proxy */
};
/* What every request is judged by before it is made: whether `url` may be asked while `source` is fetched, and what it
 * may hear. Errors as the two above. */
int url_judge(struct url_verdict *v, const char *source, const char *url, bool insecure_http, struct qn_error *e);
/* The same scheme, host and port. "localhost" and "127.0.0.1" are two hosts. */
bool url_same_origin(const char *a, const char *b);
/* The last part of the path, decoded; freed with mem_free(). Empty when the path ends with a slash. QN_EUSAGE: it has a
 * NUL byte or a slash in it, or this is no URL. */
int url_last_part(char **out, const char *url, struct qn_error *e);

#endif
