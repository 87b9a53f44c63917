/* SPDX-License-Identifier: MIT
 *
 * route.h: from the target of a request line to a handler.
 */
#ifndef QUERN_SERVER_ROUTE_H
#define QUERN_SERVER_ROUTE_H

#include "base/buf.h"
#include "server/http.h"

/* Undoes %XX in place. Returns the length, or -1 for a bad escape or an escaped NUL byte. */
long route_unescape(char *s);

struct route_match {
    const struct http_route *route; /* NULL: none for this path, or none for this method */
    int has_path;                   /* some method is served at this path */
    size_t param, param_len;        /* where in the path {id} was found; length 0 when the pattern has none */
};

/* The path is decoded; HEAD is looked up as GET. */
struct route_match route_find(const struct http_route *routes, int n_routes, const char *method, const char *path);
/* "GET, HEAD, POST": the methods of this path, for Allow. */
int route_allow(struct buf *out, const struct http_route *routes, int n_routes, const char *path, struct qn_error *e);

/* The value of `name` in an undecoded query, decoded in place up to its NUL byte: call it for a copy. NULL if absent
 * or badly escaped. */
char *route_query(char *query, const char *name);

#endif
