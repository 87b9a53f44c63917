/* SPDX-License-Identifier: MIT
 *
 * windows.c: answers that are filled in windows of masks, without verification. See scheduler.h.
 *
 * The window is that of decode/wedlm.h. The rows of its run are computed under plain causal attention over the tokens
 * before them, in their final slots. These tokens are committed after the step, and only they become part of the
 * answer's memory. So pages hold true tokens, and the cache may have them.
 *
 * Nothing that a window does depends on other requests, on the cache or on time: its rows are all in one step or not at
 * all, and it stays while the answer is paused. It ends before the answer's last slot.
 *
 * Penalties, DRY, mirostat and grammars need the tokens before a draw, and a mask is drawn when some of them are not
 * known. A logprob would be that of a row which does not see all tokens before it. So these are refused.
 */
#include <assert.h>

#include "base/inline/minmax.h"
#include "base/os.h"
#include "decode/wedlm_draft.h"
#include "engine/room.h"

#define TOGETHER 4 /* places whose windows have logits in one step */

/* ---- parameters ---- */

/* The first of the parameters that are said, by its name in requests; NULL: none is. */
static const char *said_name(const struct qn_wedlm *w)
{
    if (w->verify >= 0) return "wedlm_verify";
    if (w->window) return "window";
    if (w->entropy_threshold >= 0) return "entropy_threshold";
    return w->pos_penalty >= 0 ? "pos_penalty" : NULL;
}

static int check_said(const struct qn_wedlm *w, const char *what, struct qn_error *e)
{
    if (w->verify < -1 || w->verify > 1)
        return error_set(e, QN_EUSAGE, "%s: wedlm_verify is %d, not -1..1", what, w->verify);
    if (w->window < 0 || w->window > WEDLM_MOST)
        return error_set(e, QN_EUSAGE, "%s: a window of %d masks, not 1..%d", what, w->window, WEDLM_MOST);
    if (!(w->entropy_threshold <= WEDLM_MOST_NATS) || !(w->pos_penalty <= WEDLM_MOST_NATS))
        return error_set(e, QN_EUSAGE, "%s: an entropy_threshold or pos_penalty above %g", what,
                         (double)WEDLM_MOST_NATS);
    return 0;
}

static float first_said(float a, float b, float file) { return a >= 0 ? a : b >= 0 ? b : file; }

/* What a request says, then the scheduler, then the model's file. */
static struct wedlm_params settled(const struct qn_wedlm *own, const struct qn_wedlm *usual,
                                   const struct wedlm_file *file)
{
    int said = own->window ? own->window : usual->window;
    return (struct wedlm_params){
        .window = said ? said : file->params.window,
        .entropy_threshold =
            first_said(own->entropy_threshold, usual->entropy_threshold, file->params.entropy_threshold),
        .pos_penalty = first_said(own->pos_penalty, usual->pos_penalty, file->params.pos_penalty)};
}

/* Whether steps have room for an unverified window. */
static int check_steps(const struct qn_scheduler *s, int window, const char *what, struct qn_error *e)
{
    int n_rows = 2 * window + s->n_places + s->drafts.most;
    if (s->engine->is_head)
        return error_set(e, QN_EUNSUP, "%s: a model on several hosts has no unverified windows (wedlm_verify)", what);
    if (n_rows > s->engine->n_batch)
        return error_set(e, QN_EUSAGE,
                         "%s: a window of %d masks needs steps of %d rows, and the engine's have %d (n_batch)", what,
                         window, n_rows, s->engine->n_batch);
    return 0;
}

int windows_logits(const struct qn_scheduler_params *p)
{
    return p->draft == QN_DRAFT_WEDLM ? min_int(p->n_running, TOGETHER) * WEDLM_MOST : 0;
}

int windows_init(struct qn_scheduler *s, const struct qn_scheduler_params *p, const struct drafters_own *own,
                 struct qn_error *e)
{
    struct windows *w = &s->windows;
    int rc = check_said(&p->wedlm, "scheduler", e);
    s->stats.wedlm.verify = 1;
    if (!rc && p->draft != QN_DRAFT_WEDLM && said_name(&p->wedlm))
        return error_set(e, QN_EUSAGE, "scheduler: %s is for windows, but draft is '%s'", said_name(&p->wedlm),
                         qn_draft_name(p->draft));
    if (rc || p->draft != QN_DRAFT_WEDLM) return rc;
    if (own && own->file)
        w->file = *own->file;
    else if ((rc = wedlm_file_read(&w->file, s->engine->model, e)))
        return rc;
    if ((rc = wedlm_draft_check(s->engine->model, w->file.mask, e))) return rc;
    w->usual = p->wedlm;
    w->watch = own ? own->watch : NULL;
    const struct wedlm_params usual = settled(&w->usual, &w->usual, &w->file);
    s->stats.wedlm = (struct qn_wedlm){w->usual.verify != 0, usual.window, usual.entropy_threshold, usual.pos_penalty};
    w->most_logits = windows_logits(p);
    w->is_there = true;
    return w->usual.verify ? 0 : check_steps(s, usual.window, "scheduler", e);
}

/* What an unverified answer cannot have; NULL: nothing. */
static const char *excluded(const struct qn_request_params *p)
{
    const struct qn_sampling *q = &p->sampling;
    bool looks_back =
        q->penalty_last_n != 0 && (q->repetition_penalty != 1 || q->frequency_penalty != 0 || q->presence_penalty != 0);
    if (p->grammar) return "a grammar";
    if (p->n_top_logprobs >= 0) return "logprobs";
    if (p->rotates) return "a context that rotates";
    if (p->n_replay) return "a replay";
    if (looks_back) return "penalties";
    if (q->dry_multiplier > 0) return "DRY";
    if (q->mirostat_tau > 0) return "mirostat";
    return NULL;
}

static int check_unverified(const struct qn_scheduler *s, const struct request *r, const struct qn_request_params *p,
                            struct qn_error *e)
{
    const char *why = excluded(p);
    if (why)
        return error_set(e, QN_EUSAGE,
                         "request: %s needs the tokens before each draw, which unverified windows do not have "
                         "(wedlm_verify)",
                         why);
    return check_steps(s, r->windows.window, "request", e);
}

/* The reason why there are no windows, with the parameter that wants them. */
static int refuse_windows(const struct qn_scheduler *s, const char *name, struct qn_error *e)
{
    struct qn_error why = {0};
    int rc = drafts_check(s, QN_DRAFT_WEDLM, &why);
    assert(rc);
    return error_set(e, rc, "%s: %s", name, why.msg);
}

int windows_settle(const struct qn_scheduler *s, struct request *r, const struct qn_request_params *p,
                   struct qn_error *e)
{
    const struct windows *w = &s->windows;
    const struct qn_wedlm *own = &p->wedlm, *usual = &w->usual;
    int rc = check_said(own, "request", e);
    bool may = p->draft == QN_DRAFT_DEFAULT || p->draft == QN_DRAFT_AUTO || p->draft == QN_DRAFT_WEDLM;
    if (rc) return rc;
    if (said_name(own) && !w->is_there) return refuse_windows(s, said_name(own), e);
    if (said_name(own) && !may)
        return error_set(e, QN_EUSAGE, "request: %s is for windows (wedlm_verify), but draft is '%s'", said_name(own),
                         qn_draft_name(p->draft));
    if (!w->is_there || !may) return 0;
    r->fixed_window = own->window ? own->window : usual->window;
    r->windows = settled(own, usual, &w->file);
    bool fills = !(own->verify >= 0 ? own->verify : usual->verify) && r->max_tokens > 0;
    if (fills && (rc = check_unverified(s, r, p, e))) return rc;
    r->fills = fills;
    return 0;
}

/* ---- steps ---- */

/* The slots after the answer's tokens that its next window needs. */
static void look_ahead(struct answer *a, const struct request *r)
{
    a->n_ahead = min_int(wedlm_run(&a->window) + r->windows.window, request_slots(r) - a->n_tokens);
}

void windows_begin(struct answer *a, const struct request *r)
{
    wedlm_begin(&a->window, &r->windows, a->n_tokens);
    look_ahead(a, r);
}

int windows_rows(const struct request *r, struct answer *a, struct wedlm_row *rows)
{
    int n = wedlm_gather(&a->window, request_slots(r), rows);
    assert(n == a->n_ahead);
    return n;
}

/* Fills masks of the window. Returns false if there are some, and none of them can be filled. */
static bool fill(struct qn_scheduler *s, const struct request *r, int answer, const float *logits)
{
    struct answer *a = &r->answers[answer];
    struct wedlm *w = &a->window;
    size_t n_vocab = (size_t)s->engine->model->hp.n_vocab;
    float entropy[WEDLM_MOST];
    qn_token token[WEDLM_MOST];
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        const float *row = logits + (size_t)n * n_vocab;
        if (w->entries[i].is_filled) continue;
        entropy[n] = wedlm_entropy(&s->engine->forward.pass.kt, row, (int)n_vocab, s->work, s->scratch);
        token[n++] = request_guess(r, answer, w->from + i, row);
    }
    for (int i = 0; i < n; i++) s->windows.n_entropy[wedlm_class(entropy[i])]++;
    return wedlm_fill(w, entropy, token, n) > 0 || n == 0;
}

void windows_count(struct qn_scheduler *s)
{
    struct windows *w = &s->windows;
    struct qn_scheduler_stats *st = &s->stats;
    uint64_t head_ns = s->engine->forward.pass.head_ns, run_ns = w->run_ns, ran_ns = w->ran_ns;
    bool has_head = head_ns >= run_ns && head_ns <= ran_ns; /* a pass elsewhere has not */
    const struct drafter *d = s->drafts.drafters.of[DRAFT_WEDLM];
    for (int i = 0; d && i < QN_WEDLM_CLASSES; i++)
        st->n_wedlm_entropy[i] = w->n_entropy[i] + wedlm_draft_entropies(d)[i];
    if (w->gather_ns) {
        st->wedlm_gather_s += 1e-9 * (double)w->gather_ns;
        st->wedlm_pass_s += 1e-9 * (double)((has_head ? head_ns : ran_ns) - run_ns);
        st->wedlm_head_s += 1e-9 * (double)(has_head ? ran_ns - head_ns : 0);
        st->wedlm_select_s += 1e-9 * (double)w->select_ns;
        st->wedlm_commit_s += 1e-9 * (double)w->commit_ns;
    }
    w->gather_ns = w->select_ns = w->commit_ns = 0;
}

int windows_take(struct qn_scheduler *s, struct request *r, int answer, const float *logits)
{
    struct answer *a = &r->answers[answer];
    int run = wedlm_run(&a->window), n = 0;
    uint64_t t0 = clock_ns();
    while (n < run && a->finish == QN_FINISH_NONE && !request_is_cancelled(r))
        request_next_token(r, answer, a->window.entries[n++].token, NULL, s->engine, NULL, s->work, s->scratch);
    wedlm_commit(&a->window, n);
    uint64_t t1 = clock_ns();
    bool goes_on = a->finish == QN_FINISH_NONE && n == run;
    if (goes_on && !fill(s, r, answer, logits)) {
        error_set(&r->error, QN_ENUMERIC, "sampling: no mask after token %d has a token to choose", a->n_tokens);
        request_finish_answer(r, answer, QN_FINISH_ERROR);
    }
    look_ahead(a, r);
    s->windows.commit_ns += t1 - t0;
    s->windows.select_ns += clock_ns() - t1;
    return n;
}
