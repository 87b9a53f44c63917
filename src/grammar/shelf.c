/* SPDX-License-Identifier: MIT
 *
 * shelf.c: keeps compiled grammars for later requests. See shelf.h.
 */
#include "grammar/shelf.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

static void free_shelved(struct shelved *g)
{
    if (!g) return;
    size_t bytes = sizeof *g + g->p.n;
    grammar_free(g->g);
    pthread_mutex_destroy(&g->lock);
    limits_source_give(&g->shelf->source, bytes);
    mem_free(g);
}

static struct shelved *take_oldest(struct grammar_shelf *s);

/* Gives up one grammar that nobody uses. */
static bool drop_one(void *arg)
{
    struct grammar_shelf *s = arg;
    pthread_mutex_lock(&s->lock);
    struct shelved *g = take_oldest(s);
    pthread_mutex_unlock(&s->lock);
    free_shelved(g);
    return g != NULL;
}

void shelf_init(struct grammar_shelf *s)
{
    *s = (struct grammar_shelf){.feeds = {-1, -1}};
    ledger_init(&s->own, SHELF_BYTES);
    s->source.ledger = &s->own;
    s->source.drop = drop_one;
    s->source.arg = s;
    pthread_mutex_init(&s->lock, NULL);
}

void shelf_pay_from(struct grammar_shelf *s, struct ledger *l)
{
    assert(!shelf_bytes(s));
    s->source.ledger = l;
}

size_t shelf_bytes(const struct grammar_shelf *s) { return atomic_load(&s->source.used); }

void shelf_deinit(struct grammar_shelf *s)
{
    while (s->first) {
        struct shelved *g = s->first;
        assert(!g->n_users);
        s->first = g->next;
        free_shelved(g);
    }
    if (s->trie) s->source.used -= s->trie->taken;
    token_trie_free(s->trie);
    assert(!shelf_bytes(s));
    pthread_mutex_destroy(&s->lock);
}

/* ---- compiling ---- */

static int from_json(struct grammar **out, const struct qn_grammar_params *p, const struct grammar_options *o,
                     struct qn_error *e)
{
    json_error_t why;
    json_t *schema = json_loadb(p->text, p->n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!schema)
        return error_set(e, QN_EDATA, "line %d, column %d: the schema is not JSON: %s", why.line, why.column, why.text);
    int rc = grammar_from_schema(out, schema, o, e);
    json_decref(schema);
    return rc;
}

static int from_choice(struct grammar **out, const struct qn_grammar_params *p, const struct grammar_options *o,
                       struct qn_error *e)
{
    json_t *list = json_loadb(p->text, p->n, JSON_ALLOW_NUL, NULL);
    size_t n = json_array_size(list);
    struct str *choices = mem_alloc((n + 1) * sizeof *choices);
    int rc = choices ? 0 : error_nomem(e, "choices", (n + 1) * sizeof *choices);
    if (!rc && !n) rc = error_set(e, QN_EDATA, "the choices are not an array of texts, or there are none");
    for (size_t i = 0; i < n && !rc; i++) {
        const json_t *v = json_array_get(list, i);
        choices[i] = (struct str){json_string_value(v), json_string_length(v)};
        if (!json_is_string(v)) rc = error_set(e, QN_EDATA, "choice %zu is not a text", i + 1);
    }
    if (!rc) rc = grammar_from_choice(out, choices, n, o, e);
    mem_free(choices);
    json_decref(list);
    return rc;
}

static int from_calls(struct grammar **out, const struct qn_grammar_params *p, const struct token_trie *t,
                      const struct grammar_options *o, struct qn_error *e)
{
    json_t *description = json_loadb(p->text, p->n, JSON_ALLOW_NUL, NULL);
    if (!description) return error_nomem(e, "tool calls", p->n);
    int rc = grammar_from_calls(out, description, t, o, e);
    json_decref(description);
    return rc;
}

static int compile(struct grammar **out, struct grammar_shelf *s, const struct qn_grammar_params *p, struct qn_error *e)
{
    const struct grammar_options o = {.spaces = p->spaces,
                                      .any_order = p->any_order,
                                      .memory_bytes = SHELF_GRAMMAR_BYTES - p->n,
                                      .source = &s->source};
    switch (p->kind) {
    case QN_GRAMMAR_JSON_OBJECT: return grammar_from_json_object(out, &o, e);
    case QN_GRAMMAR_JSON_SCHEMA: return from_json(out, p, &o, e);
    case QN_GRAMMAR_GBNF: return grammar_from_gbnf(out, p->text, p->n, &o, e);
    case QN_GRAMMAR_REGEX: return grammar_from_regex(out, p->text, p->n, &o, e);
    case QN_GRAMMAR_CHOICE: return from_choice(out, p, &o, e);
    case QN_GRAMMAR_TOOL_CALLS: return from_calls(out, p, s->trie, &o, e);
    }
    return error_set(e, QN_EUSAGE, "grammar: unknown kind %d", p->kind);
}

static int new_shelved(struct shelved **out, struct grammar_shelf *s, const struct qn_grammar_params *p,
                       struct qn_error *e)
{
    if (p->n >= SHELF_GRAMMAR_BYTES) /* the text stays on the shelf, too */
        return error_set(e, QN_EUNSUP, "the text has %zu bytes, a grammar may take %zu in all", p->n,
                         SHELF_GRAMMAR_BYTES);
    struct shelved *g;
    int rc = limits_source_take(&s->source, sizeof *g + p->n, "the text of a grammar", e);
    if (rc) return rc;
    g = mem_calloc(1, sizeof *g + p->n);
    if (!g) {
        limits_source_give(&s->source, sizeof *g + p->n);
        return error_nomem(e, "a grammar", sizeof *g + p->n);
    }
    pthread_mutex_init(&g->lock, NULL);
    g->shelf = s;
    g->p = *p;
    g->p.prompt = NULL; /* what tool calls need of these is in their text */
    g->p.form = NULL;
    g->p.names = NULL;
    if (p->n) memcpy(g + 1, p->text, p->n);
    g->p.text = (char *)(g + 1);
    rc = compile(&g->g, s, &g->p, e);
    if (rc)
        free_shelved(g);
    else
        *out = g;
    return rc;
}

/* ---- the shelf ---- */

static bool is_same(const struct qn_grammar_params *a, const struct qn_grammar_params *b)
{
    bool is_shared = a->identity == b->identity && a->salt[0] == b->salt[0] && a->salt[1] == b->salt[1];
    return is_shared && a->kind == b->kind && a->spaces == b->spaces && a->any_order == b->any_order && a->n == b->n &&
           (!a->n || !memcmp(a->text, b->text, a->n));
}

/* Finds a grammar, puts it in front and counts a user; with the lock. */
static struct shelved *find(struct grammar_shelf *s, const struct qn_grammar_params *p)
{
    for (struct shelved **at = &s->first, *g; (g = *at); at = &g->next) {
        if (!is_same(&g->p, p)) continue;
        *at = g->next;
        g->next = s->first;
        s->first = g;
        g->n_users++;
        return g;
    }
    return NULL;
}

/* Takes the least recently used grammar that nobody uses off the shelf; with the lock. NULL: all are in use. */
static struct shelved *take_oldest(struct grammar_shelf *s)
{
    struct shelved **oldest = NULL;
    for (struct shelved **at = &s->first; *at; at = &(*at)->next)
        if (!(*at)->n_users) oldest = at;
    if (!oldest) return NULL;
    struct shelved *g = *oldest;
    *oldest = g->next;
    s->n--;
    return g;
}

static void find_feeds(struct grammar_shelf *s)
{
    for (qn_token t = 0; t < s->trie->n_tokens; t++) {
        size_t n;
        const uint8_t *p = token_trie_text(s->trie, t, &n);
        if ((n == 1 || n == 2) && !memcmp(p, "\n\n", n)) s->feeds[n - 1] = t;
    }
}

static int make_trie(struct grammar_shelf *s, const struct vocab *v, struct qn_error *e)
{
    pthread_mutex_lock(&s->lock); /* a second thread waits until the tree is there */
    bool is_new = !s->trie;
    struct ledger *l = s->source.ledger->whole ? s->source.ledger->whole : s->source.ledger;
    int rc = is_new ? token_trie_new_from(&s->trie, v, l, e) : 0;
    if (!rc && is_new) {
        s->source.used += s->trie->taken;
        find_feeds(s);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Puts a new grammar on the shelf, unless another thread was faster, whose grammar then takes its place in *g. */
static int add(struct grammar_shelf *s, struct shelved **g, struct qn_error *e)
{
    struct shelved *gone = NULL;
    pthread_mutex_lock(&s->lock);
    struct shelved *twin = find(s, &(*g)->p);
    bool is_full = !twin && s->n == SHELF_PLACES && !(gone = take_oldest(s));
    if (!twin && !is_full) {
        (*g)->n_users = 1;
        (*g)->trie = s->trie;
        (*g)->next = s->first;
        s->first = *g;
        s->n++;
    }
    pthread_mutex_unlock(&s->lock);
    free_shelved(gone);
    if (!twin && !is_full) return 0;
    free_shelved(*g);
    *g = twin;
    return twin ? 0 : error_set(e, QN_EBUSY, "grammar: %d grammars are in use already", SHELF_PLACES);
}

int shelf_get(struct shelved **out, struct grammar_shelf *s, const struct vocab *v, const struct qn_grammar_params *p,
              struct qn_error *e)
{
    pthread_mutex_lock(&s->lock);
    struct shelved *g = find(s, p);
    pthread_mutex_unlock(&s->lock);
    int rc = 0;
    if (!g && !(rc = make_trie(s, v, e)) && !(rc = new_shelved(&g, s, p, e))) rc = add(s, &g, e);
    if (!rc) *out = g;
    return rc;
}

void shelf_use(struct shelved *g)
{
    pthread_mutex_lock(&g->shelf->lock);
    g->n_users++;
    pthread_mutex_unlock(&g->shelf->lock);
}

/* Gives back the grammars that nobody uses while they have too much memory. They become more only before this is
 * called, so all shelves with this ledger together have no more than a quarter of it in such grammars. */
static void drop_surplus(struct grammar_shelf *s)
{
    const struct ledger *l = s->source.ledger;
    struct shelved *gone;
    do {
        size_t idle = 0;
        pthread_mutex_lock(&s->lock);
        for (struct shelved *g = s->first; g; g = g->next)
            if (!g->n_users) idle += g->p.n + grammar_memory(g->g);
        bool is_surplus = idle > SHELF_IDLE_BYTES || ledger_used(l) > l->budget / 4;
        gone = is_surplus ? take_oldest(s) : NULL;
        pthread_mutex_unlock(&s->lock);
        free_shelved(gone);
    } while (gone);
}

void shelf_put(struct shelved *g)
{
    if (!g) return;
    struct grammar_shelf *s = g->shelf;
    pthread_mutex_lock(&s->lock);
    g->n_users--;
    pthread_mutex_unlock(&s->lock);
    drop_surplus(s);
}
