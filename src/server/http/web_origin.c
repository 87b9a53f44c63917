/* SPDX-License-Identifier: MIT
 *
 * web_origin.c: two checks that keep other people's web pages away from a server on one's own machine.
 *
 * A browser lets a page talk to the host that it came from. A hostile page can make its own name point to 127.0.0.1
 * once it is loaded (DNS rebinding), and then talk to us as if we were its host. But the Host header then has the
 * page's name, so a name that is not ours is refused. Without that trick a page can still send simple requests blindly.
 * Those name the page in Origin, and are refused unless that origin was configured.
 *
 * Referer is not looked at. Unix sockets are not checked, because browsers cannot reach them.
 */
#include "server/http/web_origin.h"

#include <string.h>
#include <strings.h>

static bool same(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(s, name, n) == 0;
}

/* Length of the host in host[:port] or [host][:port]; 0 when the text is neither. */
static size_t host_len(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    size_t n;

    if (!end) return 0;
    if (host[0] == '[') end++;
    n = (size_t)(end - host);
    if (*end == ':') end += 1 + strspn(end + 1, "0123456789");
    return *end == '\0' ? n : 0;
}

bool web_origin_host_ok(const char *host, const char *local, const char *const *names, int n)
{
    size_t len = host ? host_len(host) : 0;

    if (len == 0) return false;
    if (same(host, len, "localhost") || same(host, len, "127.0.0.1") || same(host, len, "[::1]")) return true;
    if (local && same(host, len, local)) return true;
    if (local && host[0] == '[' && same(host + 1, len - 2, local)) return true;
    for (int i = 0; i < n; i++)
        if (same(host, len, names[i])) return true;
    return false;
}

bool web_origin_ok(const char *origin, const char *host, bool tls, const char *const *origins, int n)
{
    const char *scheme = tls ? "https://" : "http://";

    for (int i = 0; i < n; i++)
        if (strcasecmp(origin, origins[i]) == 0) return true;
    return host && strncasecmp(origin, scheme, strlen(scheme)) == 0 && strcasecmp(origin + strlen(scheme), host) == 0;
}
