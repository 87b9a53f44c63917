/* SPDX-License-Identifier: MIT
 *
 * wanted.h: lets long work ask now and then whether its result is still wanted.
 */
#ifndef QUERN_TEXT_WANTED_H
#define QUERN_TEXT_WANTED_H

#include <quern.h>

#include "base/error.h"

#define WANTED_EVERY 32768 /* bytes or symbols: some milliseconds */

/* Zeroed: the work cannot be cancelled. */
struct wanted {
    const struct qn_cancel *cancel; /* borrowed; NULL: never */
    size_t n;                       /* work that was done since it was last asked */
};

/* Counts n units of work, and asks after every WANTED_EVERY of them. QN_ECANCEL: the result is no longer wanted. */
static inline int wanted_after(struct wanted *w, size_t n, struct qn_error *e)
{
    if (!w->cancel || (w->n += n) < WANTED_EVERY) return 0;
    w->n = 0;
    if (!w->cancel->is_cancelled(w->cancel->arg)) return 0;
    return error_set(e, QN_ECANCEL, "tokenizer: the work was cancelled");
}

#endif
