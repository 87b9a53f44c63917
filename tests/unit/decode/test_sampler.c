/* SPDX-License-Identifier: MIT
 *
 * test_sampler.c: the chain compared with a slow model of it in double precision, the draw compared with its
 * distribution, determinism, no allocation in a pick, and no loss when memory runs out.
 *
 * The model sorts everything at each step and uses libm. It flags a case as `near` when one of its comparisons is so
 * close that single precision may decide it differently; such cases are not compared, and are counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/sampler.h"

#define MAX_VOCAB   600
#define MAX_HISTORY 300
#define NEAR        1e-4

static struct kernels kernels;

static struct qn_sampling all_off(float temperature)
{
    struct qn_sampling p;
    qn_sampling_init(&p);
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    p.temperature = temperature;
    return p;
}

static struct sampler *make(const struct qn_sampling *p, int n_vocab)
{
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(&s, p, n_vocab, &kernels, NULL), 0);
    return s;
}

static void accept(struct sampler *s, qn_token t)
{
    assert_int_equal(sampler_reserve(s, 1, NULL), 0);
    sampler_accept(s, t);
}

/* About normal, mean 0, deviation 1. */
static float normal(uint64_t stream, uint64_t i)
{
    double sum = -6;
    for (uint64_t j = 0; j < 12; j++) sum += rng_uniform(1, stream, i * 12 + j);
    return (float)sum;
}

/* ---- the model ---- */

struct chain_model {
    int n;
    struct candidate {
        int id;
        double x, p, score;
    } c[MAX_VOCAB];
    bool near;
};

static void near(struct chain_model *m, double a, double b)
{
    if (a != b && fabs(a - b) < NEAR) m->near = true;
}

static int by_logit(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    return a->x > b->x ? -1 : a->x < b->x ? 1 : a->id - b->id;
}

static int by_score(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    return a->score < b->score ? -1 : a->score > b->score ? 1 : a->id - b->id;
}

static void softmax(struct chain_model *m, double temperature)
{
    double total = 0;
    qsort(m->c, (size_t)m->n, sizeof *m->c, by_logit);
    for (int i = 0; i < m->n; i++) total += m->c[i].p = exp((m->c[i].x - m->c[0].x) / temperature);
    for (int i = 0; i < m->n; i++) m->c[i].p /= total;
}

static void model_typical(struct chain_model *m, double typical_p)
{
    double entropy = 0, sum = 0;
    int n = 0;

    softmax(m, 1);
    for (int i = 0; i < m->n; i++) entropy -= m->c[i].p > 0 ? m->c[i].p * log(m->c[i].p) : 0;
    for (int i = 0; i < m->n; i++) /* log p from the logits: p may be 0 */
        m->c[i].score = fabs(-(log(m->c[0].p) + m->c[i].x - m->c[0].x) - entropy);
    qsort(m->c, (size_t)m->n, sizeof *m->c, by_score);
    while (n < m->n && (n == 0 || sum < typical_p)) {
        sum += m->c[n++].p;
        near(m, sum, typical_p);
    }
    if (n < m->n) near(m, m->c[n - 1].score, m->c[n].score);
    m->n = n;
}

static void model_first(struct chain_model *m, int n)
{
    if (n < m->n) near(m, m->c[n - 1].x, m->c[n].x);
    m->n = n;
}

static void model_top_p(struct chain_model *m, double top_p)
{
    double sum = 0;
    int n = 0;

    softmax(m, 1);
    while (n < m->n && (n == 0 || sum < top_p)) {
        sum += m->c[n++].p;
        near(m, sum, top_p);
    }
    model_first(m, n);
}

static void model_bound(struct chain_model *m, double least) /* of the logit */
{
    int n = 0;
    for (int i = 0; i < m->n; i++) {
        near(m, m->c[i].x, least);
        if (m->c[i].x >= least) m->c[n++] = m->c[i];
    }
    m->n = n;
}

static void model_xtc(struct chain_model *m, double threshold)
{
    int n = 0;
    softmax(m, 1);
    for (int i = 0; i < m->n; i++) {
        if (fabs(m->c[i].p - threshold) < 1e-6) m->near = true;
        n += m->c[i].p >= threshold;
    }
    if (n >= 2) {
        near(m, m->c[n - 2].x, m->c[n - 1].x);
        memmove(m->c, m->c + n - 1, (size_t)(m->n - n + 1) * sizeof *m->c);
        m->n -= n - 1;
    }
}

static bool in(const qn_token *list, size_t n, qn_token t)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == t) return true;
    return false;
}

/* DRY by its definition: for each earlier place, the number of tokens before it that equal the end of the history. */
static void model_dry(const struct qn_sampling *p, const qn_token *h, int n, double *x)
{
    static int best[MAX_VOCAB];
    memset(best, 0, sizeof best);
    int window = p->dry_last_n < 0 || p->dry_last_n > n ? n : p->dry_last_n;
    h += n - window;
    for (int i = 0; i + 1 < window; i++) {
        int len = 0;
        while (len <= i && h[i - len] == h[window - 1 - len] && !in(p->dry_breakers, p->n_dry_breakers, h[i - len]))
            len++;
        if (len > best[h[i + 1]]) best[h[i + 1]] = len;
    }
    for (int t = 0; t < MAX_VOCAB; t++)
        if (best[t] >= p->dry_allowed_length)
            x[t] -= fmin(p->dry_multiplier * pow(p->dry_base, best[t] - p->dry_allowed_length), 1e38);
}

static void model_penalties(const struct qn_sampling *p, const qn_token *h, int n, double *x)
{
    int window = p->penalty_last_n < 0 || p->penalty_last_n > n ? n : p->penalty_last_n;
    for (int t = 0; t < MAX_VOCAB; t++) {
        int count = 0;
        for (int i = n - window; i < n; i++) count += h[i] == t;
        if (count == 0) continue;
        x[t] = x[t] > 0 ? x[t] / p->repetition_penalty : x[t] * p->repetition_penalty;
        x[t] -= count * (double)p->frequency_penalty + p->presence_penalty;
    }
}

static void model_run(struct chain_model *m, const struct qn_sampling *p, const qn_token *h, int n_history,
                      const float *logits, int n_vocab, bool xtc)
{
    static double x[MAX_VOCAB];
    *m = (struct chain_model){0};
    for (int i = 0; i < n_vocab; i++) x[i] = isnan(logits[i]) ? -INFINITY : logits[i];
    for (size_t i = 0; i < p->n_logit_bias; i++) x[p->logit_bias[i].token] += p->logit_bias[i].bias;
    model_penalties(p, h, n_history, x);
    if (p->dry_multiplier > 0) model_dry(p, h, n_history, x);
    for (int i = 0; i < n_vocab; i++)
        if (x[i] > -INFINITY) {
            m->c[m->n].x = x[i];
            m->c[m->n++].id = i;
        }
    if (m->n == 0) return;
    softmax(m, 1);
    if (p->top_n_sigma > 0) {
        double mean = 0, square = 0;
        for (int i = 0; i < m->n; i++) mean += m->c[i].x / m->n;
        for (int i = 0; i < m->n; i++) square += (m->c[i].x - mean) * (m->c[i].x - mean) / m->n;
        model_bound(m, m->c[0].x - p->top_n_sigma * sqrt(square));
    }
    if (p->top_k > 0 && p->top_k < m->n) model_first(m, p->top_k);
    if (p->typical_p < 1) model_typical(m, p->typical_p);
    if (p->top_p < 1) model_top_p(m, p->top_p);
    softmax(m, 1);
    if (p->min_p > 0) model_bound(m, m->c[0].x + log(p->min_p));
    if (xtc) model_xtc(m, p->xtc_threshold);
    softmax(m, p->temperature);
}

/* ---- the chain against it ---- */

struct chance {
    uint64_t round, at;
};
static double draw(struct chance *c) { return rng_uniform(c->round, 3, c->at++); }
static bool maybe(struct chance *c) { return draw(c) < 0.4; }

static void random_parameters(struct chance *c, struct qn_sampling *p, int n_vocab)
{
    static struct qn_logit_bias bias[3];
    static qn_token breakers[2];
    *p = all_off((float)(0.3 + 2 * draw(c)));
    p->penalty_last_n = maybe(c) ? -1 : (int32_t)(draw(c) * 100);
    if (maybe(c)) p->repetition_penalty = (float)(0.8 + draw(c));
    if (maybe(c)) p->frequency_penalty = (float)(draw(c) - 0.3);
    if (maybe(c)) p->presence_penalty = (float)(draw(c) - 0.3);
    if (maybe(c)) p->dry_multiplier = (float)draw(c);
    p->dry_base = (float)(1 + draw(c));
    p->dry_allowed_length = 1 + (int32_t)(draw(c) * 3);
    p->dry_last_n = maybe(c) ? (int32_t)(draw(c) * 100) : -1;
    if (maybe(c)) p->top_n_sigma = (float)(draw(c) * 3);
    if (maybe(c)) p->top_k = 1 + (int32_t)(draw(c) * 1.2 * n_vocab);
    if (maybe(c)) p->typical_p = (float)draw(c);
    if (maybe(c)) p->top_p = (float)draw(c);
    if (maybe(c)) p->min_p = (float)(draw(c) * 0.3);
    p->xtc_threshold = (float)(draw(c) * 0.2);
    if (maybe(c)) p->xtc_probability = 1;
    for (size_t i = 0; i < 3; i++)
        bias[i] = (struct qn_logit_bias){(qn_token)(draw(c) * n_vocab), i ? (float)(draw(c) * 4 - 2) : -INFINITY};
    for (size_t i = 0; i < 2; i++) breakers[i] = (qn_token)(draw(c) * n_vocab);
    p->logit_bias = bias;
    p->n_logit_bias = (size_t)(draw(c) * 4);
    p->dry_breakers = breakers;
    p->n_dry_breakers = (size_t)(draw(c) * 3);
}

static void random_logits(struct chance *c, float *x, int n)
{
    double kind = draw(c), scale = 1 + 4 * draw(c), offset = 20 * draw(c) - 10;
    for (int i = 0; i < n; i++) {
        double v = scale * (double)normal(c->round, (uint64_t)i) + offset;
        x[i] = (float)(kind < 0.3 ? floor(v) : v); /* ties */
        if (kind > 0.8 && draw(c) < 0.1) x[i] = draw(c) < 0.5 ? NAN : -INFINITY;
    }
}

/* A repetitive history with many counts and matches: mostly copies of tokens a little before. */
static int random_history(struct chance *c, qn_token *h, int n_vocab)
{
    int n = (int)(draw(c) * MAX_HISTORY), period = 1 + (int)(draw(c) * 20);
    for (int i = 0; i < n; i++) h[i] = i >= period && draw(c) < 0.93 ? h[i - period] : (qn_token)(draw(c) * n_vocab);
    return n;
}

static void chain_matches_the_model(void **state)
{
    (void)state;
    enum { ROUNDS = 6000 };
    static struct chain_model m;
    static double want[MAX_VOCAB];
    float x[MAX_VOCAB], got[MAX_VOCAB];
    qn_token h[MAX_HISTORY];
    int n_near = 0, n_none = 0;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct chance c = {.round = round};
        struct qn_sampling p;
        int n_vocab = 1 + (int)(draw(&c) * draw(&c) * MAX_VOCAB);
        random_parameters(&c, &p, n_vocab);
        random_logits(&c, x, n_vocab);
        int n_history = random_history(&c, h, n_vocab);
        struct sampler *s = make(&p, n_vocab);
        for (int i = 0; i < n_history; i++) accept(s, h[i]);
        model_run(&m, &p, h, n_history, x, n_vocab, p.xtc_probability > 0);
        qn_token t = -1;
        int rc = sampler_probs(s, x, round, got, NULL);
        assert_int_equal(sampler_pick(s, x, round, &t, NULL), rc);
        assert_int_equal(rc, m.n == 0 ? QN_ENUMERIC : 0);
        n_none += m.n == 0;
        n_near += m.near;
        if (m.n > 0) assert_true(got[t] > 0); /* what is drawn could be drawn */
        if (m.n > 0 && !m.near) {
            memset(want, 0, sizeof want);
            for (int i = 0; i < m.n; i++) want[m.c[i].id] = m.c[i].p;
            for (int i = 0; i < n_vocab; i++) {
                assert_true(fabs((double)got[i] - want[i]) < 2e-5);
                assert_true(want[i] > 0 || got[i] == 0);
                assert_true(want[i] < 1e-30 || got[i] > 0);
            }
        }
        sampler_free(s);
    }
    assert_true(n_none > 0 && n_none < ROUNDS / 20);
    assert_true(n_near < ROUNDS / 50);
}

/* A vocabulary of the real size, where the lazy order sorts a part: the same prefix as a full sort gives. */
static void large_vocabulary(void **state)
{
    (void)state;
    enum { N = 150000 };
    float *x = malloc(N * sizeof *x), *p = malloc(N * sizeof *p);
    struct qn_sampling off = all_off(1), q = off;
    double sum = 0, least = 1;

    assert_true(x && p);
    for (int i = 0; i < N; i++) x[i] = 2 * normal(9, (uint64_t)i);
    q.top_p = 0.9f;
    struct sampler *all = make(&off, N), *some = make(&q, N);
    assert_int_equal(sampler_probs(all, x, 0, p, NULL), 0);
    float *kept = malloc(N * sizeof *kept);
    assert_non_null(kept);
    assert_int_equal(sampler_probs(some, x, 0, kept, NULL), 0);
    double dropped_most = 0;
    for (int i = 0; i < N; i++)
        if (kept[i] > 0) {
            sum += (double)p[i];
            least = fmin(least, (double)p[i]);
        } else {
            dropped_most = fmax(dropped_most, (double)p[i]);
        }
    assert_true(dropped_most <= least);
    assert_true(sum >= 0.9 - 1e-6 && sum - least < 0.9 + 1e-6);
    /* At position i, the draw gives the token whose share of the sorted distribution contains u. */
    for (uint64_t i = 0; i < 20; i++) {
        qn_token t;
        double before = 0, u = rng_uniform(0, 1, i);
        assert_int_equal(sampler_pick(all, x, i, &t, NULL), 0);
        for (int j = 0; j < N; j++) before += x[j] > x[t] || (x[j] == x[t] && j < t) ? (double)p[j] : 0;
        assert_true(before < u + 1e-5 && u < before + (double)p[t] + 1e-5);
    }
    sampler_free(all), sampler_free(some);
    free(x), free(p), free(kept);
}

/* ---- single values ---- */

static void defaults(void **state)
{
    (void)state;
    struct qn_sampling p;
    memset(&p, 0xff, sizeof p);
    qn_sampling_init(&p);
    assert_int_equal(p.size, sizeof p);
    assert_true(p.temperature == 0.8f && p.top_k == 40 && p.top_p == 0.95f && p.min_p == 0.05f);
    assert_true(p.penalty_last_n == 64 && p.repetition_penalty == 1 && p.dry_multiplier == 0 && p.seed == 0);
    sampler_free(make(&p, 10));
    sampler_free(NULL);
}

static void refuses(const struct qn_sampling *p, const char *message)
{
    struct sampler *s = NULL;
    struct qn_error e;
    assert_int_equal(sampler_new(&s, p, 100, &kernels, &e), QN_EUSAGE);
    assert_string_equal(e.msg, message);
    assert_null(s);
}

static void refuses_bad_parameters(void **state)
{
    (void)state;
    struct qn_sampling good, p;
    qn_sampling_init(&good);
#define BAD(field, value, message) (p = good, p.field = (value), refuses(&p, message))
    BAD(temperature, -1, "sampling: temperature is -1, must be between 0 and 1e+06");
    BAD(temperature, INFINITY, "sampling: temperature is inf, must be between 0 and 1e+06");
    BAD(top_p, NAN, "sampling: top_p is nan, must be between 0 and 1");
    BAD(top_p, 1.5f, "sampling: top_p is 1.5, must be between 0 and 1");
    BAD(top_k, -1, "sampling: top_k is -1, must be between 0 and 2147483647");
    BAD(min_p, -0.1f, "sampling: min_p is -0.1, must be between 0 and 1");
    BAD(typical_p, 2, "sampling: typical_p is 2, must be between 0 and 1");
    BAD(repetition_penalty, 0, "sampling: repetition_penalty is 0, must be between 0.001 and 1000");
    BAD(frequency_penalty, NAN, "sampling: frequency_penalty is nan, must be between -1e+06 and 1e+06");
    BAD(presence_penalty, -INFINITY, "sampling: presence_penalty is -inf, must be between -1e+06 and 1e+06");
    BAD(penalty_last_n, -2, "sampling: penalty_last_n is -2, must be between -1 and 2147483647");
    BAD(dry_multiplier, -1, "sampling: dry_multiplier is -1, must be between 0 and 1e+06");
    BAD(dry_base, 0.5f, "sampling: dry_base is 0.5, must be between 1 and 1e+06");
    BAD(dry_allowed_length, 0, "sampling: dry_allowed_length is 0, must be between 1 and 2147483647");
    BAD(dry_last_n, -5, "sampling: dry_last_n is -5, must be between -1 and 2147483647");
    BAD(top_n_sigma, -1, "sampling: top_n_sigma is -1, must be between 0 and 1e+06");
    BAD(xtc_probability, 3, "sampling: xtc_probability is 3, must be between 0 and 1");
    BAD(xtc_threshold, -3, "sampling: xtc_threshold is -3, must be between 0 and 1");
    BAD(mirostat_tau, -3, "sampling: mirostat_tau is -3, must be between 0 and 1e+06");
    BAD(mirostat_eta, NAN, "sampling: mirostat_eta is nan, must be between 0 and 1e+06");
#undef BAD
    struct qn_error e;
    struct sampler *s;
    p = good, p.size = 8;
    assert_int_equal(sampler_new(&s, &p, 100, &kernels, &e), QN_EUSAGE);
    assert_non_null(strstr(e.msg, "size is 8, must be"));
    struct qn_logit_bias bias = {100, 1};
    qn_token breaker = -1;
    p = good, p.logit_bias = &bias, p.n_logit_bias = 1;
    refuses(&p, "sampling: logit_bias is for token 100, the vocabulary has 100");
    bias = (struct qn_logit_bias){7, INFINITY};
    refuses(&p, "sampling: logit_bias of token 7 is inf, must be a number or -infinity");
    p = good, p.dry_breakers = &breaker, p.n_dry_breakers = 1;
    refuses(&p, "sampling: dry_breakers has token -1, the vocabulary has 100");
}

static void expect(struct sampler *s, const float *x, int want)
{
    qn_token t = -1;
    struct qn_error e;
    int rc = sampler_pick(s, x, 12, &t, &e);
    assert_int_equal(rc, want < 0 ? want : 0);
    assert_int_equal(t, want < 0 ? -1 : want);
    if (want < 0)
        assert_string_equal(e.msg, "sampling: position 12 has no token to choose: all 4 logits are NaN or -infinity");
}

static void extreme_logits(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN, big = 3e38f, tiny = 1e-40f;
    struct qn_sampling p = all_off(0), q = all_off(1e-30f), r = all_off(1);
    struct qn_logit_bias ban[] = {{1, -INFINITY}, {2, 3e38f}};
    struct sampler *greedy = make(&p, 4), *cold = make(&q, 4), *warm = make(&r, 4);
    p.logit_bias = r.logit_bias = ban;
    p.n_logit_bias = 1, r.n_logit_bias = 2;
    struct sampler *banned = make(&p, 4), *biased = make(&r, 4);

    expect(greedy, (float[]){1, 3, 3, 2}, 1); /* ties: the lowest */
    expect(greedy, (float[]){nan, -inf, -5, nan}, 2);
    expect(greedy, (float[]){1, nan, inf, inf}, 2);
    expect(greedy, (float[]){nan, nan, nan, nan}, QN_ENUMERIC);
    expect(greedy, (float[]){-inf, nan, -inf, -inf}, QN_ENUMERIC);
    expect(banned, (float[]){1, 3, 3, 2}, 2);
    expect(banned, (float[]){nan, 3, nan, -inf}, QN_ENUMERIC);
    expect(cold, (float[]){-big, big, 0, -inf}, 1);
    expect(cold, (float[]){nan, -big, -inf, nan}, 1);
    expect(cold, (float[]){0, tiny, 1, nan}, 2);
    expect(warm, (float[]){nan, nan, nan, 7}, 3);
    expect(warm, (float[]){-inf, inf, 5, inf}, 1);
    expect(warm, (float[]){-big, -big, big, -big}, 2);
    expect(warm, (float[]){nan, nan, nan, -inf}, QN_ENUMERIC);
    expect(biased, (float[]){0, inf, -inf, -inf}, 0); /* a ban beats +inf */
    expect(biased, (float[]){0, 0, big, 0}, 2);       /* a bias that overflows */
    sampler_free(greedy), sampler_free(cold), sampler_free(warm), sampler_free(banned), sampler_free(biased);
}

/* Any parameters in range, any bits as logits: a token that is not banned, or the error for none. */
static void random_bits(void **state)
{
    (void)state;
    enum { N = 200 };
    static const float wild[] = {0, 1, 1e-6f, 1e6f, 0.5f, 1e-3f, 1e3f, 3};
#define WILD()  wild[(int)(draw(&c) * 8)]
#define SHARE() (float)(maybe(&c) ? draw(&c) : draw(&c) < 0.5 ? 0 : 1)
    float x[N], copy[N];
    for (uint64_t round = 0; round < 4000; round++) {
        struct chance c = {.round = round + 1000000};
        struct qn_sampling p;
        random_parameters(&c, &p, N);
        p.temperature = WILD();
        p.top_n_sigma = WILD();
        p.frequency_penalty = WILD() * (maybe(&c) ? -1 : 1);
        p.repetition_penalty = maybe(&c) ? 1e3f : 1e-3f;
        p.dry_multiplier = WILD();
        p.dry_base = 1 + WILD() * 0.9f;
        p.typical_p = SHARE(), p.top_p = SHARE(), p.min_p = SHARE();
        p.xtc_probability = SHARE(), p.xtc_threshold = SHARE();
        p.mirostat_tau = maybe(&c) ? WILD() : 0;
        p.mirostat_eta = WILD();
        struct sampler *s = make(&p, N);
        assert_int_equal(sampler_reserve(s, 100, NULL), 0);
        double density = draw(&c);
        for (int step = 0; step < 20; step++) {
            for (int i = 0; i < N; i++) {
                uint32_t bits = (uint32_t)rng_u64(round, 4, (uint64_t)(step * N + i));
                memcpy(&x[i], &bits, 4);
                if (draw(&c) < density) x[i] = (float)(draw(&c) * 10);
                if (isinf(x[i]) && x[i] > 0) x[i] = NAN;
            }
            memcpy(copy, x, sizeof x);
            qn_token t = -1;
            assert_int_equal(sampler_pick(s, x, (uint64_t)step, &t, NULL), 0);
            assert_memory_equal(copy, x, sizeof x);
            assert_in_range(t, 0, N - 1);
            assert_true(x[t] > -INFINITY);
            for (size_t i = 0; i < p.n_logit_bias; i++)
                assert_true(p.logit_bias[i].token != t || p.logit_bias[i].bias > -INFINITY);
            if (maybe(&c)) sampler_accept(s, t);
        }
        sampler_free(s);
    }
#undef WILD
#undef SHARE
}

/* ---- the draw ---- */

static void distribution(void **state)
{
    (void)state;
    enum { N = 10, DRAWS = 200000 };
    static const float x[N] = {0.3f, 2, 1, -1, 2.5f, 0, 0.1f, 1.7f, -0.5f, 0.9f};
    static const float temperatures[] = {0.7f, 1, 2};
    for (size_t k = 0; k < 3; k++) {
        struct qn_sampling p = all_off(temperatures[k]);
        int count[N] = {0};
        float probs[N];
        double chi2 = 0;
        p.seed = 42 + k;
        struct sampler *s = make(&p, N);
        for (uint64_t i = 0; i < DRAWS; i++) {
            qn_token t;
            assert_int_equal(sampler_pick(s, x, i, &t, NULL), 0);
            count[t]++;
        }
        assert_int_equal(sampler_probs(s, x, 0, probs, NULL), 0);
        for (int i = 0; i < N; i++) {
            double want = DRAWS * (double)probs[i];
            chi2 += (count[i] - want) * (count[i] - want) / want;
        }
        assert_true(chi2 < 27.9); /* 9 degrees of freedom: exceeded by chance once in a thousand */
        sampler_free(s);
    }
}

static void xtc_acts_as_often_as_asked(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    static const float x[3] = {2, 1.9f, 0}; /* about .49, .44, .07 */
    struct qn_sampling p = all_off(1);
    p.xtc_probability = 0.25f;
    struct sampler *s = make(&p, 3);
    int n = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        float probs[3];
        assert_int_equal(sampler_probs(s, x, i, probs, NULL), 0);
        assert_true(probs[1] > 0 && probs[2] > 0); /* the least probable of the two on top stays */
        n += probs[0] == 0;
    }
    assert_in_range(n, 4700, 5300); /* 5000, deviation 61 */
    sampler_free(s);
}

static void depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    enum { N = 50 };
    float x[N];
    struct qn_sampling p = all_off(1);
    qn_token first[100], t;
    int n_same = 0;

    for (int i = 0; i < N; i++) x[i] = normal(5, (uint64_t)i);
    p.seed = 1;
    struct sampler *a = make(&p, N), *b = make(&p, N);
    p.seed = 2;
    struct sampler *other = make(&p, N);
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(sampler_pick(a, x, i, &first[i], NULL), 0);
    for (uint64_t i = 100; i-- > 0;) { /* backwards, another sampler, twice */
        assert_int_equal(sampler_pick(b, x, i, &t, NULL), 0);
        assert_int_equal(t, first[i]);
        assert_int_equal(sampler_pick(b, x, i, &t, NULL), 0);
        assert_int_equal(t, first[i]);
        assert_int_equal(sampler_pick(other, x, i, &t, NULL), 0);
        n_same += t == first[i];
    }
    assert_true(n_same < 30);
    /* A top_k that cuts nothing changes nothing. */
    p.seed = 1, p.top_k = N;
    struct sampler *c = make(&p, N);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(sampler_pick(c, x, i, &t, NULL), 0);
        assert_int_equal(t, first[i]);
    }
    sampler_free(a), sampler_free(b), sampler_free(c), sampler_free(other);
}

/* ---- state ---- */

static void clones_go_separate_ways(void **state)
{
    (void)state;
    enum { N = 30 };
    float x[N], pa[N], pb[N];
    struct qn_sampling p = all_off(1);
    p.dry_multiplier = 0.8f;
    p.repetition_penalty = 100;
    p.mirostat_tau = 3;
    struct sampler *a = make(&p, N), *b = NULL;
    for (int i = 0; i < N; i++) x[i] = normal(6, (uint64_t)i);
    for (uint64_t i = 0; i < 40; i++) {
        qn_token t;
        assert_int_equal(sampler_pick(a, x, i, &t, NULL), 0);
        accept(a, t);
    }
    qn_token picked, again;
    assert_int_equal(sampler_pick(a, x, 40, &picked, NULL), 0);
    assert_int_equal(sampler_clone(&b, a, NULL), 0); /* between a pick and its acceptance too */
    for (uint64_t i = 41; i < 80; i++) {
        accept(a, picked);
        accept(b, picked);
        assert_int_equal(sampler_pick(a, x, i, &picked, NULL), 0);
        assert_int_equal(sampler_pick(b, x, i, &again, NULL), 0);
        assert_int_equal(picked, again);
    }
    for (int i = 0; i < 3; i++) {
        accept(a, 4);
        accept(b, 5);
    }
    x[4] = x[5] = 4;
    assert_int_equal(sampler_probs(a, x, 80, pa, NULL), 0);
    assert_int_equal(sampler_probs(b, x, 80, pb, NULL), 0);
    assert_true(pa[4] == 0 && pb[4] > 0.01f && pa[5] > 0.01f && pb[5] == 0); /* mirostat cuts what was penalised */
    sampler_free(a), sampler_free(b);
}

static void reset_is_as_new(void **state)
{
    (void)state;
    enum { N = 20 };
    float x[N];
    struct qn_sampling p = all_off(1);
    p.repetition_penalty = 1.5f;
    p.mirostat_tau = 3;
    struct sampler *used = make(&p, N), *fresh = make(&p, N);
    qn_token picked, want;
    for (int i = 0; i < N; i++) x[i] = normal(8, (uint64_t)i);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(sampler_pick(used, x, i, &picked, NULL), 0);
        accept(used, picked);
    }
    sampler_reset(used);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(sampler_pick(used, x, i, &picked, NULL), 0);
        assert_int_equal(sampler_pick(fresh, x, i, &want, NULL), 0);
        assert_int_equal(picked, want);
        accept(used, picked);
        accept(fresh, want);
    }
    sampler_free(used), sampler_free(fresh);
}

/* A bounded window keeps a bounded history: 10,000 tokens with one reservation, of which the end is seen. */
static void history_slides(void **state)
{
    (void)state;
    enum { N = 40, WINDOW = 7 };
    float x[N] = {0}, probs[N], want[N];
    struct qn_sampling p = all_off(1);
    p.penalty_last_n = WINDOW;
    p.presence_penalty = 1;
    struct sampler *s = make(&p, N);
    assert_int_equal(sampler_reserve(s, SIZE_MAX, NULL), 0);
    for (int i = 0; i < 10000; i++) sampler_accept(s, i * 3 % N);
    struct sampler *fresh = make(&p, N);
    for (int i = 10000 - WINDOW; i < 10000; i++) accept(fresh, i * 3 % N);
    assert_int_equal(sampler_probs(s, x, 0, probs, NULL), 0);
    assert_int_equal(sampler_probs(fresh, x, 0, want, NULL), 0);
    assert_memory_equal(probs, want, sizeof probs);
    sampler_free(s), sampler_free(fresh);

    p = all_off(1); /* nothing looks back: nothing is kept */
    s = make(&p, N);
    for (int i = 0; i < 1000; i++) sampler_accept(s, 1);
    sampler_free(s);
}

/* Half a million equal tokens, and a period of two: quadratic work would not end in time. */
static void dry_is_linear(void **state)
{
    (void)state;
    enum { N = 8, LEN = 500000 };
    float x[N] = {0}, probs[N];
    struct qn_sampling p = all_off(1);
    p.dry_multiplier = 1;
    for (int period = 1; period <= 2; period++) {
        struct sampler *s = make(&p, N);
        assert_int_equal(sampler_reserve(s, LEN, NULL), 0);
        for (int i = 0; i < LEN; i++) sampler_accept(s, i % period);
        assert_int_equal(sampler_probs(s, x, 0, probs, NULL), 0);
        assert_true(probs[LEN % period] == 0 && probs[7] > 0.1f);
        sampler_free(s);
    }
}

/* Version 2 by the paper: cut at mu bits, draw, move mu by the drawn token's surprise; the mean surprise is tau. */
static void mirostat_keeps_its_target(void **state)
{
    (void)state;
    enum { N = 500, STEPS = 4000 };
    float x[N], probs[N];
    double p[N], total = 0, mu = 2 * 4.0, mean = 0;
    struct qn_sampling q = all_off(1);
    q.mirostat_tau = 4;
    q.mirostat_eta = 0.1f;
    q.top_k = 1; /* replaced */
    for (int i = 0; i < N; i++) {
        x[i] = (float)(-0.9 * log(1 + i)); /* Zipf: entropy above 4 bits */
        total += p[i] = exp((double)x[i]);
    }
    for (int i = 0; i < N; i++) p[i] /= total;
    struct sampler *s = make(&q, N);
    for (uint64_t step = 0; step < STEPS; step++) {
        qn_token t;
        assert_int_equal(sampler_probs(s, x, step, probs, NULL), 0);
        for (int i = 0; i < N; i++)
            if (fabs(-log2(p[i]) - mu) > 1e-3) assert_int_equal(probs[i] > 0, -log2(p[i]) < mu || i == 0);
        assert_int_equal(sampler_pick(s, x, step, &t, NULL), 0);
        accept(s, t);
        mu -= (double)0.1f * (-log2(p[t]) - 4);
        mean -= log2(p[t]) / STEPS;
    }
    assert_true(fabs(mean - 4) < 0.1);
    sampler_free(s);
}

/* ---- memory ---- */

static struct qn_sampling everything_on(void)
{
    struct qn_sampling p;
    qn_sampling_init(&p);
    p.repetition_penalty = 1.1f;
    p.penalty_last_n = -1;
    p.dry_multiplier = 0.8f;
    p.top_n_sigma = 2;
    p.top_k = 0;
    p.typical_p = 0.9f;
    p.xtc_probability = 0.5f;
    return p;
}

static void a_mask_bans_like_minus_infinity(void **state)
{
    (void)state;
    enum { MASKED = 200 };
    uint64_t mask[(MASKED + 63) / 64] = {0};
    float x[MASKED], banned[MASKED];
    struct qn_sampling p = all_off(1);
    p.repetition_penalty = 1.3f;
    struct sampler *a = make(&p, MASKED), *b = make(&p, MASKED);
    for (uint64_t round = 0; round < 50; round++) {
        qn_token t, u;
        memset(mask, 0, sizeof mask);
        for (int i = 0; i < MASKED; i++) {
            bool is_allowed = rng_uniform(3, round, (uint64_t)i) < 0.3;
            x[i] = normal(round, (uint64_t)i);
            banned[i] = is_allowed ? x[i] : -INFINITY;
            if (is_allowed) mask[i / 64] |= (uint64_t)1 << (i % 64);
        }
        sampler_set_mask(a, mask);
        assert_int_equal(sampler_pick(a, x, round, &t, NULL), 0);
        assert_int_equal(sampler_pick(b, banned, round, &u, NULL), 0);
        assert_int_equal(t, u);
    }
    memset(mask, 0, sizeof mask);
    qn_token t;
    struct qn_error e;
    assert_int_equal(sampler_pick(a, x, 1, &t, &e), QN_ENUMERIC);
    sampler_set_mask(a, NULL);
    assert_int_equal(sampler_pick(a, x, 1, &t, &e), 0);
    sampler_free(a), sampler_free(b);
}

static void pick_allocates_nothing(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float x[N];
    struct qn_sampling params[] = {everything_on(), all_off(1), all_off(0), all_off(1)};
    params[3].mirostat_tau = 5;
    for (size_t k = 0; k < 4; k++) {
        struct sampler *s = make(&params[k], N);
        assert_int_equal(sampler_reserve(s, 100, NULL), 0);
        uint64_t before = mem_n_calls();
        for (uint64_t step = 0; step < 100; step++) {
            qn_token t;
            for (int i = 0; i < N; i++) x[i] = 2 * normal(step, (uint64_t)i);
            assert_int_equal(sampler_pick(s, x, step, &t, NULL), 0);
            sampler_accept(s, t);
        }
        assert_int_equal(mem_n_calls(), before);
        sampler_free(s);
    }
}

static int life(const float *x, int n, struct sampler **out)
{
    struct qn_sampling p = everything_on();
    struct sampler *s = NULL, *t = NULL;
    qn_token token;
    int rc = sampler_new(&s, &p, n, &kernels, NULL);
    for (uint64_t i = 0; rc == 0 && i < 200; i++) {
        rc = sampler_reserve(s, 1, NULL);
        if (rc) { /* the sampler is as it was: the second try succeeds */
            assert_int_equal(sampler_pick(s, x, i, &token, NULL), 0);
            assert_int_equal(sampler_reserve(s, 1, NULL), 0);
            break;
        }
        rc = sampler_pick(s, x, i, &token, NULL);
        sampler_accept(s, token);
    }
    if (rc == 0) rc = sampler_clone(&t, s, NULL);
    sampler_free(s);
    *out = t;
    return rc;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    static const float x[5] = {1, 2, 3, 4, 5};
    struct sampler *s = NULL;
    int n_failed = 0;
    for (uint64_t n = 1;; n++) {
        mem_fault_set(n);
        int rc = life(x, 5, &s);
        if (!mem_fault_hit()) break;
        assert_int_equal(rc, QN_ENOMEM);
        assert_null(s);
        n_failed++;
    }
    mem_fault_set(0);
    assert_non_null(s);
    sampler_free(s);
    assert_in_range(n_failed, 8, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(refuses_bad_parameters),
        cmocka_unit_test(extreme_logits),
        cmocka_unit_test(random_bits),
        cmocka_unit_test(chain_matches_the_model),
        cmocka_unit_test(large_vocabulary),
        cmocka_unit_test(distribution),
        cmocka_unit_test(xtc_acts_as_often_as_asked),
        cmocka_unit_test(depends_on_seed_and_position_alone),
        cmocka_unit_test(clones_go_separate_ways),
        cmocka_unit_test(reset_is_as_new),
        cmocka_unit_test(history_slides),
        cmocka_unit_test(dry_is_linear),
        cmocka_unit_test(mirostat_keeps_its_target),
        cmocka_unit_test(a_mask_bans_like_minus_infinity),
        cmocka_unit_test(pick_allocates_nothing),
        cmocka_unit_test(survives_failed_allocations),
    };
    kernels_init_ref(&kernels);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
