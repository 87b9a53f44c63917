/* SPDX-License-Identifier: MIT
 *
 * web_origin.h: whether a request is meant for this server, and whether the web page that sends it may do so.
 */
#ifndef QUERN_SERVER_WEB_ORIGIN_H
#define QUERN_SERVER_WEB_ORIGIN_H

#include <stdbool.h>

/* Whether a Host header (NULL: absent) names this machine: localhost, 127.0.0.1, [::1], the address that the client
 * connected to (local: "192.0.2.1", "2001:db8::1"; NULL: none), or one of names[n]. Any port, any case. */
bool web_origin_host_ok(const char *host, const char *local, const char *const *names, int n);
/* Whether a page of this origin may call: it is one of origins[n], or the server's own (scheme and Host of the
 * request). */
bool web_origin_ok(const char *origin, const char *host, bool tls, const char *const *origins, int n);

#endif
