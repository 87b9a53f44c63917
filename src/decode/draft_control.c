/* SPDX-License-Identifier: MIT
 *
 * draft_control.c: decides how many drafted tokens become rows. See draft_control.h.
 *
 * Two things are measured. The first is how often tokens were right: for each drafter and class of sureness over all
 * answers, and for one answer, whose few tokens are mixed with what is known of all. A token of a proposal counts only
 * if those before it were right, so the product of such rates along a proposal is how probably its rows bring tokens.
 *
 * The second is how long steps took. Times differ by a common factor when the machine is busy, and by the number of
 * rows. So a measured time moves the common level quickly, and its own point slowly, unless that was not measured for
 * long: the points keep their ratios while a busy machine makes all of them slower. A step with drafted rows has points
 * of its own, because it may have to copy states, and rows of one sequence cost something else than rows of several.
 *
 * A point that was once measured too slow would never be tried again. So times of drafted steps are believed to become
 * a little shorter with each step in which they are not measured. Plain steps are measured again after some time, too,
 * the sooner the less drafts seem to gain.
 *
 * All of this are estimates, so there is an account besides. A step with drafts pays in the time of plain steps for its
 * tokens, and takes out its own time and the drafter's. Time itself pays in a little, too: the price of trials. An
 * empty account ends drafts, until there is something in it again. So drafts lose no more than that, whatever was
 * estimated. The time of rows aside is taken out one step later, together with what their tokens bring: otherwise an
 * account with little in it would be empty before they can bring anything, and would never fill again.
 */
#include "decode/draft_control.h"

#include <assert.h>
#include <stddef.h>

#include "base/inline/minmax.h"

#define EXACT 31   /* rows that have a point each */
#define LAST  8191 /* rows of the last point */

#define MARGIN       1.03          /* drafts have to promise so much more than plain steps */
#define DRIFT        (1.0F / 4096) /* what a drafted step is believed to get shorter for each step */
#define UNTRIED      0.9F          /* what a drafted step is believed to take that was never measured, of the usual */
#define REFRESH_MOST 256           /* steps after which a plain step is measured again, */
#define REFRESH_LOSS 0.005         /* or so many that it costs so much */

#define PLAIN_LEAST 4 /* measurements of plain steps, before the first with drafts */

#define CREDIT       0.005 /* of the time: what drafts may lose */
#define CREDIT_FIRST 4     /* in relative time: at the beginning, */
#define CREDIT_MOST  8     /* and at most */

#define LUCK  0.85 /* of the expected time is what a step counts as at least, in the account, */
#define STALL 3    /* and at most */

#define LEVEL_WEIGHT 0.25     /* of a measured time in the level */
#define POINT_WEIGHT 0.015625 /* in its point, if that is measured in each step, */
#define STALE_WEIGHT 0.5      /* or was not measured for STALE steps */
#define STALE        64
#define FEW          8     /* measurements of a point that has little weight in the level */
#define LEAST_TIME   0.001 /* relative, of anything */
#define MOST_TIME    1e6
#define FASTEST      0.67 /* a time counts as at least and at most so much of the expected one */
#define SLOWEST      1.5

#define ALL_KEPT    (1 - 1.0F / 256) /* what an older token counts less for each new one: over all answers, in one */
#define ANSWER_KEPT (1 - 1.0F / 24)
#define GUESS       0.5 /* how often tokens of any class are right where nothing is known, */
#define GUESS_N     4   /* which counts as so many tokens */
#define ALL_N       6   /* and so many what is known of all answers, for one */

#define LEAST_GAIN 0.01 /* rows that bring a token less often are not looked at */

#define FIRST_PAUSE 32 /* steps between trials of a drafter */
#define LAST_PAUSE  4096
#define TRIAL       4  /* steps of a trial */
#define KNOWN       16 /* tokens after which a drafter is known, and a new answer begins with a pause */

/* ---- the time of a step ---- */

static int point_of(int rows)
{
    if (rows <= EXACT) return rows - 1;
    if (rows > LAST) return DRAFT_POINTS - 1;
    int e = 31 - __builtin_clz((unsigned)rows);
    return EXACT + (e - 5) * 8 + ((rows >> (e - 3)) & 7);
}

/* The fewest rows of a point. */
static int rows_of(int point)
{
    if (point < EXACT) return point + 1;
    int e = 5 + (point - EXACT) / 8;
    return (8 + (point - EXACT) % 8) << (e - 3);
}

static double expected(const struct draft_curve *v, int rows)
{
    int i = point_of(rows), x = rows_of(i);
    if (i == DRAFT_POINTS - 1) return v->expected[i] * (double)rows / x;
    return v->expected[i] + (v->expected[i + 1] - v->expected[i]) * (double)(rows - x) / (rows_of(i + 1) - x);
}

/* How much of its measured time a step is believed to take. */
static float hope(const struct draft_control *c, const struct draft_curve *v, int i)
{
    float lost = v == &c->drafted ? DRIFT * (float)(c->n_steps - v->step[i]) : 0;
    return lost < 0.5F ? 1 - lost : 0.5F;
}

/* Fills in v->expected: between points that were measured, the ratio to `usual` goes on a straight line; before the
 * first and after the last it stays. Points that were not measured are taken `untried` of that. A step takes no longer
 * than a larger one that was measured. */
static void expect(const struct draft_control *c, struct draft_curve *v, const float usual[DRAFT_POINTS], float untried)
{
    int before = -1;
    float ratio = 1, least = 0;
    for (int i = 0; i <= DRAFT_POINTS; i++) {
        if (i < DRAFT_POINTS && v->n[i] == 0) continue;
        float next = i < DRAFT_POINTS ? v->time[i] * hope(c, v, i) / usual[i] : ratio;
        if (before < 0) ratio = next;
        for (int k = before + 1; k < i; k++)
            v->expected[k] = untried * usual[k] * (ratio + (next - ratio) * (float)(k - before) / (float)(i - before));
        if (i < DRAFT_POINTS) v->expected[i] = v->time[i] * hope(c, v, i);
        before = i;
        ratio = next;
    }
    for (int i = DRAFT_POINTS - 1; i >= 0; i--) {
        if (v->n[i] > 0 && (!(least > 0) || v->expected[i] < least)) least = v->expected[i];
        if (least > 0 && v->expected[i] > least) v->expected[i] = least;
    }
}

static void expect_both(struct draft_control *c)
{
    expect(c, &c->plain, c->usual, 1);
    expect(c, &c->drafted, c->plain.expected, UNTRIED);
}

static double max_of(double a, double b) { return a > b ? a : b; }
static double clamp(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

static void measure(struct draft_control *c, struct draft_curve *v, int rows, double seconds)
{
    int i = point_of(rows);
    double mean = expected(v, rows);
    if (v->n[i] > 0) mean *= v->time[i] / v->expected[i];
    if (!(c->level_s > 0)) c->level_s = seconds / mean;
    double ratio = seconds / (c->level_s * mean), change = clamp(ratio, FASTEST, SLOWEST) - 1;
    if (v->n[i] == 0) {
        double first = v->expected[i] * clamp(ratio, FASTEST * FASTEST, SLOWEST * SLOWEST);
        v->time[i] = (float)clamp(first, LEAST_TIME, MOST_TIME);
    } else {
        double n = v->n[i], w = clamp((c->n_steps - v->step[i]) * (STALE_WEIGHT / STALE), POINT_WEIGHT, STALE_WEIGHT);
        if (w < 1 / (n + 1)) w = 1 / (n + 1);
        v->time[i] = (float)clamp(v->time[i] * (1 + w * change), LEAST_TIME, MOST_TIME);
        c->level_s *= 1 + LEVEL_WEIGHT * (1 - w) * n / (n + FEW) * change;
    }
    v->n[i]++;
    v->step[i] = c->n_steps;
}

/* Level and points may move against each other for ever. So the time of one plain row is made 1 when it is far off. */
static void rescale(struct draft_control *c)
{
    float unit = c->plain.expected[0];
    if (unit > 0.5F && unit < 2) return;
    c->level_s *= unit;
    c->credit /= unit;
    c->lent /= unit;
    for (int i = 0; i < DRAFT_POINTS; i++) {
        c->plain.time[i] = (float)clamp(c->plain.time[i] / unit, LEAST_TIME, MOST_TIME);
        c->drafted.time[i] = (float)clamp(c->drafted.time[i] / unit, LEAST_TIME, MOST_TIME);
    }
    expect_both(c);
}

static void pay(struct draft_control *c, double time)
{
    c->credit += time;
    c->credit = clamp(c->credit, -CREDIT_MOST, CREDIT_MOST);
}

/* Returns what of a step's time its rows aside take. plain: the time of its rows that are neither drafted nor aside. */
static double time_aside(const struct draft_control *c, int n_rows, int n_drafted, double plain, double time)
{
    int n_aside = min_int(c->n_aside, n_drafted);
    if (!n_aside) return 0;
    double without = n_drafted > n_aside ? expected(&c->drafted, n_rows - n_aside) : plain;
    return time > without ? time - without : 0;
}

/* A stall of the machine is not the drafts' fault, and neither is luck their merit. */
static void book(struct draft_control *c, int n_rows, int n_drafted, double time)
{
    double plain = expected(&c->plain, n_rows - n_drafted), usual = expected(&c->drafted, n_rows);
    double spent = n_drafted ? clamp(time, LUCK * usual, STALL * usual) : 0;
    double lent = time_aside(c, n_rows, n_drafted, plain, spent);
    int n = max_int(c->n_answers, 1);
    double won = n_drafted ? plain * (n + c->n_accepted) / n - (spent - lent) - c->lent : 0;
    if (n_drafted) pay(c, won);
    c->won_s += won * c->level_s;
    if (!n_drafted) pay(c, -c->lent);
    pay(c, CREDIT * plain);
    c->lent = lent;
    c->n_accepted = 0;
}

void draft_control_took(struct draft_control *c, int n_rows, int n_drafted, double seconds)
{
    assert(n_rows > n_drafted && n_drafted >= 0);
    if (!(seconds > 0)) return;
    c->n_steps++;
    if (c->level_s > 0) book(c, n_rows, n_drafted, seconds / c->level_s);
    measure(c, n_drafted ? &c->drafted : &c->plain, n_rows, seconds);
    expect_both(c);
    rescale(c);
}

void draft_control_drafted(struct draft_control *c, int kind, int n, double seconds)
{
    if (n < 0 || !(seconds > 0)) return;
    if (n == 0) {
        if (c->level_s > 0) pay(c, -clamp(seconds / c->level_s, 0, STALL));
        return;
    }
    double s = seconds / n, *mean = &c->token_s[kind], usual = *mean > 0 ? *mean : s;
    if (c->level_s > 0) pay(c, -clamp(seconds, LUCK * n * usual, STALL * max_of(n * usual, c->level_s)) / c->level_s);
    *mean = usual * (1 + LEVEL_WEIGHT * (clamp(s / usual, FASTEST, SLOWEST) - 1));
}

double draft_control_cost(const struct draft_control *c, int n_rows, int n_drafted)
{
    return expected(n_drafted ? &c->drafted : &c->plain, n_rows) / expected(&c->plain, 1);
}

void draft_control_init(struct draft_control *c, const double *relative, int n)
{
    static const double usual[] = {1, 1.3, 1.35, 1.4, 1.5, 1.55, 1.6, 1.65, 1.8, 1.9, 2, 2.1, 2.3, 2.5, 2.7, 2.9};
    if (!relative) relative = usual, n = (int)(sizeof usual / sizeof *usual);
    assert(n >= 1 && n <= EXACT);
    *c = (struct draft_control){.n_steps = 0};
    double slope = n > 1 ? (relative[n - 1] - relative[0]) / (n - 1) : 0;
    for (int i = 0; i < DRAFT_POINTS; i++)
        c->usual[i] = (float)(i < n ? relative[i] : relative[n - 1] + slope * (rows_of(i) - n));
    c->refresh = REFRESH_MOST;
    c->most = DRAFT_MOST;
    c->credit = CREDIT_FIRST;
    expect_both(c);
}

/* ---- how often tokens are right ---- */

static void count(struct draft_rate *r, bool is_right, float kept)
{
    r->n = r->n * kept + 1;
    r->n_right = r->n_right * kept + (is_right ? 1 : 0);
}

/* guess: the rate where nothing is known. */
static double mixed(const struct draft_rate *all, const struct draft_rate *one, double guess)
{
    double rate = (all->n_right + guess * GUESS_N) / (all->n + GUESS_N);
    return one ? (one->n_right + rate * ALL_N) / (one->n + ALL_N) : rate;
}

double draft_control_rate(const struct draft_control *c, const struct draft_record *r, int kind, int sureness)
{
    double guess = (sureness + 1.0) / (DRAFT_CLASSES + 1);
    return mixed(&c->rates[kind][sureness], r ? &r->rates[kind][sureness] : NULL, guess);
}

void draft_control_saw(struct draft_control *c, const struct draft_plan *p, int n_known, int n_right)
{
    assert(n_right <= n_known && n_known <= n_right + 1 && n_known <= p->n);
    c->n_accepted += min_int(n_right, p->n_rows);
    for (int i = 0; i < n_known; i++) {
        count(&c->rates[p->kind][p->sureness[i]], i < n_right, ALL_KEPT);
        count(&p->record->rates[p->kind][p->sureness[i]], i < n_right, ANSWER_KEPT);
    }
}

void draft_control_unsure(struct draft_control *c, struct draft_record *r, int kind)
{
    count(&c->rates[kind][0], false, ALL_KEPT);
    count(&r->rates[kind][0], false, ANSWER_KEPT);
}

/* The rate over all classes, for a drafter that has not proposed yet. */
static double rate_of_all(const struct draft_control *c, const struct draft_record *r, int kind)
{
    struct draft_rate all = {0, 0}, one = {0, 0};
    for (int i = 0; i < DRAFT_CLASSES; i++) {
        all.n += c->rates[kind][i].n, all.n_right += c->rates[kind][i].n_right;
        one.n += r->rates[kind][i].n, one.n_right += r->rates[kind][i].n_right;
    }
    return mixed(&all, &one, GUESS);
}

/* ---- which rows ---- */

/* How probably the next row of a plan brings a token, if the row before it does with the probability `before`. */
static double next_gain(const struct draft_control *c, const struct draft_plan *p, double before)
{
    if (p->n_rows >= min_int(p->most, p->n)) return 0;
    return before * draft_control_rate(c, p->record, p->kind, p->sureness[p->n_rows]);
}

static void take_none(const struct draft_control *c, struct draft_plan *plans, int n)
{
    for (int i = 0; i < n; i++) {
        plans[i].n_rows = 0;
        plans[i].gain = next_gain(c, &plans[i], 1);
    }
}

/* Gives a row to the plan whose next row brings a token most probably. Returns how probably; 0: no row is worth it. */
static double take_best(const struct draft_control *c, struct draft_plan *plans, int n)
{
    struct draft_plan *best = plans;
    for (int i = 1; i < n; i++)
        if (plans[i].gain > best->gain) best = &plans[i];
    double gain = best->gain;
    if (gain < LEAST_GAIN) return 0;
    best->n_rows++;
    best->gain = next_gain(c, best, gain);
    return gain;
}

/* A step without drafts of so many rows was not measured often enough, or not for long. */
static bool is_stale(const struct draft_control *c, int n_rows)
{
    int i = point_of(n_rows);
    return c->plain.n[i] < PLAIN_LEAST || c->n_steps - c->plain.step[i] > c->refresh;
}

bool draft_control_may(const struct draft_control *c, int n_rows) { return c->credit > 0 && !is_stale(c, n_rows); }

int draft_control_share(struct draft_control *c, struct draft_plan *plans, int n, int n_rows, int n_answers, int most)
{
    assert(n_rows >= n_answers && n_answers >= n);
    int n_all = n_rows + c->n_aside; /* rows aside are computed anyway */
    double plain = n_answers / expected(&c->plain, n_rows), tokens = n_answers, gain;
    double best = c->n_aside ? MARGIN * n_answers / expected(&c->drafted, n_all) : MARGIN * plain;
    int n_best = 0;
    c->most = most;
    c->n_answers = n_answers;
    take_none(c, plans, n);
    for (int k = 1; n && k <= most && (gain = take_best(c, plans, n)) > 0; k++) {
        tokens += gain;
        double rate = tokens / expected(&c->drafted, n_all + k);
        if (rate > best) best = rate, n_best = k;
    }
    if (!draft_control_may(c, n_rows)) n_best = 0;
    if (best > plain || !c->n_aside) c->refresh = (uint32_t)clamp((best / plain - 1) / REFRESH_LOSS, 1, REFRESH_MOST);
    take_none(c, plans, n);
    for (int k = 0; k < n_best; k++) take_best(c, plans, n);
    return n_best;
}

/* ---- drafters that cost time ---- */

/* The most tokens in a relative time that each of n_answers answers can get from `other`, if all have the like. */
static double value_of(const struct draft_control *c, const struct draft_plan *other, int n_rows, int n_answers)
{
    double best = 1 / expected(&c->plain, n_rows), tokens = 1, gain = 1;
    for (int k = 0; other && k < min_int(other->n, other->most) && n_answers * (k + 1) <= c->most; k++) {
        gain *= draft_control_rate(c, other->record, other->kind, other->sureness[k]);
        tokens += gain;
        double value = tokens / expected(&c->drafted, n_rows + n_answers * (k + 1));
        if (value > best) best = value;
    }
    return best;
}

/* Returns how many tokens are best asked for, if that is better than `least`, or else 0. */
static int best_request(const struct draft_control *c, const struct draft_record *r, int kind, int n_rows,
                        int n_answers, int most, double least)
{
    double rate = rate_of_all(c, r, kind), tokens = 1, gain = 1;
    double own = c->level_s > 0 ? c->token_s[kind] / c->level_s : 0;
    int n = 0;
    for (int k = 1; k <= most && n_answers * k <= c->most; k++) {
        gain *= rate;
        tokens += gain;
        double value = tokens / (expected(&c->drafted, n_rows + n_answers * k) + own * n_answers * k);
        if (value > least) least = value, n = k;
    }
    return n;
}

static bool is_known(const struct draft_control *c, int kind)
{
    float n = 0;
    for (int i = 0; i < DRAFT_CLASSES; i++) n += c->rates[kind][i].n;
    return n >= KNOWN;
}

/* A pause follows that is twice as long as the last one. */
static uint32_t next_pause(uint32_t pause)
{
    return pause ? (uint32_t)min_int((int)pause * 2, LAST_PAUSE) : FIRST_PAUSE;
}

/* The pauses of all answers, and the account, have to allow the trial: however many answers begin, what the drafter
 * showed in earlier ones is known. */
static bool may_try(const struct draft_control *c, int kind)
{
    double own = c->level_s > 0 ? c->token_s[kind] / c->level_s : 0;
    return c->n_steps >= c->tried[kind].next && c->credit >= clamp(TRIAL * own, 0, CREDIT_MOST / 2.0);
}

static void begin_trial(struct draft_control *c, struct draft_record *r, int kind)
{
    struct draft_trial *t = &r->trials[kind];
    t->wait = t->pause = next_pause(t->pause);
    t->n_left = TRIAL;
    c->tried[kind].pause = next_pause(c->tried[kind].pause);
    c->tried[kind].next = c->n_steps + c->tried[kind].pause;
    for (int i = 0; i < DRAFT_CLASSES; i++) r->rates[kind][i].n /= 2, r->rates[kind][i].n_right /= 2;
}

/* One token in each step of a trial. It need not become a row: it is compared anyway. */
static int try_again(struct draft_control *c, struct draft_record *r, int kind)
{
    struct draft_trial *t = &r->trials[kind];
    if (t->n_left == 0 && t->pause == 0 && is_known(c, kind)) t->pause = t->wait = FIRST_PAUSE;
    if (t->n_left == 0 && t->wait > 0) {
        t->wait--;
        return 0;
    }
    if (t->n_left == 0 && !may_try(c, kind)) return 0;
    if (t->n_left == 0) begin_trial(c, r, kind);
    t->n_left--;
    return 1;
}

int draft_control_ask(struct draft_control *c, struct draft_record *r, int kind, int n_rows, int n_answers, int most,
                      const struct draft_plan *other)
{
    assert(n_rows >= n_answers && n_answers >= 1);
    if (most == 0 || c->credit <= 0 || is_stale(c, n_rows)) return 0;
    double least = MARGIN * value_of(c, other, n_rows, n_answers);
    int n = best_request(c, r, kind, n_rows, n_answers, min_int(most, DRAFT_MOST), least);
    if (n == 0) return try_again(c, r, kind);
    r->trials[kind] = (struct draft_trial){0};
    c->tried[kind].next = c->tried[kind].pause = 0;
    return n;
}
