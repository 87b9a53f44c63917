/* SPDX-License-Identifier: MIT
 *
 * drafters.c: makes drafters, asks them, and shares out the rows of a step. See drafters.h.
 */
#include "engine/drafters.h"

#include "base/hash.h"
#include "base/inline/minmax.h"
#include "base/os.h"
#include "base/rng.h"
#include "decode/forced.h"
#include "decode/mtp.h"
#include "decode/ngram.h"
#include "decode/wedlm_draft.h"
#include "engine/budget.h"
#include "engine/draft_model.h"

#define SHARED_BYTES ((size_t)1 << 20) /* of the table of what an identity's sequences said */

static bool wants(enum qn_draft draft, enum qn_draft one) { return draft == one || draft == QN_DRAFT_AUTO; }

/* ---- life ---- */

uint64_t drafters_bytes(const struct model *m, const struct qn_engine_params *engine, enum qn_draft draft,
                        const struct qn_model *model, int n_places)
{
    uint64_t bytes = 0;
    if (wants(draft, QN_DRAFT_NGRAM))
        bytes += ngram_bytes(SHARED_BYTES) + (uint64_t)n_places * ngram_seq_bytes(engine->n_ctx);
    if (wants(draft, QN_DRAFT_MTP)) bytes += mtp_bytes(m, budget_kv_shape(m, engine->kv).type, n_places);
    if (draft == QN_DRAFT_WEDLM) bytes += wedlm_draft_bytes(m, n_places);
    if (model && wants(draft, QN_DRAFT_MODEL)) bytes += draft_model_bytes(model->model, engine, n_places);
    return bytes;
}

int drafters_init(struct drafters *d, int n_places, const struct drafters_own *own, struct qn_error *e)
{
    size_t n = (size_t)n_places;
    d->n_places = n_places;
    d->offers = mem_calloc(n, sizeof *d->offers);
    d->calls = mem_calloc(n, sizeof *d->calls);
    d->callers = mem_calloc(n, sizeof *d->callers);
    d->plans = mem_calloc(n, sizeof *d->plans);
    if (!d->offers || !d->calls || !d->callers || !d->plans)
        return error_nomem(e, "drafts", n * (sizeof *d->offers + sizeof *d->calls + sizeof *d->plans + 4));
    draft_control_init(&d->control, NULL, 0);
    if (own) d->of[DRAFT_OWN] = own->drafter;
    if (own) d->is_eager = own->is_eager;
    if (own) d->window = own->window;
    if (own) d->right = own->right;
    if (own) d->most = own->most;
    if (own) d->file = own->file;
    return 0;
}

/* What nobody has named may be missing. */
static int or_without(enum qn_draft draft, int rc) { return rc == QN_ENOMEM && draft == QN_DRAFT_AUTO ? 0 : rc; }

static int make_free(struct drafters *d, struct qn_engine *g, enum qn_draft draft, struct qn_error *e)
{
    if (!wants(draft, QN_DRAFT_NGRAM)) return 0;
    engine_make_room(g, ngram_bytes(SHARED_BYTES) + (size_t)d->n_places * ngram_seq_bytes(g->n_ctx));
    int rc = or_without(draft, ngram_new(&g->ledger, SHARED_BYTES, &d->of[DRAFT_NGRAM], e));
    return rc ? rc : forced_new(&d->of[DRAFT_FORCED], e);
}

static int make_mtp(struct drafters *d, struct qn_engine *g, enum qn_draft draft, struct qn_error *e)
{
    enum kv_type kv = kv_pool_shape(g->kv)->type;
    if (draft != QN_DRAFT_MTP && !(draft == QN_DRAFT_AUTO && g->model->has_nextn)) return 0;
    engine_make_room(g, mtp_bytes(g->model, kv, d->n_places));
    return or_without(draft, mtp_new(&d->of[DRAFT_MTP], &g->forward, kv, d->n_places, &g->ledger, e));
}

static int make_model(struct drafters *d, struct qn_engine *g, enum qn_draft draft, const struct qn_model *model,
                      struct qn_error *e)
{
    struct draft_model_params p;
    if (!wants(draft, QN_DRAFT_MODEL)) return 0;
    if (!model && draft == QN_DRAFT_AUTO) return 0;
    if (!model) return error_set(e, QN_EUSAGE, "drafts by a model, but there is no draft model");
    draft_model_params_init(&p);
    p.n_places = d->n_places;
    return draft_model_new(&d->of[DRAFT_MODEL], g, model, &p, e);
}

static int make_wedlm(struct drafters *d, struct qn_engine *g, enum qn_draft draft, struct qn_error *e)
{
    const struct model *m = g->model;
    struct wedlm_file file;
    if (draft != QN_DRAFT_WEDLM) return 0;
    int rc = 0;
    if (d->file)
        file = *d->file;
    else if ((rc = wedlm_file_read(&file, m, e)))
        return rc;
    d->most_window = file.params.window;
    engine_make_room(g, wedlm_draft_bytes(m, d->n_places));
    return wedlm_draft_new(&d->of[DRAFT_WEDLM], m, &g->forward.pass.kt, &file, d->n_places, &g->ledger, e);
}

int drafters_make(struct drafters *d, struct qn_engine *g, enum qn_draft draft, const struct qn_model *model,
                  struct qn_error *e)
{
    if (d->of[DRAFT_OWN]) return 0;
    int rc = make_free(d, g, draft, e);
    if (!rc) rc = make_mtp(d, g, draft, e);
    if (!rc) rc = make_model(d, g, draft, model, e);
    if (!rc) rc = make_wedlm(d, g, draft, e);
    return rc;
}

void drafters_deinit(struct drafters *d)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        if (d->of[kind]) d->of[kind]->type->free(d->of[kind]);
    mem_free(d->offers);
    mem_free(d->calls);
    mem_free(d->callers);
    mem_free(d->plans);
    *d = (struct drafters){0};
}

/* ---- sequences ---- */

enum qn_draft drafters_name(int kind)
{
    static const enum qn_draft name[DRAFT_KINDS] = {[DRAFT_FORCED] = QN_DRAFT_NGRAM,
                                                    [DRAFT_NGRAM] = QN_DRAFT_NGRAM,
                                                    [DRAFT_MTP] = QN_DRAFT_MTP,
                                                    [DRAFT_MODEL] = QN_DRAFT_MODEL,
                                                    [DRAFT_WEDLM] = QN_DRAFT_WEDLM};
    return name[kind];
}

bool drafters_may(enum qn_draft asked, int kind)
{
    return asked == QN_DRAFT_DEFAULT || asked == QN_DRAFT_AUTO ||
           (asked == drafters_name(kind) && asked != QN_DRAFT_OFF);
}

void drafters_open(struct drafters *d, struct draft_seqs *s, enum qn_draft asked, uint64_t identity, int max_tokens)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        struct drafter *of = drafters_may(asked, kind) ? d->of[kind] : NULL;
        if (!of || of->type->open(of, identity, max_tokens, &s->of[kind], NULL)) s->of[kind] = NULL;
    }
    s->pace = wedlm_pace_begin(&d->pace);
}

void drafters_close(struct drafters *d, struct draft_seqs *s)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        if (s->of[kind]) d->of[kind]->type->close(d->of[kind], s->of[kind]);
    *s = (struct draft_seqs){0};
}

/* ---- proposals ---- */

struct draft_offer *drafters_offer(struct drafters *d, struct draft_seqs *s, const qn_token *tokens, int n_tokens,
                                   int most, struct guide *guide)
{
    struct draft_offer *o = &d->offers[d->n_offers++];
    o->seqs = s;
    o->tokens = tokens;
    o->n_tokens = n_tokens;
    o->most = max_int(min_int(most, d->most ? d->most : DRAFT_MOST), 0);
    o->guide = guide;
    o->kind = o->window = o->n_aside = 0;
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        o->plans[kind] = (struct draft_plan){.record = &s->record, .kind = kind, .sureness = o->sureness[kind]};
    o->n_recorded = 0;
    return o;
}

bool drafters_have_aside(const struct drafters *d, int kind) { return d->of[kind] && d->of[kind]->type->look; }

/* Chooses the windows of the sequences whose drafter has rows aside. */
static void choose_windows(struct drafters *d, int kind)
{
    int n_rows = d->n_offers, n_fixed = 0;
    double tokens = d->n_offers;
    if (!drafters_have_aside(d, kind) || !d->n_offers) return;
    bool may = d->is_eager || draft_control_may(&d->control, d->n_offers);
    for (int i = 0; i < d->n_offers; i++) {
        struct draft_offer *o = &d->offers[i];
        int most = min_int(o->most, d->most_rows - (n_rows - d->n_offers)), fixed = o->seqs->fixed_window;
        if (o->seqs->windows.window || d->most_window)
            most = min_int(most, o->seqs->windows.window ? o->seqs->windows.window : d->most_window);
        if (!o->seqs->of[kind] || !(may || fixed)) continue;
        if (fixed && n_fixed && 2 * (n_fixed + fixed) > d->most_rows) continue; /* what it guesses needs rows, too */
        n_fixed += fixed;
        o->window = fixed ? max_int(min_int(fixed, most), 0)
                          : wedlm_pace_choose(&o->seqs->pace, &d->pace, &d->control, n_rows, tokens, most);
        if (d->is_eager) o->window = d->window;
        tokens += wedlm_pace_gain(&o->seqs->pace, o->window);
        n_rows += o->window;
    }
}

static bool costs_time(int kind) { return kind == DRAFT_MTP || kind == DRAFT_MODEL; }

/* Whether the drafter's guesses are replaced. */
static bool pretends(const struct drafters *d, const struct draft_offer *o, int kind)
{
    return d->right.n && o->n_recorded && (costs_time(kind) || kind == DRAFT_WEDLM);
}

/* What it proposes instead. The same for the same text, however its steps were cut. */
static const qn_token *pretend(const struct drafters *d, struct draft_offer *o, int n)
{
    uint64_t text = hash_bytes(o->tokens, (size_t)o->n_tokens * sizeof *o->tokens, 0);
    bool is_right = true;
    for (int i = 0; i < n; i++) {
        is_right &= i < o->n_recorded && i < d->right.n && rng_uniform(text, 0, (uint64_t)i) < (double)d->right.p[i];
        o->instead[i] = is_right ? o->recorded[i] : i < o->n_recorded && o->recorded[i] == 0;
    }
    return o->instead;
}

/* Returns how many tokens a drafter should propose for a sequence; -1: it is not asked. */
static int wanted(struct drafters *d, const struct draft_offer *o, int kind)
{
    if (!o->seqs->of[kind]) return -1;
    if (!costs_time(kind)) return o->most;
    int most = pretends(d, o, kind) ? min_int(o->most, d->right.n) : o->most;
    if (d->is_eager) return most;
    const struct draft_plan *other = &o->plans[o->kind];
    int n =
        draft_control_ask(&d->control, &o->seqs->record, kind, d->n_offers, d->n_offers, most, other->n ? other : NULL);
    return n ? n : -1;
}

/* Returns how many tokens the rows of a plan bring, if all of them are computed. */
static double worth(const struct drafters *d, const struct draft_plan *p)
{
    double gain = 1, all = 0;
    for (int i = 0; i < p->n; i++) {
        gain *= draft_control_rate(&d->control, p->record, p->kind, p->sureness[i]);
        all += gain;
    }
    return all;
}

/* Asks one drafter. Of two that propose something for a sequence, the better one may have rows. */
static void ask(struct drafters *d, int kind)
{
    int n = 0, n_tokens = 0;
    for (int i = 0; i < d->n_offers; i++) {
        struct draft_offer *o = &d->offers[i];
        int most = wanted(d, o, kind);
        if (most < 0) continue;
        d->callers[n] = i;
        d->calls[n++] = (struct draft){.seq = o->seqs->of[kind],
                                       .tokens = o->tokens,
                                       .n_tokens = o->n_tokens,
                                       .guide = o->guide,
                                       .window = o->window,
                                       .windows = o->seqs->windows.window ? &o->seqs->windows : NULL,
                                       .aside = o->aside,
                                       .most = most,
                                       .instead = pretends(d, o, kind) ? pretend(d, o, most) : NULL,
                                       .proposed = o->proposed[kind],
                                       .sureness = o->sureness[kind]};
    }
    if (!n) return;
    uint64_t t0 = clock_ns();
    d->of[kind]->type->propose(d->of[kind], d->calls, n);
    for (int i = 0; i < n; i++) {
        struct draft_offer *o = &d->offers[d->callers[i]];
        struct draft_plan *p = &o->plans[kind], *best = &o->plans[o->kind];
        p->n = p->most = d->calls[i].n;
        for (int k = 0; k < p->n && d->calls[i].instead; k++) o->sureness[kind][k] = draft_class(d->right.p[k]);
        if (drafters_have_aside(d, kind)) o->n_aside = o->window ? d->calls[i].n_aside : 0;
        n_tokens += p->n + d->calls[i].is_unsure;
        if (d->calls[i].is_unsure) draft_control_unsure(&d->control, &o->seqs->record, kind);
        if (p->n && (!best->n || worth(d, p) > worth(d, best))) o->kind = kind;
    }
    if (costs_time(kind)) draft_control_drafted(&d->control, kind, n_tokens, 1e-9 * (double)(clock_ns() - t0));
}

void drafters_ask(struct drafters *d)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        if (!d->of[kind]) continue;
        choose_windows(d, kind);
        ask(d, kind);
    }
    for (int i = 0; i < d->n_offers; i++) d->plans[i] = d->offers[i].plans[d->offers[i].kind];
}

/* ---- sharing out rows ---- */

/* Gives each plan a row in turn, until there is none left. */
static void share_equally(struct drafters *d, int most)
{
    for (bool any = true; any && most > 0;) {
        any = false;
        for (int i = 0; i < d->n_offers && most > 0; i++) {
            struct draft_plan *p = &d->plans[i];
            if (p->n_rows >= p->most) continue;
            p->n_rows++;
            most--;
            any = true;
        }
    }
}

/* With a recurrent state, a sequence's next row is held, too. */
int drafters_limit(struct drafters *d, const struct qn_engine *g, int most)
{
    int n_seqs = 0;
    if (!kv_pool_shape(g->kv)->state_bytes) return most;
    for (int i = 0; i < d->n_offers; i++) {
        struct draft_plan *p = &d->plans[i];
        if (p->most && n_seqs == min_int(g->forward.max_seqs, PASS_MAX_HELD / 2)) p->most = 0;
        n_seqs += p->most > 0;
    }
    return min_int(most, PASS_MAX_HELD - n_seqs);
}

/* Shortens rows aside to `most` rows. Returns how many there are in all. */
static int share_aside(struct drafters *d, int most)
{
    int n = 0;
    for (int i = 0; i < d->n_offers; i++) {
        d->offers[i].n_aside = min_int(d->offers[i].n_aside, most - n);
        n += d->offers[i].n_aside;
    }
    return n;
}

/* Gives the plans of windows of a fixed size all their rows, and hides these plans from the controller. Returns how
 * many rows they are. */
static int share_fixed(struct drafters *d, int most)
{
    int n = 0;
    for (int i = 0; i < d->n_offers; i++) {
        struct draft_plan *p = &d->plans[i];
        if (!d->offers[i].seqs->fixed_window) continue;
        d->offers[i].n_fixed = min_int(p->most, most - n);
        n += d->offers[i].n_fixed;
        p->most = 0;
    }
    return n;
}

void drafters_share(struct drafters *d, int most)
{
    d->control.n_aside = share_aside(d, most);
    most -= d->control.n_aside;
    if (d->is_eager) {
        d->control.n_answers = d->n_offers;
        share_equally(d, most);
    } else if (d->n_offers) {
        int n = share_fixed(d, most);
        draft_control_share(&d->control, d->plans, d->n_offers, d->n_offers + n, d->n_offers, most - n);
        for (int i = 0; i < d->n_offers; i++)
            if (d->offers[i].seqs->fixed_window) d->plans[i].n_rows = d->offers[i].n_fixed;
    }
}

/* ---- after the step ---- */

void drafters_compare(struct drafters *d, const struct draft_offer *o, const qn_token *tokens, int n_tokens)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        const struct draft_plan *p = &o->plans[kind];
        int n = min_int(p->n, n_tokens - o->n_tokens), n_right = 0;
        while (n_right < n && o->proposed[kind][n_right] == tokens[o->n_tokens + n_right]) n_right++;
        if (p->n) draft_control_saw(&d->control, p, min_int(n_right + 1, n), n_right);
        if (drafters_have_aside(d, kind))
            wedlm_pace_saw(&o->seqs->pace, &d->pace, o->seqs->window, n_right, n_right < n || n == p->n);
    }
    o->seqs->window = o->window;
}

void drafters_look(struct drafters *d, struct draft_seqs *s, const qn_token *tokens, int n_tokens,
                   const struct draft_look *looks, int n)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        if (drafters_have_aside(d, kind) && s->of[kind])
            d->of[kind]->type->look(d->of[kind], s->of[kind], tokens, n_tokens, looks, n);
}

void drafters_absorb(struct drafters *d, struct draft_seqs *s, int row, int from, int n)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        struct drafter *of = d->of[kind];
        if (s->of[kind] && of->type->absorb) of->type->absorb(of, s->of[kind], row, from, n);
    }
}
