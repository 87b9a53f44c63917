/* SPDX-License-Identifier: MIT
 *
 * forced.c: see forced.h. The guide of a sequence says which tokens those are; the drafter keeps nothing.
 */
#include "decode/forced.h"

#include "base/mem.h"
#include "grammar/guide.h"

/* How sure a token is: whether it ends the forced text, so that a longer one may come; others begin the text, too; it
 * is the only one. */
enum { LAST = 2, LONGEST = 5, ONLY = DRAFT_CLASSES - 1 };

struct forced {
    struct drafter base;
    struct guide_forced found;
};

/* A sequence has no record, but its address says that there is one. */
static int forced_open(struct drafter *d, uint64_t identity, int max_tokens, void **seq, struct qn_error *e)
{
    (void)identity, (void)max_tokens, (void)e;
    *seq = d;
    return 0;
}

static void forced_close(struct drafter *d, void *seq) { (void)d, (void)seq; }

static void forced_propose(struct drafter *base, struct draft *drafts, int n)
{
    struct forced *d = (struct forced *)base;
    for (int i = 0; i < n; i++) {
        struct draft *p = &drafts[i];
        p->n = 0;
        if (!p->guide || p->most < 1) continue;
        guide_forced(p->guide, p->most, &d->found);
        for (; p->n < d->found.n; p->n++) {
            const struct guide_forced_token *t = &d->found.tokens[p->n];
            p->proposed[p->n] = t->token;
            p->sureness[p->n] = t->is_only ? ONLY : t->is_last ? LAST : LONGEST;
        }
    }
}

static void forced_free(struct drafter *d) { mem_free(d); }

static const struct drafter_type type = {
    .name = "ngram", .open = forced_open, .close = forced_close, .propose = forced_propose, .free = forced_free};

int forced_new(struct drafter **out, struct qn_error *e)
{
    struct forced *d = mem_calloc(1, sizeof *d);
    if (!d) return error_nomem(e, "a drafter", sizeof *d);
    d->base.type = &type;
    *out = &d->base;
    return 0;
}
