/* SPDX-License-Identifier: MIT
 *
 * special.c: special tokens in text, leftmost first and longest at each place.
 *
 * The candidates are sorted by text. Matching begins with a table for the first byte, and then narrows the range of
 * candidates that agree with the text byte by byte. The time is at most the text's length times SPECIAL_MAX_BYTES, and
 * that is reached only by a text that begins a long special token at every byte. In real vocabularies special tokens
 * share no prefix with ordinary text.
 *
 * Leftmost-longest is what the original tokenizers do (an automaton over the added tokens). Programs that search the
 * whole text for the longest token first differ only where two special tokens overlap.
 */
#include "text/token/special.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define SPECIAL_MAX_BYTES 512

static int compare(const void *a, const void *b, void *arg)
{
    const struct lexicon *lex = arg;
    qn_token ia = *(const qn_token *)a, ib = *(const qn_token *)b;
    struct str x = lexicon_text(lex, ia), y = lexicon_text(lex, ib);
    int c = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    if (c) return c;
    if (x.n != y.n) return x.n < y.n ? -1 : 1;
    return ia < ib ? -1 : ia > ib;
}

int special_init(struct special *s, const struct lexicon *lex, struct qn_error *e)
{
    *s = (struct special){.lex = lex};
    int32_t n = 0;
    for (qn_token id = 0; id < lex->n; id++) n += lexicon_is_special(lex, id);
    s->id = mem_alloc((size_t)n * sizeof *s->id + 1);
    if (!s->id) return error_nomem(e, "special tokens", (size_t)n * sizeof *s->id);
    for (qn_token id = 0; id < lex->n; id++) {
        if (!lexicon_is_special(lex, id)) continue;
        struct str t = lexicon_text(lex, id);
        if (t.n > SPECIAL_MAX_BYTES)
            return error_set(e, QN_EDATA, "gguf: special token %d has %zu bytes (limit %d)", id, t.n,
                             SPECIAL_MAX_BYTES);
        if (lexicon_find(lex, t.p, t.n) == id) s->id[s->n++] = id; /* not empty, and the last one with this text */
    }
    qsort_r(s->id, (size_t)s->n, sizeof *s->id, compare, (void *)lex);
    for (int32_t i = 0; i < s->n; i++) s->first[(uint8_t)lexicon_text(lex, s->id[i]).p[0] + 1] = i + 1;
    for (int b = 0; b < 256; b++)
        if (s->first[b + 1] < s->first[b]) s->first[b + 1] = s->first[b];
    return 0;
}

void special_deinit(struct special *s)
{
    mem_free(s->id);
    *s = (struct special){0};
}

/* The first of the sorted candidates lo..hi, all longer than `depth` and equal up to there, whose byte at `depth`
 * is at least b. */
static int32_t lower_bound(const struct special *s, int32_t lo, int32_t hi, size_t depth, unsigned b)
{
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)lexicon_text(s->lex, s->id[mid]).p[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool is_listed(const qn_token *list, size_t n, qn_token id)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

/* Whether a user may write this token. */
static bool is_for_users(const struct special *s, const struct text_origin *o, qn_token id)
{
    if (is_listed(o->allowed, o->n_allowed, id)) return true;
    return s->lex->type[id] == TOKEN_USER && !is_listed(o->markup, o->n_markup, id);
}

/* The longest special token at p, -1 for none. trusted: how many of the n bytes, from the first on, the template wrote.
 */
static qn_token longest_at(const struct special *s, const char *p, size_t n, size_t trusted,
                           const struct text_origin *o)
{
    int32_t lo = s->first[(uint8_t)*p], hi = s->first[(uint8_t)*p + 1];
    qn_token best = -1;
    for (size_t depth = 1; lo < hi; depth++) {
        struct str shortest = lexicon_text(s->lex, s->id[lo]);
        if (shortest.n == depth) { /* texts differ, so at most one candidate ends here, and it sorts first */
            qn_token id = s->id[lo];
            if (depth <= trusted || is_for_users(s, o, id)) best = id;
            lo++;
        }
        if (depth == n) break;
        lo = lower_bound(s, lo, hi, depth, (uint8_t)p[depth]);
        hi = lower_bound(s, lo, hi, depth, (uint8_t)p[depth] + 1u);
    }
    return best;
}

/* The first untrusted range that ends after `from`. */
static size_t next_span(const struct text_origin *o, size_t from)
{
    size_t lo = 0, hi = o->n_user;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (o->user[mid].at + o->user[mid].n <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

qn_token special_next(const struct special *s, const char *text, size_t n, size_t from, const struct text_origin *o,
                      size_t *at)
{
    size_t k = next_span(o, from);
    for (size_t i = from; i < n; i++) {
        uint8_t b = (uint8_t)text[i];
        if (s->first[b] == s->first[b + 1]) continue;
        while (k < o->n_user && o->user[k].at + o->user[k].n <= i) k++;
        size_t end = k < o->n_user ? o->user[k].at : n;
        qn_token id = longest_at(s, text + i, n - i, end > i ? end - i : 0, o);
        if (id >= 0) {
            *at = i;
            return id;
        }
    }
    *at = n;
    return -1;
}
