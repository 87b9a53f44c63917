/* SPDX-License-Identifier: MIT
 *
 * automaton.c: states, stacks and configurations, and how one configuration follows from another.
 */
#include "grammar/automaton/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/automaton/automaton_impl.h"
#include "grammar/regex/pattern.h"

#define BITS_2(n) n, n + 1, n + 1, n + 2
#define BITS_4(n) BITS_2(n), BITS_2(n + 1), BITS_2(n + 1), BITS_2(n + 2)
#define BITS_6(n) BITS_4(n), BITS_4(n + 1), BITS_4(n + 1), BITS_4(n + 2)
const uint8_t automaton_bits[256] = {BITS_6(0), BITS_6(1), BITS_6(1), BITS_6(2)};

/* Numbers have one text each only if zeros at their end and exponents are left out. */
static const char canonical[] = "null|true|false|None|True|False|0|-?0\\.[0-9]*[1-9]|-?[1-9][0-9]*(?:\\.[0-9]*[1-9])?";

bool automaton_init(struct automaton *m)
{
    static const uint32_t bottom[] = {0, 0};
    struct word_set *sets[] = {&m->states, &m->stacks, &m->configs, &m->names, &m->texts, &m->seen};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if (!word_set_init(sets[i], m->l)) return false;
    m->depth = limits_grow(m->l, NULL, &m->cap_depth, 64, sizeof *m->depth);
    m->info = limits_grow(m->l, NULL, &m->cap_info, 64, sizeof *m->info);
    m->successors = limits_grow(m->l, NULL, &m->cap_successors, 256, sizeof *m->successors);
    if (!m->depth || !m->info || !m->successors) return false;
    m->depth[word_set_add(&m->stacks, m->l, bottom, 2)] = 0;
    m->info[CONFIG_DEAD] = (struct config_info){.successors = 1, .bounds = {1}};
    memset(m->info[CONFIG_DEAD].before + 1, 1, sizeof m->info[CONFIG_DEAD].before - 1);
    m->successors[1] = CONFIG_DEAD;
    m->n_successors = 2;
    m->canonical = pattern_compile(m->r, canonical, strlen(canonical), PATTERN_WHOLE);
    m->n_fixed = m->r->set.n;
    return !m->l->rc;
}

void automaton_deinit(struct automaton *m)
{
    struct word_set *sets[] = {&m->states, &m->stacks, &m->configs, &m->names, &m->texts, &m->seen};
    if (!m->l) return;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) word_set_deinit(sets[i], m->l);
    limits_release(m->l, m->depth, m->cap_depth, sizeof *m->depth);
    limits_release(m->l, m->info, m->cap_info, sizeof *m->info);
    limits_release(m->l, m->successors, m->cap_successors, sizeof *m->successors);
    limits_release(m->l, m->front, m->cap_front, sizeof *m->front);
    limits_release(m->l, m->todo, m->cap_todo, sizeof *m->todo);
    limits_release(m->l, m->places, m->cap_places, sizeof *m->places);
    limits_release(m->l, m->joined, m->cap_joined, sizeof *m->joined);
    limits_release(m->l, m->scratch, m->cap_scratch, sizeof *m->scratch);
    *m = (struct automaton){0};
}

uint32_t automaton_state(struct automaton *m, const uint32_t *w, uint32_t n)
{
    return word_set_add(&m->states, m->l, w, n);
}

const uint32_t *automaton_threads(const struct automaton *m, config_id c, uint32_t *n)
{
    uint32_t n_words;
    const uint32_t *w = word_set_get(&m->configs, c, &n_words);
    *n = n_words / 2;
    return w + 1;
}

static void copy_state(const struct automaton *m, uint32_t state, uint32_t w[STATE_WORDS])
{
    uint32_t n;
    const uint32_t *words = word_set_get(&m->states, state, &n);
    memcpy(w, words, n * sizeof *w);
}

/* ---- stacks ---- */

static uint32_t add_stack(struct automaton *m, const uint32_t *w, uint32_t n)
{
    uint32_t before = m->stacks.n, stack = word_set_add(&m->stacks, m->l, w, n);
    if (stack < before) return stack;
    uint16_t *depth = limits_grow(m->l, m->depth, &m->cap_depth, stack + 1, sizeof *depth);
    if (!depth) {
        word_set_drop_last(&m->stacks); /* its depth is missing */
        return 0;
    }
    m->depth = depth;
    depth[stack] = 0;
    for (uint32_t i = 0; i < n; i += 2)
        if (w[i] && depth[w[i + 1]] + 1 > depth[stack]) depth[stack] = (uint16_t)(depth[w[i + 1]] + 1);
    return stack;
}

uint32_t automaton_push(struct automaton *m, uint32_t state, uint32_t stack)
{
    if (!state || !stack || m->depth[stack] >= m->most_depth) return 0;
    return add_stack(m, (const uint32_t[]){state, stack}, 2);
}

static uint32_t *scratch(struct automaton *m, uint32_t n)
{
    uint32_t *p = limits_grow(m->l, m->scratch, &m->cap_scratch, n, sizeof *p);
    if (p) m->scratch = p;
    return p;
}

static int compare_pairs(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

static bool push_joined(struct automaton *m, uint32_t state, uint32_t stack)
{
    uint32_t *p = limits_grow(m->l, m->joined, &m->cap_joined, m->n_joined + 2, sizeof *p);
    if (!p) return false;
    m->joined = p;
    p[m->n_joined++] = state;
    p[m->n_joined++] = stack;
    return true;
}

static uint32_t join_stacks(struct automaton *m, uint32_t a, uint32_t b);

/* Appends an edge to the stack that is being made from m->n_joined on; edges to the same state are one. */
static bool add_edge(struct automaton *m, uint32_t first, uint32_t state, uint32_t stack)
{
    uint32_t last = m->n_joined - 2;
    if (m->n_joined == first || m->joined[last] != state) return push_joined(m, state, stack);
    if (state == 0) return true; /* the end of the text */
    uint32_t both = join_stacks(m, m->joined[last + 1], stack);
    m->joined[last + 1] = both;
    return both != 0;
}

/* Both stacks at once. Where both return to the same state, the stacks under it are joined, too; so there are few
 * different ones however many ways lead to a place. */
static uint32_t join_stacks(struct automaton *m, uint32_t a, uint32_t b)
{
    uint32_t na, nb, i = 0, k = 0, first = m->n_joined;
    struct joined_stacks *memo = &m->join_memo[(a * 31 + b) % JOIN_MEMO];
    if (a == b) return a;
    if (memo->a == a && memo->b == b) return memo->both;
    bool ok = limits_spend(m->l, 1);
    word_set_get(&m->stacks, a, &na);
    word_set_get(&m->stacks, b, &nb);
    while (ok && (i < na || k < nb)) {
        const uint32_t *x = m->stacks.words + m->stacks.start[a] + i, *y = m->stacks.words + m->stacks.start[b] + k;
        bool from_a = k == nb || (i < na && x[0] <= y[0]);
        uint32_t edge[2] = {from_a ? x[0] : y[0], from_a ? x[1] : y[1]};
        i += from_a ? 2 : 0;
        k += from_a ? 0 : 2;
        ok = add_edge(m, first, edge[0], edge[1]);
    }
    uint32_t joined = 0;
    if (ok) {
        uint32_t n = m->n_joined - first;
        uint32_t *w = scratch(m, n);
        if (w) memcpy(w, m->joined + first, n * sizeof *w);
        if (w) joined = add_stack(m, w, n);
    }
    m->n_joined = first;
    if (joined) *memo = (struct joined_stacks){a, b, joined};
    return joined;
}

/* ---- the configuration that is being made ---- */

static bool push_pair(struct automaton *m, uint32_t **list, uint32_t *n, uint32_t *cap, uint32_t a, uint32_t b)
{
    uint32_t *p = limits_grow(m->l, *list, cap, 2 * (*n + 1), sizeof *p);
    if (!p) return false;
    *list = p;
    p[2 * *n] = a;
    p[2 * *n + 1] = b;
    ++*n;
    return true;
}

void automaton_add(struct automaton *m, uint32_t state, uint32_t stack)
{
    if (state && stack) push_pair(m, &m->todo, &m->n_todo, &m->cap_todo, state, stack);
}

void automaton_return(struct automaton *m, uint32_t stack)
{
    uint32_t n;
    word_set_get(&m->stacks, stack, &n);
    for (uint32_t i = 0; i < n; i += 2) {
        const uint32_t *w = word_set_get(&m->stacks, stack, &n) + i;
        if (w[0] == 0)
            m->front_accepts = true;
        else
            automaton_add(m, w[0], w[1]);
    }
}

void automaton_call(struct automaton *m, uint32_t state, uint32_t to, uint32_t stack)
{
    automaton_add(m, state, automaton_push(m, to, stack));
}

/* Where the state is in the front, if it is there: the round in which it was added, and its index. */
static uint32_t *place_in_front(struct automaton *m, uint32_t state)
{
    uint32_t before = m->cap_places;
    uint32_t *p = limits_grow(m->l, m->places, &m->cap_places, 2 * (state + 1), sizeof *p);
    if (!p) return NULL;
    m->places = p;
    memset(p + before, 0, (m->cap_places - before) * sizeof *p);
    return p + 2 * state;
}

/* Joins the stack to that of the same state, if there is one. Whether anything is new. */
static bool join_front(struct automaton *m, uint32_t state, uint32_t stack)
{
    uint32_t *place = place_in_front(m, state);
    if (!place) return false;
    if (place[0] != m->round) {
        place[0] = m->round;
        place[1] = m->n_front;
        return push_pair(m, &m->front, &m->n_front, &m->cap_front, state, stack);
    }
    uint32_t i = 2 * place[1] + 1, both = join_stacks(m, m->front[i], stack);
    bool is_new = both && both != m->front[i];
    if (is_new) m->front[i] = both;
    return is_new;
}

/* Adds what waits, and what it stands for without reading anything. */
static void close_front(struct automaton *m)
{
    while (m->n_todo && limits_spend(m->l, 1)) {
        uint32_t n, w[STATE_WORDS];
        m->n_todo--;
        uint32_t state = m->todo[2 * m->n_todo], stack = m->todo[2 * m->n_todo + 1];
        if (!join_front(m, state, stack)) continue;
        const uint32_t *words = word_set_get(&m->states, state, &n);
        memcpy(w, words, n * sizeof *w);
        state_close(m, w, stack);
    }
}

/* States that read nothing have done their part. */
static bool reads(const struct automaton *m, uint32_t state)
{
    uint32_t kind = m->states.words[m->states.start[state]];
    return kind != STATE_VALUE && kind != STATE_RULE && kind != STATE_ARRAY_ITEM;
}

/* The configuration of what was added; CONFIG_DEAD if it is nothing, or after a failure. */
static config_id finish_front(struct automaton *m)
{
    uint32_t k = 0;
    close_front(m);
    for (uint32_t i = 0; i < m->n_front; i++) {
        if (!reads(m, m->front[2 * i])) continue;
        m->front[2 * k] = m->front[2 * i];
        m->front[2 * k + 1] = m->front[2 * i + 1];
        k++;
    }
    if (m->l->rc || (k == 0 && !m->front_accepts)) return CONFIG_DEAD;
    if (k > 1) qsort(m->front, k, 2 * sizeof *m->front, compare_pairs);
    uint32_t *w = scratch(m, 2 * k + 1);
    if (!w) return CONFIG_DEAD;
    w[0] = m->front_accepts;
    if (k) memcpy(w + 1, m->front, 2 * k * sizeof *w);
    uint32_t before = m->configs.n, c = word_set_add(&m->configs, m->l, w, 2 * k + 1);
    if (c < before) return c;
    struct config_info *info = limits_grow(m->l, m->info, &m->cap_info, c + 1, sizeof *info);
    if (!info) {
        word_set_drop_last(&m->configs);
        return CONFIG_DEAD;
    }
    m->info = info;
    info[c] = (struct config_info){0};
    return c;
}

static void begin_front(struct automaton *m)
{
    m->n_front = m->n_todo = 0;
    m->front_accepts = false;
    m->round++;
}

config_id automaton_start(struct automaton *m, uint32_t state)
{
    begin_front(m);
    automaton_add(m, state, STACK_BOTTOM);
    return finish_front(m);
}

config_id automaton_after(struct automaton *m, uint32_t stack)
{
    begin_front(m);
    automaton_return(m, stack);
    return finish_front(m);
}

static bool remembers(const uint32_t *w) { return w[0] == STATE_OBJECT_OTHER || w[0] >= STATE_UNIQUE_RAW; }

config_id automaton_forget(struct automaton *m, config_id c)
{
    uint32_t n, w[STATE_WORDS];
    bool any = false;
    automaton_threads(m, c, &n);
    begin_front(m);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t state = automaton_threads(m, c, &n)[2 * i], stack = automaton_threads(m, c, &n)[2 * i + 1];
        copy_state(m, state, w);
        any |= remembers(w);
        if (!remembers(w))
            automaton_add(m, state, stack);
        else if (w[0] == STATE_OBJECT_OTHER)
            object_forget(m, w, stack);
        else
            array_forget(m, w, stack);
    }
    m->front_accepts = automaton_accepts(m, c);
    return any ? finish_front(m) : c;
}

/* ---- successors ---- */

/* Finds the bytes that may differ, and makes room for the successors. */
static bool make_info(struct automaton *m, config_id c)
{
    struct config_info *info = &m->info[c];
    uint32_t n, n_bits = 0, w[STATE_WORDS];
    uint64_t bits[4] = {1};
    automaton_threads(m, c, &n);
    for (uint32_t i = 0; i < n; i++) {
        copy_state(m, automaton_threads(m, c, &n)[2 * i], w);
        state_bounds(m, w, bits);
    }
    for (int i = 0; i < 32; i++) {
        info->bounds[i] = (uint8_t)(bits[i / 8] >> (i % 8 * 8));
        info->before[i] = (uint8_t)n_bits;
        n_bits += automaton_bits[info->bounds[i]];
    }
    uint32_t *p = limits_grow(m->l, m->successors, &m->cap_successors, m->n_successors + n_bits, sizeof *p);
    if (!p) return false;
    m->successors = p;
    memset(p + m->n_successors, 0xFF, n_bits * sizeof *p);
    info->successors = m->n_successors;
    m->n_successors += n_bits;
    return true;
}

config_id automaton_make_successor(struct automaton *m, config_id c, uint8_t byte)
{
    uint32_t n, w[STATE_WORDS];
    automaton_threads(m, c, &n);
    if (!limits_spend(m->l, 2 + n) || (!m->info[c].successors && !make_info(m, c))) return CONFIG_DEAD;
    uint32_t place = automaton_place(&m->info[c], byte);
    if (m->successors[place] != NOT_MADE) return m->successors[place];
    begin_front(m);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *thread = automaton_threads(m, c, &n) + 2 * i;
        uint32_t stack = thread[1];
        copy_state(m, thread[0], w);
        state_read(m, w, stack, byte);
    }
    config_id next = finish_front(m);
    if (m->l->rc) return CONFIG_DEAD;
    m->successors[place] = next;
    return next;
}
