/* SPDX-License-Identifier: MIT
 *
 * sse.c: reads lines, fields and events.
 *
 * An event that is cut off by the end of the stream is dropped, as the standard says.
 */
#include "client/sse.h"

#include <string.h>

static int too_long(struct qn_error *e)
{
    return error_set(e, QN_EDATA, "an event of the server has more than %zu bytes", SSE_MAX);
}

/* An empty line: the collected fields are an event if there is data. */
static int dispatch(struct sse *s, sse_sink *sink, void *arg)
{
    int rc = s->has_data ? sink(arg, s->type, s->data.data ? (char *)s->data.data : "", s->data.len) : 0;
    buf_clear(&s->data);
    s->has_data = false;
    s->type[0] = '\0';
    return rc;
}

static int add_data(struct sse *s, const char *value, size_t n, struct qn_error *e)
{
    int rc = 0;
    if (s->data.len + n + 1 > SSE_MAX) return too_long(e);
    if (s->has_data) rc = buf_add(&s->data, "\n", 1, e);
    s->has_data = true;
    return rc ? rc : buf_add(&s->data, value, n, e);
}

/* Reads a line, without its end and terminated. */
static int read_line(struct sse *s, sse_sink *sink, void *arg, struct qn_error *e)
{
    char *p = s->line.data ? (char *)s->line.data : "";
    size_t n = s->line.len, skip = !s->begun && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
    s->begun = true;
    p += skip;
    n -= skip;
    if (n == 0) return dispatch(s, sink, arg);
    const char *colon = memchr(p, ':', n);
    size_t n_name = colon ? (size_t)(colon - p) : n, at = colon ? n_name + 1 : n;
    if (at < n && p[at] == ' ') at++;
    if (n_name == 0) return sink(arg, NULL, p + at, n - at);
    if (n_name == 4 && !memcmp(p, "data", 4)) return add_data(s, p + at, n - at, e);
    if (n_name == 5 && !memcmp(p, "event", 5)) {
        size_t len = n - at < sizeof s->type ? n - at : sizeof s->type - 1;
        memcpy(s->type, p + at, len);
        s->type[len] = '\0';
    }
    return 0;
}

int sse_read(struct sse *s, const char *p, size_t n, sse_sink *sink, void *arg, struct qn_error *e)
{
    for (const char *end = p + n; p < end;) {
        if (s->after_cr && *p == '\n') p++;
        s->after_cr = false;
        const char *q = p;
        while (q < end && *q != '\n' && *q != '\r') q++;
        if (s->line.len + (size_t)(q - p) > SSE_MAX) return too_long(e);
        if (q > p && buf_add(&s->line, p, (size_t)(q - p), e)) return QN_ENOMEM;
        if (q == end) break;
        s->after_cr = *q == '\r';
        p = q + 1;
        int rc = read_line(s, sink, arg, e);
        buf_clear(&s->line);
        if (rc) return rc;
    }
    return 0;
}

void sse_deinit(struct sse *s)
{
    buf_deinit(&s->line);
    buf_deinit(&s->data);
}
