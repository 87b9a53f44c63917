/* SPDX-License-Identifier: MIT
 *
 * collect.c: drops the states, stacks and configurations that no text needs any more.
 *
 * Every list of words refers only to lists with smaller numbers. So one pass from the last list to the first one finds
 * all that is needed. It is moved to the front in its own place, because there may be no memory for a copy.
 */
#include <string.h>

#include "base/mem.h"
#include "grammar/automaton/automaton_impl.h"
#include "grammar/regex/regex_impl.h"

/* What the words of a state refer to: r: an expression, s: a state, n: a set of names, t: a text, l: a list of texts.
 */
static const char *const references[] = {
    [STATE_RAW] = "r",
    [STATE_QUOTE] = "r",
    [STATE_STRING] = "r.",
    [STATE_VALUE] = ".",
    [STATE_SPACE] = "s",
    [STATE_RULE] = "..",
    [STATE_OBJECT] = "..",
    [STATE_OBJECT_FIRST] = "..",
    [STATE_OBJECT_KEY] = "..n.l",
    [STATE_OBJECT_NAME] = "..n.l...",
    [STATE_OBJECT_OTHER] = "..n.l.tr.",
    [STATE_OBJECT_COLON] = "..n.l.",
    [STATE_OBJECT_NEXT] = "..n.l",
    [STATE_ARRAY] = "..",
    [STATE_ARRAY_FIRST] = "..",
    [STATE_ARRAY_ITEM] = "....l",
    [STATE_ARRAY_NEXT] = "....l",
    [STATE_UNIQUE_RAW] = "...ltr",
    [STATE_UNIQUE_QUOTE] = "...ltr",
    [STATE_UNIQUE_STRING] = "...ltr.",
};

/* One kind of lists. */
struct kind {
    struct word_set *set; /* the old one */
    uint8_t *needed;      /* [set->n] */
    uint32_t *number;     /* [set->n] the new number of each list */
};

enum { CONFIGS, STACKS, STATES, SEEN, TEXTS, NAMES, N_KINDS };

struct collection {
    struct automaton *m;
    struct kind kinds[N_KINDS];
    uint8_t *regex_needed;
    uint32_t *regex_number;
};

/* Calls `visit` for each reference of list i of a kind. The word may be changed. */
typedef void visitor(struct collection *c, int kind, uint32_t *word);

#define REGEX N_KINDS /* as a kind: an expression */

static int kind_of_letter(const struct collection *c, char letter)
{
    switch (letter) {
    case 'r': return REGEX;
    case 's': return STATES;
    case 't': return TEXTS;
    case 'l': return SEEN;
    case 'n': return c->m->any_order ? NAMES : -1;
    default: return -1;
    }
}

static void visit_words(struct collection *c, int kind, uint32_t *w, uint32_t n, visitor *visit)
{
    const char *letters = kind == STATES ? references[w[0]] : NULL;
    for (uint32_t i = 0; i < n; i++) {
        int to = -1;
        if (kind == CONFIGS && i > 0) to = i % 2 ? STATES : STACKS;
        if (kind == STACKS) to = i % 2 ? STACKS : STATES;
        if (kind == SEEN || (kind == TEXTS && i == 0)) to = TEXTS;
        if (kind == STATES && i > 0) to = kind_of_letter(c, letters[i - 1]);
        if (to >= 0) visit(c, to, &w[i]);
    }
}

static void mark(struct collection *c, int kind, uint32_t *word)
{
    if (kind == REGEX)
        c->regex_needed[*word] = 1;
    else
        c->kinds[kind].needed[*word] = 1;
}

static void renumber(struct collection *c, int kind, uint32_t *word)
{
    *word = kind == REGEX ? c->regex_number[*word] : c->kinds[kind].number[*word];
}

static void visit_needed(struct collection *c, int kind, uint32_t i, visitor *visit)
{
    const struct kind *k = &c->kinds[kind];
    uint32_t *w = k->set->words + k->set->start[i];
    if (k->needed[i]) visit_words(c, kind, w, k->set->start[i + 1] - k->set->start[i], visit);
}

static void mark_all(struct collection *c)
{
    for (int kind = 0; kind < N_KINDS; kind++)
        for (uint32_t i = c->kinds[kind].set->n; i-- > 1;) visit_needed(c, kind, i, mark);
    regex_mark(c->m->r, c->regex_needed);
}

static void count(const uint8_t *needed, uint32_t *number, uint32_t n)
{
    for (uint32_t i = 1, k = 1; i < n; i++)
        if (needed[i]) number[i] = k++;
}

static void renumber_all(struct collection *c)
{
    count(c->regex_needed, c->regex_number, c->m->r->set.n);
    for (int kind = 0; kind < N_KINDS; kind++)
        count(c->kinds[kind].needed, c->kinds[kind].number, c->kinds[kind].set->n);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (uint32_t i = 1; i < c->kinds[kind].set->n; i++) visit_needed(c, kind, i, renumber);
}

/* The depths of the stacks that are kept, in their new places. */
static void move_depths(struct collection *c)
{
    const struct kind *k = &c->kinds[STACKS];
    for (uint32_t i = 1; i < k->set->n; i++)
        if (k->needed[i]) c->m->depth[k->number[i]] = c->m->depth[i];
}

/* All successors are found again. The first two are those of no configuration. */
static void forget_successors(struct automaton *m)
{
    for (uint32_t i = 1; i < m->configs.n; i++) m->info[i] = (struct config_info){0};
    m->n_successors = 2;
    config_id *small = mem_realloc(m->successors, 2 * sizeof *small);
    if (!small) return;
    m->successors = small;
    limits_give(m->l, (m->cap_successors - 2) * sizeof *small);
    m->cap_successors = 2;
}

static bool prepare(struct collection *c)
{
    struct automaton *m = c->m;
    struct word_set *sets[] = {&m->configs, &m->stacks, &m->states, &m->seen, &m->texts, &m->names};
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct kind *k = &c->kinds[kind];
        k->set = sets[kind];
        k->needed = mem_calloc(k->set->n, 1);
        k->number = mem_calloc(k->set->n, sizeof *k->number);
        if (!k->needed || !k->number) return false;
    }
    c->regex_needed = mem_calloc(m->r->set.n, 1);
    c->regex_number = mem_calloc(m->r->set.n, sizeof *c->regex_number);
    return c->regex_needed && c->regex_number;
}

static void collect(struct collection *c, config_id *keep, uint32_t n)
{
    struct automaton *m = c->m;
    for (uint32_t i = 0; i < n; i++) c->kinds[CONFIGS].needed[keep[i]] = 1;
    c->kinds[STACKS].needed[STACK_BOTTOM] = 1;
    memset(c->regex_needed, 1, m->n_fixed);
    mark_all(c);
    renumber_all(c);
    for (uint32_t i = 0; i < n; i++) keep[i] = c->kinds[CONFIGS].number[keep[i]];
    move_depths(c);
    regex_keep(m->r, c->regex_needed, c->regex_number);
    for (int kind = 0; kind < N_KINDS; kind++) word_set_keep(c->kinds[kind].set, m->l, c->kinds[kind].needed);
    memset(m->unseen, 0, sizeof m->unseen);
    memset(m->join_memo, 0, sizeof m->join_memo);
    if (m->places) memset(m->places, 0, m->cap_places * sizeof *m->places);
    forget_successors(m);
}

bool automaton_collect(struct automaton *m, config_id *keep, uint32_t n)
{
    struct collection c = {.m = m};
    bool ok = prepare(&c);
    if (ok)
        collect(&c, keep, n);
    else
        limits_fail(m->l, QN_ENOMEM, "there is no memory to clear up a grammar");
    for (int kind = 0; kind < N_KINDS; kind++) {
        mem_free(c.kinds[kind].needed);
        mem_free(c.kinds[kind].number);
    }
    mem_free(c.regex_needed);
    mem_free(c.regex_number);
    return ok;
}
