/* SPDX-License-Identifier: MIT
 *
 * grammar.c: grammars and cursors: the interface of the layer (grammar.h).
 */
#include "grammar/grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/calls/calls.h"
#include "grammar/mask/mask.h"
#include "grammar/regex/pattern.h"
#include "grammar/schema/schema.h"

#define WORK_OF_COMPILING 400000 /* steps (limits.h) */
#define WORK_OF_A_CALL    400000

struct grammar {
    struct limits limits;
    struct regex regex;
    struct json_tables tables;
    struct rules rules;
    struct automaton automaton;
    struct mask_cache masks;
    config_id start;
    struct grammar_cursor *cursors; /* the first one; NULL: none */
    uint32_t n_cursors;
    size_t memory_bytes; /* the most that it may take */
    size_t low_bytes;    /* in use after the last time that states were dropped */
    uint32_t work;       /* of each call */
};

struct grammar_cursor {
    struct grammar *g;
    struct grammar_cursor *before, *after; /* in the grammar's list */
    config_id at;
};

/* ---- compiling ---- */

/* What the compilers of each language get and give. */
struct source {
    const json_t *schema, *calls;
    const struct token_trie *trie;
    const char *text;
    const struct str *choices;
    size_t n;
};

typedef uint32_t compiler(struct grammar *g, const struct source *s);

static int new_grammar(struct grammar **out, const struct grammar_options *o, struct qn_error *e)
{
    struct limits_source *source = o ? o->source : NULL;
    int rc = source ? limits_source_take(source, sizeof **out, "a grammar", e) : 0;
    if (rc) return rc;
    struct grammar *g = mem_calloc(1, sizeof *g);
    if (!g) {
        if (source) limits_source_give(source, sizeof *g);
        return error_nomem(e, "a grammar", sizeof *g);
    }
    *out = g;
    g->limits.source = source;
    g->memory_bytes = o && o->memory_bytes ? o->memory_bytes : GRAMMAR_MEMORY;
    g->limits.max_bytes = g->memory_bytes / 2; /* of compiling */
    g->limits.work = WORK_OF_COMPILING;
    g->limits.bytes = sizeof *g;
    g->automaton.l = &g->limits;
    g->automaton.r = &g->regex;
    g->automaton.tables = &g->tables;
    g->automaton.spaces = o && o->spaces;
    g->automaton.any_order = o && o->any_order;
    g->automaton.most_depth = AUTOMATON_DEPTH;
    return 0;
}

static bool make(struct grammar *g, compiler *compile, const struct source *s)
{
    if (!regex_init(&g->regex, &g->limits)) return false;
    uint32_t words[3] = {0};
    uint32_t node = compile(g, s);
    if (g->limits.rc) return false;
    g->automaton.rules = g->rules.nodes;
    if (!automaton_init(&g->automaton)) return false;
    words[0] = s->schema ? STATE_VALUE : STATE_RAW;
    if (g->rules.n) words[0] = STATE_RULE;
    words[1] = node;
    g->start = automaton_start(&g->automaton, automaton_state(&g->automaton, words, words[0] == STATE_RULE ? 3 : 2));
    return !g->limits.rc;
}

static int new_from(struct grammar **out, compiler *compile, const struct source *s, const struct grammar_options *o,
                    struct qn_error *e)
{
    struct grammar *g = NULL;
    int rc = new_grammar(&g, o, e);
    if (rc) return rc;
    if (!make(g, compile, s)) {
        rc = limits_report(&g->limits, e);
        grammar_free(g);
        return rc;
    }
    g->low_bytes = g->limits.bytes;
    g->limits.max_bytes = g->memory_bytes;
    g->work = WORK_OF_A_CALL;
    *out = g;
    return 0;
}

static uint32_t compile_schema(struct grammar *g, const struct source *s)
{
    uint32_t root = 0;
    schema_compile(&g->tables, &g->regex, s->schema, &root);
    return root;
}

static uint32_t compile_gbnf(struct grammar *g, const struct source *s)
{
    uint32_t root = 0;
    gbnf_parse(&g->rules, &g->regex, s->text, s->n, &root);
    return root;
}

static uint32_t only_if_live(struct grammar *g, re_id re)
{
    if (!g->limits.rc && !re_is_live(&g->regex, re)) limits_fail(&g->limits, QN_EDATA, "no text fits it");
    return re;
}

static uint32_t compile_regex(struct grammar *g, const struct source *s)
{
    return only_if_live(g, pattern_compile(&g->regex, s->text, s->n, PATTERN_WHOLE));
}

static uint32_t compile_choice(struct grammar *g, const struct source *s)
{
    if (s->n > UINT32_MAX / sizeof(struct str_ref)) {
        limits_fail(&g->limits, QN_EDATA, "%zu choices are too many", s->n);
        return RE_NONE;
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->choices[i].n > g->limits.max_bytes) {
            limits_fail(&g->limits, QN_EUNSUP, "choice %zu has %zu bytes; a grammar has %zu bytes of memory", i + 1,
                        s->choices[i].n, g->limits.max_bytes);
            return RE_NONE;
        }
    struct str_ref *words = mem_alloc(s->n * sizeof *words);
    if (!words) limits_fail(&g->limits, QN_ENOMEM, "there is no memory for %zu choices", s->n);
    for (size_t i = 0; words && i < s->n; i++) words[i] = (struct str_ref){s->choices[i].p, (uint32_t)s->choices[i].n};
    re_id re = words ? re_words(&g->regex, words, (uint32_t)s->n) : RE_NONE;
    mem_free(words);
    return only_if_live(g, re);
}

static uint32_t compile_calls(struct grammar *g, const struct source *s)
{
    uint32_t root = 0;
    g->automaton.most_depth = CALLS_DEPTH;
    calls_compile(&g->rules, &g->tables, &g->regex, s->calls, s->trie, &root);
    return root;
}

int grammar_from_schema(struct grammar **out, const json_t *schema, const struct grammar_options *o, struct qn_error *e)
{
    return new_from(out, compile_schema, &(struct source){.schema = schema}, o, e);
}

int grammar_from_json_object(struct grammar **out, const struct grammar_options *o, struct qn_error *e)
{
    json_t *schema = json_pack("{s:s}", "type", "object");
    if (!schema) return error_nomem(e, "a grammar", sizeof(json_t));
    int rc = grammar_from_schema(out, schema, o, e);
    json_decref(schema);
    return rc;
}

int grammar_from_gbnf(struct grammar **out, const char *text, size_t n, const struct grammar_options *o,
                      struct qn_error *e)
{
    return new_from(out, compile_gbnf, &(struct source){.text = text, .n = n}, o, e);
}

int grammar_from_regex(struct grammar **out, const char *pattern, size_t n, const struct grammar_options *o,
                       struct qn_error *e)
{
    return new_from(out, compile_regex, &(struct source){.text = pattern, .n = n}, o, e);
}

int grammar_from_choice(struct grammar **out, const struct str *choices, size_t n, const struct grammar_options *o,
                        struct qn_error *e)
{
    return new_from(out, compile_choice, &(struct source){.choices = choices, .n = n}, o, e);
}

int grammar_from_calls(struct grammar **out, const json_t *description, const struct token_trie *t,
                       const struct grammar_options *o, struct qn_error *e)
{
    return new_from(out, compile_calls, &(struct source){.calls = description, .trie = t}, o, e);
}

void grammar_free(struct grammar *g)
{
    if (!g) return;
    mask_cache_deinit(&g->masks, &g->limits);
    automaton_deinit(&g->automaton);
    rules_deinit(&g->rules, &g->limits);
    json_tables_deinit(&g->tables, &g->limits);
    regex_deinit(&g->regex);
    limits_give(&g->limits, sizeof *g);
    mem_free(g);
}

void grammar_set_work(struct grammar *g, uint32_t steps) { g->work = steps ? steps : WORK_OF_A_CALL; }

size_t grammar_memory(const struct grammar *g) { return g->limits.bytes; }

/* ---- cursors ---- */

static int new_cursor(struct grammar_cursor **out, struct grammar *g, config_id at, struct qn_error *e)
{
    struct grammar_cursor *c = mem_alloc(sizeof *c);
    if (!c) return error_nomem(e, "a place in a text", sizeof *c);
    *c = (struct grammar_cursor){g, NULL, g->cursors, at};
    if (g->cursors) g->cursors->before = c;
    g->cursors = c;
    g->n_cursors++;
    *out = c;
    return 0;
}

int grammar_cursor_new(struct grammar_cursor **out, struct grammar *g, struct qn_error *e)
{
    return new_cursor(out, g, g->start, e);
}

int grammar_cursor_copy(struct grammar_cursor **out, const struct grammar_cursor *c, struct qn_error *e)
{
    return new_cursor(out, c->g, c->at, e);
}

void grammar_cursor_free(struct grammar_cursor *c)
{
    if (!c) return;
    if (c->after) c->after->before = c->before;
    if (c->before)
        c->before->after = c->after;
    else
        c->g->cursors = c->after;
    c->g->n_cursors--;
    mem_free(c);
}

/* ---- calls ---- */

/* Drops all states but those of the cursors. False: there is no memory for that. */
static bool drop_states(struct grammar *g)
{
    uint32_t n = 0;
    config_id *keep = mem_alloc((g->n_cursors + 1) * sizeof *keep);
    if (!keep) return false;
    keep[n++] = g->start;
    for (struct grammar_cursor *c = g->cursors; c; c = c->after) keep[n++] = c->at;
    mask_cache_deinit(&g->masks, &g->limits);
    bool is_done = automaton_collect(&g->automaton, keep, n);
    if (is_done) {
        n = 0;
        g->start = keep[n++];
        for (struct grammar_cursor *c = g->cursors; c; c = c->after) c->at = keep[n++];
        g->low_bytes = g->limits.bytes;
    }
    mem_free(keep);
    return is_done;
}

/* Every call begins here: a failure of the last one is forgotten, and there is work and memory again. Half of the free
 * memory is left for the call itself. */
static void begin(struct grammar *g)
{
    struct limits *l = &g->limits;
    l->rc = 0;
    l->work = g->work;
    if (l->bytes > g->low_bytes + (l->max_bytes - g->low_bytes) / 2) drop_states(g);
    l->rc = 0;
    l->work = g->work;
}

static int misfit(const struct grammar *g, size_t i, struct qn_error *e)
{
    if (g->limits.rc) return limits_report(&g->limits, e);
    return error_set(e, QN_EDATA, "byte %zu does not fit the grammar", i + 1);
}

/* Whether the last call failed for want of memory, and there is some now because states were dropped. */
static bool may_try_again(struct grammar *g)
{
    size_t before = g->limits.bytes;
    if (g->limits.rc != QN_ENOMEM) return false;
    g->limits.rc = 0;
    g->limits.work = g->work;
    return drop_states(g) && g->limits.bytes < before;
}

static int commit_bytes(struct grammar_cursor *c, const void *p, size_t n, struct qn_error *e)
{
    struct grammar *g = c->g;
    begin(g);
    config_id at = c->at;
    for (size_t i = 0; i < n; i++) {
        at = automaton_step(&g->automaton, at, ((const uint8_t *)p)[i]);
        if (at == CONFIG_DEAD) return misfit(g, i, e);
    }
    c->at = at;
    return 0;
}

int grammar_commit_bytes(struct grammar_cursor *c, const void *p, size_t n, struct qn_error *e)
{
    struct qn_error first;
    int rc = commit_bytes(c, p, n, &first);
    if (rc == QN_ENOMEM && may_try_again(c->g)) return commit_bytes(c, p, n, e);
    if (rc && e) *e = first;
    return rc;
}

int grammar_commit_token(struct grammar_cursor *c, const struct token_trie *t, qn_token token, struct qn_error *e)
{
    size_t n;
    const uint8_t *p = token_trie_text(t, token, &n);
    if (n == 0) return error_set(e, QN_EUSAGE, "token %d has no text that a grammar could have", token);
    return grammar_commit_bytes(c, p, n, e);
}

bool grammar_is_complete(const struct grammar_cursor *c) { return automaton_accepts(&c->g->automaton, c->at); }

static int check_mask(const struct grammar *g, const struct token_trie *t, const uint64_t *mask, struct qn_error *e)
{
    uint64_t any = 0;
    if (g->limits.rc) return limits_report(&g->limits, e);
    for (size_t i = 0; i < token_trie_mask_words(t); i++) any |= mask[i];
    return any ? 0 : error_set(e, QN_EDATA, "no token of the vocabulary fits the grammar here");
}

int grammar_mask(struct grammar_cursor *c, const struct token_trie *t, uint64_t *mask, struct qn_error *e)
{
    begin(c->g);
    mask_fill(&c->g->automaton, &c->g->masks, t, c->at, mask);
    if (c->g->limits.rc == QN_ENOMEM && may_try_again(c->g)) {
        begin(c->g);
        mask_fill(&c->g->automaton, &c->g->masks, t, c->at, mask);
    }
    return check_mask(c->g, t, mask, e);
}

int grammar_mask_reference(struct grammar_cursor *c, const struct token_trie *t, uint64_t *mask, struct qn_error *e)
{
    begin(c->g);
    c->g->limits.work *= 100;
    mask_fill_reference(&c->g->automaton, t, c->at, mask);
    return check_mask(c->g, t, mask, e);
}

/* ---- what must come next ---- */

/* The first byte after b that may have another successor; 256: there is none. */
static int next_bound(const struct automaton *m, config_id c, int b)
{
    for (b++; b < 256; b++)
        if (m->info[c].bounds[b / 8] >> (b % 8) & 1) break;
    return b;
}

/* The only byte that may come next, or -1. */
static int only_byte(struct automaton *m, config_id c)
{
    int only = -1;
    if (automaton_accepts(m, c)) return -1;
    for (int b = 0, next; b < 256; b = next) {
        bool is_dead = automaton_step(m, c, (uint8_t)b) == CONFIG_DEAD; /* the first step finds the bounds */
        next = m->info[c].successors ? next_bound(m, c, b) : b + 1;
        if (is_dead) continue;
        if (only >= 0 || next > b + 1) return -1;
        only = b;
    }
    return only;
}

size_t grammar_forced_bytes(struct grammar_cursor *c, uint8_t *out, size_t max)
{
    struct automaton *m = &c->g->automaton;
    size_t n = 0;
    begin(c->g);
    for (config_id at = c->at; n < max; n++) {
        int b = only_byte(m, at);
        if (b < 0 || c->g->limits.rc) break;
        at = automaton_step(m, at, out[n] = (uint8_t)b);
    }
    return n;
}

int grammar_forced_token(struct grammar_cursor *c, const struct token_trie *t, qn_token *token, struct qn_error *e)
{
    size_t words = token_trie_mask_words(t);
    uint64_t *mask = mem_alloc(words * sizeof *mask);
    if (!mask) return error_nomem(e, "a mask", words * sizeof *mask);
    int rc = grammar_mask(c, t, mask, e);
    qn_token only = -1;
    int n = 0;
    for (size_t i = 0; rc == 0 && i < words; i++) {
        n += __builtin_popcountll(mask[i]);
        if (mask[i]) only = (qn_token)(i * 64 + (size_t)__builtin_ctzll(mask[i]));
    }
    if (rc == 0) *token = n == 1 ? only : -1;
    mem_free(mask);
    return rc;
}
