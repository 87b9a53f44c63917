/* SPDX-License-Identifier: MIT
 *
 * route.c: finds the route of a path.
 *
 * The table is short, so it is searched from the start. A path is decoded once and then compared as it is. No files are
 * behind it, so `..` and `//` have no meaning and match no route. An encoded NUL byte is refused, because it would hide
 * the rest of the path.
 *
 * Source: RFC 3986 section 2.1 (percent-encoding), RFC 9110 section 10.2.1 (Allow).
 */
#include "server/http/route.h"

#include <string.h>

#include "base/inline/digits.h"

long route_unescape(char *s)
{
    char *out = s;

    for (const char *p = s; *p; p++) {
        char c = *p;
        if (c == '%') {
            int hi = hex_digit(p[1]), lo = hi < 0 ? -1 : hex_digit(p[2]);
            if (lo < 0 || (hi | lo) == 0) return -1;
            c = (char)(hi << 4 | lo);
            p += 2;
        }
        *out++ = c;
    }
    *out = '\0';
    return out - s;
}

static bool matches(const char *pattern, const char *path, struct route_match *m)
{
    const char *hole = strstr(pattern, "{id}"), *all = strstr(pattern, "{path}"), *tail;
    size_t before, after, n = strlen(path);

    m->param = m->param_len = 0;
    if (!hole && !all) return strcmp(pattern, path) == 0;
    before = (size_t)((all ? all : hole) - pattern);
    tail = pattern + before + strlen(all ? "{path}" : "{id}");
    after = strlen(tail);
    if (n <= before + after || memcmp(pattern, path, before) != 0 || strcmp(path + n - after, tail) != 0) return false;
    if (!all && memchr(path + before, '/', n - before - after)) return false;
    m->param = before;
    m->param_len = n - before - after;
    return true;
}

struct route_match route_find(const struct http_route *routes, int n_routes, const char *method, const char *path)
{
    struct route_match m = {0};
    bool has_path = false;

    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (int i = 0; i < n_routes; i++) {
        if (!matches(routes[i].pattern, path, &m)) continue;
        has_path = 1;
        if (strcmp(routes[i].method, method) == 0) {
            m.route = &routes[i];
            m.has_path = 1;
            return m;
        }
    }
    return (struct route_match){.has_path = has_path};
}

int route_allow(struct buf *out, const struct http_route *routes, int n_routes, const char *path, struct qn_error *e)
{
    struct route_match m;

    for (int i = 0; i < n_routes; i++) {
        int r = 0;
        if (!matches(routes[i].pattern, path, &m)) continue;
        if (out->len > 0) r = buf_str(out, ", ", e);
        if (r == 0) r = buf_str(out, routes[i].method, e);
        if (r == 0 && strcmp(routes[i].method, "GET") == 0) r = buf_str(out, ", HEAD", e);
        if (r < 0) return r;
    }
    return 0;
}

char *route_query(char *query, const char *name)
{
    char *rest = NULL;

    for (char *part = strtok_r(query, "&", &rest); part; part = strtok_r(NULL, "&", &rest)) {
        char *eq = strchr(part, '=');
        if (eq) *eq = '\0';
        for (char *p = part; (p = strchr(p, '+'));) *p = ' ';
        if (route_unescape(part) < 0 || strcmp(part, name) != 0) continue;
        if (!eq) return part + strlen(part);
        for (char *p = eq + 1; (p = strchr(p, '+'));) *p = ' ';
        return route_unescape(eq + 1) < 0 ? NULL : eq + 1;
    }
    return NULL;
}
