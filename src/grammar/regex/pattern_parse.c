/* SPDX-License-Identifier: MIT
 *
 * pattern_parse.c: the syntax of patterns: ECMA-262, section 22.2.1, with the escapes and braces of annex B.
 */
#include "grammar/regex/pattern_parse.h"

#include <string.h>

#include "base/inline/digits.h"
#include "base/utf8.h"
#include "grammar/regex/charset.h"
#include "grammar/regex/pattern.h"

#define MAX_DEPTH 200 /* groups in groups */

static uint32_t parse_choice(struct pattern *p);

static uint32_t fail(struct pattern *p, int code, const char *what)
{
    limits_fail(p->r->l, code, "character %zu of the pattern: %s", p->at + 1, what);
    return 0;
}

/* ---- nodes ---- */

static uint32_t add(struct pattern *p, enum pattern_kind kind)
{
    if (!limits_spend(p->r->l, 1)) return 0;
    struct pattern_node *q = limits_grow(p->r->l, p->nodes, &p->cap_nodes, p->n_nodes + 1, sizeof *q);
    if (!q) return 0;
    p->nodes = q;
    q[p->n_nodes] =
        (struct pattern_node){.kind = (uint8_t)kind, .asserts = kind >= PATTERN_BEGIN, .begins = kind == PATTERN_BEGIN};
    return p->n_nodes++;
}

static void add_child(struct pattern *p, uint32_t parent, uint32_t child)
{
    struct pattern_node *a = &p->nodes[parent], *b = &p->nodes[child];
    b->next = a->child;
    a->child = child;
    a->asserts |= b->asserts;
    a->begins |= b->begins;
}

/* A node for the characters of the set, which is freed. */
static uint32_t add_set(struct pattern *p, struct charset *s, bool invert)
{
    uint32_t node = 0;
    charset_finish(s);
    if (!invert || charset_invert(s, p->r->l)) node = add(p, PATTERN_SET);
    if (node) p->nodes[node].set = charset_regex(s, p->r);
    charset_deinit(s, p->r->l);
    return p->r->l->rc ? 0 : node;
}

/* ---- characters ---- */

static bool more(const struct pattern *p) { return p->at < p->n; }
static int peek(const struct pattern *p) { return more(p) ? p->text[p->at] : -1; }

static bool take(struct pattern *p, char c)
{
    if (peek(p) != (uint8_t)c) return false;
    p->at++;
    return true;
}

static bool take_text(struct pattern *p, const char *s)
{
    size_t n = strlen(s);
    if (p->n - p->at < n || memcmp(p->text + p->at, s, n) != 0) return false;
    p->at += n;
    return true;
}

static bool take_char(struct pattern *p, uint32_t *cp)
{
    unsigned n = utf8_get(p->text + p->at, p->n - p->at, cp);
    if (n == 0) return fail(p, QN_EDATA, "it is not UTF-8");
    p->at += n;
    return true;
}

static bool take_hex(struct pattern *p, unsigned n, uint32_t *v)
{
    *v = 0;
    for (unsigned i = 0; i < n; i++) {
        int d = hex_digit(peek(p));
        if (d < 0) return fail(p, QN_EDATA, "a hexadecimal digit is missing");
        *v = *v * 16 + (uint32_t)d;
        p->at++;
    }
    return true;
}

/* After \u: four digits, a pair of surrogates, or any number of digits in braces. */
static bool take_code_point(struct pattern *p, uint32_t *cp)
{
    uint32_t low;
    if (take(p, '{')) {
        for (*cp = 0; hex_digit(peek(p)) >= 0 && *cp <= 0x10FFFF; p->at++)
            *cp = *cp * 16 + (uint32_t)hex_digit(peek(p));
        if (!take(p, '}') || *cp > 0x10FFFF) return fail(p, QN_EDATA, "\\u{...} is not a code point");
        return true;
    }
    if (!take_hex(p, 4, cp)) return false;
    if (*cp < 0xD800 || *cp > 0xDBFF || !take_text(p, "\\u")) return true;
    if (!take_hex(p, 4, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return fail(p, QN_EUNSUP, "half of a surrogate pair");
    *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* ---- escapes ---- */

static bool take_property(struct pattern *p, bool invert, struct charset *s)
{
    struct charset chars = {0};
    const char *name = (const char *)p->text + p->at + 1;
    const char *end = peek(p) == '{' ? memchr(name, '}', p->n - p->at - 1) : NULL;
    if (!end) return fail(p, QN_EDATA, "\\p without a name in braces");
    size_t n = (size_t)(end - name);
    for (int i = 0; i < 2; i++) {
        const char *prefix = i ? "gc=" : "General_Category=";
        if (n > strlen(prefix) && memcmp(name, prefix, strlen(prefix)) == 0) {
            name += strlen(prefix);
            n -= strlen(prefix);
        }
    }
    bool ok = charset_add_category(&chars, p->r->l, name, n);
    if (!ok) fail(p, QN_EUNSUP, "\\p with a property that is not a general category");
    if (ok && invert) ok = charset_invert(&chars, p->r->l);
    ok = ok && charset_add_set(s, p->r->l, &chars);
    charset_deinit(&chars, p->r->l);
    p->at = (size_t)(end - (const char *)p->text) + 1;
    return ok;
}

/* After a backslash: one character, *cp; or a class, which is added to *s, and *is_class. */
static bool take_escape(struct pattern *p, struct charset *s, uint32_t *cp, bool *is_class)
{
    static const char controls[] = "t\tn\nv\vf\fr\r";
    if (!more(p)) return fail(p, QN_EDATA, "it ends with a backslash");
    int c = peek(p);
    *is_class = false;
    if (c >= 0x80) return take_char(p, cp);
    p->at++;
    *cp = (uint32_t)c;
    if (strchr("dDwWsS", c)) {
        *is_class = true;
        return charset_add_class(s, p->r->l, (char)c);
    }
    if (c == 'p' || c == 'P') {
        *is_class = true;
        return take_property(p, c == 'P', s);
    }
    for (const char *k = controls; *k; k += 2)
        if (*k == c) *cp = (uint32_t)k[1];
    if (*cp != (uint32_t)c) return true;
    if (c == 'x') return take_hex(p, 2, cp);
    if (c == 'u') return take_code_point(p, cp);
    if (c == 'c' && more(p)) {
        *cp = p->text[p->at++] & 31u;
        return true;
    }
    if (c == '0' && !is_digit(peek(p))) {
        *cp = 0;
        return true;
    }
    p->at--;
    if (is_digit(c)) return fail(p, QN_EUNSUP, "back-references are not supported");
    if (c == 'b' || c == 'B') return fail(p, QN_EUNSUP, "\\b and \\B are not supported");
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
        return fail(p, QN_EUNSUP, "this letter after a backslash is not supported");
    p->at++;
    return true;
}

/* ---- classes ---- */

/* One member of a class: a character, or a class in the class. */
static bool take_member(struct pattern *p, struct charset *s, uint32_t *cp, bool *is_class)
{
    *is_class = false;
    if (!take(p, '\\')) return take_char(p, cp);
    if (take(p, 'b')) {
        *cp = 8;
        return true;
    }
    if (take(p, '-')) {
        *cp = '-';
        return true;
    }
    return take_escape(p, s, cp, is_class);
}

static bool take_members(struct pattern *p, struct charset *s)
{
    while (more(p) && peek(p) != ']') {
        uint32_t lo, hi;
        bool lo_class, hi_class = false;
        if (!take_member(p, s, &lo, &lo_class)) return false;
        hi = lo;
        bool range = peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']';
        if (range && !lo_class) {
            p->at++;
            if (!take_member(p, s, &hi, &hi_class)) return false;
            if (hi_class && !charset_add(s, p->r->l, '-', '-')) return false;
            if (hi_class) hi = lo;
            if (hi < lo) return fail(p, QN_EDATA, "a range in a class is the wrong way round");
        }
        if (!lo_class && !charset_add(s, p->r->l, lo, hi)) return false;
    }
    if (!take(p, ']')) return fail(p, QN_EDATA, "']' is missing");
    return limits_spend(p->r->l, 1);
}

static uint32_t parse_class(struct pattern *p)
{
    struct charset s = {0};
    bool invert = take(p, '^');
    if (take_members(p, &s)) return add_set(p, &s, invert);
    charset_deinit(&s, p->r->l);
    return 0;
}

static uint32_t parse_char(struct pattern *p)
{
    struct charset s = {0};
    uint32_t cp = 0;
    bool is_class = false;
    bool ok = take(p, '\\') ? take_escape(p, &s, &cp, &is_class) : take_char(p, &cp);
    if (ok && !is_class) ok = charset_add(&s, p->r->l, cp, cp);
    if (ok) return add_set(p, &s, false);
    charset_deinit(&s, p->r->l);
    return 0;
}

/* All characters but the ends of lines. */
static uint32_t parse_dot(struct pattern *p)
{
    struct charset s = {0};
    bool ok = charset_add(&s, p->r->l, '\n', '\n') && charset_add(&s, p->r->l, '\r', '\r') &&
              charset_add(&s, p->r->l, 0x2028, 0x2029);
    return ok ? add_set(p, &s, true) : 0;
}

/* ---- groups and quantifiers ---- */

static bool skip_group_name(struct pattern *p)
{
    while (more(p) && peek(p) != '>') p->at++;
    return take(p, '>') ? true : fail(p, QN_EDATA, "the name of a group has no end");
}

static uint32_t parse_group(struct pattern *p)
{
    enum pattern_kind kind = PATTERN_EMPTY; /* no assertion */
    if (take_text(p, "?="))
        kind = PATTERN_AHEAD;
    else if (take_text(p, "?!"))
        kind = PATTERN_NOT_AHEAD;
    else if (take_text(p, "?<=") || take_text(p, "?<!"))
        return fail(p, QN_EUNSUP, "lookbehind is not supported");
    else if (take_text(p, "?<") || take_text(p, "?P<")) {
        if (!skip_group_name(p)) return 0;
    } else if (!take_text(p, "?:") && peek(p) == '?')
        return fail(p, QN_EUNSUP, "this kind of group is not supported");
    if (p->depth++ == MAX_DEPTH) return fail(p, QN_EDATA, "the groups are nested too deep");
    uint32_t inner = parse_choice(p);
    p->depth--;
    if (!inner) return 0;
    if (!take(p, ')')) return fail(p, QN_EDATA, "')' is missing");
    if (kind == PATTERN_EMPTY) return inner;
    uint32_t node = add(p, kind);
    if (node) {
        add_child(p, node, inner);
        p->nodes[node].begins = false;
    }
    return node;
}

static bool take_count(struct pattern *p, uint32_t *n)
{
    size_t from = p->at;
    for (*n = 0; is_digit(peek(p)); p->at++)
        if (*n <= RE_COUNTED) *n = *n * 10 + (uint32_t)(peek(p) - '0');
    return p->at > from;
}

/* {n}, {n,} or {n,m}; anything else after '{' is text. */
static bool take_braces(struct pattern *p, uint32_t *least, uint32_t *most)
{
    size_t from = p->at;
    if (take(p, '{') && take_count(p, least)) {
        *most = *least;
        if (take(p, ',') && !take_count(p, most)) *most = RE_NO_MAX;
        if (take(p, '}')) return true;
    }
    p->at = from;
    return false;
}

static bool take_quantifier(struct pattern *p, uint32_t *least, uint32_t *most)
{
    *least = peek(p) == '+';
    *most = peek(p) == '?' ? 1 : RE_NO_MAX;
    return take(p, '*') || take(p, '+') || take(p, '?') || take_braces(p, least, most);
}

static uint32_t parse_atom(struct pattern *p)
{
    uint32_t least, most;
    if (take(p, '(')) return parse_group(p);
    if (take(p, '[')) return parse_class(p);
    if (take(p, '.')) return parse_dot(p);
    if (take(p, '^')) return add(p, PATTERN_BEGIN);
    if (take(p, '$')) return add(p, PATTERN_END);
    if (take_quantifier(p, &least, &most)) return fail(p, QN_EDATA, "a quantifier has nothing to repeat");
    return parse_char(p);
}

static uint32_t parse_term(struct pattern *p)
{
    uint32_t least, most, atom = parse_atom(p);
    if (!atom || !take_quantifier(p, &least, &most)) return atom;
    take(p, '?');
    if (least > most) return fail(p, QN_EDATA, "the least number of repetitions is above the most");
    if (least > RE_COUNTED || (most != RE_NO_MAX && most > RE_COUNTED))
        return fail(p, QN_EDATA, "more than 100000 repetitions");
    uint32_t node = add(p, PATTERN_REPEAT);
    if (!node) return 0;
    add_child(p, node, atom);
    p->nodes[node].least = least;
    p->nodes[node].most = most;
    return node;
}

static uint32_t parse_sequence(struct pattern *p)
{
    uint32_t node = add(p, PATTERN_CAT);
    while (node && more(p) && peek(p) != '|' && peek(p) != ')') {
        uint32_t term = parse_term(p);
        if (!term) return 0;
        add_child(p, node, term);
    }
    return node;
}

static uint32_t parse_choice(struct pattern *p)
{
    uint32_t node = add(p, PATTERN_ALT);
    do {
        uint32_t one = node ? parse_sequence(p) : 0;
        if (!one) return 0;
        add_child(p, node, one);
    } while (take(p, '|'));
    return node;
}

uint32_t pattern_parse(struct pattern *p)
{
    add(p, PATTERN_EMPTY);
    if (p->n > PATTERN_BYTES) return fail(p, QN_EDATA, "it is longer than 20000 bytes");
    uint32_t root = parse_choice(p);
    if (root && more(p)) return fail(p, QN_EDATA, "')' without '('");
    return root;
}

void pattern_deinit(struct pattern *p) { limits_release(p->r->l, p->nodes, p->cap_nodes, sizeof *p->nodes); }
