/* SPDX-License-Identifier: MIT
 *
 * buf.h: a growing byte buffer that owns its memory.
 */
#ifndef QUERN_BASE_BUF_H
#define QUERN_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct buf {
    uint8_t *data; /* NULL while empty; data[len] is a NUL byte once anything was added */
    size_t len, cap;
};

/* A zeroed struct buf is an empty buffer. */
void buf_deinit(struct buf *b);

/* These return 0 or QN_ENOMEM; when they fail, the buffer does not change. */

/* Makes room for `extra` more bytes and their NUL, so that adding them cannot fail. */
int buf_reserve(struct buf *b, size_t extra, struct qn_error *e);
/* p must not point into the buffer itself: growing may move it. */
int buf_add(struct buf *b, const void *p, size_t n, struct qn_error *e);
int buf_str(struct buf *b, const char *s, struct qn_error *e);
int buf_printf(struct buf *b, struct qn_error *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void buf_clear(struct buf *b); /* sets the length to 0 and keeps the memory */

/* The same, but memory is taken from a ledger before it is allocated, and given back to it. l may be NULL. Use one
 * ledger for the whole life of a buffer. */
int buf_reserve_from(struct buf *b, struct ledger *l, size_t extra, struct qn_error *e);
int buf_add_from(struct buf *b, struct ledger *l, const void *p, size_t n, struct qn_error *e);
void buf_deinit_from(struct buf *b, struct ledger *l);

#endif
