/* SPDX-License-Identifier: MIT
 *
 * step.c: one step of the scheduler: gathers rows, runs them, and processes the results. See scheduler.h.
 *
 * While answers are running, a step includes so many prompt rows that it takes up to STRETCH times as long as it will
 * without them, when these prompts are answered, too (pace.h). So streams slow down, but no single gap is long. If no
 * answer is running, prompts get all rows that there is room for. Prompts are read in the order of admission. The next
 * prompt fills the rows that the first one leaves.
 *
 * If most rows of a step belong to requests that were cancelled meanwhile, the step is abandoned within milliseconds.
 * The rows of other requests are computed again in the next step, to the same bits. A step with rows of others is not
 * abandoned if the step before was, or one client could hold up all others by cancelling. Recurrent states have to be
 * copied before a step that may be abandoned (states.h). There is room for as many copies as the engine has sessions,
 * and a step of more sequences is not abandoned. Such a step has many answers, so it has few prompt rows.
 */
#include "engine/room.h"

#include <assert.h>
#include <limits.h>
#include <math.h>

#include "base/inline/minmax.h"
#include "base/os.h"
#include "decode/logprob.h"
#include "engine/core/stage.h"
#include "model/rank_head.h"

/* How much longer prompt rows may make a step. The aim is that no gap is three times as long; the rest is a margin. */
#define STRETCH 1.75
#define ASK_NS  1000000 /* between two checks whether the step is still wanted */

#define DRAW_TOGETHER 4 /* answers; for fewer, waking the team may take longer than drawing */

#define RATE_WEIGHT 0.125 /* weight of the last step in the moving means of rates */

static void begin_answers(struct qn_scheduler *s, struct request *r, const struct step_part *p);

/* ---- gathering ---- */

/* Begins the answers of requests whose whole prompt was found. Only windows need no row of it. */
static void begin_known(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        if (r->fills && request_is_reading(r) && request_answer_runs(r, 0) && answer_rows(&r->answers[0]) == 0)
            begin_answers(s, r, NULL);
    }
}

static void add_row(struct qn_scheduler *s, qn_token t, int pos, bool want)
{
    batch_add(&s->engine->batch, t, pos, s->n_parts - 1, want);
    s->n_rows++;
    s->n_logits += want;
    s->parts[s->n_parts - 1].n_logits += want;
}

static void add_part(struct qn_scheduler *s, struct request *r, int answer, int n)
{
    s->memories[s->n_parts] = &r->answers[answer].memory;
    const struct answer *a = &r->answers[answer];
    s->parts[s->n_parts++] = (struct step_part){.request = r,
                                                .answer = answer,
                                                .row = s->n_rows,
                                                .n = n,
                                                .logits_row = s->n_logits,
                                                .slot = a->memory.n_slots + a->n_away,
                                                .life = a->life,
                                                .n_kept = n};
}

bool step_has_next(const struct qn_scheduler *s, const struct request *r, int k)
{
    const struct answer *a = &r->answers[k];
    return !r->fills && request_answer_runs(r, k) && answer_rows(a) == 1 && !a->n_away && room_has_page(s, a) &&
           request_has_mask(r, k);
}

/* Adds a row after those of the part, in a slot of its own. */
static void add_aside(struct qn_scheduler *s, const struct draft_row *row)
{
    struct batch *b = &s->engine->batch;
    int slot = b->slot[b->n - 1] + 1;
    batch_add(b, row->token, row->pos, s->n_parts - 1, row->is_asked);
    b->slot[b->n - 1] = slot;
    s->n_rows++;
    s->n_logits += row->is_asked;
    s->parts[s->n_parts - 1].n_aside++;
}

/* Adds the rows of drafts after an answer's next row. */
static void add_drafts(struct qn_scheduler *s, const struct draft_offer *o)
{
    struct step_part *p = &s->parts[s->n_parts - 1];
    struct batch *b = &s->engine->batch;
    int from = b->slot[p->row] + 1, n = o->plans[o->kind].n_rows;
    for (int i = 0; i < n; i++) add_row(s, o->proposed[o->kind][i], from + i, true);
    for (int i = 0; i < o->n_aside; i++) add_aside(s, &o->aside[i]);
    p->offer = o;
    p->n_drafted = n;
    p->n += n;
    if (!kv_pool_shape(s->engine->kv)->state_bytes) return;
    for (int i = 0; i < p->n; i++) b->held[p->row + i] = true;
}

static void gather_answers(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        if (request_is_reading(r)) continue;
        for (int k = 0; k < r->n_started && s->n_parts < s->most_answers; k++) {
            const struct answer *a = &r->answers[k];
            if (!step_has_next(s, r, k)) continue;
            const struct draft_offer *drafts = drafts_take(s, r, k);
            add_part(s, r, k, 1);
            add_row(s, a->tokens[a->n_tokens - 1], a->memory.n_slots, true);
            if (drafts) add_drafts(s, drafts);
        }
    }
}

/* Returns how many of an answer's rows the step takes: at most `most`, and not beyond a place where a copy of the state
 * is kept, or where rows begin to be told. */
static int piece(const struct qn_scheduler *s, const struct request *r, int answer, int most, int n_scored)
{
    const struct answer *a = &r->answers[answer];
    int from = a->memory.n_slots + a->n_away, left = a->n_tokens - from, n = left < most ? left : most;
    if (n == left && !request_has_mask(r, answer)) n--; /* its last row is the one that is drawn from */
    if (!request_is_reading(r)) return n;
    if (a->n_away && reuse_next_cut(s->reuse, r, from - 1) == from) return 0; /* a copy is made before it goes on */
    int cut = reuse_next_cut(s->reuse, r, from), untold = a->n_reached - from;
    if (n > cut - from) n = cut - from;
    if (n > untold && untold > 0) n = untold;
    if (r->p.prompt_logprobs && n > PROMPT_LOGPROB_ROWS - n_scored) n = PROMPT_LOGPROB_ROWS - n_scored;
    return n;
}

/* Adds rows of prompts, and of answers that have to be computed again. */
static void gather_prompts(struct qn_scheduler *s, int most)
{
    int n_scored = 0;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        bool is_reading = request_is_reading(r), is_scored = is_reading && r->p.prompt_logprobs;
        for (int k = 0; k < r->n_started && most > 0; k++) {
            struct answer *a = &r->answers[k];
            if (!request_answer_runs(r, k) || (!is_reading && answer_unread(r, a) == 0)) continue;
            int from = a->memory.n_slots + a->n_away, last = a->n_tokens - 1, n = piece(s, r, k, most, n_scored);
            if (n > 0) n = room_open(s, a, n);
            if (n <= 0) continue;
            if (is_scored) n_scored += n;
            add_part(s, r, k, n);
            for (int p = from; p < from + n; p++)
                add_row(s, a->tokens[p], p,
                        p == last ? r->max_tokens > 0 && !r->fills : is_scored && p >= a->n_reached);
            most -= n;
        }
    }
}

/* Adds the rows of an answer's window. Returns false if the step has not enough rows for them. */
static bool add_window(struct qn_scheduler *s, struct request *r, int k, int n_before)
{
    struct answer *a = &r->answers[k];
    struct batch *b = &s->engine->batch;
    struct wedlm_row rows[2 * WEDLM_MOST];
    int n = windows_rows(r, a, rows), n_masks = 0;
    for (int i = 0; i < n; i++) n_masks += !rows[i].is_filled;
    if (s->n_rows + n > s->engine->n_batch || s->n_logits - n_before + n_masks > s->windows.most_logits) return false;
    add_part(s, r, k, n);
    s->parts[s->n_parts - 1].is_window = true;
    for (int i = 0; i < n; i++) {
        add_row(s, rows[i].is_filled ? rows[i].token : s->windows.file.mask, rows[i].pos, !rows[i].is_filled);
        b->slot[b->n - 1] = a->n_tokens + i;
    }
    return true;
}

/* Adds windows of unverified answers: those from number `from` up to `to`, counted over all of them. Returns the first
 * for which the step has no room; -1: there is none. */
static int add_windows(struct qn_scheduler *s, int from, int to, int n_before)
{
    int number = 0, none = -1;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        for (int k = 0; r->fills && !request_is_reading(r) && k < r->n_started; k++) {
            struct answer *a = &r->answers[k];
            int at = number++;
            if (at < from || at >= to || !request_answer_runs(r, k)) continue;
            if (answer_unread(r, a) || !room_has_page(s, a)) continue;
            if (!add_window(s, r, k, n_before) && none < 0) none = at;
        }
    }
    return none;
}

/* Adds the windows of unverified answers. The first one for which a step has no room begins the next. */
static void gather_windows(struct qn_scheduler *s)
{
    int n_before = s->n_logits, n_rows = s->n_rows;
    if (!s->windows.is_there) return;
    uint64_t t0 = clock_ns();
    int none = add_windows(s, s->windows.turn, INT_MAX, n_before);
    int again = add_windows(s, 0, s->windows.turn, n_before);
    s->windows.turn = none >= 0 ? none : max_int(again, 0);
    if (s->n_rows > n_rows) s->windows.gather_ns = clock_ns() - t0;
}

/* Answers of the prompts that are being read. */
static int answers_to_come(const struct qn_scheduler *s)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++)
        if (request_is_reading(s->running[i]) && s->running[i]->max_tokens > 0) n += s->running[i]->p.n_answers;
    return n;
}

static void gather(struct qn_scheduler *s)
{
    batch_clear(&s->engine->batch);
    s->n_parts = s->n_rows = s->n_logits = 0;
    begin_known(s);
    drafts_propose(s);
    gather_answers(s);
    gather_windows(s);
    int n_decode = s->n_rows, most = s->engine->n_batch - n_decode;
    if (most > s->n_prefill) most = s->n_prefill;
    if (n_decode && most > 0)
        most = pace_prefill_rows(&s->pace, n_decode, n_decode + answers_to_come(s), STRETCH, most);
    else if (s->are_answers_away)
        most = 0; /* answers would wait for these rows */
    else if (s->most_prompt && most > s->most_prompt)
        most = s->most_prompt;
    gather_prompts(s, most);
    s->n_prefill_rows = s->n_rows - n_decode;
    /* a place has at most one answer */
    assert(s->n_logits <= s->n_places + PROMPT_LOGPROB_ROWS + s->drafts.most + s->windows.most_logits);
}

/* A step without rows would be repeated for ever, so each request that should have had rows gets an error. Those that
 * wait for pages should not. */
static void fail_all(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++)
        for (int k = 0; k < s->running[i]->n_started; k++)
            if (request_answer_runs(s->running[i], k) && room_has_page(s, &s->running[i]->answers[k]))
                error_set(&s->running[i]->error, QN_EUSAGE, "request: a step has no rows of it (an internal error)");
}

/* ---- running ---- */

/* Called between pieces of work, which can be many and small, so it seldom looks. */
static bool is_wasted(void *arg)
{
    struct qn_scheduler *s = arg;
    uint64_t now = clock_ns(), stop = s->stop_ns;
    int n = 0;
    if (now - s->asked_ns < ASK_NS) return false;
    s->asked_ns = now;
    for (int i = 0; i < s->n_parts; i++)
        if (request_doom(s->parts[i].request, now, stop)) n += s->parts[i].n + s->parts[i].n_aside;
    return n == s->n_rows || (2 * n > s->n_rows && !s->was_abandoned);
}

static bool run(struct qn_scheduler *s)
{
    struct qn_engine *g = s->engine;
    bool has_copies = s->n_parts <= g->forward.max_seqs || !kv_pool_shape(g->kv)->state_bytes;
    g->forward.pass.is_cancelled = has_copies ? is_wasted : NULL;
    g->forward.pass.cancel_arg = s;
    bool done = forward_run(&g->forward, &g->batch, s->memories, s->logits);
    g->forward.pass.is_cancelled = NULL;
    s->was_abandoned = !done;
    return done && !scheduler_lost_weights(s);
}

/* ---- results ---- */

static float *logits_row(const struct qn_scheduler *s, int i)
{
    return s->logits + (size_t)i * (size_t)s->engine->model->hp.n_vocab;
}

static void tell_prefill(const struct request *r)
{
    struct qn_event ev = {
        .type = QN_EVENT_PREFILL, .token = -1, .n_done = r->answers[0].memory.n_slots, .n_total = (int)r->p.n_prompt};
    request_tell(r, &ev);
}

/* Sends the logprobs of the tokens after the part's rows. The prompt's first token follows no row. */
static void tell_prompt(struct qn_scheduler *s, const struct step_part *p, int from)
{
    const struct request *r = p->request;
    struct qn_logprob top[QN_MAX_TOP_LOGPROBS];
    if (from == 0) {
        struct qn_event ev = {.type = QN_EVENT_PROMPT, .token = r->p.prompt[0], .logprob = __builtin_nanf("")};
        request_tell(r, &ev);
    }
    for (int i = 0; i < p->n && from + i + 1 < (int)r->p.n_prompt; i++) {
        struct qn_event ev = {
            .type = QN_EVENT_PROMPT, .token = r->p.prompt[from + i + 1], .top = top, .n_top = r->p.n_top_logprobs};
        ev.logprob = logprob_of(&s->engine->forward.pass.kt, logits_row(s, p->logits_row + i),
                                s->engine->model->hp.n_vocab, ev.token, top, ev.n_top, s->work, s->scratch);
        request_tell(r, &ev);
    }
}

/* Adds rows in double and in the order of positions, so that the sum does not depend on how the prompt was cut. */
static void pool_rows(struct qn_scheduler *s, const struct step_part *p)
{
    struct request *r = p->request;
    int n_embd = s->engine->model->hp.n_embd, last = r->answers[0].memory.n_slots == (int)r->p.n_prompt ? p->n - 1 : -1;
    for (int i = r->p.pooling == QN_POOL_MEAN ? 0 : last; i >= 0 && i < p->n; i++) {
        forward_hidden(&s->engine->forward, p->row + i, r->hidden);
        for (int k = 0; k < n_embd; k++) r->pooled[k] += (double)r->hidden[k];
    }
}

static void tell_embedding(struct request *r, int n_embd)
{
    double sum = 0;
    for (int k = 0; k < n_embd; k++) sum += r->pooled[k] * r->pooled[k];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int k = 0; k < n_embd; k++) r->hidden[k] = (float)(r->pooled[k] * scale);
    struct qn_event ev = {.type = QN_EVENT_EMBEDDING, .token = -1, .embedding = r->hidden, .n_embedding = n_embd};
    request_tell(r, &ev);
}

/* The same with one number: how probably the document in the prompt answers the query. */
static void tell_rank(struct request *r, const struct model *m)
{
    float score = rank_head_score(m, r->pooled, r->hidden);
    struct qn_event ev = {.type = QN_EVENT_EMBEDDING, .token = -1, .embedding = &score, .n_embedding = 1};
    request_tell(r, &ev);
}

/* Where another process found no token to draw, the logits are as if they were here, for the error. */
static void nothing_to_draw(const struct qn_scheduler *s, float *logits)
{
    for (int i = 0; i < s->engine->model->hp.n_vocab; i++) logits[i] = -INFINITY;
}

/* Draws the first token of an answer from the last row of the prompt's part, or takes what was drawn elsewhere. */
static void begin_answer(struct qn_scheduler *s, struct request *r, int k, const struct step_part *p)
{
    float *logits = logits_row(s, p->logits_row + p->n_logits - 1);
    const struct stage_drawn *heard = p->n_heard ? &s->heard[p->heard + k] : NULL;
    qn_token drawn = heard ? request_hear(r, k, heard) : -1;
    if (heard && drawn < 0) nothing_to_draw(s, logits);
    request_next_token(r, k, drawn, heard, s->engine, logits, s->work, s->scratch);
}

/* The prompt has been read: begins the answers. p: the part with its last row; NULL: the whole prompt was found, and
 * windows follow. */
static void begin_answers(struct qn_scheduler *s, struct request *r, const struct step_part *p)
{
    struct qn_engine *g = s->engine;
    r->answering_ns = clock_ns();
    reuse_keep_prompt(s->reuse, r);
    if (r->p.pooling == QN_POOL_RANK)
        tell_rank(r, g->model);
    else if (r->p.pooling)
        tell_embedding(r, g->model->hp.n_embd);
    bool failed = r->max_tokens > 0 && request_fork(r, g, &r->error) != 0;
    /* Also answers that did not begin: none was asked for, or the fork failed. */
    for (int k = 0; k < r->p.n_answers; k++) {
        if (failed)
            request_finish_answer(r, k, QN_FINISH_ERROR);
        else if (r->max_tokens == 0)
            request_finish_answer(r, k, QN_FINISH_LENGTH);
        else if (!r->fills)
            begin_answer(s, r, k, p);
    }
    if (failed) return;
    room_fork(s, r);
    for (int k = 1; k < r->n_started; k++) drafts_open(s, r, k);
}

/* Draws the tokens of an answer, as far as they are those of the next rows, and without the masks that follow. */
static void draw_part(struct qn_scheduler *s, struct step_part *p)
{
    const qn_token *drafts = s->engine->batch.token + p->row + p->n - p->n_drafted;
    qn_token *drawn = s->drawn + p->logits_row;
    for (int i = 0; i < p->n_logits && (i == 0 || (drawn[i - 1] == drafts[i - 1] && !p->request->guides)); i++) {
        float *logits = logits_row(s, p->logits_row + i);
        drawn[i] = p->n_heard ? request_hear(p->request, p->answer, &s->heard[p->heard + i])
                              : request_draw(p->request, p->answer, i, logits);
        if (drawn[i] < 0 && p->n_heard) nothing_to_draw(s, logits);
        if (drawn[i] < 0) return;
        p->n_drawn = i + 1;
    }
}

/* A member of the team draws tokens until none is left. */
static void draw_some(void *arg, int ith, int nth)
{
    struct qn_scheduler *s = arg;
    (void)ith, (void)nth;
    for (int i; (i = atomic_fetch_add_explicit(&s->n_dealt, 1, memory_order_relaxed)) < s->n_parts;) {
        struct step_part *p = &s->parts[i];
        if (!request_is_reading(p->request) && !p->request->fills) draw_part(s, p);
    }
}

/* Draws the tokens of answers together, because one draw looks at all logits of its row. */
static void draw(struct qn_scheduler *s)
{
    atomic_store_explicit(&s->n_dealt, 0, memory_order_relaxed);
    if (s->engine->stage)
        draw_some(s, 0, 1); /* little is left to be drawn here */
    else if (s->n_parts >= DRAW_TOGETHER)
        pool_run(s->engine->pool, draw_some, s);
}

/* Takes the tokens of an answer in the order of their rows. A row stays if the tokens before it are those that it was
 * computed with. An answer without the mask of its next token goes on in another step. */
static void take_tokens(struct qn_scheduler *s, struct step_part *p)
{
    struct request *r = p->request;
    const struct answer *a = &r->answers[p->answer];
    const qn_token *drafts = s->engine->batch.token + p->row + p->n - p->n_drafted;
    int n = 0;
    bool goes_on = true;
    while (n < p->n_logits && goes_on) {
        qn_token drawn = n < p->n_drawn ? s->drawn[p->logits_row + n] : -1;
        request_next_token(r, p->answer, drawn, drawn >= 0 && p->n_heard ? &s->heard[p->heard + n] : NULL, s->engine,
                           logits_row(s, p->logits_row + n), s->work, s->scratch);
        n++;
        goes_on = a->finish == QN_FINISH_NONE && n < p->n_logits && a->tokens[a->n_tokens - 1] == drafts[n - 1] &&
                  !request_is_cancelled(r) && masks_try(r, p->answer);
    }
    p->n_kept = p->n - p->n_logits + n;
    s->n_told += n;
    r->answers[p->answer].drafts.n_passes += n > 0;
    if (n) r->answers[p->answer].drafts.n_rows += p->n + p->n_aside;
}

/* The same for a window. */
static void take_window(struct qn_scheduler *s, struct step_part *p)
{
    struct answer *a = &p->request->answers[p->answer];
    a->drafts.n_passes++;
    a->drafts.n_rows += p->n;
    if (s->windows.watch) s->windows.watch(s, p, logits_row(s, p->logits_row));
    p->n_kept = windows_take(s, p->request, p->answer, logits_row(s, p->logits_row));
    a->drafts.n_unverified += p->n_kept;
    s->n_told += p->n_kept;
}

/* What follows from rows of a prompt, from slot `from` on. is_new: they were not told before. */
static void take_in_prompt(struct qn_scheduler *s, const struct step_part *p, int from, bool is_new)
{
    struct request *r = p->request;
    if (is_new && r->p.prompt_logprobs) tell_prompt(s, p, from);
    if (is_new && r->p.pooling) pool_rows(s, p);
    if (is_new) tell_prefill(r);
    reuse_keep_cut(s->reuse, r);
    if (answer_rows(&r->answers[p->answer]) == 0) begin_answers(s, r, p);
}

static void take_in(struct qn_scheduler *s, struct step_part *p)
{
    struct request *r = p->request;
    struct answer *a = &r->answers[p->answer];
    bool is_reading = request_is_reading(r);
    if (p->is_window)
        take_window(s, p);
    else if (!is_reading)
        take_tokens(s, p);
    int from = a->memory.n_slots, to = from + p->n_kept;
    bool is_new = to > a->n_reached; /* while a prompt is read, a part has either rows that were told, or new ones */
    kv_seq_extend(&a->memory, to);
    if (is_new) {
        scheduler_charge(r, to - (from > a->n_reached ? from : a->n_reached));
        a->n_reached = to;
    }
    if (is_reading) take_in_prompt(s, p, from, is_new);
    if (r->fills && a->finish != QN_FINISH_NONE) room_undraft(a);
}

/* Where several steps are under way, a step counts from the end of the one before. pass_s: 0: not known. */
static void count(struct qn_scheduler *s, uint64_t t0, double pass_s)
{
    struct qn_scheduler_stats *st = &s->stats;
    uint64_t now = clock_ns();
    double seconds = 1e-9 * (double)(now - (pass_s > 0 && s->last_step_ns > t0 ? s->last_step_ns : t0));
    if (!(pass_s > 0)) pass_s = seconds - s->drafts.seconds;
    pthread_mutex_lock(&s->mutex);
    st->n_steps++;
    st->n_rows += (uint64_t)s->n_rows;
    st->n_prefill_rows += (uint64_t)s->n_prefill_rows;
    st->step_s = seconds;
    st->busy_s += seconds;
    if (s->n_told) st->decode_tokens_per_s = pace_mean(st->decode_tokens_per_s, s->n_told / seconds, RATE_WEIGHT);
    if (s->n_prefill_rows)
        st->prefill_tokens_per_s = pace_mean(st->prefill_tokens_per_s, s->n_prefill_rows / seconds, RATE_WEIGHT);
    windows_count(s);
    s->last_step_ns = now;
    pthread_mutex_unlock(&s->mutex);
    pace_learn(&s->pace, s->n_rows, s->n_prefill_rows, pass_s);
    drafts_took(s, pass_s);
}

/* Rotates the contexts that have become full. */
static void rotate(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++)
        for (int k = 0; k < s->running[i]->n_started; k++)
            if (request_is_full(s->running[i], &s->running[i]->answers[k])) room_rotate(s, s->running[i], k);
}

bool step_gather(struct qn_scheduler *s)
{
    room_grow(s);
    masks_prepare(s);
    gather(s);
    return s->n_rows > 0;
}

/* Waits for a mask, or else nothing that runs can have rows. */
void step_without_rows(struct qn_scheduler *s)
{
    if (masks_wait(s) != MASKS_NONE) return;
    s->is_stalled = true;
    fail_all(s);
}

void step_run(struct qn_scheduler *s)
{
    uint64_t t0 = clock_ns();
    s->most_answers = s->n_places;
    if (!step_gather(s)) {
        step_without_rows(s);
        return;
    }
    s->windows.run_ns = clock_ns();
    if (!run(s)) {
        drafts_forget(s);
        return;
    }
    s->windows.ran_ns = clock_ns();
    step_take_in(s, t0, 0);
}

void step_take_in(struct qn_scheduler *s, uint64_t t0, double seconds)
{
    draw(s);
    s->n_told = 0;
    for (int i = 0; i < s->n_parts; i++) take_in(s, &s->parts[i]);
    drafts_settle(s);
    rotate(s);
    count(s, t0, seconds);
}
