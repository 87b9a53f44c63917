/* SPDX-License-Identifier: MIT
 *
 * regex.c: makes regular expressions, in a normal form in which few different ones match the same texts.
 */
#include "grammar/regex/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/regex/regex_impl.h"

/* ---- adding one expression ---- */

static uint8_t flags_of(const struct regex *r, const uint32_t *w)
{
    bool of_others = w[0] == RE_CAT || w[0] == RE_NOT || w[0] == RE_REPEAT;
    uint8_t a = of_others ? r->flags[w[1]] : 0, b = w[0] == RE_CAT ? r->flags[w[2]] : 0;
    switch (w[0]) {
    case RE_IS_EMPTY: return RE_F_NULLABLE | RE_F_LIVE | RE_F_TEXT;
    case RE_BYTES: return RE_F_LIVE | (w[5] | w[6] | w[7] | w[8] ? 0 : RE_F_TEXT);
    case RE_CAT: return a & b & (RE_F_NULLABLE | RE_F_LIVE | RE_F_TEXT);
    case RE_NOT: return a & RE_F_NULLABLE ? 0 : RE_F_NULLABLE | RE_F_LIVE;
    case RE_CHARS: return RE_F_LIVE | RE_F_TEXT | (w[1] == 0 ? RE_F_NULLABLE : 0);
    case RE_REPEAT: return (a & (RE_F_NULLABLE | RE_F_LIVE | RE_F_TEXT)) | (w[2] == 0 ? RE_F_NULLABLE | RE_F_LIVE : 0);
    default: return 0;
    }
}

static uint8_t flags_of_list(const struct regex *r, const uint32_t *w, uint32_t n)
{
    uint8_t all = 0xFF, any = 0;
    for (uint32_t i = 1; i < n; i++) {
        all &= r->flags[w[i]];
        any |= r->flags[w[i]];
    }
    if (w[0] == RE_OR) return (any & (RE_F_NULLABLE | RE_F_LIVE)) | (all & RE_F_TEXT);
    return (all & RE_F_NULLABLE) | (all & RE_F_NULLABLE ? RE_F_LIVE : 0) | (any & RE_F_TEXT);
}

static uint8_t flags_of_leaf(const struct regex *r, const uint32_t *w)
{
    uint8_t flags = re_leaf_is_nullable(r, w) ? RE_F_NULLABLE | RE_F_LIVE : 0;
    if (w[0] != RE_WORDS) return flags | RE_F_TEXT;
    const struct str_ref *first = &r->lists[w[1]].words[w[2]];
    bool inside = first->n > w[4] && ((uint8_t)first->p[w[4]] & 0xC0) == 0x80; /* of a character */
    return flags | RE_F_LIVE | (inside ? 0 : RE_F_TEXT);
}

re_id re_add(struct regex *r, const uint32_t *w, uint32_t n)
{
    uint32_t before = r->set.n;
    uint8_t *flags = limits_grow(r->l, r->flags, &r->cap_flags, before + 1, 1); /* no list is without flags */
    if (!flags) return RE_NONE;
    r->flags = flags;
    re_id a = word_set_add(&r->set, r->l, w, n);
    if (a < before) return a;
    if (w[0] == RE_OR || w[0] == RE_AND)
        flags[a] = flags_of_list(r, w, n);
    else if (w[0] >= RE_WORDS)
        flags[a] = flags_of_leaf(r, w);
    else
        flags[a] = flags_of(r, w);
    return a;
}

bool regex_init(struct regex *r, struct limits *l)
{
    *r = (struct regex){.l = l};
    if (!word_set_init(&r->set, l)) return false;
    r->flags = limits_grow(l, NULL, &r->cap_flags, 64, 1);
    r->memo = mem_calloc(RE_MEMO, sizeof *r->memo);
    if (!r->flags || !r->memo) {
        limits_fail(l, QN_ENOMEM, "there is no memory for a grammar");
        return false;
    }
    r->flags[RE_NONE] = RE_F_TEXT | RE_F_DEAD;
    re_add(r, (const uint32_t[]){RE_IS_EMPTY}, 1);
    re_add(r, (const uint32_t[]){RE_NOT, RE_NONE}, 2);
    return !l->rc;
}

void regex_deinit(struct regex *r)
{
    if (!r->l) return;
    for (uint32_t i = 0; i < r->n_lists; i++) word_list_drop(r, i);
    limits_release(r->l, r->lists, r->cap_lists, sizeof *r->lists);
    limits_release(r->l, r->numbers, r->cap_numbers, sizeof *r->numbers);
    limits_release(r->l, r->flags, r->cap_flags, 1);
    limits_release(r->l, r->visited, r->cap_visited, sizeof *r->visited);
    limits_release(r->l, r->queue, r->cap_queue, sizeof *r->queue);
    limits_release(r->l, r->scratch, r->cap_scratch, sizeof *r->scratch);
    mem_free(r->memo);
    word_set_deinit(&r->set, r->l);
    *r = (struct regex){0};
}

/* ---- reading ---- */

enum re_kind re_kind(const struct regex *r, re_id a) { return a ? r->set.words[r->set.start[a]] : 0; }

const uint32_t *re_operands(const struct regex *r, re_id a, uint32_t *n)
{
    const uint32_t *w = word_set_get(&r->set, a, n);
    *n -= 1;
    return w + 1;
}

bool re_is_nullable(const struct regex *r, re_id a) { return r->flags[a] & RE_F_NULLABLE; }
bool re_is_text(const struct regex *r, re_id a) { return r->flags[a] & RE_F_TEXT; }
void re_mark_text(struct regex *r, re_id a) { r->flags[a] |= RE_F_TEXT; }

/* ---- simple expressions ---- */

re_id re_bytes(struct regex *r, const uint32_t set[8])
{
    uint32_t w[9] = {RE_BYTES}, any = 0;
    memcpy(w + 1, set, 8 * sizeof *set);
    for (int i = 0; i < 8; i++) any |= set[i];
    return any ? re_add(r, w, 9) : RE_NONE;
}

re_id re_range(struct regex *r, uint8_t lo, uint8_t hi)
{
    uint32_t set[8] = {0};
    for (unsigned b = lo; b <= hi; b++) set[b / 32] |= 1u << (b % 32);
    return re_bytes(r, set);
}

re_id re_not(struct regex *r, re_id a)
{
    if (re_kind(r, a) == RE_NOT) return r->set.words[r->set.start[a] + 1];
    return re_add(r, (const uint32_t[]){RE_NOT, a}, 2);
}

static uint32_t add_counts(uint32_t a, uint32_t b)
{
    if (a == RE_NO_MAX || b == RE_NO_MAX) return RE_NO_MAX;
    return a + b < RE_NO_MAX / 2 ? a + b : RE_NO_MAX;
}

static bool is_any_text(const struct regex *r, re_id a)
{
    const uint32_t *w = r->set.words + r->set.start[a];
    return re_kind(r, a) == RE_CHARS && w[1] == 0 && w[2] == RE_NO_MAX;
}

re_id re_cat(struct regex *r, re_id a, re_id b)
{
    if (a == RE_NONE || b == RE_NONE) return RE_NONE;
    if (a == RE_EMPTY) return b;
    if (b == RE_EMPTY) return a;
    if (re_kind(r, a) == RE_CHARS && re_kind(r, b) == RE_CHARS) {
        const uint32_t *x = r->set.words + r->set.start[a], *y = r->set.words + r->set.start[b];
        return re_chars(r, add_counts(x[1], y[1]), add_counts(x[2], y[2]));
    }
    if (is_any_text(r, a) && re_is_nullable(r, b) && re_is_text(r, b)) return a;
    if (is_any_text(r, b) && re_is_nullable(r, a) && re_is_text(r, a)) return b;
    return re_add(r, (const uint32_t[]){RE_CAT, a, b}, 3);
}

re_id re_chars(struct regex *r, uint32_t least, uint32_t most)
{
    if (least > most) return RE_NONE;
    if (most == 0) return RE_EMPTY;
    return re_add(r, (const uint32_t[]){RE_CHARS, least, most}, 3);
}

re_id re_repeat(struct regex *r, re_id a, uint32_t least, uint32_t most)
{
    if (least > most) return RE_NONE;
    if (most == 0 || a == RE_EMPTY) return RE_EMPTY;
    if (a == RE_NONE) return least ? RE_NONE : RE_EMPTY;
    if (least == 1 && most == 1) return a;
    if (re_is_nullable(r, a)) least = 0;
    uint32_t n;
    const uint32_t *x = re_operands(r, a, &n);
    if (re_kind(r, a) == RE_CHARS && x[0] == 1 && x[1] == 1) return re_chars(r, least, most);
    if (re_kind(r, a) == RE_REPEAT && x[1] == 0 && x[2] == RE_NO_MAX) return a;
    return re_add(r, (const uint32_t[]){RE_REPEAT, a, least, most}, 4);
}

/* ---- union and intersection ---- */

bool re_push(struct regex *r, uint32_t x)
{
    uint32_t *p = limits_grow(r->l, r->scratch, &r->cap_scratch, r->n_scratch + 1, sizeof *p);
    if (!p) return false;
    r->scratch = p;
    p[r->n_scratch++] = x;
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* How many of the first numbers are in order. */
static uint32_t in_order(const uint32_t *p, uint32_t n)
{
    uint32_t k = n > 0;
    while (k < n && p[k - 1] <= p[k]) k++;
    return k;
}

/* Puts p[at] in its place among the `at` before it, which are in order. */
static void put_in_order(uint32_t *p, uint32_t at)
{
    uint32_t x = p[at], lo = 0, hi = at;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (p[mid] <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(p + lo + 1, p + lo, (at - lo) * sizeof *p);
    p[lo] = x;
}

/* Mostly few numbers follow many that are in order already. */
static void sort_unique(uint32_t *p, uint32_t *n)
{
    uint32_t k = in_order(p, *n);
    if (*n - k < 12)
        for (; k < *n; k++) put_in_order(p, k);
    else
        qsort(p, *n, sizeof *p, by_number);
    k = 0;
    for (uint32_t i = 0; i < *n; i++)
        if (i == 0 || p[i] != p[k - 1]) p[k++] = p[i];
    *n = k;
}

/* Joins the sets of bytes in the list to one. */
static void join_bytes(struct regex *r, enum re_kind kind, uint32_t base)
{
    uint32_t set[8], n_sets = 0, k = base;
    for (uint32_t i = base; i < r->n_scratch; i++) {
        const uint32_t *w = r->set.words + r->set.start[r->scratch[i]];
        if (w[0] != RE_BYTES) {
            r->scratch[k++] = r->scratch[i];
            continue;
        }
        for (int j = 0; j < 8; j++) {
            if (n_sets == 0)
                set[j] = w[1 + j];
            else
                set[j] = kind == RE_OR ? set[j] | w[1 + j] : set[j] & w[1 + j];
        }
        n_sets++;
    }
    if (n_sets) r->scratch[k++] = re_bytes(r, set);
    r->n_scratch = k;
}

/* Joins the numbers of characters in the list to one, where they are a range. */
static void join_chars(struct regex *r, enum re_kind kind, uint32_t base)
{
    uint32_t least = 0, most = 0, n_found = 0, k = base;
    for (uint32_t i = base; i < r->n_scratch; i++) {
        const uint32_t *w = r->set.words + r->set.start[r->scratch[i]];
        bool chars = w[0] == RE_CHARS;
        if (chars && n_found && kind == RE_OR && (w[1] > add_counts(most, 1) || least > add_counts(w[2], 1)))
            chars = false;
        if (!chars) {
            r->scratch[k++] = r->scratch[i];
            continue;
        }
        if (n_found++ == 0) {
            least = w[1];
            most = w[2];
        } else if ((kind == RE_OR) == (w[1] < least))
            least = w[1];
        if ((kind == RE_OR) == (w[2] > most)) most = w[2];
    }
    if (n_found) r->scratch[k++] = re_chars(r, least, most);
    r->n_scratch = k;
}

/* Where any text is allowed, other texts add nothing; where other texts are asked for, "any text" adds nothing. */
static void absorb_texts(struct regex *r, enum re_kind kind, uint32_t base)
{
    re_id any = RE_NONE;
    uint32_t k = base, n_texts = 0;
    for (uint32_t i = base; i < r->n_scratch; i++) {
        if (is_any_text(r, r->scratch[i]))
            any = r->scratch[i];
        else if (re_is_text(r, r->scratch[i]))
            n_texts++;
    }
    if (!any || n_texts == 0) return;
    for (uint32_t i = base; i < r->n_scratch; i++) {
        bool is_any = r->scratch[i] == any;
        if (kind == RE_OR ? is_any || !re_is_text(r, r->scratch[i]) : !is_any) r->scratch[k++] = r->scratch[i];
    }
    r->n_scratch = k;
}

/* Pushes the operands at scratch[from .. to), those of inner lists of the same kind instead of these. False: the result
 * is *done. */
static bool push_operands(struct regex *r, enum re_kind kind, uint32_t from, uint32_t to, re_id *done)
{
    re_id nothing = kind == RE_OR ? RE_NONE : RE_ALL, all = kind == RE_OR ? RE_ALL : RE_NONE;
    for (uint32_t i = from; i < to; i++) {
        re_id x = r->scratch[i];
        uint32_t m = 1;
        const uint32_t *inner = &x;
        if (re_kind(r, x) == kind) inner = re_operands(r, x, &m);
        for (uint32_t j = 0; j < m; j++) {
            if (inner[j] == nothing) continue;
            *done = all;
            if (inner[j] == all || !re_push(r, inner[j])) return false;
        }
    }
    return true;
}

/* Whether an expression and its complement are both in the list. */
static bool has_opposites(const struct regex *r, const uint32_t *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (re_kind(r, p[i]) != RE_NOT) continue;
        uint32_t inner = r->set.words[r->set.start[p[i]] + 1];
        if (bsearch(&inner, p, n, sizeof inner, by_number)) return true;
    }
    return false;
}

static re_id normal(struct regex *r, enum re_kind kind, uint32_t base)
{
    re_id nothing = kind == RE_OR ? RE_NONE : RE_ALL, all = kind == RE_OR ? RE_ALL : RE_NONE;
    uint32_t n = r->n_scratch - base;
    sort_unique(r->scratch + base, &n);
    r->n_scratch = base + n;
    if (n > 1) {
        join_bytes(r, kind, base);
        join_chars(r, kind, base);
        absorb_texts(r, kind, base);
        n = r->n_scratch - base;
        sort_unique(r->scratch + base, &n);
    }
    if (n == 0) return nothing;
    if (r->scratch[base] == all || has_opposites(r, r->scratch + base, n)) return all;
    if (n == 1) return r->scratch[base];
    r->scratch[base - 1] = kind;
    return re_add(r, r->scratch + base - 1, n + 1);
}

re_id re_combine(struct regex *r, enum re_kind kind, uint32_t from)
{
    uint32_t to = r->n_scratch;
    re_id done = RE_NONE;
    if (to - from > 8 && !limits_spend(r->l, (to - from) / 2)) {
        r->n_scratch = from;
        return RE_NONE;
    }
    /* The first word is the kind of the new expression. */
    if (re_push(r, kind) && push_operands(r, kind, from, to, &done)) done = normal(r, kind, to + 1);
    r->n_scratch = from;
    return r->l->rc ? RE_NONE : done;
}

static re_id combine(struct regex *r, enum re_kind kind, const re_id *list, uint32_t n)
{
    uint32_t from = r->n_scratch;
    for (uint32_t i = 0; i < n; i++)
        if (!re_push(r, list[i])) return RE_NONE;
    return re_combine(r, kind, from);
}

re_id re_or(struct regex *r, const re_id *list, uint32_t n) { return combine(r, RE_OR, list, n); }
re_id re_and(struct regex *r, const re_id *list, uint32_t n) { return combine(r, RE_AND, list, n); }
re_id re_or2(struct regex *r, re_id a, re_id b) { return a == b ? a : combine(r, RE_OR, (const re_id[]){a, b}, 2); }
re_id re_and2(struct regex *r, re_id a, re_id b) { return a == b ? a : combine(r, RE_AND, (const re_id[]){a, b}, 2); }
