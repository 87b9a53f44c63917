/* SPDX-License-Identifier: MIT
 *
 * pieces.h: a stream of text cut into pieces whose boundaries depend on what the text says, not on where it stands.
 *
 * A piece ends behind a line whose hash (XXH3) is below a bound that grows with the length of the line: so any byte is
 * as likely to end a piece as any other, in short lines and in long. It has at least `min` bytes and at most `max`.
 * Where two texts agree for long enough they have the same pieces: an edit changes those around it alone. The idea is
 * that of content-defined chunking (Muthitacharoen and others, "A low-bandwidth network file system", SOSP 2001).
 */
#ifndef QUERN_CLI_PIECES_H
#define QUERN_CLI_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Gives at most cap bytes of UTF-8; *n is 0 at the end. cap is at least 32 KiB. */
typedef int pieces_source(void *arg, char *out, size_t cap, size_t *n, struct qn_error *e);

struct pieces {
    size_t min, max; /* bytes */
    pieces_source *source;
    void *arg;
    char *text; /* [max + a block]: what was read and not yet given out */
    size_t at, n;
    bool ended;
};

/* 0 < min < max. */
int pieces_init(struct pieces *p, size_t min, size_t max, pieces_source *source, void *arg, struct qn_error *e);
void pieces_deinit(struct pieces *p); /* zeroed is fine */
/* The next piece, valid until the next call; *n is 0 at the end. */
int pieces_next(struct pieces *p, const char **text, size_t *n, struct qn_error *e);

/* Where to cut a piece in two: behind the line that ends next to the middle, else between two characters. 0: it has
 * one character only. */
size_t pieces_half(const char *text, size_t n);

#endif
