/* SPDX-License-Identifier: MIT
 *
 * spans.h: which bytes of a file are there: a set of byte positions as a sorted list of spans that neither overlap nor
 * touch.
 */
#ifndef QUERN_FETCH_SPANS_H
#define QUERN_FETCH_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct span {
    uint64_t from, to;
}; /* bytes [from, to) */
struct spans {
    struct span *v; /* [n] */
    size_t n, cap;
};

void spans_deinit(struct spans *s);
void spans_clear(struct spans *s);
/* Adds [from, to), parts of which may be there. QN_ENOMEM leaves the set as it was. */
int spans_add(struct spans *s, uint64_t from, uint64_t to, struct qn_error *e);
int spans_copy(struct spans *to, const struct spans *from, struct qn_error *e);
uint64_t spans_bytes(const struct spans *s);
/* The first position at or behind `at` that is not in the set; *end: where the set goes on, UINT64_MAX for never. */
uint64_t spans_gap(const struct spans *s, uint64_t at, uint64_t *end);

#endif
