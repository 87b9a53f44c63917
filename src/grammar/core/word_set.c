/* SPDX-License-Identifier: MIT
 *
 * word_set.c: see word_set.h. A hash table with linear probing, at most three quarters full.
 *
 * A slot has the hash of its list, so that lists are compared only where they are equal, and a table grows without
 * looking at them. A table that grows is read in order. Its entries go to two places of the new one, which are then
 * written in order too: random places of a large one would take five times as long.
 */
#include "grammar/core/word_set.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define FIRST_SLOTS 64

static uint32_t hash_words(const uint32_t *w, uint32_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ w[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static bool is_list(const struct word_set *s, uint32_t i, const uint32_t *w, uint32_t n)
{
    return s->start[i + 1] - s->start[i] == n && memcmp(s->words + s->start[i], w, n * sizeof *w) == 0;
}

static bool grow_slots(struct word_set *s, struct limits *l)
{
    uint32_t cap = 0, n = s->n_slots ? s->n_slots * 2 : FIRST_SLOTS;
    struct word_slot *slots = limits_grow(l, NULL, &cap, n, sizeof *slots);
    if (!slots) return false;
    memset(slots, 0, n * sizeof *slots);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct word_slot old = s->slots[i];
        uint32_t at = old.hash & (n - 1);
        if (!old.list) continue;
        while (slots[at].list) at = (at + 1) & (n - 1);
        slots[at] = old;
    }
    limits_release(l, s->slots, s->n_slots, sizeof *slots);
    s->slots = slots;
    s->n_slots = n;
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
    limits_release(l, s->slots, s->n_slots, sizeof *s->slots);
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
    if (s->n >= s->n_slots / 4 * 3 && !grow_slots(s, l)) return 0;
    uint32_t hash = hash_words(w, n), at = hash & (s->n_slots - 1);
    for (; s->slots[at].list; at = (at + 1) & (s->n_slots - 1))
        if (s->slots[at].hash == hash && is_list(s, s->slots[at].list, w, n)) return s->slots[at].list;
    uint32_t i = append(s, l, w, n);
    if (i) s->slots[at] = (struct word_slot){hash, i};
    return i;
}

void word_set_drop_last(struct word_set *s)
{
    uint32_t i = s->n - 1;
    const uint32_t *w = s->words + s->start[i];
    uint32_t at = hash_words(w, s->start[i + 1] - s->start[i]) & (s->n_slots - 1);
    while (s->slots[at].list != i) at = (at + 1) & (s->n_slots - 1);
    s->slots[at] = (struct word_slot){0}; /* no list has looked for a place behind this one since */
    s->n--;
}

/* Moves the lists that are kept to the front. */
static void move_needed(struct word_set *s, const uint8_t *needed)
{
    uint32_t k = 1;
    for (uint32_t i = 1; i < s->n; i++) {
        uint32_t from = s->start[i], n = s->start[i + 1] - from;
        if (!needed[i]) continue;
        memmove(s->words + s->start[k], s->words + from, n * sizeof *s->words);
        s->start[k + 1] = s->start[k] + n;
        k++;
    }
    s->n = k;
}

static void fill_slots(struct word_set *s)
{
    memset(s->slots, 0, s->n_slots * sizeof *s->slots);
    for (uint32_t i = 1; i < s->n; i++) {
        uint32_t hash = hash_words(s->words + s->start[i], s->start[i + 1] - s->start[i]), at = hash & (s->n_slots - 1);
        while (s->slots[at].list) at = (at + 1) & (s->n_slots - 1);
        s->slots[at] = (struct word_slot){hash, i};
    }
}

void word_set_keep(struct word_set *s, struct limits *l, const uint8_t *needed)
{
    uint32_t n_slots = s->n_slots;
    move_needed(s, needed);
    while (n_slots > FIRST_SLOTS && s->n < n_slots / 8 * 3) n_slots /= 2;
    s->words = limits_shrink(l, s->words, &s->cap_words, s->start[s->n], sizeof *s->words);
    s->start = limits_shrink(l, s->start, &s->cap_start, s->n + 1, sizeof *s->start);
    s->slots = limits_shrink(l, s->slots, &s->n_slots, n_slots, sizeof *s->slots);
    fill_slots(s);
}
