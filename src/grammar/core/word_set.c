/* SPDX-License-Identifier: MIT
 *
 * word_set.c: see word_set.h. A hash table with linear probing, at most half full.
 */
#include "grammar/core/word_set.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

static uint64_t hash_words(const uint32_t *w, uint32_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ w[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return h;
}

static bool is_list(const struct word_set *s, uint32_t i, const uint32_t *w, uint32_t n)
{
    return s->start[i + 1] - s->start[i] == n && memcmp(s->words + s->start[i], w, n * sizeof *w) == 0;
}

static void fill_slots(struct word_set *s)
{
    uint32_t mask = s->n_slots - 1;
    memset(s->slot, 0, s->n_slots * sizeof *s->slot);
    for (uint32_t i = 1; i < s->n; i++) {
        uint32_t at = (uint32_t)hash_words(s->words + s->start[i], s->start[i + 1] - s->start[i]) & mask;
        while (s->slot[at]) at = (at + 1) & mask;
        s->slot[at] = i;
    }
}

static bool grow_slots(struct word_set *s, struct limits *l)
{
    uint32_t *slot = limits_grow(l, s->slot, &s->cap_slot, s->n_slots ? s->n_slots * 2 : 64, sizeof *slot);
    if (!slot) return false;
    s->slot = slot;
    s->n_slots = s->n_slots ? s->n_slots * 2 : 64;
    fill_slots(s);
    return true;
}

bool word_set_init(struct word_set *s, struct limits *l)
{
    *s = (struct word_set){0};
    s->start = limits_grow(l, NULL, &s->cap_start, 2, sizeof *s->start);
    if (!s->start) return false;
    s->start[0] = s->start[1] = 0;
    s->n = 1;
    return grow_slots(s, l);
}

void word_set_deinit(struct word_set *s, struct limits *l)
{
    limits_release(l, s->words, s->cap_words, sizeof *s->words);
    limits_release(l, s->start, s->cap_start, sizeof *s->start);
    limits_release(l, s->slot, s->cap_slot, sizeof *s->slot);
    *s = (struct word_set){0};
}

static uint32_t append(struct word_set *s, struct limits *l, const uint32_t *w, uint32_t n)
{
    uint32_t end = s->start[s->n];
    if (n > UINT32_MAX / 2 - end) {
        limits_fail(l, QN_ENOMEM, "the grammar has too many states");
        return 0;
    }
    uint32_t *words = limits_grow(l, s->words, &s->cap_words, end + n, sizeof *words);
    if (!words) return 0;
    s->words = words;
    uint32_t *start = limits_grow(l, s->start, &s->cap_start, s->n + 2, sizeof *start);
    if (!start) return 0;
    s->start = start;
    memcpy(s->words + end, w, n * sizeof *w);
    s->start[s->n + 1] = end + n;
    return s->n++;
}

uint32_t word_set_add(struct word_set *s, struct limits *l, const uint32_t *w, uint32_t n)
{
    if (n == 0 || l->rc) return 0;
    if (s->n * 2 >= s->n_slots && !grow_slots(s, l)) return 0;
    uint32_t at = (uint32_t)hash_words(w, n) & (s->n_slots - 1);
    for (; s->slot[at]; at = (at + 1) & (s->n_slots - 1))
        if (is_list(s, s->slot[at], w, n)) return s->slot[at];
    uint32_t i = append(s, l, w, n);
    if (i) s->slot[at] = i;
    return i;
}
