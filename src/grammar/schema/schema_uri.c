/* SPDX-License-Identifier: MIT
 *
 * schema_uri.c: see schema_uri.h. RFC 3986, section 5.2.
 */
#include "grammar/schema/schema_uri.h"

#include <string.h>

#include "base/inline/digits.h"

char *uri_copy(struct slabs *slabs, struct limits *l, const char *s, size_t n)
{
    char *p = slabs_get(slabs, l, n + 1);
    if (p) memcpy(p, s, n);
    return p;
}

/* The length of "scheme:", or 0. */
static size_t scheme_length(const char *s)
{
    size_t n = strcspn(s, ":/?#");
    return s[n] == ':' && n > 0 ? n + 1 : 0;
}

/* Takes "." and ".." out of the path that begins at p. */
static void remove_dots(char *p)
{
    char *out = p;
    for (const char *s = p; *s;) {
        size_t n = 1 + strcspn(s + 1, "/"); /* a '/' and a segment */
        if (n == 3 && memcmp(s, "/..", 3) == 0) {
            while (out > p && *--out != '/') continue;
            if (!s[n]) *out++ = '/';
        } else if (n == 2 && memcmp(s, "/.", 2) == 0) {
            if (!s[n]) *out++ = '/';
        } else {
            memmove(out, s, n);
            out += n;
        }
        s += n;
    }
    *out = '\0';
}

const char *uri_join(struct slabs *slabs, struct limits *l, const char *base, const char *ref, size_t n)
{
    if (n == 0) return base;
    if (scheme_length(ref) && scheme_length(ref) <= n) return uri_copy(slabs, l, ref, n);
    size_t scheme = scheme_length(base), keep = scheme;
    size_t path = strncmp(base + scheme, "//", 2) == 0 ? scheme + 2 + strcspn(base + scheme + 2, "/?") : scheme;
    if (strncmp(ref, "//", 2) != 0) keep = path;
    if (*ref != '/') {
        const char *slash = strrchr(base + path, '/');
        keep = slash ? (size_t)(slash - base) + 1 : path;
    }
    bool add_slash = keep == path && *ref != '/' && path > scheme;
    char *p = slabs_get(slabs, l, keep + n + 2);
    if (!p) return NULL;
    memcpy(p, base, keep);
    if (add_slash) p[keep] = '/';
    memcpy(p + keep + add_slash, ref, n);
    if (p[path] == '/') remove_dots(p + path);
    return p;
}

void uri_decode(char *s)
{
    char *out = s;
    for (; *s; s++) {
        bool escaped = *s == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0;
        *out++ = escaped ? (char)(hex_digit(s[1]) << 4 | hex_digit(s[2])) : *s;
        if (escaped) s += 2;
    }
    *out = '\0';
}
