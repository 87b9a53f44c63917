/* SPDX-License-Identifier: MIT
 *
 * chat_cut.c: see chat_cut.h.
 *
 * Tokens do not know where in the text they come from. Control tokens do: each is written out in the template's part of
 * the text, in the same order. One that is not (a BOS that was put in front) is passed over.
 */
#include "text/chat_cut.h"

#include <string.h>

#define LEAST_GAP 64 /* tokens: a boundary costs a forward pass, as some tens of tokens do */

/* The place in the text where s stands next, from `at` on, outside of what the user wrote; n: nowhere. */
static size_t find_own(const char *text, size_t n, const struct text_origin *o, struct str s, size_t at)
{
    size_t span = 0;
    for (const char *p; at < n && (p = memmem(text + at, n - at, s.p, s.n));) {
        at = (size_t)(p - text);
        while (span < o->n_user && o->user[span].at + o->user[span].n <= at) span++;
        if (span == o->n_user || o->user[span].at >= at + s.n) return at;
        at = o->user[span].at + o->user[span].n;
    }
    return n;
}

/* How many of the user's ranges end before this place. */
static size_t n_before(const struct text_origin *o, size_t at, size_t from)
{
    while (from < o->n_user && o->user[from].at + o->user[from].n <= at) from++;
    return from;
}

size_t chat_cuts(const struct vocab *v, const char *text, size_t n, const struct text_origin *o, const qn_token *tokens,
                 size_t n_tokens, int cut[CHAT_CUTS])
{
    size_t at = 0, n_user = 0, first = 0, last = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        if (!vocab_is_control(v, tokens[i])) continue;
        struct str s = vocab_token_text(v, tokens[i]);
        size_t here = s.n ? find_own(text, n, o, s, at) : n;
        if (here == n) continue;
        at = here + s.n;
        size_t before = n_before(o, here, n_user);
        if (before == n_user || i == 0 || vocab_is_eog(v, tokens[i])) continue;
        n_user = before;
        if (!first) first = i;
        last = i;
    }
    size_t n_cuts = 0;
    if (first >= LEAST_GAP && last >= first + LEAST_GAP) cut[n_cuts++] = (int)first;
    if (last) cut[n_cuts++] = (int)last;
    return n_cuts;
}
