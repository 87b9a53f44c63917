/* SPDX-License-Identifier: MIT
 *
 * token_trie.c: see token_trie.h.
 */
#include "grammar/mask/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/inline/digits.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- what a token does inside a string ---- */

/* How a token that begins inside a string, between two characters, goes on. */
struct string_scan {
    uint32_t n_chars; /* that it begins */
    size_t end;       /* where the quotation mark is that ends the string; the length if there is none */
    bool fits;        /* it is possible up to there */
    bool odd;         /* it has half of a surrogate pair: this scan does not know */
};

/* The length of a character's UTF-8 at p, where n bytes are left and the last character may be cut off; 0: none. */
static unsigned char_length(const uint8_t *p, size_t n)
{
    static const uint8_t rest[] = {0x80, 0x80, 0x80};
    uint8_t whole[4] = {p[0]};
    uint32_t cp;
    unsigned len = 1u + (p[0] >= 0x80) + (p[0] >= 0xE0) + (p[0] >= 0xF0);
    if (len <= n) return utf8_get(p, len, &cp);
    memcpy(whole + 1, rest, 3);
    memcpy(whole, p, n);
    if (n == 1 && (p[0] == 0xE0 || p[0] == 0xF0)) whole[1] = 0xA0; /* the least that may follow */
    return utf8_get(whole, len, &cp) ? (unsigned)n : 0;
}

/* Whether p[0 .. n) are hexadecimal digits. */
static bool is_hex(const uint8_t *p, size_t n, uint32_t *value)
{
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        int d = hex_digit(p[i]);
        if (d < 0) return false;
        *value = *value * 16 + (uint32_t)d;
    }
    return true;
}

/* The length of an escape after its backslash, at p; 0: none. */
static unsigned escape_length(const uint8_t *p, size_t n, bool *odd)
{
    uint32_t value;
    if (n == 0) return 0;
    if (p[0] != 'u') return p[0] && strchr("\"\\/bfnrt", p[0]) ? 1 : 0;
    size_t digits = n - 1 < 4 ? n - 1 : 4;
    if (!is_hex(p + 1, digits, &value)) return 0;
    bool whole = digits == 4;
    for (; digits < 4 && digits > 0; digits++) value *= 16;
    *odd |= value >= (whole ? 0xD800 : 0xD000) && value <= 0xDFFF;
    return n < 5 ? (unsigned)n : 5;
}

static struct string_scan scan_string(const uint8_t *p, size_t n)
{
    struct string_scan s = {.fits = true};
    for (size_t i = 0; i < n;) {
        if (p[i] == '"') {
            s.end = i;
            return s;
        }
        bool escape = p[i] == '\\';
        unsigned len = p[i] < 0x20 ? 0 : char_length(p + i, n - i);
        if (escape && i + 1 < n) {
            unsigned more = escape_length(p + i + 1, n - i - 1, &s.odd);
            len = more ? 1 + more : 0;
        }
        s.n_chars++;
        i += len;
        s.fits = len > 0;
        if (!s.fits) break;
    }
    s.end = n;
    return s;
}

/* ---- memory ---- */

/* Takes memory for the tree from its ledger. */
static int take(struct token_trie *t, size_t bytes, struct qn_error *e)
{
    int rc = t->ledger ? ledger_take(t->ledger, bytes, "the tree of the vocabulary's tokens", e) : 0;
    if (!rc) t->taken += bytes;
    return rc;
}

static void give(struct token_trie *t, size_t bytes)
{
    if (t->ledger) ledger_give(t->ledger, bytes);
    t->taken -= bytes;
}

/* ---- building a tree ---- */

/* A text and what it stands for, before it is in the tree. */
struct token_entry {
    const uint8_t *p;
    uint32_t n;
    qn_token token;
    uint16_t n_chars;
};

static int by_text(const void *a, const void *b)
{
    const struct token_entry *x = a, *y = b;
    uint32_t n = x->n < y->n ? x->n : y->n;
    int c = n ? memcmp(x->p, y->p, n) : 0;
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    if (x->n_chars != y->n_chars) return x->n_chars < y->n_chars ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static uint32_t shared(const struct token_entry *a, const struct token_entry *b)
{
    uint32_t i = 0;
    while (i < a->n && i < b->n && a->p[i] == b->p[i]) i++;
    return i;
}

/* Adds the nodes and items for sorted entries; empty texts have items only. There is room for all. */
static void fill_trie(struct trie *t, const struct token_entry *e, uint32_t n)
{
    uint32_t path[TRIE_MAX_TOKEN], depth = 0; /* the nodes on the way to the last one */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t keep = i ? shared(&e[i - 1], &e[i]) : 0;
        bool same = i && e[i].n == e[i - 1].n && keep == e[i].n;
        if (same) t->items[t->n_items - 1].is_last = false;
        for (; depth > keep; depth--) t->nodes[path[depth - 1]].next = t->n_nodes;
        for (; depth < e[i].n; depth++) {
            path[depth] = t->n_nodes;
            t->nodes[t->n_nodes++] = (struct trie_node){.first = -1, .depth = (uint16_t)depth, .byte = e[i].p[depth]};
        }
        if (!same && depth) t->nodes[path[depth - 1]].first = (int32_t)t->n_items;
        t->items[t->n_items++] = (struct trie_item){e[i].token, e[i].n_chars, true};
    }
    for (; depth > 0; depth--) t->nodes[path[depth - 1]].next = t->n_nodes;
}

/* Builds a tree of entries, which it sorts. all: that it is a part of. */
static int build_trie(struct token_trie *all, struct trie *t, struct token_entry *e, uint32_t n, struct qn_error *e_out)
{
    size_t n_nodes = 0;
    if (n > 1) qsort(e, n, sizeof *e, by_text);
    for (uint32_t i = 0; i < n; i++) n_nodes += e[i].n - (i ? shared(&e[i - 1], &e[i]) : 0);
    int rc = take(all, n_nodes * sizeof *t->nodes + n * sizeof *t->items, e_out);
    if (rc) return rc;
    t->nodes = mem_alloc(n_nodes * sizeof *t->nodes);
    t->items = mem_alloc(n * sizeof *t->items);
    if (!t->nodes || !t->items) return error_nomem(e_out, "a tree of tokens", n_nodes * sizeof *t->nodes);
    fill_trie(t, e, n);
    return 0;
}

/* ---- the texts of tokens ---- */

/* Appends the text of a token as the tree has it. */
static int read_text(const struct vocab *v, qn_token id, struct buf *text, struct qn_error *e)
{
    static const uint8_t mark = TRIE_SPECIAL;
    size_t before = text->len;
    if (vocab_is_eog(v, id)) return 0;
    if (vocab_is_special(v, id)) {
        struct str s = vocab_token_text(v, id);
        int rc = s.n ? buf_add(text, &mark, 1, e) : 0;
        return rc ? rc : buf_add(text, s.p, s.n, e);
    }
    int rc = vocab_token_bytes(v, id, false, text, e);
    if (!rc && text->len > before && memchr(text->data + before, mark, text->len - before)) text->len = before;
    return rc;
}

static int read_texts(struct token_trie *t, const struct vocab *v, struct qn_error *e)
{
    struct buf text = {0};
    size_t words = ((size_t)t->n_tokens + 1) * sizeof *t->start, most = 1;
    /* What a token stands for is never longer than its text in the vocabulary, but for the mark of special ones. */
    for (qn_token id = 0; id < t->n_tokens; id++) most += vocab_token_text(v, id).n + 1;
    int rc = take(t, words + most, e);
    if (!rc) rc = buf_reserve(&text, most - 1, e);
    if (rc) return rc;
    t->start = mem_calloc((size_t)t->n_tokens + 1, sizeof *t->start);
    if (!t->start) {
        buf_deinit(&text);
        return error_nomem(e, "the texts of tokens", words);
    }
    for (qn_token id = 0; id < t->n_tokens && rc == 0; id++) {
        size_t before = text.len;
        rc = read_text(v, id, &text, e);
        if (text.len - before > TRIE_MAX_TOKEN) text.len = before;
        t->start[id + 1] = (uint32_t)text.len;
    }
    t->bytes = text.data;
    return rc;
}

static int read_eog(struct token_trie *t, const struct vocab *v, struct qn_error *e)
{
    const qn_token *eog = vocab_eog(v, &t->n_eog);
    size_t bytes = (size_t)t->n_eog * sizeof *eog;
    t->eog = mem_alloc(bytes);
    if (!t->eog) return error_nomem(e, "the tokens that end generation", bytes);
    if (bytes) memcpy(t->eog, eog, bytes);
    return 0;
}

const uint8_t *token_trie_text(const struct token_trie *t, qn_token token, size_t *n)
{
    *n = 0;
    if (token < 0 || token >= t->n_tokens) return NULL;
    *n = t->start[token + 1] - t->start[token];
    return t->bytes + t->start[token];
}

/* The next node for byte b among those from *i to *end, which become its children; NULL: there is none. */
static const struct trie_node *child(const struct trie *t, uint32_t *i, uint32_t *end, uint8_t b)
{
    while (*i < *end && t->nodes[*i].byte != b) *i = t->nodes[*i].next;
    if (*i >= *end) return NULL;
    const struct trie_node *node = &t->nodes[(*i)++];
    *end = node->next;
    return node;
}

bool token_trie_has(const struct token_trie *t, const void *text, size_t n)
{
    const struct trie_node *node = NULL;
    uint32_t i = 0, end = t->all.n_nodes;
    for (size_t k = 0; k < n; k++)
        if (!(node = child(&t->all, &i, &end, ((const uint8_t *)text)[k]))) return false;
    return node && node->first >= 0;
}

qn_token token_trie_longest(const struct token_trie *t, const void *text, size_t n, size_t *n_bytes, int *n_tokens)
{
    uint32_t i = 0, end = t->all.n_nodes;
    qn_token longest = -1;
    *n_tokens = 0;
    *n_bytes = 0;
    for (size_t k = 0; k < n; k++) {
        const struct trie_node *node = child(&t->all, &i, &end, ((const uint8_t *)text)[k]);
        if (!node) break;
        if (node->first < 0) continue;
        const struct trie_item *item = &t->all.items[node->first];
        for (++*n_tokens; !item->is_last; item++) ++*n_tokens;
        longest = item->token;
        *n_bytes = k + 1;
    }
    return longest;
}

static void set_items(const struct trie *t, const struct trie_node *node, uint64_t *mask)
{
    if (node->first < 0) return;
    for (const struct trie_item *x = &t->items[node->first];; x++) {
        mask[x->token / 64] |= (uint64_t)1 << (x->token % 64);
        if (x->is_last) return;
    }
}

void token_trie_meet(const struct token_trie *t, const void *text, size_t n, uint64_t *mask)
{
    uint32_t i = 0, end = t->all.n_nodes;
    for (size_t k = 0; k < n; k++) {
        const struct trie_node *node = child(&t->all, &i, &end, ((const uint8_t *)text)[k]);
        if (!node) return;
        set_items(&t->all, node, mask);
    }
    for (; i < end; i++) set_items(&t->all, &t->all.nodes[i], mask);
}

/* ---- all of it ---- */

static uint16_t small(uint32_t n) { return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX; }

static int by_chars(const void *a, const void *b)
{
    const struct trie_inside *x = a, *y = b;
    if (x->n_chars != y->n_chars) return x->n_chars > y->n_chars ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* Whether a comma comes after what may be the end of a JSON value. */
static bool may_repeat(const uint8_t *p, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (p[i] == ',' && strchr("\"]}0123456789el", p[i - 1]) && p[i - 1]) return true;
    return false;
}

/* Notes that a token stays inside a string, or may do so. */
static void add_inside(struct token_trie *t, qn_token id, const uint8_t *p, size_t n, const struct string_scan *s)
{
    bool escapes = memchr(p, '\\', n) != NULL;
    if (escapes) t->escapes[t->n_escapes++] = id;
    if (s->odd) {
        t->odd[t->n_odd++] = id;
        return;
    }
    t->inside[t->n_inside++] = (struct trie_inside){id, small(s->n_chars)};
    t->inside_mask[id / 64] |= (uint64_t)1 << (id % 64);
    if (!escapes) t->plain_mask[id / 64] |= (uint64_t)1 << (id % 64);
    t->inside_by_byte[p[0]]++;
}

/* Lists the texts of all tokens in all[], and those after a closing quotation mark in closers[]. */
static void sort_out(struct token_trie *t, struct token_entry *all, uint32_t *n_all, struct token_entry *closers,
                     uint32_t *n_closers)
{
    for (qn_token id = 0; id < t->n_tokens; id++) {
        size_t n;
        const uint8_t *p = token_trie_text(t, id, &n);
        if (n == 0) continue;
        struct string_scan s = scan_string(p, n);
        all[(*n_all)++] = (struct token_entry){p, (uint32_t)n, id, 0};
        if (may_repeat(p, n))
            t->repeats[t->n_repeats++] = id;
        else if (p[0] == ',')
            t->commas[t->n_commas++] = id;
        if (s.odd || (s.fits && s.end == n))
            add_inside(t, id, p, n, &s);
        else if (s.fits)
            closers[(*n_closers)++] =
                (struct token_entry){p + s.end + 1, (uint32_t)(n - s.end - 1), id, small(s.n_chars)};
    }
    if (t->n_inside > 1) qsort(t->inside, t->n_inside, sizeof *t->inside, by_chars);
}

/* Those of the closers that have nothing after the quotation mark come first, and are no node of the tree. */
static int build_closers(struct token_trie *t, struct token_entry *e, uint32_t n, struct qn_error *err)
{
    int rc = build_trie(t, &t->closers, e, n, err);
    t->closers_empty = rc == 0 && n && e[0].n == 0 ? 0 : -1;
    return rc;
}

static int build(struct token_trie *t, const struct vocab *v, struct token_entry *all, struct token_entry *closers,
                 struct qn_error *e)
{
    uint32_t n_all = 0, n_closers = 0;
    size_t lists = sizeof *t->inside + sizeof *t->odd + sizeof *t->repeats + sizeof *t->commas + sizeof *t->escapes;
    int rc = take(t, (size_t)t->n_tokens * lists + 2 * token_trie_mask_words(t) * sizeof *t->inside_mask, e);
    if (rc) return rc;
    t->inside = mem_alloc((size_t)t->n_tokens * sizeof *t->inside);
    t->inside_mask = mem_calloc(token_trie_mask_words(t), sizeof *t->inside_mask);
    t->odd = mem_alloc((size_t)t->n_tokens * sizeof *t->odd);
    t->repeats = mem_alloc((size_t)t->n_tokens * sizeof *t->repeats);
    t->commas = mem_alloc((size_t)t->n_tokens * sizeof *t->commas);
    t->plain_mask = mem_calloc(token_trie_mask_words(t), sizeof *t->plain_mask);
    t->escapes = mem_alloc((size_t)t->n_tokens * sizeof *t->escapes);
    if (!t->inside || !t->inside_mask || !t->plain_mask || !t->escapes || !t->odd || !t->repeats || !t->commas)
        return error_nomem(e, "a tree of tokens", (size_t)t->n_tokens * sizeof *t->inside);
    rc = read_texts(t, v, e);
    if (rc == 0) rc = read_eog(t, v, e);
    if (rc) return rc;
    sort_out(t, all, &n_all, closers, &n_closers);
    rc = build_trie(t, &t->all, all, n_all, e);
    return rc ? rc : build_closers(t, closers, n_closers, e);
}

int token_trie_new_from(struct token_trie **out, const struct vocab *v, struct ledger *ledger, struct qn_error *e)
{
    size_t n = (size_t)vocab_n_tokens(v), entries = 2 * n * sizeof(struct token_entry);
    struct token_trie first = {.n_tokens = (int32_t)n, .ledger = ledger}, *t;
    int rc = take(&first, sizeof *t + entries, e);
    if (rc) return rc;
    t = mem_alloc(sizeof *t);
    struct token_entry *all = mem_alloc(entries), *closers = all ? all + n : NULL;
    if (!t || !all) {
        mem_free(t);
        mem_free(all);
        give(&first, first.taken);
        return error_nomem(e, "a tree of tokens", entries);
    }
    *t = first;
    rc = build(t, v, all, closers, e);
    mem_free(all);
    give(t, entries);
    if (rc)
        token_trie_free(t);
    else
        *out = t;
    return rc;
}

int token_trie_new(struct token_trie **out, const struct vocab *v, struct qn_error *e)
{
    return token_trie_new_from(out, v, NULL, e);
}

void token_trie_free(struct token_trie *t)
{
    if (!t) return;
    mem_free(t->all.nodes);
    mem_free(t->all.items);
    mem_free(t->closers.nodes);
    mem_free(t->closers.items);
    mem_free(t->inside);
    mem_free(t->inside_mask);
    mem_free(t->plain_mask);
    mem_free(t->escapes);
    mem_free(t->odd);
    mem_free(t->repeats);
    mem_free(t->commas);
    mem_free(t->start);
    mem_free(t->bytes);
    mem_free(t->eog);
    give(t, t->taken);
    mem_free(t);
}
