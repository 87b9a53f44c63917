/* SPDX-License-Identifier: MIT
 *
 * test_draft_control.c: the choice of drafted rows, in a simulation of answers, drafters and a machine.
 *
 * The simulated machine tells the controller noisy times. What is compared is the sum of the true ones, with those of
 * plain steps for the same tokens, and with those of the best fixed number of rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "decode/draft_control.h"

#ifdef FEW_CASES
#define STRIDE 4 /* of scenes that differ in their numbers only */
#else
#define STRIDE 1
#endif
#define STREAMS 8
#define ROWS    24 /* drafted rows of a step, at most */

/* Times of steps of 1, 2, ... rows, measured with `quern bench -b`, relative to one row. */
struct machine {
    const char *name;
    double time[16]; /* beyond: the last slope goes on */
    double drafted;  /* what any drafted row adds, as copies of states do */
};
static const struct machine machines[] = {
    {"0.6B", {1, 1.49, 1.37, 1.39, 1.86, 1.85, 1.87, 1.89, 2.0, 2.15, 2.3, 2.4, 2.8, 3.1, 3.5, 3.78}, 0},
    {"8B", {1, 1.35, 1.49, 1.40, 1.65, 1.65, 1.60, 1.50, 1.7, 1.8, 1.9, 2.1, 2.5, 2.8, 3.1, 3.29}, 0},
    {"hybrid", {1, 1.39, 1.45, 1.29, 1.48, 1.83, 1.75, 1.67, 1.8, 1.9, 2, 2.16, 2.2, 2.3, 2.4, 2.43}, 0.2},
    {"flat", {1, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09, 1.1, 1.11, 1.12, 1.13, 1.14, 1.15}, 0},
    {"linear", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, 0},
    {"experts", {1, 1.7, 2.3, 2.8, 3.3, 3.7, 4.1, 4.5, 4.8, 5.1, 5.4, 5.7, 6, 6.3, 6.5, 6.7}, 0.1},
};
#define N_MACHINES (sizeof machines / sizeof *machines)

static double time_of(const struct machine *m, int rows, int n_drafted)
{
    double t = rows <= 16 ? m->time[rows - 1] : m->time[15] + (m->time[15] - m->time[11]) / 4 * (rows - 16);
    return n_drafted ? t + m->drafted : t;
}

/* A drafter proposes tokens in a step with the probability `often`. Each is right with the probability
 * rate(token) of the text. */
struct scene {
    const struct machine *machine;
    int n_streams;
    double (*rate)(int token);
    double often;
    double own;   /* the drafter's time for a token; 0: nothing */
    double noise; /* of the times that the controller is told */
    uint64_t seed;
    int n_tokens; /* of each stream */
    int life;     /* tokens after which a stream begins another answer; 0: never */
    double reads; /* the drafter's time for a token that came since it was asked last, up to 32 of them */
};

struct outcome {
    double time, plain;                         /* of all steps; of plain ones with the same tokens */
    long n_steps, n_tokens, n_drafted, n_asked; /* asked: tokens of a drafter that costs time */
};

struct source {
    uint64_t seed, n;
};
static double draw(struct source *s) { return rng_uniform(s->seed, 17, s->n++); }

/* Around 1, with bursts of a busy machine: 20 steps that take twice as long, one time in 50. */
static double noise(struct source *s, double size, int *burst)
{
    if (size > 0 && draw(s) < 0.001) *burst = 20;
    double busy = *burst > 0 && (*burst)-- ? 2 : 1;
    return busy * (1 + size * (draw(s) + draw(s) + draw(s) - 1.5));
}

static struct outcome simulate(const struct scene *a)
{
    static struct draft_control c;
    struct draft_record records[STREAMS] = {0};
    struct outcome o = {0};
    struct source src = {a->seed, 0};
    int done = 0, burst = 0, age[STREAMS] = {0}, unread[STREAMS] = {0};
    static const uint8_t sureness[DRAFT_MOST] = {0};

    draft_control_init(&c, NULL, 0);
    while (done < a->n_tokens * a->n_streams) {
        struct draft_plan plans[STREAMS];
        int right[STREAMS], of[STREAMS], n = 0, from = done / a->n_streams, n_own = 0, n_read = 0;
        for (int i = 0; i < a->n_streams; i++) {
            int most = 8;
            if (a->life && age[i] >= a->life) records[i] = (struct draft_record){0}, age[i] = 0, unread[i] = 32;
            if (a->own > 0) most = draft_control_ask(&c, &records[i], 0, a->n_streams, a->n_streams, most, NULL);
            n_own += most;
            if (most) n_read += unread[i] < 32 ? unread[i] : 32, unread[i] = 0;
            age[i]++, unread[i]++;
            if (!most || draw(&src) >= a->often) continue;
            right[n] = 0;
            while (right[n] < most && draw(&src) < a->rate(from)) right[n]++;
            of[n] = i;
            plans[n++] = (struct draft_plan){.record = &records[i], .sureness = sureness, .n = most, .most = most};
        }
        int n_rows = draft_control_share(&c, plans, n, a->n_streams, a->n_streams, ROWS), sum = 0;
        int n_new = a->n_streams;
        for (int i = 0; i < n; i++) {
            int rows = plans[i].n_rows, accepted = right[i] < rows ? right[i] : rows;
            assert_in_range(rows, 0, plans[i].most);
            sum += rows;
            n_new += accepted;
            age[of[i]] += accepted, unread[of[i]] += accepted;
            int known = accepted + 1 < plans[i].n ? accepted + 1 : plans[i].n;
            draft_control_saw(&c, &plans[i], known, right[i] < known ? right[i] : known);
        }
        assert_int_equal(sum, n_rows);
        assert_true(n_rows <= ROWS);
        double t = time_of(a->machine, a->n_streams + n_rows, n_rows);
        double unit = 0.02 * noise(&src, a->noise, &burst), own = a->own * n_own + a->reads * n_read;
        draft_control_took(&c, a->n_streams + n_rows, n_rows, unit * t);
        if (n_own) draft_control_drafted(&c, 0, n_own, unit * own);
        o.time += t + own;
        o.plain += time_of(a->machine, a->n_streams, 0) * n_new / a->n_streams;
        o.n_tokens += n_new;
        o.n_drafted += n_rows;
        o.n_asked += n_own;
        o.n_steps++;
        done += n_new;
    }
    return o;
}

/* How much faster than plain steps the best fixed number of rows for each stream is; 1: none is. */
static double best_fixed(const struct scene *a, double rate)
{
    double best = 1, plain = time_of(a->machine, a->n_streams, 0);
    for (int k = 1; k <= 8 && k * a->n_streams <= ROWS; k++) {
        double tokens = 1, gain = 1;
        for (int i = 0; i < k; i++) tokens += a->often * (gain *= rate);
        double t = time_of(a->machine, a->n_streams * (k + 1), 1) * a->often + plain * (1 - a->often) +
                   a->own * k * a->n_streams;
        if (tokens * plain / t > best) best = tokens * plain / t;
    }
    return best;
}

static double fixed_rate;
static double always(int token) { return (void)token, fixed_rate; }
static double changes(int token) { return token / 300 % 2 ? 0.95 : 0.02; }
static double seldom(int token) { return token % 2000 < 200 ? 0.9 : 0; }

static void check(const struct scene *a, double least)
{
    struct outcome o = simulate(a);
    double gain = o.plain / o.time;
#ifdef SHOW
    print_message("%-7s %d streams, rate %.1f, often %.1f, own %.2f, noise %.1f: %.3f, best %.3f, %.2f rows\n",
                  a->machine->name, a->n_streams, fixed_rate, a->often, a->own, a->noise, gain,
                  best_fixed(a, fixed_rate), (double)o.n_drafted / (double)o.n_steps);
#endif
    if (gain < least)
        fail_msg("%s, %d streams, rate %.1f, often %.1f, own %.2f, noise %.1f: %.3f of plain steps, not %.3f",
                 a->machine->name, a->n_streams, fixed_rate, a->often, a->own, a->noise, gain, least);
}

/* Drafts that lose cost at most two percent, and five on a busy machine; where they gain, three quarters of the best
 * are reached, trials included. */
static void check_rates(double often, double own)
{
    static const int streams[] = {1, 2, STREAMS};
    for (size_t m = 0; m < N_MACHINES; m++)
        for (size_t n = 0; n < sizeof streams / sizeof *streams; n++)
            for (int r = 0; r <= 4; r += STRIDE)
                for (int k = 0; k < 2; k++) {
                    struct scene a = {.machine = &machines[m],
                                      .n_streams = streams[n],
                                      .rate = always,
                                      .often = often,
                                      .own = own,
                                      .noise = 0.1 * k,
                                      .seed = 100 * m + (uint64_t)r,
                                      .n_tokens = 20000 / streams[n]};
                    fixed_rate = 0.25 * r;
                    double best = best_fixed(&a, fixed_rate);
                    check(&a, best > 1.3 ? 0.75 * best : k ? 0.95 : 0.98);
                }
}

static void a_free_drafter_never_loses_and_comes_near_the_best(void **state)
{
    (void)state;
    check_rates(1, 0);
    check_rates(0.3, 0);
}

static void a_costly_drafter_never_loses_and_comes_near_the_best(void **state)
{
    (void)state;
    check_rates(1, 0.05);
    check_rates(1, 0.25);
}

static void a_text_that_changes_is_followed(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MACHINES; m++)
        for (int k = 0; k < 8; k += STRIDE) {
            struct scene a = {.machine = &machines[m],
                              .n_streams = 1 + k / 2,
                              .rate = changes,
                              .often = 1,
                              .own = k % 2 ? 0.1 : 0,
                              .noise = 0.1,
                              .seed = 10 * m + (uint64_t)k,
                              .n_tokens = 20000};
            bool pays = k < 2 && m < 4; /* half of the tokens at 0.95 of one stream */
            check(&a, pays ? k == 0 ? 1.25 : 1.1 : 0.98);
            a.rate = seldom;
            check(&a, 0.98);
        }
}

/* Answers of 64 tokens: what the drafter cost earlier ones is known to new ones. From the first token on, at most a
 * hundredth of the time is lost and that of four steps. */
static void short_answers_do_not_all_try_what_fails(void **state)
{
    (void)state;
    static const int streams[] = {1, 2, STREAMS}, tokens[] = {1500, 20000};
    for (int i = 0; i < (int)N_MACHINES * 18; i += STRIDE) {
        int r = i % 3;
        struct scene a = {.machine = &machines[i / 18],
                          .n_streams = streams[i / 6 % 3],
                          .rate = always,
                          .often = 1,
                          .own = 0.1 + 0.1 * r,
                          .seed = (uint64_t)i,
                          .n_tokens = tokens[i / 3 % 2] / streams[i / 6 % 3],
                          .life = 64,
                          .reads = 0.02 * r};
        fixed_rate = 0.1 * r;
        struct outcome o = simulate(&a);
        double step = time_of(a.machine, a.n_streams, 0), lost = (o.time - o.plain) / step,
               most = 0.01 * o.plain / step + 4;
        if (lost > most)
            fail_msg("%s, %d streams, own %.1f: %.1f steps are lost, not %.1f", a.machine->name, a.n_streams, a.own,
                     lost, most);
        if (r == 0 && a.n_streams == 1 && o.n_asked > 150)
            fail_msg("%s, %d streams: asked for %ld tokens", a.machine->name, a.n_streams, o.n_asked);
    }
}

/* ---- single decisions ---- */

/* A controller that knows the times of a machine, and the rate of class i of drafter 0 to be rates[i]. */
static void taught(struct draft_control *c, const double *time, int n, const double *rates, int n_rates)
{
    draft_control_init(c, time, n);
    for (int i = 0; i < 20; i++)
        for (int rows = 1; rows <= n; rows++) draft_control_took(c, rows, 0, time[rows - 1]);
    for (int i = 0; i < 3; i++)
        for (int rows = 2; rows <= n; rows++) draft_control_took(c, rows, 1, time[rows - 1]);
    for (int rows = 1; rows <= n; rows++) draft_control_took(c, rows, 0, time[rows - 1]);
    for (int i = 0; i < n_rates; i++) c->rates[0][i] = (struct draft_rate){1e6F, (float)(1e6 * rates[i])};
    c->credit = 10;
}

static double value(const struct draft_control *c, const struct draft_plan *plans, const int *rows, int n,
                    int n_answers)
{
    double tokens = n_answers;
    int sum = 0;
    for (int i = 0; i < n; i++) {
        double gain = 1;
        for (int k = 0; k < rows[i]; k++)
            tokens += gain *= draft_control_rate(c, plans[i].record, 0, plans[i].sureness[k]);
        sum += rows[i];
    }
    return tokens / draft_control_cost(c, n_answers + sum, sum);
}

/* The most tokens in the time of a plain row that any choice of rows brings. */
static double best_of_all(const struct draft_control *c, const struct draft_plan *plans, int n, int n_answers, int most)
{
    double best = 0;
    int rows[3] = {0};
    for (rows[0] = 0; rows[0] <= plans[0].most; rows[0]++)
        for (rows[1] = 0; rows[1] <= (n > 1 ? plans[1].most : 0); rows[1]++)
            for (rows[2] = 0; rows[2] <= (n > 2 ? plans[2].most : 0); rows[2]++) {
                if (rows[0] + rows[1] + rows[2] > most) continue;
                double v = value(c, plans, rows, n, n_answers);
                if (v > best) best = v;
            }
    return best;
}

static void the_rows_are_the_best_of_all(void **state)
{
    (void)state;
    static struct draft_control c;
    struct source src = {5, 0};
    int n_drafted = 0;
    for (int round = 0; round < 2000; round++) {
        double time[16] = {1}, rates[DRAFT_CLASSES];
        for (int i = 1; i < 16; i++) time[i] = time[i - 1] + (draw(&src) < 0.5 ? 0 : 0.6 * draw(&src));
        for (int i = 0; i < DRAFT_CLASSES; i++) rates[i] = 0.4 + 0.6 * draw(&src); /* all rows are looked at */
        taught(&c, time, 16, rates, DRAFT_CLASSES);
        struct draft_record records[3] = {0};
        struct draft_plan plans[3];
        uint8_t sureness[3][4];
        int n = 1 + (int)(3 * draw(&src)), n_answers = n + (int)(3 * draw(&src)), most = (int)(11 * draw(&src)),
            sum = 0;
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < 4; k++) sureness[i][k] = (uint8_t)(DRAFT_CLASSES * draw(&src));
            plans[i] = (struct draft_plan){
                .record = &records[i], .sureness = sureness[i], .n = 4, .most = (int)(5 * draw(&src))};
        }
        int got = draft_control_share(&c, plans, n, n_answers, n_answers, most), rows[3] = {0};
        for (int i = 0; i < n; i++) sum += rows[i] = plans[i].n_rows;
        assert_int_equal(got, sum);
        assert_true(got <= most);
        double best = best_of_all(&c, plans, n, n_answers, most), mine = value(&c, plans, rows, n, n_answers);
        double plain = n_answers / draft_control_cost(&c, n_answers, 0);
        if (got > 0)
            assert_true(mine > plain && mine >= best * (1 - 1e-9));
        else
            assert_true(best <= plain * 1.04);
        n_drafted += got > 0;
    }
    assert_in_range(n_drafted, 500, 1500);
}

static void a_plateau_of_the_times_is_looked_past(void **state)
{
    (void)state;
    static struct draft_control c;
    static const double time[] = {1, 2, 2, 2, 2, 2, 2, 2}, rate = 0.8;
    static const uint8_t sureness[7] = {0};
    struct draft_record r = {0};
    struct draft_plan p = {.record = &r, .sureness = sureness, .n = 7, .most = 7};
    taught(&c, time, 8, &rate, 1);
    assert_int_equal(draft_control_share(&c, &p, 1, 1, 1, 7), 7);
    assert_int_equal(draft_control_share(&c, &p, 1, 1, 1, 1), 0); /* 1.8 tokens in the time of two */
    p.most = 0;
    assert_int_equal(draft_control_share(&c, &p, 1, 1, 1, 7), 0);
    assert_int_equal(draft_control_share(&c, NULL, 0, 1, 1, 7), 0);
}

static void plain_steps_are_measured_before_the_first_drafts(void **state)
{
    (void)state;
    static struct draft_control c;
    static const uint8_t sureness[7] = {0};
    struct draft_record r = {0};
    struct draft_plan p = {.record = &r, .sureness = sureness, .n = 7, .most = 7};
    draft_control_init(&c, NULL, 0);
    c.rates[0][0] = (struct draft_rate){100, 100};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(draft_control_share(&c, &p, 1, 1, 1, 7), 0);
        assert_int_equal(draft_control_ask(&c, &r, 1, 1, 1, 7, NULL), 0);
        draft_control_took(&c, 1, 0, 0.01);
    }
    assert_int_equal(draft_control_share(&c, &p, 1, 1, 1, 7), 7);
}

/* An answer's own tokens outweigh those of the others after some of them. */
static void an_answer_is_first_taken_to_be_like_the_others(void **state)
{
    (void)state;
    static struct draft_control c;
    struct draft_record one = {0}, other = {0};
    static const uint8_t sureness[] = {3};
    draft_control_init(&c, NULL, 0);
    for (int i = 1; i < DRAFT_CLASSES; i++)
        assert_true(draft_control_rate(&c, &one, 0, i) > draft_control_rate(&c, &one, 0, i - 1));
    double guess = draft_control_rate(&c, &one, 0, 2), other_kind = draft_control_rate(&c, &one, 1, 3);
    struct draft_plan p = {.record = &one, .sureness = sureness, .n = 1, .most = 1};
    for (int i = 0; i < 100; i++) draft_control_saw(&c, &p, 1, 1);
    assert_true(draft_control_rate(&c, &one, 0, 3) > 0.97);
    assert_true(draft_control_rate(&c, &other, 0, 3) > 0.95);
    assert_true(draft_control_rate(&c, &other, 0, 2) == guess && draft_control_rate(&c, &other, 1, 3) == other_kind);
    p.record = &other;
    for (int i = 0; i < 30; i++) draft_control_saw(&c, &p, 1, 0);
    assert_true(draft_control_rate(&c, &other, 0, 3) < 0.25);
    assert_true(draft_control_rate(&c, &one, 0, 3) > 0.9);
}

/* A costly drafter that is never right takes a hundredth of the time, and one token a trial. */
static void a_drafter_that_fails_is_tried_ever_more_rarely(void **state)
{
    (void)state;
    static struct draft_control c;
    static const uint8_t sureness[DRAFT_MOST] = {0};
    struct draft_record r = {0};
    int n_asked[4] = {0};
    draft_control_init(&c, NULL, 0);
    for (int i = 0; i < 4000; i++) {
        int n = draft_control_ask(&c, &r, 2, 1, 1, 8, NULL);
        if (n) draft_control_drafted(&c, 2, n, 0.01 * n);
        struct draft_plan p = {.record = &r, .kind = 2, .sureness = sureness, .n = n, .most = n};
        int rows = draft_control_share(&c, &p, n > 0, 1, 1, 8);
        if (n) draft_control_saw(&c, &p, 1, 0);
        draft_control_took(&c, 1 + rows, rows, rows ? 0.014 : 0.01);
        n_asked[i / 1000] += n;
    }
    assert_in_range(n_asked[0], 1, 40);
    assert_in_range(n_asked[3], 0, 8);
}

/* A drafter reads all the time and never proposes anything: it may take what the account has, and no more. */
static void reading_is_paid_for(void **state)
{
    (void)state;
    static struct draft_control c;
    struct draft_record r = {0};
    double lost = 0;
    draft_control_init(&c, NULL, 0);
    for (int i = 0; i < 4000; i++) {
        if (draft_control_ask(&c, &r, 2, 1, 1, 8, NULL)) {
            draft_control_drafted(&c, 2, 0, 0.0025);
            lost += 0.25;
        }
        draft_control_took(&c, 1, 0, 0.01);
    }
    assert_true(lost > 4 && lost < 0.01 * 4000);
}

/* Numbers that no machine measures, in any order: choices stay within their limits. */
static void random_calls_stay_within_limits(void **state)
{
    (void)state;
    static struct draft_control c;
    struct source src = {9, 0};
    struct draft_record records[STREAMS] = {0};
    draft_control_init(&c, NULL, 0);
    for (int round = 0; round < 50000; round++) {
        struct draft_plan plans[STREAMS];
        uint8_t sureness[STREAMS][DRAFT_MOST];
        int n = (int)(draw(&src) * (STREAMS + 1)), n_answers = n + (int)(3 * draw(&src)) + (n == 0);
        int n_rows = n_answers + (draw(&src) < 0.2 ? (int)(10000 * draw(&src)) : 0), most = (int)(64 * draw(&src));
        for (int i = 0; i < n; i++) {
            int kind = (int)(draw(&src) * DRAFT_KINDS), limit = (int)(draw(&src) * (DRAFT_MOST + 1));
            int asked = draft_control_ask(&c, &records[i], kind, n_rows, n_answers, limit, i ? &plans[i - 1] : NULL);
            assert_in_range(asked, 0, limit);
            for (int k = 0; k < DRAFT_MOST; k++) sureness[i][k] = (uint8_t)(draw(&src) * DRAFT_CLASSES);
            plans[i] = (struct draft_plan){.record = &records[i],
                                           .kind = kind,
                                           .sureness = sureness[i],
                                           .n = limit,
                                           .most = (int)(draw(&src) * (limit + 1))};
        }
        int got = draft_control_share(&c, plans, n, n_rows, n_answers, most), sum = 0;
        for (int i = 0; i < n; i++) {
            assert_in_range(plans[i].n_rows, 0, plans[i].most);
            sum += plans[i].n_rows;
            int right = (int)(draw(&src) * (plans[i].n + 1));
            draft_control_saw(&c, &plans[i], right < plans[i].n ? right + 1 : right, right);
        }
        assert_int_equal(sum, got);
        assert_true(got <= most);
        static const double seconds[] = {0, 1e-12, 1e-3, 0.02, 0.03, 1, 1e4};
        draft_control_took(&c, n_rows + got, got, seconds[(int)(draw(&src) * 7)]);
        draft_control_drafted(&c, round % DRAFT_KINDS, (int)(draw(&src) * 9), seconds[(int)(draw(&src) * 7)]);
        double cost = draft_control_cost(&c, 1 + (int)(10000 * draw(&src)), got);
        assert_true(cost > 0 && cost < 1e300);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_drafter_never_loses_and_comes_near_the_best),
        cmocka_unit_test(a_costly_drafter_never_loses_and_comes_near_the_best),
        cmocka_unit_test(a_text_that_changes_is_followed),
        cmocka_unit_test(short_answers_do_not_all_try_what_fails),
        cmocka_unit_test(the_rows_are_the_best_of_all),
        cmocka_unit_test(a_plateau_of_the_times_is_looked_past),
        cmocka_unit_test(plain_steps_are_measured_before_the_first_drafts),
        cmocka_unit_test(an_answer_is_first_taken_to_be_like_the_others),
        cmocka_unit_test(a_drafter_that_fails_is_tried_ever_more_rarely),
        cmocka_unit_test(reading_is_paid_for),
        cmocka_unit_test(random_calls_stay_within_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
