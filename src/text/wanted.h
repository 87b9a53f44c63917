/* SPDX-License-Identifier: MIT
 *
 * wanted.h: work that asks now and then whether it is still wanted, by how much of it was done since.
 */
#ifndef QUERN_TEXT_WANTED_H
#define QUERN_TEXT_WANTED_H

#include <quern.h>

#include "base/error.h"

#define WANTED_EVERY 32768 /* bytes or symbols: some milliseconds */

/* Zeroed: nobody is asked. */
struct wanted {
    const struct qn_cancel *cancel; /* borrowed */
    size_t n;                       /* done since it was asked */
};

/* So much was done. QN_ECANCEL when no more is wanted. */
static inline int wanted_after(struct wanted *w, size_t n, struct qn_error *e)
{
    if (!w->cancel || (w->n += n) < WANTED_EVERY) return 0;
    w->n = 0;
    if (!w->cancel->is_cancelled(w->cancel->arg)) return 0;
    return error_set(e, QN_ECANCEL, "tokenizer: the work was cancelled");
}

#endif
