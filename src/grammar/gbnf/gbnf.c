/* SPDX-License-Identifier: MIT
 *
 * gbnf.c: parses GBNF. Whatever calls no rule becomes one regular expression.
 *
 * Source: the description of the language in llama.cpp's grammars/README.md.
 */
#include "grammar/gbnf/gbnf.h"

#include <string.h>

#include "base/inline/digits.h"
#include "base/utf8.h"
#include "grammar/regex/charset.h"
#include "grammar/gbnf/gbnf_impl.h"

#define MAX_DEPTH 200 /* groups in groups */

static bool parse_choice(struct gbnf *p, struct rule_part *out, bool nested);

static bool fail(struct gbnf *p, const char *what)
{
    uint32_t line = 1;
    for (size_t i = 0; i < p->at && i < p->n; i++) line += p->text[i] == '\n';
    limits_fail(p->r->l, QN_EDATA, "line %u: %s", line, what);
    return false;
}

/* ---- characters ---- */

static int peek(const struct gbnf *p) { return p->at < p->n ? (uint8_t)p->text[p->at] : -1; }

static bool take(struct gbnf *p, char c)
{
    if (peek(p) != (uint8_t)c) return false;
    p->at++;
    return true;
}

/* White space and comments; without `lines`, not the end of a line. */
static void skip_space(struct gbnf *p, bool lines)
{
    for (;; p->at++) {
        int c = peek(p);
        if (c == '#')
            while (p->at < p->n && peek(p) != '\n') p->at++;
        c = peek(p);
        if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) return;
    }
}

static bool is_word(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool take_name(struct gbnf *p, struct str_ref *name)
{
    size_t from = p->at;
    while (is_word(peek(p))) p->at++;
    *name = (struct str_ref){p->text + from, (uint32_t)(p->at - from)};
    return p->at > from;
}

static bool take_hex(struct gbnf *p, unsigned n, uint32_t *cp)
{
    *cp = 0;
    for (unsigned i = 0; i < n; i++) {
        int d = hex_digit(peek(p));
        if (d < 0) return fail(p, "a hexadecimal digit is missing");
        *cp = *cp * 16 + (uint32_t)d;
        p->at++;
    }
    if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp <= 0xDFFF)) return fail(p, "an escape is not a code point");
    return true;
}

static bool take_char(struct gbnf *p, uint32_t *cp)
{
    static const char names[] = "tnr\\\"[]-^", chars[] = "\t\n\r\\\"[]-^";
    if (!take(p, '\\')) {
        unsigned n = utf8_get((const uint8_t *)p->text + p->at, p->n - p->at, cp);
        p->at += n;
        return n ? true : fail(p, p->at < p->n ? "it is not UTF-8" : "a text or a class has no end");
    }
    if (take(p, 'x')) return take_hex(p, 2, cp);
    if (take(p, 'u')) return take_hex(p, 4, cp);
    if (take(p, 'U')) return take_hex(p, 8, cp);
    const char *k = peek(p) > 0 ? strchr(names, peek(p)) : NULL;
    if (!k) return fail(p, "an unknown escape");
    *cp = (uint8_t)chars[k - names];
    p->at++;
    return true;
}

static bool add_byte(struct gbnf *p, uint32_t *n, uint8_t byte)
{
    char *q = limits_grow(p->r->l, p->bytes, &p->cap_bytes, *n + 1, 1);
    if (!q) return false;
    p->bytes = q;
    q[(*n)++] = (char)byte;
    return true;
}

static bool parse_text(struct gbnf *p, re_id *re)
{
    uint32_t n = 0;
    while (!take(p, '"')) {
        uint8_t utf8[4];
        uint32_t cp;
        if (!take_char(p, &cp)) return false;
        unsigned len = utf8_put(utf8, cp);
        for (unsigned i = 0; i < len; i++)
            if (!add_byte(p, &n, utf8[i])) return false;
    }
    *re = re_text(p->r, p->bytes, n);
    return !p->r->l->rc;
}

static bool parse_members(struct gbnf *p, struct charset *s)
{
    while (!take(p, ']')) {
        uint32_t lo, hi;
        if (!take_char(p, &lo)) return false;
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            if (!take_char(p, &hi)) return false;
            if (hi < lo) return fail(p, "a range in a class is the wrong way round");
        }
        if (!charset_add(s, p->r->l, lo, hi)) return false;
    }
    return true;
}

static bool parse_class(struct gbnf *p, re_id *re)
{
    struct charset s = {0};
    bool invert = take(p, '^'), ok = parse_members(p, &s);
    if (ok) charset_finish(&s);
    if (ok && invert) ok = charset_invert(&s, p->r->l);
    if (ok) *re = charset_regex(&s, p->r);
    charset_deinit(&s, p->r->l);
    return ok;
}

/* ---- parts ---- */

static uint32_t add_node(struct gbnf *p, struct rule_node node)
{
    if (!limits_spend(p->r->l, 1)) return 0;
    struct rule_node *q = limits_grow(p->r->l, p->g->nodes, &p->g->cap, p->g->n + 1, sizeof *q);
    if (!q) return 0;
    p->g->nodes = q;
    q[p->g->n] = node;
    return p->g->n++;
}

/* The part as a list of nodes; 0: it is empty, or there was a failure. */
static uint32_t nodes_of(struct gbnf *p, const struct rule_part *x)
{
    if (x->re == RE_EMPTY) return x->first;
    return add_node(p, (struct rule_node){.kind = RULE_TERM, .re = x->re, .next = x->first});
}

/* Puts a before b. */
static struct rule_part join(struct gbnf *p, struct rule_part a, struct rule_part b)
{
    if (!a.first) return (struct rule_part){re_cat(p->r, a.re, b.re), b.first, b.last};
    uint32_t first = nodes_of(p, &b);
    p->g->nodes[a.last].next = first;
    if (first) a.last = b.first ? b.last : first;
    return a;
}

static struct rule_part part_of(uint32_t node) { return (struct rule_part){RE_EMPTY, node, node}; }

static bool parse_atom(struct gbnf *p, struct rule_part *out)
{
    struct str_ref name;
    *out = (struct rule_part){.re = RE_EMPTY};
    if (take(p, '"')) return parse_text(p, &out->re);
    if (take(p, '[')) return parse_class(p, &out->re);
    if (take(p, '.')) {
        out->re = re_chars(p->r, 1, 1);
        return true;
    }
    if (take(p, '(')) {
        if (p->depth++ == MAX_DEPTH) return fail(p, "the groups are nested too deep");
        skip_space(p, true);
        if (!parse_choice(p, out, true)) return false;
        p->depth--;
        return take(p, ')') ? true : fail(p, "')' is missing");
    }
    if (peek(p) == '<' || peek(p) == '!') return fail(p, "tokens by name or number are not supported");
    if (!take_name(p, &name)) return fail(p, "this character begins nothing");
    uint32_t rule = gbnf_rule(p, name);
    *out = part_of(add_node(p, (struct rule_node){.kind = RULE_CALL, .first = rule}));
    return !p->r->l->rc;
}

static bool take_number(struct gbnf *p, uint32_t *n)
{
    size_t from = p->at;
    for (*n = 0; is_digit(peek(p)); p->at++)
        if (*n <= RE_COUNTED) *n = *n * 10 + (uint32_t)(peek(p) - '0');
    skip_space(p, false);
    return p->at > from;
}

/* Whether there is a quantifier. */
static bool take_quantifier(struct gbnf *p, uint32_t *least, uint32_t *most)
{
    *least = peek(p) == '+';
    *most = peek(p) == '?' ? 1 : RE_NO_MAX;
    if (take(p, '*') || take(p, '+') || take(p, '?')) return true;
    if (!take(p, '{')) return false;
    skip_space(p, false);
    bool ok = take_number(p, least);
    *most = *least;
    if (take(p, ',')) {
        skip_space(p, false);
        if (!take_number(p, most)) *most = RE_NO_MAX;
    }
    if (!ok || !take(p, '}')) return fail(p, "repetitions are {n}, {n,} or {n,m}");
    if (*least > RE_COUNTED || (*most != RE_NO_MAX && *most > RE_COUNTED))
        return fail(p, "more than 100000 repetitions");
    return *least <= *most ? true : fail(p, "the least number of repetitions is above the most");
}

static bool repeat(struct gbnf *p, struct rule_part *x, uint32_t least, uint32_t most)
{
    if (!x->first) {
        x->re = re_repeat(p->r, x->re, least, most);
        return !p->r->l->rc;
    }
    struct rule_node node = {.kind = RULE_REPEAT, .first = nodes_of(p, x), .least = least, .most = most};
    *x = part_of(add_node(p, node));
    return !p->r->l->rc;
}

/* Pushes an atom with its quantifiers. False at the end of the sequence, and after a failure. */
static bool parse_term(struct gbnf *p, bool nested)
{
    struct rule_part x;
    uint32_t least, most;
    skip_space(p, nested);
    int c = peek(p);
    if (c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r' || !parse_atom(p, &x)) return false;
    skip_space(p, false);
    while (take_quantifier(p, &least, &most)) {
        if (!repeat(p, &x, least, most)) return false;
        skip_space(p, false);
    }
    struct rule_part *q = limits_grow(p->r->l, p->parts, &p->cap_parts, p->n_parts + 1, sizeof *q);
    if (!q) return false;
    p->parts = q;
    q[p->n_parts++] = x;
    return !p->r->l->rc;
}

static bool parse_sequence(struct gbnf *p, struct rule_part *out, bool nested)
{
    uint32_t from = p->n_parts;
    while (parse_term(p, nested)) continue;
    *out = (struct rule_part){.re = RE_EMPTY};
    while (p->n_parts > from && !p->r->l->rc) {
        struct rule_part x = p->parts[--p->n_parts];
        *out = join(p, x, *out);
    }
    return !p->r->l->rc;
}

/* Whether another branch follows, perhaps on the next line. */
static bool take_bar(struct gbnf *p)
{
    size_t from = p->at;
    skip_space(p, true);
    if (take(p, '|')) {
        skip_space(p, true);
        return true;
    }
    p->at = from;
    return false;
}

static bool parse_choice(struct gbnf *p, struct rule_part *out, bool nested)
{
    struct rule_part x;
    re_id re = RE_NONE;
    uint32_t first = 0, n = 0, n_plain = 0;
    do {
        if (!parse_sequence(p, &x, nested)) return false;
        n++;
        if (!x.first) {
            re = re_or2(p->r, re, x.re);
            n_plain++;
            continue;
        }
        *out = x;
        first = add_node(p, (struct rule_node){.kind = RULE_BRANCH, .first = nodes_of(p, &x), .other = first});
    } while (!p->r->l->rc && take_bar(p));
    if (p->r->l->rc) return false;
    if (n == 1 && first) return true;
    if (n_plain == n) {
        *out = (struct rule_part){.re = re};
        return true;
    }
    if (n_plain) {
        struct rule_part plain = {.re = re};
        uint32_t node = nodes_of(p, &plain); /* 0, the end, if it is the empty text */
        first = add_node(p, (struct rule_node){.kind = RULE_BRANCH, .first = node, .other = first});
    }
    *out = part_of(add_node(p, (struct rule_node){.kind = RULE_CHOICE, .first = first}));
    return !p->r->l->rc;
}

/* ---- rules ---- */

uint32_t gbnf_rule(struct gbnf *p, struct str_ref name)
{
    for (uint32_t i = 0; i < p->n_rules; i++)
        if (p->rules[i].name.n == name.n && memcmp(p->rules[i].name.p, name.p, name.n) == 0) return i;
    struct gbnf_rule *q = limits_grow(p->r->l, p->rules, &p->cap_rules, p->n_rules + 1, sizeof *q);
    if (!q || !limits_spend(p->r->l, 1 + p->n_rules / 8)) return 0;
    p->rules = q;
    q[p->n_rules] = (struct gbnf_rule){.name = name};
    return p->n_rules++;
}

static bool parse_rule(struct gbnf *p)
{
    struct str_ref name;
    struct rule_part body;
    if (!take_name(p, &name)) return fail(p, "the name of a rule is missing");
    skip_space(p, false);
    if (!(take(p, ':') && take(p, ':') && take(p, '='))) return fail(p, "'::=' is missing");
    skip_space(p, true);
    uint32_t rule = gbnf_rule(p, name);
    if (p->r->l->rc) return false;
    if (p->rules[rule].defined) return fail(p, "a rule is defined twice");
    if (!parse_choice(p, &body, false)) return false;
    if (peek(p) == ')') return fail(p, "')' without '('");
    if (!body.first && body.re == RE_NONE)
        body.first = add_node(p, (struct rule_node){.kind = RULE_TERM, .re = RE_NONE});
    p->rules[rule].first = nodes_of(p, &body);
    p->rules[rule].defined = true;
    return !p->r->l->rc;
}

static bool parse(struct gbnf *p, uint32_t *root)
{
    static const struct str_ref name = {"root", 4};
    add_node(p, (struct rule_node){.kind = RULE_END});
    for (skip_space(p, true); p->at < p->n; skip_space(p, true))
        if (!parse_rule(p)) return false;
    uint32_t i = gbnf_rule(p, name);
    if (p->r->l->rc) return false;
    if (!p->rules[i].defined) return fail(p, "there is no rule 'root'");
    for (uint32_t k = 0; k < p->n_rules; k++) {
        if (p->rules[k].defined) continue;
        limits_fail(p->r->l, QN_EDATA, "the rule '%.*s' is not defined", (int)p->rules[k].name.n, p->rules[k].name.p);
        return false;
    }
    if (!gbnf_check(p, i)) return false;
    *root = p->rules[i].first;
    return true;
}

bool gbnf_parse(struct rules *g, struct regex *r, const char *text, size_t n, uint32_t *root)
{
    struct gbnf p = {.g = g, .r = r, .text = text, .n = n};
    bool ok = parse(&p, root);
    limits_release(r->l, p.rules, p.cap_rules, sizeof *p.rules);
    limits_release(r->l, p.parts, p.cap_parts, sizeof *p.parts);
    limits_release(r->l, p.bytes, p.cap_bytes, 1);
    return ok;
}

void rules_deinit(struct rules *g, struct limits *l)
{
    limits_release(l, g->nodes, g->cap, sizeof *g->nodes);
    *g = (struct rules){0};
}
