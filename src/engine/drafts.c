/* SPDX-License-Identifier: MIT
 *
 * drafts.c: drafts in the steps of a scheduler. See drafts.h.
 *
 * The limits of a step are those of the scheduler's logits, of the engine's batch and, if the model has a recurrent
 * state, of the rows and states that a pass can take back. An answer's drafts end before its last token, so no row
 * reaches past max_tokens or the context.
 */
#include "engine/drafts.h"

#include "base/inline/minmax.h"
#include "base/os.h"
#include "decode/ngram.h"
#include "decode/wedlm_draft.h"
#include "engine/room.h"
#include "engine/core/stage.h"

/* ---- life ---- */

static bool is_on(const struct qn_scheduler_params *p) { return p->draft != QN_DRAFT_OFF; }

int drafts_rows(const struct qn_scheduler_params *p) { return is_on(p) ? DRAFT_ROWS : 0; }

uint64_t drafts_bytes(const struct model *m, const struct qn_engine_params *engine, const struct qn_scheduler_params *p)
{
    return drafters_bytes(m, engine, p->draft, p->draft_model, p->n_running);
}

int drafts_make(struct qn_scheduler *s, const struct qn_scheduler_params *p, struct qn_error *e)
{
    struct qn_engine *g = s->engine;
    size_t before = ledger_used(&g->ledger);
    int rc = s->drafts.most ? drafters_make(&s->drafts.drafters, g, p->draft, p->draft_model, e) : 0;
    s->drafts.bytes = ledger_used(&g->ledger) - before;
    return rc;
}

int drafts_init(struct qn_scheduler *s, const struct qn_scheduler_params *p, const struct drafters_own *own,
                struct qn_error *e)
{
    struct drafts *d = &s->drafts;
    size_t n = (size_t)s->n_places;
    if (!own && !is_on(p)) return 0;
    d->most = DRAFT_ROWS;
    d->places = mem_calloc(n, sizeof *d->places);
    d->n_accepted = mem_calloc(n, sizeof *d->n_accepted);
    d->looks = mem_calloc(DRAFT_ASIDE, sizeof *d->looks);
    if (!d->places || !d->n_accepted || !d->looks)
        return error_nomem(e, "drafts", n * (sizeof *d->places + sizeof *d->n_accepted));
    return drafters_init(&d->drafters, s->n_places, own, e);
}

void drafts_deinit(struct qn_scheduler *s)
{
    struct drafts *d = &s->drafts;
    drafters_deinit(&d->drafters);
    mem_free(d->places);
    mem_free(d->n_accepted);
    mem_free(d->looks);
    *d = (struct drafts){0};
}

/* Why windows are not there: what the model lacks, or nobody has asked for them. */
static int without_windows(const struct model *m, struct qn_error *e)
{
    struct wedlm_file file;
    int rc = wedlm_file_read(&file, m, e);
    if (!rc) rc = wedlm_draft_check(m, file.mask, e);
    if (rc) return e ? (e->code = QN_EUNSUP) : QN_EUNSUP;
    return error_set(e, QN_EUSAGE, "request: drafts by 'wedlm', which this model could have, but was not loaded with");
}

int drafts_check(const struct qn_scheduler *s, enum qn_draft draft, struct qn_error *e)
{
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        if (draft > QN_DRAFT_AUTO && drafters_name(kind) == draft && !s->drafts.drafters.of[kind])
            return draft == QN_DRAFT_WEDLM
                       ? without_windows(s->engine->model, e)
                       : error_set(e, QN_EUSAGE, "request: drafts by '%s', which is not there for this model",
                                   qn_draft_name(draft));
    return 0;
}

void drafts_open(struct qn_scheduler *s, struct request *r, int answer)
{
    size_t before = ledger_used(&s->engine->ledger);
    if (s->drafts.most && r->max_tokens > 1 && !r->fills)
        drafters_open(&s->drafts.drafters, &r->answers[answer].drafts, r->p.draft, reuse_owner(s->reuse, r),
                      request_slots(r));
    r->answers[answer].drafts.windows = r->windows;
    r->answers[answer].drafts.fixed_window = r->fixed_window;
    s->drafts.bytes += ledger_used(&s->engine->ledger) - before;
}

static void close_one(struct qn_scheduler *s, struct request *r, int answer)
{
    struct draft_seqs *a = &r->answers[answer].drafts;
    r->usage.n_passes += a->n_passes;
    r->usage.n_drafted += a->n_drafted;
    r->usage.n_accepted += a->n_accepted;
    r->usage.n_pass_rows += a->n_rows;
    r->usage.n_unverified += a->n_unverified;
    drafters_close(&s->drafts.drafters, a);
}

void drafts_close(struct qn_scheduler *s, struct request *r)
{
    size_t before = ledger_used(&s->engine->ledger);
    for (int k = 0; k < r->n_started; k++) close_one(s, r, k);
    s->drafts.bytes -= before - ledger_used(&s->engine->ledger);
}

void drafts_open_again(struct qn_scheduler *s, struct request *r, int answer)
{
    size_t before = ledger_used(&s->engine->ledger);
    close_one(s, r, answer);
    s->drafts.bytes -= before - ledger_used(&s->engine->ledger);
    drafts_open(s, r, answer);
}

void drafts_empty(struct qn_scheduler *s)
{
    struct drafter *d = s->drafts.drafters.of[DRAFT_NGRAM];
    if (d) ngram_empty(d);
}

/* ---- proposals ---- */

/* Returns true if the step will have rows of prompts, or of answers that are computed again. */
static bool has_other_rows(const struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        for (int k = 0; k < r->n_started; k++)
            if (request_answer_runs(r, k) &&
                (r->fills || request_is_reading(r) || answer_unread(r, &r->answers[k]) > 0))
                return true;
    }
    return false;
}

/* Offers the answers that have a row in the step. */
static void offer(struct qn_scheduler *s)
{
    struct drafts *d = &s->drafts;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        for (int k = 0; k < r->n_started && !request_is_reading(r); k++) {
            struct answer *a = &r->answers[k];
            if (!step_has_next(s, r, k)) continue;
            d->places[d->drafters.n_offers] = (struct draft_place){r, k};
            struct draft_offer *o = drafters_offer(&d->drafters, &a->drafts, a->tokens, a->n_tokens,
                                                   request_n_left(r, a) - 1, r->guides ? r->guides[k]->guide : NULL);
            o->n_recorded = max_int((int)r->p.n_replay - request_n_answered(r, a), 0);
            if (o->n_recorded) o->recorded = r->p.replay + r->p.n_replay - o->n_recorded;
        }
    }
}

static struct answer *answer_of(const struct draft_place *p) { return &p->request->answers[p->answer]; }

static void share(struct qn_scheduler *s)
{
    struct drafters *d = &s->drafts.drafters;
    drafters_share(d, drafters_limit(d, s->engine, min_int(s->drafts.most, s->engine->n_batch - d->n_offers)));
    for (int i = 0; i < d->n_offers; i++) {
        struct draft_offer *o = &d->offers[i];
        int n = d->plans[i].n_rows, all = n + o->n_aside;
        int n_room = all ? room_draft(s, answer_of(&s->drafts.places[i]), all) : 0;
        o->plans[o->kind].n_rows = min_int(n, n_room);
        o->n_aside = min_int(o->n_aside, n_room - o->plans[o->kind].n_rows);
    }
}

void drafts_propose(struct qn_scheduler *s)
{
    struct drafts *d = &s->drafts;
    d->drafters.n_offers = d->n_taken = 0;
    d->seconds = 0;
    if (!d->most || has_other_rows(s)) return;
    uint64_t t0 = clock_ns();
    offer(s);
    d->drafters.most_rows = min_int(d->most, s->engine->n_batch - d->drafters.n_offers);
    drafters_ask(&d->drafters);
    share(s);
    d->seconds = 1e-9 * (double)(clock_ns() - t0);
}

const struct draft_offer *drafts_take(struct qn_scheduler *s, const struct request *r, int answer)
{
    struct drafts *d = &s->drafts;
    if (d->n_taken == d->drafters.n_offers) return NULL;
    if (d->places[d->n_taken].request != r || d->places[d->n_taken].answer != answer) return NULL;
    const struct draft_offer *o = &d->drafters.offers[d->n_taken++];
    return o->plans[o->kind].n_rows || o->n_aside ? o : NULL;
}

/* ---- after the step ---- */

static struct answer *part_answer(const struct step_part *p) { return &p->request->answers[p->answer]; }

/* Takes back the recurrent states of the rows that do not stay. */
static void accept_states(struct qn_scheduler *s)
{
    bool any = false;
    if (!kv_pool_shape(s->engine->kv)->state_bytes) return;
    for (int i = 0; i < s->n_parts; i++) {
        s->drafts.n_accepted[i] = s->parts[i].n_kept;
        any |= s->parts[i].n_drafted > 0;
    }
    const struct stage *at = s->engine->stage;
    struct qn_error e;
    if (any && at && at->ops->accept(at->arg, s->drafts.n_accepted, &e))
        scheduler_lose_stage(s, &e);
    else if (any && !at)
        forward_accept(&s->engine->forward, s->drafts.n_accepted);
}

/* Counts the drafted rows of an answer. */
static void count(struct qn_scheduler *s, struct answer *a, const struct draft_offer *o)
{
    int n_drafted = o->plans[o->kind].n_rows, n_accepted = min_int(a->n_tokens - o->n_tokens - 1, n_drafted);
    enum qn_draft draft = drafters_name(o->kind);
    if (n_drafted == 0) return;
    if (n_accepted < 0) n_accepted = 0;
    a->drafts.n_drafted += n_drafted;
    a->drafts.n_accepted += n_accepted;
    pthread_mutex_lock(&s->mutex);
    s->stats.n_drafted[draft] += (uint64_t)n_drafted;
    s->stats.n_accepted[draft] += (uint64_t)n_accepted;
    pthread_mutex_unlock(&s->mutex);
}

static bool has_rows_to_forget(const struct step_part *p) { return p->n_drafted || p->n_aside; }

/* Shows the drafters the logits of the rows aside. */
static void look(struct qn_scheduler *s, const struct step_part *p)
{
    struct drafts *d = &s->drafts;
    struct answer *a = part_answer(p);
    size_t n_vocab = (size_t)s->engine->model->hp.n_vocab;
    const float *logits = s->logits + (size_t)(p->logits_row + p->n_logits) * n_vocab;
    int n = 0;
    if (a->finish != QN_FINISH_NONE) return;
    for (int i = 0; i < p->n_aside; i++) {
        const struct draft_row *row = &p->offer->aside[i];
        if (!row->is_asked) continue;
        d->looks[n] = (struct draft_look){.pos = row->pos, .logits = logits + (size_t)n * n_vocab, .token = -1};
        if (row->pos >= a->n_tokens) /* otherwise the answer has a token there */
            d->looks[n].token = request_guess(p->request, p->answer, row->pos, d->looks[n].logits);
        n++;
    }
    drafters_look(&d->drafters, &a->drafts, a->tokens, a->n_tokens, d->looks, n);
}

static void look_timed(struct qn_scheduler *s, const struct step_part *p)
{
    uint64_t t0 = clock_ns();
    look(s, p);
    s->windows.select_ns += clock_ns() - t0;
    s->windows.gather_ns = (uint64_t)(1e9 * s->drafts.seconds); /* of the step */
}

void drafts_settle(struct qn_scheduler *s)
{
    struct drafts *d = &s->drafts;
    if (!d->most) return;
    uint64_t t0 = clock_ns();
    accept_states(s);
    for (int i = 0; i < d->n_taken; i++) {
        struct answer *a = answer_of(&d->places[i]);
        drafters_compare(&d->drafters, &d->drafters.offers[i], a->tokens, a->n_tokens);
        count(s, a, &d->drafters.offers[i]);
    }
    for (int i = 0; i < s->n_parts; i++) {
        const struct step_part *p = &s->parts[i];
        if (p->n_aside) look_timed(s, p);
        if (has_rows_to_forget(p)) room_undraft(part_answer(p));
        drafters_absorb(&d->drafters, &part_answer(p)->drafts, p->row, p->slot, p->n_kept);
    }
    d->settle_s = 1e-9 * (double)(clock_ns() - t0);
}

void drafts_forget(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_parts; i++)
        if (has_rows_to_forget(&s->parts[i])) room_undraft(part_answer(&s->parts[i]));
}

void drafts_took(struct qn_scheduler *s, double seconds)
{
    struct drafts *d = &s->drafts;
    int n_drafted = 0;
    for (int i = 0; i < s->n_parts; i++) n_drafted += s->parts[i].n_drafted + s->parts[i].n_aside;
    if (!d->n_taken || d->n_taken != s->n_parts) return;
    draft_control_took(&d->drafters.control, s->n_rows, n_drafted, seconds);
    pthread_mutex_lock(&s->mutex);
    d->sums.all_s += seconds + d->seconds;
    d->sums.spent_s += d->seconds + (n_drafted ? 0 : d->settle_s); /* a step with drafts has paid for settling */
    d->sums.won_s = d->drafters.control.won_s;
    pthread_mutex_unlock(&s->mutex);
}
