/* SPDX-License-Identifier: MIT
 *
 * pieces.h: cuts a stream of text into pieces whose boundaries depend on the content, not on the position.
 *
 * A piece ends after a line whose hash (XXH3) is below a limit that grows with the length of the line. So every byte
 * is equally likely to end a piece, in short and in long lines. A piece has at least `min` and at most `max` bytes.
 * Two texts that agree for long enough have the same pieces there: an edit changes only the pieces around it. The idea
 * is content-defined chunking (Muthitacharoen and others, "A low-bandwidth network file system", SOSP 2001).
 */
#ifndef QUERN_CLI_PIECES_H
#define QUERN_CLI_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Reads at most cap bytes of UTF-8 into out; *n is 0 at the end. cap is at least 32 KiB. */
typedef int pieces_source(void *arg, char *out, size_t cap, size_t *n, struct qn_error *e);

struct pieces {
    size_t min, max; /* bytes */
    pieces_source *source;
    void *arg;
    char *text; /* [max + a block] text that was read and not given out yet */
    size_t at, n;
    bool ended;
};

/* Starts cutting. 0 < min < max. Allocates the text; released with pieces_deinit(). */
int pieces_init(struct pieces *p, size_t min, size_t max, pieces_source *source, void *arg, struct qn_error *e);
void pieces_deinit(struct pieces *p); /* zeroed is fine */
/* The next piece, valid until the next call. *n is 0 at the end. */
int pieces_next(struct pieces *p, const char **text, size_t *n, struct qn_error *e);

/* The position where a piece is cut in two: after the line that ends nearest to the middle, or else between two
 * characters. 0: it has only one character. */
size_t pieces_half(const char *text, size_t n);

#endif
