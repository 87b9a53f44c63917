/* SPDX-License-Identifier: MIT
 *
 * regex_derive.c: derivatives of regular expressions, and the bytes at which they change.
 */
#include <string.h>

#include "grammar/regex/regex_impl.h"

/* ---- derivatives ---- */

/* The byte sequences of UTF-8 (RFC 3629): the bounds of the first two bytes, and the length. */
static const struct {
    uint8_t lo, hi, second_lo, second_hi, n;
} sequences[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

static uint32_t one_less(uint32_t n) { return n == RE_NO_MAX || n == 0 ? n : n - 1; }

static re_id derive_chars(struct regex *r, uint32_t least, uint32_t most, uint8_t byte)
{
    re_id rest = re_chars(r, one_less(least), one_less(most));
    if (byte < 0x80) return rest;
    for (unsigned i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        if (byte < sequences[i].lo || byte > sequences[i].hi) continue;
        for (int more = sequences[i].n - 2; more > 0; more--) rest = re_cat(r, re_range(r, 0x80, 0xBF), rest);
        return re_cat(r, re_range(r, sequences[i].second_lo, sequences[i].second_hi), rest);
    }
    return RE_NONE;
}

static re_id derive_list(struct regex *r, re_id a, uint8_t byte)
{
    uint32_t from = r->n_scratch, n;
    re_operands(r, a, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m;
        if (!re_push(r, re_derive(r, re_operands(r, a, &m)[i], byte))) return RE_NONE;
    }
    return re_combine(r, re_kind(r, a), from);
}

/* Walks along a chain of nullable beginnings, so that the depth of the recursion does not depend on its length. */
static re_id derive_chain(struct regex *r, re_id a, uint8_t byte)
{
    re_id d = RE_NONE;
    for (;;) {
        if (re_kind(r, a) != RE_CAT) return re_or2(r, d, re_derive(r, a, byte));
        uint32_t n;
        const uint32_t *x = re_operands(r, a, &n);
        re_id first = x[0], rest = x[1];
        d = re_or2(r, d, re_cat(r, re_derive(r, first, byte), rest));
        if (!re_is_nullable(r, first)) return d;
        a = rest;
    }
}

static re_id derive_new(struct regex *r, re_id a, uint8_t byte)
{
    uint32_t n, w[9];
    const uint32_t *words = word_set_get(&r->set, a, &n);
    memcpy(w, words, (n < 9 ? n : 9) * sizeof *w);
    switch (w[0]) {
    case RE_IS_EMPTY: return RE_NONE;
    case RE_BYTES: return w[1 + byte / 32] >> (byte % 32) & 1 ? RE_EMPTY : RE_NONE;
    case RE_CAT: return derive_chain(r, a, byte);
    case RE_OR:
    case RE_AND: return derive_list(r, a, byte);
    case RE_NOT: return re_not(r, re_derive(r, w[1], byte));
    case RE_REPEAT: {
        re_id d = re_derive(r, w[1], byte);
        return d ? re_cat(r, d, re_repeat(r, w[1], one_less(w[2]), one_less(w[3]))) : RE_NONE;
    }
    case RE_CHARS: return derive_chars(r, w[1], w[2], byte);
    default: return re_leaf_derive(r, w, byte);
    }
}

re_id re_derive(struct regex *r, re_id a, uint8_t byte)
{
    if (a == RE_NONE || a == RE_ALL) return a;
    struct re_memo *m = &r->memo[(a * 31 + byte) % RE_MEMO];
    if (m->of == a && m->byte == (byte | 256u)) return m->derivative;
    if (!limits_spend(r->l, 1)) return RE_NONE;
    re_id d = derive_new(r, a, byte);
    if (r->l->rc) return RE_NONE;
    *m = (struct re_memo){a, d, byte | 256u};
    return d;
}

static void bounds_of_bytes(const uint32_t *set, uint64_t bits[4])
{
    uint64_t before = 0; /* the last byte of the word before */
    for (int i = 0; i < 4; i++) {
        uint64_t w = set[2 * i] | (uint64_t)set[2 * i + 1] << 32;
        bits[i] |= w ^ (w << 1 | before);
        before = w >> 63;
    }
}

static void bounds_of_chars(uint64_t bits[4])
{
    re_set_bound(bits, 0x80);
    for (unsigned i = 0; i < sizeof sequences / sizeof sequences[0]; i++) re_set_bound(bits, sequences[i].lo);
    re_set_bound(bits, 0xF5);
}

void re_bounds(struct regex *r, re_id a, uint64_t bits[4])
{
    uint32_t n;
    while (re_kind(r, a) == RE_CAT) {
        const uint32_t *x = re_operands(r, a, &n);
        re_bounds(r, x[0], bits);
        if (!re_is_nullable(r, x[0])) return;
        a = x[1];
    }
    enum re_kind kind = re_kind(r, a);
    if (!kind || kind == RE_IS_EMPTY) return;
    const uint32_t *x = re_operands(r, a, &n);
    if (kind == RE_BYTES)
        bounds_of_bytes(x, bits);
    else if (kind == RE_CHARS)
        bounds_of_chars(bits);
    else if (kind == RE_NOT || kind == RE_REPEAT)
        re_bounds(r, x[0], bits);
    else if (kind == RE_OR || kind == RE_AND)
        for (uint32_t i = 0; i < n && limits_spend(r->l, i % 4 == 3); i++) re_bounds(r, x[i], bits);
    else
        re_leaf_bounds(r, x - 1, bits);
}
