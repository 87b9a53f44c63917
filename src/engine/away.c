/* SPDX-License-Identifier: MIT
 *
 * away.c: steps in other processes, of which several are under way. See core/stage.h.
 *
 * Answers are dealt out to as many steps as there are stages, so that each stage has one of them: while one stage
 * computes rows of some answers, the next computes those of others. A prompt is read in pieces that follow each other
 * through the stages. Pieces are so small that the stages soon all have one, and so large that each is worth reading
 * the weights for it; the best size follows from the times that stages told before.
 *
 * A step that is under way holds nobody up: requests are admitted, and pages given away, because stages do everything
 * in the order in which it is sent. What is not done meanwhile: a request with rows that are away does not end, and no
 * state is copied that they change. An answer that has to give way loses its pages, and what comes back of it is
 * dropped.
 *
 * Tokens are drawn by the last stage, which keeps a copy of each answer's sampler: a voice. What it is not told enough
 * for is drawn here, from logits: drafted rows of an answer with a grammar, rows beside an answer's own (windows), and
 * answers that replay tokens.
 *
 * While drafters propose something, a step is alone, because they share its rows between all answers.
 */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/os.h"
#include "engine/room.h"
#include "engine/core/stage.h"

#define ASK_NS       1000000 /* between two looks for other work, while steps are under way */
#define LEAST_PIECE  32      /* rows of a prompt */
#define PIECES       8       /* of a prompt for each stage, before anything was measured */
#define SHARE_WEIGHT 0.125   /* of the last step in the mean of slowest */

struct flight {
    struct step_part *parts; /* [n_places] */
    int n_parts, n_rows, n_prefill_rows, n_logits;
    uint64_t t0;
    bool has_drafts;
};

/* A sampler that the last stage keeps. */
struct away_voice {
    uint64_t request; /* 0: none */
    int answer;
    int n_tokens, n_dropped; /* of the answer when the stage's sampler has seen as much; -1: not known */
};

struct flights {
    int n, cap;
    struct flight all[STAGE_STEPS]; /* [n] the oldest first, of [cap] */
    bool is_cancelled;              /* none of them is wanted */
    struct away_voice *voices;      /* [n_places] */
    struct stage_draw *draws;       /* [n_places] of the step that begins, as what follows */
    struct qn_sampling *sampling;
    bool *are_put;
    int n_draws;
    double slowest; /* part of a pass that its slowest stage takes; 0: not known */
};

bool away_has_steps(const struct qn_scheduler *s) { return s->flights && s->flights->n; }

void away_free(struct qn_scheduler *s)
{
    if (!s->flights) return;
    for (int i = 0; i < STAGE_STEPS; i++) mem_free(s->flights->all[i].parts);
    mem_free(s->flights->voices);
    mem_free(s->flights->draws);
    mem_free(s->flights->sampling);
    mem_free(s->flights->are_put);
    mem_free(s->flights);
    s->flights = NULL;
}

static bool open_flights(struct qn_scheduler *s)
{
    if (s->flights) return true;
    s->flights = mem_calloc(1, sizeof *s->flights);
    if (!s->flights) return false;
    struct flights *f = s->flights;
    size_t n = (size_t)s->n_places;
    f->cap = stage_steps(s->engine->stage);
    f->voices = mem_calloc(n, sizeof *f->voices);
    f->draws = mem_calloc(n, sizeof *f->draws);
    f->sampling = mem_calloc(n, sizeof *f->sampling);
    f->are_put = mem_calloc(n, sizeof *f->are_put);
    if (!s->heard) s->heard = mem_calloc(2 * n + (size_t)s->drafts.most, sizeof *s->heard);
    bool is_open = f->voices && f->draws && f->sampling && f->are_put && s->heard;
    for (int i = 0; i < f->cap; i++) is_open &= (f->all[i].parts = mem_calloc(n, sizeof *s->parts)) != NULL;
    if (!is_open) away_free(s);
    return is_open;
}

void away_forget(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        r->n_away = 0;
        for (int k = 0; k < r->n_started; k++) away_drop(&r->answers[k]);
    }
    if (!s->flights) return;
    s->flights->n = 0;
    s->flights->is_cancelled = false;
    memset(s->flights->voices, 0, (size_t)s->n_places * sizeof *s->flights->voices);
}

/* ---- how large a step is ---- */

/* The answers that get rows one at a time, and the longest prompt that is being read. */
static int count_answers(const struct qn_scheduler *s, int *n_prompt)
{
    int n = 0;
    *n_prompt = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        for (int k = 0; k < r->n_started; k++) {
            const struct answer *a = &r->answers[k];
            int rows = answer_rows(a);
            if (!request_answer_runs(r, k)) continue;
            if (request_is_reading(r) || rows > 1 + a->n_away)
                *n_prompt = rows > *n_prompt ? rows : *n_prompt;
            else
                n++;
        }
    }
    return n;
}

/* The rows of a prompt's pieces with which n rows are through all stages first. Each piece follows the one before as
 * soon as the slowest stage has passed that on. */
static int best_piece(const struct qn_scheduler *s, int n)
{
    const int n_stages = s->engine->stage->n_stages;
    double slowest = s->flights->slowest > 0 ? s->flights->slowest : 1.0 / n_stages, least = 0;
    int best = n / (PIECES * n_stages);
    for (int rows = LEAST_PIECE; rows < 2 * s->n_prefill; rows *= 2) {
        int size = rows < s->n_prefill ? rows : s->n_prefill;
        double pass = pace_of(&s->pace, size), all = ((n + size - 1) / size - 1) * slowest * pass + pass;
        if (!(pass > 0) || (least > 0 && all >= least)) continue;
        least = all;
        best = size;
    }
    return best > LEAST_PIECE ? best : LEAST_PIECE;
}

/* Decides how many rows the next step may have. Returns false if none should begin now. */
static bool size_step(struct qn_scheduler *s)
{
    const int n_stages = s->engine->stage->n_stages;
    struct flights *f = s->flights;
    int n_prompt, n = count_answers(s, &n_prompt);
    int most =
        n ? n_stages : n_stages + 1; /* a piece of a prompt waits before the first stage, so that it never does */
    s->are_answers_away = false;
    for (int i = 0; i < f->n; i++) {
        if (f->all[i].has_drafts) return false;
        s->are_answers_away |= f->all[i].n_rows > f->all[i].n_prefill_rows;
    }
    if (f->is_cancelled || f->n >= (most < f->cap ? most : f->cap)) return false;
    bool is_alone = s->drafts.most && !n_prompt; /* drafters will propose something */
    if (is_alone && f->n) return false;
    s->most_answers = is_alone || n < 1 ? s->n_places : (n + n_stages - 1) / n_stages;
    s->most_prompt = n_stages > 1 ? best_piece(s, n_prompt) : 0;
    return true;
}

/* ---- drawing ---- */

static bool is_running(const struct qn_scheduler *s, uint64_t request)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->id == request) return true;
    return false;
}

/* The voice of an answer; a place that none has any more if it is new. There are as many as answers that run. */
static struct away_voice *voice_of(const struct qn_scheduler *s, const struct request *r, int answer)
{
    struct away_voice *all = s->flights->voices, *at = NULL;
    for (struct away_voice *v = all; v < all + s->n_places; v++)
        if (v->request == r->id && v->answer == answer) return v;
    for (struct away_voice *v = all; !at && v < all + s->n_places; v++)
        if (!v->request || !is_running(s, v->request)) at = v;
    assert(at);
    *at = (struct away_voice){.request = r->id, .answer = answer, .n_tokens = -1};
    return at;
}

/* Whether the last stage can draw what follows the part's rows. */
static bool can_draw(const struct step_part *p)
{
    const struct request *r = p->request;
    bool begins = request_is_reading(r);
    if (!p->n_logits || r->p.n_replay || !r->max_tokens) return false;
    if (begins && p->slot + p->n != (int)r->p.n_prompt) return false; /* logprobs of the prompt */
    for (int k = begins ? 0 : p->answer; r->guides && k < (begins ? r->p.n_answers : p->answer + 1); k++)
        if (!request_has_mask(r, k) || guide_failed(r->guides[k]->guide, NULL) || (!begins && p->n_logits > 1))
            return false;
    return true;
}

/* Adds the draw of an answer. One that has not begun has the past of the first. */
static void add_draw(struct qn_scheduler *s, const struct step_part *p, int answer)
{
    struct flights *f = s->flights;
    struct request *r = p->request;
    bool begins = request_is_reading(r);
    const struct answer *a = &r->answers[begins ? 0 : answer];
    struct away_voice *v = voice_of(s, r, answer);
    struct stage_draw *d = &f->draws[f->n_draws];
    *d = (struct stage_draw){.row = p->row + p->n - (begins ? 1 : p->n_logits),
                             .n = begins ? 1 : p->n_logits,
                             .voice = (int)(v - f->voices),
                             .is_new = v->n_tokens != a->n_tokens || v->n_dropped != a->n_dropped,
                             .sampling = &f->sampling[f->n_draws],
                             .bound = sampler_bound(a->sampler),
                             .position = (uint64_t)(a->n_tokens + a->n_dropped),
                             .mask = r->guides ? guide_mask(r->guides[answer]->guide) : NULL,
                             .n_top = r->p.n_top_logprobs,
                             .is_put = &f->are_put[f->n_draws]};
    d->history = sampler_history(a->sampler, &d->n_history);
    f->sampling[f->n_draws] = r->p.sampling;
    f->sampling[f->n_draws++].seed += (uint64_t)answer;
    v->n_tokens = -1; /* until it is back */
}

static void add_draws(struct qn_scheduler *s)
{
    struct flights *f = s->flights;
    f->n_draws = 0;
    for (int i = 0; i < s->n_parts; i++) {
        struct step_part *p = &s->parts[i];
        int before = f->n_draws;
        p->heard = before;
        if (!can_draw(p)) continue;
        if (!request_is_reading(p->request))
            add_draw(s, p, p->answer);
        else
            for (int k = 0; k < p->request->p.n_answers; k++) add_draw(s, p, k);
        p->n_heard = f->n_draws - before; /* draws, until it is known whether they were sent */
    }
}

/* Finds where the tokens of each part will be. */
static void place_draws(struct qn_scheduler *s)
{
    const struct flights *f = s->flights;
    int n = 0;
    for (int i = 0; i < s->n_parts; i++) {
        struct step_part *p = &s->parts[i];
        const struct stage_draw *d = &f->draws[p->heard];
        if (!p->n_heard || !*d->is_put) {
            p->n_heard = 0;
            continue;
        }
        p->heard = n;
        p->n_heard = p->n_heard > 1 ? p->n_heard : d->n;
        n += p->n_heard;
    }
}

/* Notes what the last stage's samplers have seen. */
static void note_voices(struct qn_scheduler *s, const struct step_part *p)
{
    struct request *r = p->request;
    bool begins = request_is_reading(r);
    for (int k = 0; begins && k < p->n_heard; k++) {
        struct away_voice *v = voice_of(s, r, k);
        v->n_tokens = (int)r->p.n_prompt + (s->heard[p->heard + k].token >= 0);
        v->n_dropped = r->n_dropped;
    }
    if (begins || !p->n_heard) return;
    const struct answer *a = &r->answers[p->answer];
    struct away_voice *v = voice_of(s, r, p->answer);
    v->n_tokens = a->n_tokens;
    v->n_dropped = a->n_dropped;
    for (int i = 0; i < p->n_heard; i++) v->n_tokens += s->heard[p->heard + i].token >= 0;
}

/* ---- beginning ---- */

static int start(struct qn_scheduler *s)
{
    const struct stage *at = s->engine->stage;
    struct flight *f = &s->flights->all[s->flights->n];
    struct qn_error e;
    uint64_t t0 = clock_ns();
    add_draws(s);
    struct stage_step step = {&s->engine->batch, s->memories, s->flights->draws, s->flights->n_draws};
    int rc = at->ops->start(at->arg, &step, true, &e);
    if (rc) {
        scheduler_lose_stage(s, &e);
        return rc;
    }
    place_draws(s);
    memcpy(f->parts, s->parts, (size_t)s->n_parts * sizeof *s->parts);
    *f = (struct flight){.parts = f->parts,
                         .n_parts = s->n_parts,
                         .n_rows = s->n_rows,
                         .n_prefill_rows = s->n_prefill_rows,
                         .n_logits = s->n_logits,
                         .t0 = t0,
                         .has_drafts = s->drafts.drafters.n_offers > 0};
    for (int i = 0; i < s->n_parts; i++) {
        s->parts[i].request->answers[s->parts[i].answer].n_away += s->parts[i].n;
        s->parts[i].request->n_away++;
    }
    s->flights->n++;
    return 0;
}

/* Begins a step if that is possible and there are rows for it. */
static bool begin(struct qn_scheduler *s)
{
    if (!size_step(s)) return false;
    return step_gather(s) && !start(s);
}

/* ---- waiting ---- */

/* Whether the steps under way would be computed for nobody. A step with rows of others is abandoned only if it is
 * alone, because then they can be computed again; and not twice in a row. */
static bool are_wasted(const struct qn_scheduler *s, uint64_t now)
{
    const struct flights *f = s->flights;
    uint64_t stop = s->stop_ns;
    int n = 0, n_rows = 0;
    for (int i = 0; i < f->n; i++) {
        n_rows += f->all[i].n_rows;
        for (int k = 0; k < f->all[i].n_parts; k++) {
            const struct step_part *p = &f->all[i].parts[k];
            if (request_doom(p->request, now, stop)) n += p->n + p->n_aside;
        }
    }
    return n == n_rows || (f->n == 1 && 2 * n > n_rows && !s->was_abandoned);
}

/* Whether something else came that the scheduler's thread does. */
static bool is_called(struct qn_scheduler *s)
{
    pthread_mutex_lock(&s->mutex);
    bool is = s->inbox || s->errands || s->is_disk_ready || s->changed.code;
    pthread_mutex_unlock(&s->mutex);
    return is;
}

static bool is_needed(void *arg)
{
    struct qn_scheduler *s = arg;
    uint64_t now = clock_ns();
    if (now - s->asked_ns < ASK_NS) return false;
    s->asked_ns = now;
    return (!s->flights->is_cancelled && are_wasted(s, now)) || is_called(s);
}

/* ---- coming back ---- */

/* Makes the oldest flight the step that s describes, as far as its answers still want it. */
static struct flight land(struct qn_scheduler *s)
{
    struct flights *f = s->flights;
    struct flight one = f->all[0];
    memmove(f->all, f->all + 1, (size_t)--f->n * sizeof *f->all);
    f->all[f->n] = one; /* for its list of parts */
    if (!f->n) f->is_cancelled = false;
    s->n_parts = 0;
    s->n_rows = one.n_rows;
    s->n_prefill_rows = one.n_prefill_rows;
    s->n_logits = one.n_logits;
    for (int i = 0; i < one.n_parts; i++) {
        struct step_part *p = &one.parts[i];
        struct answer *a = &p->request->answers[p->answer];
        p->request->n_away--;
        if (a->life != p->life) continue;
        a->n_away -= p->n;
        s->parts[s->n_parts++] = *p;
    }
    return one;
}

/* Returns the seconds that all stages took together. */
static double learn(struct qn_scheduler *s, const struct stage_result *r)
{
    double all = 0, most = 0;
    for (int i = 0; i < r->n_times; i++) {
        all += r->times[i];
        most = r->times[i] > most ? r->times[i] : most;
    }
    if (all > 0) s->flights->slowest = pace_mean(s->flights->slowest, most / all, SHARE_WEIGHT);
    return all * 1e-6;
}

void away_run(struct qn_scheduler *s)
{
    const struct stage *at = s->engine->stage;
    struct qn_error e;
    if (!open_flights(s)) {
        for (int i = 0; i < s->n_running; i++)
            error_nomem(&s->running[i]->error, "steps of stages", sizeof *s->flights);
        return;
    }
    if (begin(s) || s->is_lost) return;
    if (!s->flights->n) {
        step_without_rows(s);
        return;
    }
    struct stage_result result = {.logits = s->logits, .drawn = s->heard};
    int rc = at->ops->finish(at->arg, is_needed, s, &result, &e);
    if (rc == QN_EBUSY) {
        bool wasted = !s->flights->is_cancelled && are_wasted(s, clock_ns());
        s->flights->is_cancelled |= wasted;
        if (!wasted || !(rc = at->ops->cancel(at->arg, &e))) return;
    }
    if (rc && rc != QN_ECANCEL) {
        scheduler_lose_stage(s, &e);
        return;
    }
    struct flight f = land(s);
    s->was_abandoned = rc == QN_ECANCEL;
    if (rc)
        drafts_forget(s);
    else {
        for (int i = 0; i < s->n_parts; i++) note_voices(s, &s->parts[i]);
        step_take_in(s, f.t0, learn(s, &result));
    }
}
