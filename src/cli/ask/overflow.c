/* SPDX-License-Identifier: MIT
 *
 * overflow.c: searches between a cut that fits and one that does not. See overflow.h.
 *
 * The number of tokens is nearly proportional to the bytes, so the next try is where the line between the two ends
 * meets the room. Each third try is the middle, for texts that are dense in one place and not in another.
 */
#include "cli/ask/overflow.h"

#include <stdbool.h>

#define FIRST_BYTES_PER_TOKEN 3 /* for the first try; each try that fits doubles it */

struct end {
    size_t k;
    int n_tokens;
};

/* Grows the cut from a few bytes until it is too large. This avoids counting a text that is far larger than the
 * context. */
static int bracket(const struct overflow *o, struct end *fits, struct end *over, bool *all_fits, struct qn_error *e)
{
    size_t k = (size_t)o->n_room * FIRST_BYTES_PER_TOKEN;
    *all_fits = false;
    for (;; k *= 2) {
        struct end at = {.k = k < o->most ? k : o->most};
        int rc = o->count(o->arg, at.k, &at.n_tokens, e);
        if (rc) return rc;
        if (at.n_tokens > o->n_room) {
            *over = at;
            return 0;
        }
        *fits = at;
        *all_fits = at.k == o->most;
        if (*all_fits) return 0;
    }
}

static size_t next_try(const struct overflow *o, const struct end *fits, const struct end *over, int i)
{
    size_t width = over->k - fits->k, step = width / 2;
    if (i % 3 != 2 && over->n_tokens > fits->n_tokens)
        step = (size_t)((double)width * (o->n_room - fits->n_tokens) / (over->n_tokens - fits->n_tokens));
    if (step >= width) step = width - 1;
    return fits->k + (step < 1 ? 1 : step);
}

int overflow_fit(const struct overflow *o, size_t *k, struct qn_error *e)
{
    struct end fits = {0}, over = {0};
    bool all_fits;
    int rc;
    if ((rc = o->count(o->arg, 0, &fits.n_tokens, e))) return rc;
    if (fits.n_tokens > o->n_room)
        return error_set(e, QN_EFULL, "there is room for %d tokens, and the instruction alone has %d", o->n_room,
                         fits.n_tokens);
    if ((rc = bracket(o, &fits, &over, &all_fits, e))) return rc;
    for (int i = 0; !all_fits && over.k - fits.k > 1 && o->kept(o->arg, over.k - 1) != o->kept(o->arg, fits.k); i++) {
        struct end at = {.k = next_try(o, &fits, &over, i)};
        size_t kept = o->kept(o->arg, at.k);
        if (kept == o->kept(o->arg, fits.k)) {
            fits.k = at.k;
            continue;
        }
        if (kept == o->kept(o->arg, over.k)) {
            over.k = at.k;
            continue;
        }
        if ((rc = o->count(o->arg, at.k, &at.n_tokens, e))) return rc;
        if (at.n_tokens > o->n_room)
            over = at;
        else
            fits = at;
    }
    *k = fits.k;
    return 0;
}
