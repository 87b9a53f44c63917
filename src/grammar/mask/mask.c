/* SPDX-License-Identifier: MIT
 *
 * mask.c: see mask.h.
 *
 * A mask is found by walking through the tree of tokens with one configuration for each depth. Where a string may have
 * any text, that would be almost the whole tree, so such a mask is put together from lists that the vocabulary has
 * (fill_free). Where any text may follow but for a few words (the names that an object must not repeat), the walk goes
 * only where the two configurations differ (walk_differences).
 */
#include "grammar/mask/mask.h"

#include <string.h>

#include "base/mem.h"
#include "grammar/automaton/string_step.h"

#define WORTH_KEEPING 3000 /* nodes that were looked at for a mask */

struct filling {
    struct automaton *m;
    const struct token_trie *t;
    uint64_t *mask;
    uint32_t n_nodes; /* that were looked at */
    config_id path[TRIE_MAX_TOKEN + 1], other[TRIE_MAX_TOKEN + 1];
};

static void set_bit(uint64_t *mask, qn_token token) { mask[token / 64] |= (uint64_t)1 << (token % 64); }
static void clear_bit(uint64_t *mask, qn_token token) { mask[token / 64] &= ~((uint64_t)1 << (token % 64)); }

/* ---- walking ---- */

/* Sets the tokens of an item and those after it that have `least` to `most` characters before them. */
static void set_items(struct filling *f, const struct trie_item *item, uint32_t least, uint32_t most)
{
    for (;; item++) {
        if (item->n_chars >= least && item->n_chars <= most) set_bit(f->mask, item->token);
        if (item->is_last) return;
    }
}

static void clear_items(struct filling *f, const struct trie_item *item)
{
    for (;; item++) {
        clear_bit(f->mask, item->token);
        if (item->is_last) return;
    }
}

/* Sets the tokens of a tree that fit the configuration. */
static void walk(struct filling *f, const struct trie *t, config_id c, uint32_t least, uint32_t most)
{
    f->path[0] = c;
    for (uint32_t i = 0; i < t->n_nodes;) {
        const struct trie_node *node = &t->nodes[i];
        config_id next = automaton_step(f->m, f->path[node->depth], node->byte);
        f->n_nodes++;
        if (next == CONFIG_DEAD) {
            i = node->next;
            continue;
        }
        if (node->first >= 0) set_items(f, t->items + node->first, least, most);
        f->path[node->depth + 1] = next;
        i++;
    }
}

/* ---- free strings ---- */

/* A configuration in which a string may have any text, of a number of characters, and nothing else is possible. */
struct free_string {
    uint32_t least, most;
    uint32_t stack;
};

static bool is_free(const struct automaton *m, config_id c, struct free_string *s)
{
    uint32_t n, n_words;
    const uint32_t *thread = automaton_threads(m, c, &n);
    if (c == CONFIG_DEAD || n != 1) return false;
    const uint32_t *w = word_set_get(&m->states, thread[0], &n_words);
    s->stack = thread[1];
    return w[0] == STATE_STRING && w[2] == STRING_PLAIN && string_is_free(m->r, w[1], &s->least, &s->most);
}

/* How many of the tokens that stay inside have more characters; they come first. */
static uint32_t n_longer(const struct token_trie *t, uint32_t most)
{
    uint32_t lo = 0, hi = t->n_inside;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->inside[mid].n_chars > most)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void set_inside(struct filling *f, uint32_t most)
{
    const struct token_trie *t = f->t;
    uint32_t longer = n_longer(t, most);
    size_t bytes = token_trie_mask_words(t) * sizeof *f->mask;
    if (longer < t->n_inside / 2) {
        memcpy(f->mask, t->inside_mask, bytes);
        for (uint32_t i = 0; i < longer; i++) clear_bit(f->mask, t->inside[i].token);
    } else {
        memset(f->mask, 0, bytes);
        for (uint32_t i = longer; i < t->n_inside; i++) set_bit(f->mask, t->inside[i].token);
        f->n_nodes += t->n_inside - longer;
    }
}

static bool token_fits(struct filling *f, config_id c, qn_token token)
{
    size_t n;
    const uint8_t *p = token_trie_text(f->t, token, &n);
    for (size_t i = 0; i < n && c; i++) c = automaton_step(f->m, c, p[i]);
    return n && c != CONFIG_DEAD;
}

static void fill_free(struct filling *f, config_id c, const struct free_string *s)
{
    config_id after = automaton_after(f->m, s->stack);
    set_inside(f, s->most);
    if (after && f->t->closers_empty >= 0) set_items(f, f->t->closers.items + f->t->closers_empty, s->least, s->most);
    if (after) walk(f, &f->t->closers, after, s->least, s->most);
    for (uint32_t i = 0; i < f->t->n_odd; i++)
        if (token_fits(f, c, f->t->odd[i])) set_bit(f->mask, f->t->odd[i]);
}

/* ---- strings that any text can begin ---- */

/* Whether the only state of the configuration is in a string that any text can begin; *stack: where it returns to. */
static bool is_total(struct automaton *m, config_id c, uint32_t *stack)
{
    uint32_t n, n_words;
    const uint32_t *thread = automaton_threads(m, c, &n);
    if (c == CONFIG_DEAD || n != 1) return false;
    const uint32_t *w = word_set_get(&m->states, thread[0], &n_words);
    *stack = thread[1];
    return w[0] == STATE_STRING && w[2] == STRING_PLAIN && re_is_total(m->r, w[1]);
}

static void set_if_fits(struct filling *f, config_id c, const struct trie_item *item)
{
    for (;; item++) {
        if (token_fits(f, c, item->token)) set_bit(f->mask, item->token);
        if (item->is_last) return;
    }
}

/* Tokens without escapes that stay inside fit. Those with escapes, and those that end the string where something may go
 * on, are looked at one by one. */
static void fill_total(struct filling *f, config_id c, uint32_t stack)
{
    const struct token_trie *t = f->t;
    config_id after = automaton_after(f->m, stack);
    memcpy(f->mask, t->plain_mask, token_trie_mask_words(t) * sizeof *f->mask);
    for (uint32_t i = 0; i < t->n_escapes; i++)
        if (token_fits(f, c, t->escapes[i])) set_bit(f->mask, t->escapes[i]);
    if (t->closers_empty >= 0) set_if_fits(f, c, t->closers.items + t->closers_empty);
    for (uint32_t i = 0; i < t->closers.n_nodes;) {
        const struct trie_node *node = &t->closers.nodes[i];
        bool skip = node->depth == 0 && !automaton_step(f->m, after, node->byte);
        if (!skip && node->first >= 0) set_if_fits(f, c, t->closers.items + node->first);
        i = skip ? node->next : i + 1;
    }
    f->n_nodes += WORTH_KEEPING + 1;
}

/* ---- nearly free strings ---- */

/* The configuration of a free string that most of the tokens that stay inside lead to with their first byte;
 * CONFIG_DEAD if there is none. */
static config_id nearly(struct filling *f, config_id c)
{
    config_id best = CONFIG_DEAD;
    uint32_t weight = 0;
    for (unsigned b = 0x20; b < 0x7F; b++) {
        struct free_string s;
        config_id next = automaton_step(f->m, c, (uint8_t)b);
        if (next == CONFIG_DEAD || (best && next != best)) continue;
        if (!best && (!is_free(f->m, next, &s) || s.most != RE_NO_MAX)) continue;
        best = next;
        weight += f->t->inside_by_byte[b];
    }
    return weight > f->t->n_inside / 4 ? best : CONFIG_DEAD;
}

/* Corrects the mask of configuration `like` where c differs from it. */
static void walk_differences(struct filling *f, config_id c, config_id like)
{
    const struct trie *t = &f->t->all;
    f->path[0] = c;
    f->other[0] = like;
    for (uint32_t i = 0; i < t->n_nodes;) {
        const struct trie_node *node = &t->nodes[i];
        config_id next = automaton_step(f->m, f->path[node->depth], node->byte);
        config_id other = automaton_step(f->m, f->other[node->depth], node->byte);
        f->n_nodes++;
        if (next == other) {
            i = node->next;
            continue;
        }
        if (node->first >= 0 && next) set_items(f, t->items + node->first, 0, UINT32_MAX);
        if (node->first >= 0 && !next) clear_items(f, t->items + node->first);
        f->path[node->depth + 1] = next;
        f->other[node->depth + 1] = other;
        i++;
    }
}

/* ---- masks ---- */

static void set_eog(const struct automaton *m, const struct token_trie *t, config_id c, uint64_t *mask)
{
    if (!automaton_accepts(m, c)) return;
    for (int i = 0; i < t->n_eog; i++) set_bit(mask, t->eog[i]);
}

/* The mask of a configuration that remembers no text. */
static void fill(struct filling *f, config_id c)
{
    struct free_string s;
    if (is_free(f->m, c, &s)) {
        fill_free(f, c, &s);
        return;
    }
    uint32_t stack;
    if (is_total(f->m, c, &stack)) {
        fill_total(f, c, stack);
        return;
    }
    config_id like = nearly(f, c);
    if (like && is_free(f->m, like, &s)) {
        fill_free(f, like, &s);
        walk_differences(f, c, like);
    } else {
        memset(f->mask, 0, token_trie_mask_words(f->t) * sizeof *f->mask);
        walk(f, &f->t->all, c, 0, UINT32_MAX);
    }
}

/* Whether an item may have ended without a byte of its own at the end, as numbers and `null` do. */
static bool may_have_ended(const struct automaton *m, config_id c)
{
    uint32_t n, n_words;
    const uint32_t *thread = automaton_threads(m, c, &n);
    for (uint32_t i = 0; i < n; i++)
        if (*word_set_get(&m->states, thread[2 * i], &n_words) == STATE_UNIQUE_RAW) return true;
    return false;
}

static void check_tokens(struct filling *f, config_id c, const qn_token *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool set = f->mask[tokens[i] / 64] >> (tokens[i] % 64) & 1;
        if (set && !token_fits(f, c, tokens[i])) clear_bit(f->mask, tokens[i]);
    }
}

/* Takes out the tokens after which a text would have come twice, or would have to: one that ends in the token, or that
 * ended before it. */
static void check_repeats(struct filling *f, config_id c)
{
    check_tokens(f, c, f->t->repeats, f->t->n_repeats);
    if (may_have_ended(f->m, c)) check_tokens(f, c, f->t->commas, f->t->n_commas);
}

static void keep(struct automaton *m, struct mask_cache *cache, config_id c, const uint64_t *mask, size_t bytes)
{
    uint32_t i = c % MASK_SLOTS;
    if (!cache->slot[i].mask) {
        if (bytes > limits_left(m->l) / 4 || !limits_try_take(m->l, bytes)) return;
        cache->slot[i].mask = mem_alloc(bytes);
        if (!cache->slot[i].mask) limits_give(m->l, bytes);
    }
    if (!cache->slot[i].mask) return;
    memcpy(cache->slot[i].mask, mask, bytes);
    cache->slot[i].config = c;
}

void mask_fill(struct automaton *m, struct mask_cache *cache, const struct token_trie *t, config_id c, uint64_t *mask)
{
    size_t bytes = token_trie_mask_words(t) * sizeof *mask;
    uint32_t i = c % MASK_SLOTS;
    if (cache->trie != t) mask_cache_deinit(cache, m->l);
    cache->trie = t;
    if (c && cache->slot[i].config == c) {
        memcpy(mask, cache->slot[i].mask, bytes);
    } else {
        struct filling f = {.m = m, .t = t, .mask = mask};
        config_id simple = automaton_forget(m, c);
        fill(&f, simple);
        if (simple != c) check_repeats(&f, c);
        if (m->l->rc) return;
        if (c && f.n_nodes > WORTH_KEEPING) keep(m, cache, c, mask, bytes);
    }
    set_eog(m, t, c, mask);
}

void mask_fill_reference(struct automaton *m, const struct token_trie *t, config_id c, uint64_t *mask)
{
    struct filling f = {.m = m, .t = t, .mask = mask};
    memset(mask, 0, token_trie_mask_words(t) * sizeof *mask);
    for (qn_token token = 0; token < t->n_tokens; token++)
        if (token_fits(&f, c, token)) set_bit(mask, token);
    set_eog(m, t, c, mask);
}

/* ---- the cache ---- */

void mask_cache_clear(struct mask_cache *cache)
{
    for (int i = 0; i < MASK_SLOTS; i++) cache->slot[i].config = CONFIG_DEAD;
}

void mask_cache_deinit(struct mask_cache *cache, struct limits *l)
{
    size_t bytes = cache->trie ? token_trie_mask_words(cache->trie) * sizeof(uint64_t) : 0;
    for (int i = 0; i < MASK_SLOTS; i++) {
        if (cache->slot[i].mask) limits_give(l, bytes);
        mem_free(cache->slot[i].mask);
        cache->slot[i].mask = NULL;
        cache->slot[i].config = CONFIG_DEAD;
    }
    cache->trie = NULL;
}
