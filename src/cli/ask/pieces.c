/* SPDX-License-Identifier: MIT
 *
 * pieces.c: finds the boundaries of pieces by the hashes of lines. See pieces.h.
 *
 * The mean distance from the minimum to the next boundary is 3/16 of the distance between minimum and maximum. So one
 * piece in 200 is cut at the maximum, where the boundary depends on where the piece began.
 */
#include "cli/ask/pieces.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define BLOCK ((size_t)1 << 15)

int pieces_init(struct pieces *p, size_t min, size_t max, pieces_source *source, void *arg, struct qn_error *e)
{
    assert(min > 0 && min < max);
    *p = (struct pieces){.min = min, .max = max, .source = source, .arg = arg};
    p->text = mem_alloc(max + BLOCK);
    return p->text ? 0 : error_nomem(e, "pieces", max + BLOCK);
}

void pieces_deinit(struct pieces *p) { mem_free(p->text); }

/* Reads until there is more than the largest piece, or the text ends. */
static int fill(struct pieces *p, struct qn_error *e)
{
    if (p->n > p->max || p->ended) return 0;
    memmove(p->text, p->text + p->at, p->n);
    p->at = 0;
    while (p->n <= p->max && !p->ended) {
        size_t got;
        int rc = p->source(p->arg, p->text + p->n, p->max + BLOCK - p->n, &got, e);
        if (rc) return rc;
        p->ended = got == 0;
        p->n += got;
    }
    return 0;
}

static bool ends_piece(const struct pieces *p, const char *line, size_t n)
{
    uint64_t mean = (p->max - p->min) * 3 / 16 + 1;
    return n >= mean || hash_bytes(line, n, 0) < UINT64_MAX / mean * n;
}

static size_t char_start(const char *text, size_t at)
{
    while (at && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

/* The end of the first piece in n bytes. There are more than max bytes unless the text ends there. */
static size_t find_end(const struct pieces *p, const char *text, size_t n)
{
    size_t last = 0; /* after the last whole line within max */
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t next = end ? (size_t)(end - text) + 1 : n;
        if (next > p->max) break;
        if (!end) return n;
        last = next;
        if (next >= p->min && ends_piece(p, text + at, next - at)) return next;
        at = next;
    }
    if (n <= p->max) return n;
    if (last >= p->min) return last;
    size_t cut = char_start(text, p->max);
    return cut ? cut : p->max;
}

int pieces_next(struct pieces *p, const char **text, size_t *n, struct qn_error *e)
{
    int rc = fill(p, e);
    if (rc) return rc;
    *text = p->text + p->at;
    *n = find_end(p, *text, p->n);
    p->at += *n;
    p->n -= *n;
    return 0;
}

size_t pieces_half(const char *text, size_t n)
{
    size_t middle = n / 2;
    const char *back = memrchr(text, '\n', middle), *on = memchr(text + middle, '\n', n - middle);
    size_t before = back ? (size_t)(back - text) + 1 : 0, after = on ? (size_t)(on - text) + 1 : n;
    if (before && (after >= n || middle - before <= after - middle)) return before;
    if (after < n) return after;
    return char_start(text, middle);
}
