/* SPDX-License-Identifier: MIT
 *
 * pattern.c: a pattern's tree to a regular expression without assertions.
 *
 * Each part is converted together with the expression for all that follows it. So an assertion about what follows is
 * an intersection with that, and `$` says that it is empty. `^` matches where nothing precedes: whether that is so is
 * known from the place in the tree.
 */
#include "grammar/regex/pattern.h"

#include "grammar/regex/pattern_parse.h"

static re_id convert(struct pattern *p, uint32_t i, re_id rest, bool at_begin);

static re_id fail(struct pattern *p, const char *what)
{
    limits_fail(p->r->l, QN_EUNSUP, "the pattern has %s", what);
    return RE_NONE;
}

/* A part without assertions, by itself. */
static re_id plain(struct pattern *p, uint32_t i)
{
    const struct pattern_node *node = &p->nodes[i];
    re_id all = node->kind == PATTERN_ALT ? RE_NONE : RE_EMPTY;
    switch (node->kind) {
    case PATTERN_SET: return node->set;
    case PATTERN_REPEAT: return re_repeat(p->r, plain(p, node->child), node->least, node->most);
    case PATTERN_CAT:
        for (uint32_t k = node->child; k; k = p->nodes[k].next) all = re_cat(p->r, plain(p, k), all);
        return all;
    case PATTERN_ALT:
        for (uint32_t k = node->child; k; k = p->nodes[k].next) all = re_or2(p->r, all, plain(p, k));
        return all;
    default: return RE_EMPTY;
    }
}

static bool has_no_width(const struct pattern_node *node)
{
    return node->kind == PATTERN_EMPTY || node->kind >= PATTERN_BEGIN;
}

static re_id convert_sequence(struct pattern *p, uint32_t i, re_id rest, bool at_begin)
{
    re_id inside = rest, first = rest; /* all after the part: where something precedes it, and where nothing does */
    bool begins = false;               /* a '^' is in what follows */
    for (uint32_t k = p->nodes[i].child; k; k = p->nodes[k].next) {
        const struct pattern_node *node = &p->nodes[k];
        re_id next = convert(p, k, inside, false);
        if (has_no_width(node))
            first = convert(p, k, first, at_begin);
        else if (begins && !node->asserts && re_is_nullable(p->r, plain(p, k)))
            return fail(p, "'^' after something optional");
        else
            first = at_begin ? convert(p, k, inside, true) : next;
        inside = next;
        begins |= node->begins;
    }
    return at_begin ? first : inside;
}

static re_id convert_ahead(struct pattern *p, const struct pattern_node *node, re_id rest, bool at_begin)
{
    re_id ahead = convert(p, node->child, re_chars(p->r, 0, RE_NO_MAX), at_begin);
    return re_and2(p->r, rest, node->kind == PATTERN_AHEAD ? ahead : re_not(p->r, ahead));
}

static re_id convert_repeat(struct pattern *p, const struct pattern_node *node, re_id rest, bool at_begin)
{
    if (node->most == 0) return rest;
    if (node->most != 1) return fail(p, "an assertion inside a repetition");
    re_id once = convert(p, node->child, rest, at_begin);
    return node->least ? once : re_or2(p->r, once, rest);
}

/* The part i and all that follows it. at_begin: nothing precedes it. */
static re_id convert(struct pattern *p, uint32_t i, re_id rest, bool at_begin)
{
    const struct pattern_node *node = &p->nodes[i];
    re_id all = RE_NONE;
    if (!limits_spend(p->r->l, 1)) return RE_NONE;
    if (!node->asserts) return re_cat(p->r, plain(p, i), rest);
    switch (node->kind) {
    case PATTERN_BEGIN: return at_begin ? rest : RE_NONE;
    case PATTERN_END: return re_is_nullable(p->r, rest) ? RE_EMPTY : RE_NONE;
    case PATTERN_AHEAD:
    case PATTERN_NOT_AHEAD: return convert_ahead(p, node, rest, at_begin);
    case PATTERN_REPEAT: return convert_repeat(p, node, rest, at_begin);
    case PATTERN_CAT: return convert_sequence(p, i, rest, at_begin);
    default:
        for (uint32_t k = node->child; k; k = p->nodes[k].next) all = re_or2(p->r, all, convert(p, k, rest, at_begin));
        return all;
    }
}

re_id pattern_compile(struct regex *r, const char *text, size_t n, enum pattern_match match)
{
    struct pattern p = {.r = r, .text = (const uint8_t *)text, .n = n};
    uint32_t root = pattern_parse(&p);
    re_id a = RE_NONE;
    if (root && match == PATTERN_WHOLE) a = convert(&p, root, RE_EMPTY, true);
    if (root && match == PATTERN_SEARCH) {
        re_id any = re_chars(r, 0, RE_NO_MAX);
        re_id later = convert(&p, root, any, false);
        a = p.nodes[root].begins ? re_or2(r, convert(&p, root, any, true), re_cat(r, re_chars(r, 1, RE_NO_MAX), later))
                                 : re_cat(r, any, later);
    }
    pattern_deinit(&p);
    return r->l->rc ? RE_NONE : a;
}
