/* SPDX-License-Identifier: MIT
 *
 * origin.h: is this request meant for us, and may the web page that sends it do so?
 */
#ifndef QUERN_SERVER_ORIGIN_H
#define QUERN_SERVER_ORIGIN_H

/* Whether a Host header (NULL: absent) names this machine: localhost, 127.0.0.1, [::1], the address that the connection
 * came to ("192.0.2.1", "2001:db8::1"; NULL: none), or one of names[n]. Any port, any case. */
int origin_host_ok(const char *host, const char *local, const char *const *names, int n);
/* Whether a page of this origin may call: one of origins[n], or the server's own (the scheme and Host of the request).
 */
int origin_ok(const char *origin, const char *host, int tls, const char *const *origins, int n);

#endif
