/* SPDX-License-Identifier: MIT
 *
 * spans.h: which bytes of a file are there: a set of positions, as a sorted list of spans that neither overlap nor
 * touch.
 */
#ifndef QUERN_FETCH_SPANS_H
#define QUERN_FETCH_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct byte_span {
    uint64_t from, to;
}; /* bytes [from, to) */
struct spans {
    struct byte_span *v; /* [n] */
    size_t n, cap;
};

void spans_deinit(struct spans *s);
void spans_clear(struct spans *s);
/* Adds [from, to); parts of it may be in the set already. QN_ENOMEM leaves the set as it was. */
int spans_add(struct spans *s, uint64_t from, uint64_t to, struct qn_error *e);
int spans_copy(struct spans *to, const struct spans *from, struct qn_error *e);
uint64_t spans_bytes(const struct spans *s);
/* The first position from `at` on that is not in the set. *end: the next position that is; UINT64_MAX: none. */
uint64_t spans_gap(const struct spans *s, uint64_t at, uint64_t *end);

#endif
