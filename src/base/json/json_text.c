/* SPDX-License-Identifier: MIT
 *
 * json_text.c: writes a document into a buffer and remembers any failure itself, because jansson forgets some.
 */
#include "base/json/json_text.h"

#include <stdbool.h>

struct json_sink {
    struct buf *b;
    bool failed;
};

static int add_piece(const char *p, size_t n, void *arg)
{
    struct json_sink *s = arg;
    s->failed = s->failed || buf_add(s->b, p, n, NULL);
    return s->failed ? -1 : 0;
}

int json_text_add(struct buf *b, const json_t *j, size_t flags, const char *what, struct qn_error *e)
{
    size_t before = b->len;
    struct json_sink s = {b, false};
    if (j && !json_dump_callback(j, add_piece, &s, flags | JSON_ENCODE_ANY) && !s.failed) return 0;
    size_t written = b->len - before;
    b->len = before;
    if (b->data) b->data[before] = 0;
    return error_nomem(e, what, written);
}
