/* SPDX-License-Identifier: MIT
 *
 * route.h: finds the handler for the target of a request line.
 */
#ifndef QUERN_SERVER_ROUTE_H
#define QUERN_SERVER_ROUTE_H

#include "base/buf.h"
#include "server/http/http.h"

/* Decodes %XX in place. Returns the length, or -1 for a bad escape or an escaped NUL byte. */
long route_unescape(char *s);

struct route_match {
    const struct http_route *route; /* NULL: none for this path, or none for this method */
    bool has_path;                  /* another method may be served at this path */
    size_t param, param_len;        /* where {id} or {path} was found in the path; length 0 when the pattern has none */
};

/* The route of a decoded path. HEAD is looked up as GET. */
struct route_match route_find(const struct http_route *routes, int n_routes, const char *method, const char *path);
/* Adds the methods of this path, "GET, HEAD, POST", for Allow. */
int route_allow(struct buf *out, const struct http_route *routes, int n_routes, const char *path, struct qn_error *e);

/* The value of `name` in an undecoded query; NULL if absent or badly escaped. It decodes in place and so destroys the
 * query: pass a copy. */
char *route_query(char *query, const char *name);

#endif
