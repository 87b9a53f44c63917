/* SPDX-License-Identifier: MIT
 *
 * gbnf_check.c: what must be known of a grammar's rules before a text is read.
 */
#include "grammar/gbnf/gbnf_impl.h"

/* ---- the empty text, and any text ---- */

/* Whether the sequence at node i may read nothing, or (any) whether it has a text at all, as far as is known. */
static bool holds(const struct gbnf *p, uint32_t i, bool any)
{
    for (; i; i = p->g->nodes[i].next) {
        const struct rule_node *x = &p->g->nodes[i];
        bool ok = x->kind == RULE_REPEAT && x->least == 0;
        if (x->kind == RULE_TERM) ok = any ? x->re != RE_NONE : re_is_nullable(p->r, x->re);
        if (x->kind == RULE_CALL) ok = any ? p->rules[x->first].ends : p->rules[x->first].nullable;
        if (x->kind == RULE_REPEAT && !ok) ok = holds(p, x->first, any);
        for (uint32_t b = x->kind == RULE_CHOICE ? x->first : 0; b && !ok; b = p->g->nodes[b].other)
            ok = holds(p, p->g->nodes[b].first, any);
        if (!ok) return false;
    }
    return true;
}

static void find_texts(struct gbnf *p)
{
    for (bool changed = true; changed && limits_spend(p->r->l, p->g->n);) {
        changed = false;
        for (uint32_t i = p->n_rules; i-- > 0;) {
            struct gbnf_rule *r = &p->rules[i];
            bool nullable = !r->nullable && holds(p, r->first, false), ends = !r->ends && holds(p, r->first, true);
            r->nullable |= nullable;
            r->ends |= ends;
            changed |= nullable || ends;
        }
    }
}

/* ---- rules that call themselves first ---- */

/* Follows what the sequence at node i may call before it reads anything. *through: it may read nothing. */
static bool follow(struct gbnf *p, uint32_t i, unsigned depth, bool *through);

static bool follow_rule(struct gbnf *p, uint32_t rule, unsigned depth)
{
    struct gbnf_rule *r = &p->rules[rule];
    bool through;
    if (r->seen == 2) return true;
    if (r->seen == 1 || depth > 2000) {
        const char *what = r->seen == 1 ? "calls itself before it reads anything" : "is at the end of too many calls";
        limits_fail(p->r->l, QN_EDATA, "the rule '%.*s' %s", (int)r->name.n, r->name.p, what);
        return false;
    }
    r->seen = 1;
    if (!follow(p, r->first, depth + 1, &through)) return false;
    p->rules[rule].seen = 2;
    return true;
}

static bool follow(struct gbnf *p, uint32_t i, unsigned depth, bool *through)
{
    for (*through = true; i && *through; i = p->g->nodes[i].next) {
        const struct rule_node *x = &p->g->nodes[i];
        bool inside = false;
        if (!limits_spend(p->r->l, 1)) return false;
        switch (x->kind) {
        case RULE_TERM: *through = re_is_nullable(p->r, x->re); break;
        case RULE_CALL:
            if (!follow_rule(p, x->first, depth)) return false;
            *through = p->rules[x->first].nullable;
            break;
        case RULE_REPEAT:
            if (!follow(p, x->first, depth, &inside)) return false;
            *through = inside || x->least == 0;
            break;
        default:
            *through = false;
            for (uint32_t b = x->first; b; b = p->g->nodes[b].other) {
                if (!follow(p, p->g->nodes[b].first, depth, &inside)) return false;
                *through |= inside;
            }
        }
    }
    return true;
}

/* ---- all checks ---- */

/* Takes out branches and repetitions without a text. */
static void prune(struct gbnf *p)
{
    for (uint32_t i = 1; i < p->g->n; i++) {
        struct rule_node *x = &p->g->nodes[i];
        if (x->kind == RULE_REPEAT && !holds(p, x->first, true)) x->most = 0;
        for (uint32_t *b = x->kind == RULE_CHOICE ? &x->first : NULL; b && *b;) {
            struct rule_node *branch = &p->g->nodes[*b];
            if (holds(p, branch->first, true))
                b = &branch->other;
            else
                *b = branch->other;
        }
    }
}

bool gbnf_check(struct gbnf *p, uint32_t root)
{
    find_texts(p);
    for (uint32_t i = 0; i < p->n_rules; i++)
        if (!follow_rule(p, i, 0)) return false;
    if (!p->rules[root].ends) {
        limits_fail(p->r->l, QN_EDATA, "the rule 'root' has no text that ends");
        return false;
    }
    prune(p);
    for (uint32_t i = 1; i < p->g->n; i++)
        if (p->g->nodes[i].kind == RULE_CALL) p->g->nodes[i].first = p->rules[p->g->nodes[i].first].first;
    return !p->r->l->rc;
}
