/* SPDX-License-Identifier: MIT
 *
 * regex_search.c: searches through the expressions that follow from one: does it match any text, and how many; and
 * which expressions are still needed.
 */
#include <string.h>

#include "grammar/regex/regex_impl.h"

#define COUNT_DEPTH 100 /* bytes of a text after which re_count() takes it for one of many */

/* ---- which expressions match any text ---- */

static bool begin_search(struct regex *r)
{
    r->round++;
    return !r->l->rc;
}

/* Adds an expression to the search unless it is there. `from`: the place of the one before it. */
static bool visit(struct regex *r, re_id a, uint32_t from, uint32_t *n)
{
    uint32_t cap = r->cap_visited;
    uint32_t *p = limits_grow(r->l, r->visited, &r->cap_visited, a + 1, sizeof *p);
    if (!p) return false;
    r->visited = p;
    memset(p + cap, 0, (r->cap_visited - cap) * sizeof *p);
    if (p[a] == r->round) return true;
    p[a] = r->round;
    uint32_t *q = limits_grow(r->l, r->queue, &r->cap_queue, 2 * (*n + 1), sizeof *q);
    if (!q) return false;
    r->queue = q;
    q[2 * *n] = a;
    q[2 * *n + 1] = from;
    ++*n;
    return true;
}

/* The expression at `at` of the search is live, and so are those on the way to it. */
static void mark_way(struct regex *r, uint32_t at)
{
    for (;;) {
        r->flags[r->queue[2 * at]] |= RE_F_LIVE;
        if (at == 0) return;
        at = r->queue[2 * at + 1];
    }
}

/* Adds the derivatives of the expression at `at` that are not known to be dead. False: there was a failure; or
 * (for_life) one of them is live. */
static bool visit_next(struct regex *r, uint32_t at, uint32_t *n, bool for_life)
{
    uint64_t bits[4] = {1};
    re_id a = r->queue[2 * at];
    re_bounds(r, a, bits);
    for (unsigned b = 0; b < 256; b++) {
        if (!(bits[b / 64] >> (b % 64) & 1)) continue;
        re_id d = re_derive(r, a, (uint8_t)b);
        if (for_life && (r->flags[d] & RE_F_LIVE)) {
            mark_way(r, at);
            return false;
        }
        if (!(r->flags[d] & RE_F_DEAD) && !visit(r, d, at, n)) return false;
    }
    return !r->l->rc;
}

#define SHORT_SEARCH 1000 /* expressions that are looked at for a short text */

/* The bytes of the shortest text that the expression matches; UINT32_MAX: that takes long to find. */
static uint32_t shortest(struct regex *r, re_id a)
{
    uint32_t n = 0, at = 0, bytes = 0;
    struct re_memo *memo = &r->memo[(a * 31 + RE_SHORTEST) % RE_MEMO];
    if (memo->of == a && memo->byte == RE_SHORTEST) return memo->derivative;
    if (!begin_search(r) || !visit(r, a, 0, &n)) return UINT32_MAX;
    while (at < n && at < SHORT_SEARCH && !re_is_nullable(r, r->queue[2 * at]))
        if (!visit_next(r, at++, &n, false)) return UINT32_MAX;
    bool found = at < n && at < SHORT_SEARCH;
    for (uint32_t i = at; found && i; i = r->queue[2 * i + 1]) bytes++;
    *memo = (struct re_memo){a, found ? bytes : UINT32_MAX, RE_SHORTEST};
    return memo->derivative;
}

#define LONG_CHAIN 64 /* parts of a chain that are looked at for its last one */

/* Whether some text that the expression matches can be made longer by any number of characters, as where a pattern
 * matches anywhere in a text. false: that is not known. */
static bool is_extensible(struct regex *r, re_id a)
{
    uint32_t n;
    if (!(r->flags[a] & RE_F_LIVE) || !re_is_text(r, a)) return false;
    if (re_kind(r, a) == RE_OR) {
        const uint32_t *x = re_operands(r, a, &n);
        for (uint32_t i = 0; i < n && limits_spend(r->l, i % 4 == 3); i++)
            if (re_kind(r, x[i]) != RE_OR && is_extensible(r, x[i])) return true;
        return false;
    }
    for (int i = 0; i < LONG_CHAIN && re_kind(r, a) == RE_CAT; i++) a = re_operands(r, a, &n)[1];
    return re_kind(r, a) == RE_CHARS && re_operands(r, a, &n)[1] == RE_NO_MAX;
}

/* Whether an intersection of a number of characters with something else is live because of the shortest text of the
 * latter, which is searched once for all numbers, or because its texts can be of any length. false: that is not known.
 */
static bool is_surely_live(struct regex *r, re_id a)
{
    uint32_t n, from = r->n_scratch, least = 0, most = 0;
    bool limited = false;
    if (re_kind(r, a) != RE_AND) return false;
    re_operands(r, a, &n);
    for (uint32_t i = 0; i < n; i++) {
        re_id x = re_operands(r, a, &n)[i];
        uint32_t m;
        const uint32_t *chars = re_operands(r, x, &m);
        if (re_kind(r, x) == RE_CHARS) {
            limited = true;
            least = chars[0];
            most = chars[1];
        } else if (!re_push(r, x))
            return false;
    }
    re_id others = limited ? re_combine(r, RE_AND, from) : RE_NONE;
    r->n_scratch = from;
    if (most == RE_NO_MAX && is_extensible(r, others)) return true;
    uint32_t bytes = others ? shortest(r, others) : UINT32_MAX; /* of one to four for a character */
    return bytes != UINT32_MAX && bytes <= most && (bytes + 3) / 4 >= least;
}

bool re_is_live(struct regex *r, re_id a)
{
    uint32_t n = 0;
    if (r->flags[a] & (RE_F_LIVE | RE_F_DEAD)) return r->flags[a] & RE_F_LIVE;
    if (is_surely_live(r, a)) {
        r->flags[a] |= RE_F_LIVE;
        return true;
    }
    if (!begin_search(r) || !visit(r, a, 0, &n)) return false;
    for (uint32_t at = 0; at < n; at++)
        if (!visit_next(r, at, &n, true)) return r->flags[a] & RE_F_LIVE;
    for (uint32_t i = 0; i < n; i++) r->flags[r->queue[2 * i]] |= RE_F_DEAD;
    return false;
}

/* ---- which expressions any text can begin ---- */

#define TOTAL_SEARCH 200 /* places that are looked at */

/* A place in any text: what may follow in UTF-8, and in the expression. */
struct text_place {
    re_id any, re;
};

/* Adds what follows a place by all bytes of UTF-8. False: some text cannot follow, or there are too many places. */
static bool add_places(struct regex *r, struct text_place *list, uint32_t *n, struct text_place from)
{
    uint64_t bits[4] = {1};
    re_bounds(r, from.any, bits);
    re_bounds(r, from.re, bits);
    for (unsigned b = 0; b < 256; b++) {
        if (!(bits[b / 64] >> (b % 64) & 1)) continue;
        struct text_place to = {re_derive(r, from.any, (uint8_t)b), RE_NONE};
        if (!to.any) continue;
        to.re = re_step(r, from.re, (uint8_t)b);
        uint32_t i = 0;
        while (i < *n && (list[i].any != to.any || list[i].re != to.re)) i++;
        if (!to.re || i == TOTAL_SEARCH) return false;
        if (i == *n) list[(*n)++] = to;
    }
    return !r->l->rc;
}

bool re_is_total(struct regex *r, re_id a)
{
    struct text_place list[TOTAL_SEARCH] = {{re_chars(r, 0, RE_NO_MAX), a}};
    uint32_t n = 1;
    if (r->flags[a] & (RE_F_TOTAL | RE_F_PARTIAL)) return r->flags[a] & RE_F_TOTAL;
    for (uint32_t i = 0; i < n; i++) {
        if (add_places(r, list, &n, list[i])) continue;
        r->flags[a] |= RE_F_PARTIAL;
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (list[i].any == list[0].any) r->flags[list[i].re] |= RE_F_TOTAL;
    return true;
}

/* ---- reading texts ---- */

re_id re_step(struct regex *r, re_id a, uint8_t byte)
{
    re_id d = re_derive(r, a, byte);
    return re_is_live(r, d) ? d : RE_NONE;
}

bool re_matches(struct regex *r, re_id a, const void *p, size_t n)
{
    for (size_t i = 0; i < n && a; i++) a = re_derive(r, a, ((const uint8_t *)p)[i]);
    return a && re_is_nullable(r, a);
}

/* ---- counting texts ---- */

static uint32_t count_from(struct regex *r, re_id a, uint32_t most, unsigned depth)
{
    uint64_t bits[4] = {0};
    uint32_t n, count = re_is_nullable(r, a) ? 1 : 0;
    if (re_kind(r, a) == RE_WORDS) {
        const uint32_t *x = re_operands(r, a, &n);
        return x[2] - x[1] < most ? x[2] - x[1] : most;
    }
    if (count >= most || !limits_spend(r->l, 1)) return count;
    if (depth > COUNT_DEPTH) return most;
    re_bounds(r, a, bits);
    for (unsigned b = 1, begin = 0; b <= 256 && count < most; b++) {
        if (b < 256 && !(bits[b / 64] >> (b % 64) & 1)) continue;
        unsigned alike = b - begin; /* bytes with the same derivative */
        re_id d = re_step(r, a, (uint8_t)begin);
        if (d) count += count_from(r, d, (most - count + alike - 1) / alike, depth + 1) * alike;
        begin = b;
    }
    return count < most ? count : most;
}

uint32_t re_count(struct regex *r, re_id a, uint32_t most) { return re_is_live(r, a) ? count_from(r, a, most, 0) : 0; }

/* ---- dropping expressions ---- */

/* Calls for each operand of an expression that is itself one: the indices of its words, from *lo up to *hi. */
static void operand_range(const uint32_t *w, uint32_t n, uint32_t *lo, uint32_t *hi)
{
    *lo = *hi = 1;
    if (w[0] == RE_CAT || w[0] == RE_OR || w[0] == RE_AND) *hi = n;
    if (w[0] == RE_NOT || w[0] == RE_REPEAT) *hi = 2;
}

void regex_mark(const struct regex *r, uint8_t *needed)
{
    needed[RE_EMPTY] = needed[RE_ALL] = 1;
    for (uint32_t i = r->set.n; i-- > 1;) {
        uint32_t n, lo, hi;
        const uint32_t *w = word_set_get(&r->set, i, &n);
        if (!needed[i]) continue;
        for (operand_range(w, n, &lo, &hi); lo < hi; lo++) needed[w[lo]] = 1;
    }
}

/* Drops the lists of words that no needed expression has. */
static void drop_lists(struct regex *r, const uint8_t *needed)
{
    for (uint32_t i = 1; i < r->set.n; i++) {
        const uint32_t *w = r->set.words + r->set.start[i];
        if (needed[i] && w[0] == RE_WORDS) r->lists[w[1]].is_needed = true;
    }
    for (uint32_t i = 0; i < r->n_lists; i++) {
        if (!r->lists[i].is_needed) word_list_drop(r, i);
        r->lists[i].is_needed = false;
    }
    r->first_free_list = 0;
}

void regex_keep(struct regex *r, const uint8_t *needed, const uint32_t *number)
{
    drop_lists(r, needed);
    for (uint32_t i = 1; i < r->set.n; i++) {
        uint32_t *w = r->set.words + r->set.start[i], lo, hi;
        if (!needed[i]) continue;
        for (operand_range(w, r->set.start[i + 1] - r->set.start[i], &lo, &hi); lo < hi; lo++) w[lo] = number[w[lo]];
        r->flags[number[i]] = r->flags[i]; /* numbers only become smaller */
    }
    word_set_keep(&r->set, r->l, needed);
    memset(r->memo, 0, RE_MEMO * sizeof *r->memo);
    limits_release(r->l, r->visited, r->cap_visited, sizeof *r->visited);
    r->visited = NULL;
    r->cap_visited = 0;
}
