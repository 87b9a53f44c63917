/* SPDX-License-Identifier: MIT
 *
 * sse.h: a stream of server-sent events, in pieces of any size, becomes events and comments.
 *
 * Source: the HTML standard, "Server-sent events", interpreting an event stream. `id` and `retry` are of no use here
 * and are skipped. Nothing is decoded: text is bytes.
 */
#ifndef QUERN_CLIENT_SSE_H
#define QUERN_CLIENT_SSE_H

#include <stdbool.h>

#include "base/buf.h"

#define SSE_MAX ((size_t)16 << 20) /* the most bytes of a line, and of an event's data */

struct sse {
    struct buf line, data;
    char type[64]; /* the event's type; "": the default, message */
    bool has_data;
    bool after_cr; /* a line feed as the next byte belongs to the line that has ended */
    bool begun;    /* a byte order mark can no longer come */
};

/* Receives an event or, with type NULL, a comment. text is terminated. Non-zero ends the reading. */
typedef int sse_sink(void *arg, const char *type, const char *text, size_t n);

/* Reads more bytes of a stream. A zeroed struct sse is at its beginning. Returns what the sink returned, QN_EDATA (too
 * long) or QN_ENOMEM. */
int sse_read(struct sse *s, const char *p, size_t n, sse_sink *sink, void *arg, struct qn_error *e);
void sse_deinit(struct sse *s);

#endif
