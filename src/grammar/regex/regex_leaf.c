/* SPDX-License-Identifier: MIT
 *
 * regex_leaf.c: expressions that are little automata of their own: lists of words, and numbers that are compared.
 *
 * A list of a thousand words is one expression, and so is the part of it that begins with the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/regex/regex_impl.h"

/* ---- words ---- */

static int compare_words(const void *a, const void *b)
{
    const struct str_ref *x = a, *y = b;
    uint32_t n = x->n < y->n ? x->n : y->n;
    int c = n ? memcmp(x->p, y->p, n) : 0;
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* Copies the words and their bytes into one block. */
static bool copy_words(struct regex *r, struct word_list *list, const struct str_ref *words, uint32_t n)
{
    size_t bytes = n * sizeof *words;
    for (uint32_t i = 0; i < n; i++) bytes += words[i].n;
    if (!limits_take(r->l, bytes)) return false;
    struct str_ref *copy = mem_alloc(bytes);
    if (!copy) {
        limits_give(r->l, bytes);
        limits_fail(r->l, QN_ENOMEM, "there is no memory for %zu bytes of a grammar's words", bytes);
        return false;
    }
    char *p = (char *)(copy + n);
    for (uint32_t i = 0; i < n; i++) {
        if (words[i].n) memcpy(p, words[i].p, words[i].n);
        copy[i] = (struct str_ref){p, words[i].n};
        p += words[i].n;
    }
    *list = (struct word_list){copy, n, bytes, false};
    return true;
}

void word_list_drop(struct regex *r, uint32_t i)
{
    limits_give(r->l, r->lists[i].bytes);
    mem_free(r->lists[i].words);
    r->lists[i] = (struct word_list){0};
}

/* The place of a new list; UINT32_MAX after a failure. */
static uint32_t place_for_list(struct regex *r)
{
    for (uint32_t i = r->first_free_list; i < r->n_lists; i++) {
        r->first_free_list = i + 1;
        if (!r->lists[i].words) return i;
    }
    struct word_list *lists = limits_grow(r->l, r->lists, &r->cap_lists, r->n_lists + 1, sizeof *lists);
    if (!lists) return UINT32_MAX;
    r->lists = lists;
    lists[r->n_lists] = (struct word_list){0};
    r->first_free_list = r->n_lists + 1;
    return r->n_lists++;
}

re_id re_words(struct regex *r, const struct str_ref *words, uint32_t n)
{
    uint32_t k = 0;
    if (n == 0 || !limits_spend(r->l, n)) return RE_NONE;
    uint32_t place = place_for_list(r);
    if (place == UINT32_MAX || !copy_words(r, &r->lists[place], words, n)) return RE_NONE;
    struct str_ref *copy = r->lists[place].words;
    if (n > 1) qsort(copy, n, sizeof *copy, compare_words);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || compare_words(&copy[i], &copy[k - 1]) != 0) copy[k++] = copy[i];
    r->lists[place].n = k;
    if (k == 1 && copy[0].n == 0) return RE_EMPTY;
    return re_add(r, (const uint32_t[]){RE_WORDS, place, 0, k, 0}, 5);
}

re_id re_text(struct regex *r, const void *p, size_t n)
{
    if (n == 0) return RE_EMPTY;
    return re_words(r, &(struct str_ref){p, (uint32_t)n}, 1);
}

/* The first word in [lo, hi) whose byte at `depth` is at least b. */
static uint32_t first_word(const struct str_ref *words, uint32_t lo, uint32_t hi, uint32_t depth, unsigned b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (words[mid].n > depth && (uint8_t)words[mid].p[depth] >= b)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static re_id derive_words(struct regex *r, const uint32_t *w, uint8_t byte)
{
    const struct str_ref *words = r->lists[w[1]].words;
    uint32_t lo = first_word(words, w[2], w[3], w[4], byte);
    uint32_t hi = first_word(words, lo, w[3], w[4], byte + 1u);
    if (lo == hi) return RE_NONE;
    if (hi - lo == 1 && words[lo].n == w[4] + 1) return RE_EMPTY;
    return re_add(r, (const uint32_t[]){RE_WORDS, w[1], lo, hi, w[4] + 1}, 5);
}

static void bounds_of_words(const struct regex *r, const uint32_t *w, uint64_t bits[4])
{
    const struct str_ref *words = r->lists[w[1]].words;
    for (uint32_t i = w[2]; i < w[3];) {
        if (words[i].n == w[4]) {
            i++;
            continue;
        }
        unsigned b = (uint8_t)words[i].p[w[4]];
        re_set_bound(bits, b);
        re_set_bound(bits, b + 1);
        i = first_word(words, i, w[3], w[4], b + 1);
    }
}

/* ---- numbers ---- */

static uint32_t add_number(struct regex *r, const struct decimal *x)
{
    for (uint32_t i = 0; i < r->n_numbers; i++)
        if (decimal_compare(&r->numbers[i], x) == 0) return i;
    struct decimal *p = limits_grow(r->l, r->numbers, &r->cap_numbers, r->n_numbers + 1, sizeof *p);
    if (!p) return UINT32_MAX;
    r->numbers = p;
    p[r->n_numbers] = *x;
    return r->n_numbers++;
}

static uint32_t pack_place(const struct decimal_place *at)
{
    return (uint32_t)at->negative | (uint32_t)at->in_fraction << 1 | (uint32_t)(at->order + 1) << 2 |
           (uint32_t)at->in_exponent << 4 | (uint32_t)at->n_read << 5;
}

static struct decimal_place unpack_place(uint32_t w)
{
    return (struct decimal_place){w & 1, w >> 1 & 1, w >> 4 & 1, (int8_t)((int)(w >> 2 & 3) - 1), (uint16_t)(w >> 5)};
}

re_id re_bound(struct regex *r, const struct decimal *x, enum decimal_order order)
{
    uint32_t i = add_number(r, x);
    if (i == UINT32_MAX) return RE_NONE;
    return re_add(r, (const uint32_t[]){RE_BOUND, i, order, pack_place(&(struct decimal_place){0})}, 4);
}

re_id re_multiple(struct regex *r, const struct decimal *x)
{
    uint32_t i = add_number(r, x);
    if (i == UINT32_MAX) return RE_NONE;
    return re_add(r, (const uint32_t[]){RE_MULTIPLE, i, 0}, 3);
}

static struct decimal_rest unpack_rest(uint32_t w)
{
    return (struct decimal_rest){w & 1, (uint8_t)(w >> 1 & 0x7F), (uint16_t)(w >> 8)};
}

static re_id derive_number(struct regex *r, const uint32_t *w, uint8_t byte)
{
    if (w[0] == RE_BOUND) {
        struct decimal_place at = unpack_place(w[3]);
        if (!decimal_read(&r->numbers[w[1]], &at, byte)) return RE_NONE;
        return re_add(r, (const uint32_t[]){RE_BOUND, w[1], w[2], pack_place(&at)}, 4);
    }
    struct decimal_rest at = unpack_rest(w[2]);
    if (!decimal_divide(&r->numbers[w[1]], &at, byte)) return RE_NONE;
    uint32_t packed = (uint32_t)at.in_fraction | (uint32_t)at.n_fraction << 1 | (uint32_t)at.rest << 8;
    return re_add(r, (const uint32_t[]){RE_MULTIPLE, w[1], packed}, 3);
}

/* ---- all of them ---- */

bool re_leaf_is_nullable(const struct regex *r, const uint32_t *w)
{
    if (w[0] == RE_WORDS) return r->lists[w[1]].words[w[2]].n == w[4];
    if (w[0] == RE_MULTIPLE) return unpack_rest(w[2]).rest == 0;
    struct decimal_place at = unpack_place(w[3]);
    return decimal_ends(&r->numbers[w[1]], &at, w[2]);
}

re_id re_leaf_derive(struct regex *r, const uint32_t *w, uint8_t byte)
{
    return w[0] == RE_WORDS ? derive_words(r, w, byte) : derive_number(r, w, byte);
}

void re_leaf_bounds(const struct regex *r, const uint32_t *w, uint64_t bits[4])
{
    if (w[0] == RE_WORDS) {
        bounds_of_words(r, w, bits);
        return;
    }
    for (unsigned b = '+'; b <= '9' + 1; b++) re_set_bound(bits, b);
    re_mark_byte(bits, 'E');
    re_mark_byte(bits, 'e');
}
