/* SPDX-License-Identifier: MIT
 *
 * sampler.c: chooses a token from logits: bias, penalties, the chain of filters, the draw.
 *
 * If there is a bias or a penalty, the logits are copied and adjusted. Then the filters of filter.c run in the order of
 * the fields of struct qn_sampling. Then one random number decides. It is a function of (seed, position), so a token
 * can be drawn again, out of order, or by a draft and by the model that checks it, with the same result. All memory of
 * a pick is one arena that is made beforehand; only the history grows, in sampler_reserve().
 *
 * DRY ("don't repeat yourself") needs, for each token t, the length of the longest sequence that ends the history and
 * that t followed before. Read backwards from its end, the history is a string whose Z-function (Gusfield, "Algorithms
 * on strings, trees and sequences", section 1.3) gives these lengths for all earlier places in linear time:
 *
 *     history, read backwards    b a | x | b a | y | b a ...
 *     Z                          -  0  0  2  0  0  2 ...      "a b" was followed by x once, and by y once
 *
 * Mirostat keeps a bound on the surprise of a token in bits and moves it, after each token that was drawn and then
 * accepted, towards a mean surprise of tau (Basu et al. 2020, version 2; surprise under the model's own distribution,
 * as in the paper).
 *
 * Grammars are not known here: a caller gives a mask of the tokens that are allowed, or forbidden ones the logit -inf.
 */
#include "decode/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h> /* INFINITY, isnan; nothing is called */
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "decode/filter.h"

/* Random numbers for different uses at one position come from different streams. The values are part of the meaning of
 * a seed. */
enum { STREAM_DRAW = 1, STREAM_XTC = 2 };

#define HISTORY_MIN 64 /* tokens */

struct sampler {
    struct qn_sampling p;
    int n_vocab;
    struct arena arena; /* holds everything but the history */
    struct filter filter;
    int32_t *mark;    /* [n_vocab] counts or match lengths; all 0 between uses */
    uint8_t *breaker; /* [n_vocab] 1 for DRY breakers */
    double log_dry_base;

    /* The last tokens: as many as the parameters look back at, or up to twice that. */
    qn_token *history; /* [cap] */
    int32_t *z;        /* [cap] DRY's Z-function; NULL when DRY is off */
    size_t n_history, cap;
    size_t penalty_window, dry_window,
        window; /* tokens that are looked back at; 0: off; window is the larger of the two */

    double mirostat_mu;   /* the bound, bits */
    double surprise;      /* of `picked`, bits */
    qn_token picked;      /* the last pick, until a token is accepted; -1: none */
    const uint64_t *mask; /* of the tokens that are allowed; NULL: all are */
};

void qn_sampling_init(struct qn_sampling *s)
{
    if (!s) return;
    *s = (struct qn_sampling){
        .size = sizeof *s,
        .penalty_last_n = 64,
        .repetition_penalty = 1,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_last_n = -1,
        .top_k = 40,
        .typical_p = 1,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .xtc_threshold = 0.1f,
        .temperature = 0.8f,
        .mirostat_eta = 0.1f,
    };
}

/* ---- life ---- */

#define LIMIT 1e6 /* of numbers without a natural limit: far beyond use, and no sum or product overflows */

static const struct sampling_field {
    const char *name;
    size_t offset;
    bool is_int;
    double min, max;
} fields[] = {
#define FIELD(name) #name, offsetof(struct qn_sampling, name)
    {FIELD(penalty_last_n), true, -1, INT32_MAX},
    {FIELD(repetition_penalty), false, 1e-3f, 1e3f}, /* a divisor */
    {FIELD(frequency_penalty), false, -LIMIT, LIMIT},
    {FIELD(presence_penalty), false, -LIMIT, LIMIT},
    {FIELD(dry_multiplier), false, 0, LIMIT},
    {FIELD(dry_base), false, 1, LIMIT},
    {FIELD(dry_allowed_length), true, 1, INT32_MAX},
    {FIELD(dry_last_n), true, -1, INT32_MAX},
    {FIELD(top_n_sigma), false, 0, LIMIT},
    {FIELD(top_k), true, 0, INT32_MAX},
    {FIELD(typical_p), false, 0, 1},
    {FIELD(top_p), false, 0, 1},
    {FIELD(min_p), false, 0, 1},
    {FIELD(xtc_probability), false, 0, 1},
    {FIELD(xtc_threshold), false, 0, 1},
    {FIELD(temperature), false, 0, LIMIT},
    {FIELD(mirostat_tau), false, 0, LIMIT},
    {FIELD(mirostat_eta), false, 0, LIMIT},
#undef FIELD
};

static int check_fields(const struct qn_sampling *p, struct qn_error *e)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct sampling_field *f = &fields[i];
        const void *at = (const char *)p + f->offset;
        double v = f->is_int ? (double)*(const int32_t *)at : (double)*(const float *)at;
        int digits = f->is_int ? 10 : 6;
        if (!(v >= f->min && v <= f->max)) /* NaN too */
            return error_set(e, QN_EUSAGE, "sampling: %s is %.*g, must be between %.*g and %.*g", f->name, digits, v,
                             digits, f->min, digits, f->max);
    }
    return 0;
}

static int check(const struct qn_sampling *p, int n_vocab, struct qn_error *e)
{
    if (p->size != sizeof *p)
        return error_set(e, QN_EUSAGE, "sampling: size is %zu, must be %zu: use qn_sampling_init()", p->size,
                         sizeof *p);
    if ((p->n_logit_bias && !p->logit_bias) || (p->n_dry_breakers && !p->dry_breakers))
        return error_set(e, QN_EUSAGE, "sampling: %s is NULL, its length is not 0",
                         p->dry_breakers || !p->n_dry_breakers ? "logit_bias" : "dry_breakers");
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        struct qn_logit_bias b = p->logit_bias[i];
        if (b.token < 0 || b.token >= n_vocab)
            return error_set(e, QN_EUSAGE, "sampling: logit_bias is for token %d, the vocabulary has %d", b.token,
                             n_vocab);
        if (!(b.bias < INFINITY)) /* NaN too */
            return error_set(e, QN_EUSAGE, "sampling: logit_bias of token %d is %g, must be a number or -infinity",
                             b.token, (double)b.bias);
    }
    for (size_t i = 0; i < p->n_dry_breakers; i++)
        if (p->dry_breakers[i] < 0 || p->dry_breakers[i] >= n_vocab)
            return error_set(e, QN_EUSAGE, "sampling: dry_breakers has token %d, the vocabulary has %d",
                             p->dry_breakers[i], n_vocab);
    return check_fields(p, e);
}

static size_t window_of(int32_t last_n) { return last_n < 0 ? SIZE_MAX : (size_t)last_n; }

/* The filter, and two arrays of at most 4 bytes a token, each rounded up to the arena's 64. */
static size_t arena_bytes(int n_vocab) { return filter_bytes(n_vocab) + (size_t)n_vocab * 5 + 2 * 64; }

int sampler_new(struct sampler **out, const struct qn_sampling *p, int n_vocab, const struct kernels *k,
                struct qn_error *e)
{
    struct sampler *s = NULL;

    assert(n_vocab > 0);
    int rc = check(p, n_vocab, e);
    if (rc) return rc;
    s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "a sampler", sizeof *s);
    rc = arena_init(&s->arena, arena_bytes(n_vocab), e);
    if (rc) goto fail;

    s->p = *p;
    s->n_vocab = n_vocab;
    filter_init(&s->filter, n_vocab, k, &s->arena);
    s->mark = arena_get(&s->arena, (size_t)n_vocab * sizeof *s->mark);
    s->breaker = arena_get(&s->arena, (size_t)n_vocab);
    if (p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0)
        s->penalty_window = window_of(p->penalty_last_n);
    if (p->dry_multiplier > 0) s->dry_window = window_of(p->dry_last_n);
    s->window = s->penalty_window > s->dry_window ? s->penalty_window : s->dry_window;
    if (s->window) { /* else nothing uses them, and their memory is never touched */
        memset(s->mark, 0, (size_t)n_vocab * sizeof *s->mark);
        memset(s->breaker, 0, (size_t)n_vocab);
        for (size_t i = 0; i < p->n_dry_breakers; i++) s->breaker[p->dry_breakers[i]] = 1;
    }
    s->log_dry_base = math_log((double)p->dry_base);
    s->mirostat_mu = 2 * (double)p->mirostat_tau; /* the paper's start */
    s->picked = -1;
    *out = s;
    return 0;
fail:
    sampler_free(s);
    return rc;
}

size_t sampler_bytes(int n_vocab, size_t n_tokens)
{
    return sizeof(struct sampler) + arena_bytes(n_vocab) + n_tokens * (sizeof(qn_token) + sizeof(int32_t));
}

void sampler_free(struct sampler *s)
{
    if (!s) return;
    arena_deinit(&s->arena);
    mem_free(s->history);
    mem_free(s->z);
    mem_free(s);
}

int sampler_clone(struct sampler **out, const struct sampler *s, struct qn_error *e)
{
    struct sampler *t = NULL;

    int rc = sampler_new(&t, &s->p, s->n_vocab, s->filter.k, e);
    if (rc) goto fail;
    rc = sampler_reserve(t, s->cap, e);
    if (rc) goto fail;
    if (s->n_history) memcpy(t->history, s->history, s->n_history * sizeof *t->history);
    t->n_history = s->n_history;
    t->mirostat_mu = s->mirostat_mu;
    t->surprise = s->surprise;
    t->picked = s->picked;
    *out = t;
    return 0;
fail:
    sampler_free(t);
    return rc;
}

/* ---- history ---- */

/* The most tokens that the history ever holds. At twice the window it is cut to the window, which costs O(1) for each
 * token. */
static size_t history_limit(const struct sampler *s) { return s->window > SIZE_MAX / 2 ? SIZE_MAX : 2 * s->window; }

/* Tokens that the history has room for when n_tokens more are reserved. */
static size_t reserved_cap(const struct sampler *s, size_t n_tokens)
{
    size_t limit = history_limit(s);
    size_t need = n_tokens > SIZE_MAX - s->n_history ? SIZE_MAX : s->n_history + n_tokens;

    if (need > limit) need = limit;
    if (need <= s->cap) return s->cap;
    size_t cap = s->cap <= SIZE_MAX / 2 ? 2 * s->cap : SIZE_MAX;
    if (s->cap < HISTORY_MIN / 2) cap = HISTORY_MIN;
    if (cap < need) cap = need;
    return cap > limit ? limit : cap;
}

size_t sampler_reserve_bytes(const struct sampler *s, size_t n_tokens)
{
    size_t more = reserved_cap(s, n_tokens) - s->cap, item = sizeof *s->history + (s->dry_window ? sizeof *s->z : 0);

    return more > SIZE_MAX / item ? SIZE_MAX : more * item;
}

int sampler_reserve(struct sampler *s, size_t n_tokens, struct qn_error *e)
{
    size_t cap = reserved_cap(s, n_tokens), item = sizeof *s->history;

    if (cap == s->cap) return 0;
    if (cap > SIZE_MAX / item) return error_nomem(e, "the sampler's history", SIZE_MAX);
    qn_token *history = mem_realloc(s->history, cap * item);
    if (!history) return error_nomem(e, "the sampler's history", cap * item);
    s->history = history;
    if (s->dry_window) {
        int32_t *z = mem_realloc(s->z, cap * sizeof *z);
        if (!z) return error_nomem(e, "the sampler's history", cap * sizeof *z);
        s->z = z;
    }
    s->cap = cap;
    return 0;
}

void sampler_accept(struct sampler *s, qn_token token)
{
    assert(token >= 0 && token < s->n_vocab);
    if (token == s->picked && s->p.mirostat_tau > 0)
        s->mirostat_mu -= (double)s->p.mirostat_eta * (s->surprise - (double)s->p.mirostat_tau);
    s->picked = -1;
    if (s->window == 0) return;
    if (s->n_history == s->cap) {
        assert(s->cap > 0 && s->cap == history_limit(s)); /* else it was not reserved */
        memmove(s->history, s->history + s->n_history - s->window, s->window * sizeof *s->history);
        s->n_history = s->window;
    }
    s->history[s->n_history++] = token;
}

void sampler_reset(struct sampler *s)
{
    s->n_history = 0;
    s->mirostat_mu = 2 * (double)s->p.mirostat_tau;
    s->picked = -1;
}

const qn_token *sampler_history(const struct sampler *s, size_t *n)
{
    *n = s->n_history < s->window ? s->n_history : s->window;
    return *n ? s->history + (s->n_history - *n) : s->history;
}

double sampler_bound(const struct sampler *s) { return s->mirostat_mu; }
void sampler_set_bound(struct sampler *s, double bound) { s->mirostat_mu = bound; }
double sampler_surprise(const struct sampler *s) { return s->picked >= 0 ? s->surprise : __builtin_nan(""); }

void sampler_picked(struct sampler *s, qn_token token, double surprise)
{
    s->picked = token;
    s->surprise = surprise;
}

/* ---- penalties ---- */

static void penalise(struct sampler *s, float *x)
{
    const struct qn_sampling *p = &s->p;
    size_t n = s->n_history < s->penalty_window ? s->n_history : s->penalty_window;
    const qn_token *last = s->history + (s->n_history - n);

    for (size_t i = 0; i < n; i++) s->mark[last[i]]++;
    for (size_t i = 0; i < n; i++) {
        qn_token t = last[i];
        if (s->mark[t] == 0) continue; /* done */
        x[t] = x[t] > 0 ? x[t] / p->repetition_penalty : x[t] * p->repetition_penalty;
        x[t] -= (float)s->mark[t] * p->frequency_penalty + p->presence_penalty;
        s->mark[t] = 0;
    }
}

static float dry_penalty(const struct sampler *s, int32_t match)
{
    double power = (double)(match - s->p.dry_allowed_length) * s->log_dry_base;
    /* e^88 is just below FLT_MAX. It acts like infinity here, but several such penalties still have an order. */
    double v = (double)s->p.dry_multiplier * math_exp(power < 88 ? power : 88);
    return v < (double)FLT_MAX ? (float)v : FLT_MAX;
}

static void dry(struct sampler *s, float *x)
{
    size_t window = s->n_history < s->dry_window ? s->n_history : s->dry_window;
    ptrdiff_t n = window < INT32_MAX ? (ptrdiff_t)window : INT32_MAX; /* lengths are int32_t */
    const qn_token *last = s->history + (s->n_history - 1); /* read backwards, the history is last[-i], i < n */
    ptrdiff_t clear = 0;                                    /* no match reaches over a breaker */
    ptrdiff_t from = 0, to = 0; /* [from, to): the match found so far that reaches furthest */

    while (clear < n && !s->breaker[last[-clear]]) clear++;
    if (clear < s->p.dry_allowed_length) return;
    for (ptrdiff_t i = 1; i < n; i++) {
        ptrdiff_t len = 0;
        if (i < to) /* inside that match: the value at its beginning holds, as far as the match reaches */
            len = s->z[i - from] < to - i ? s->z[i - from] : to - i;
        if (i + len >= to) {
            while (i + len < n && last[-len] == last[-(i + len)]) len++;
            from = i;
            to = i + len;
        }
        s->z[i] = (int32_t)len;
        ptrdiff_t match = len < clear ? len : clear;
        qn_token next = last[-(i - 1)];
        if (match >= s->p.dry_allowed_length && match > s->mark[next]) s->mark[next] = (int32_t)match;
    }
    for (ptrdiff_t i = 1; i < n; i++) {
        qn_token next = last[-(i - 1)];
        if (s->mark[next] > 0) x[next] -= dry_penalty(s, s->mark[next]);
        s->mark[next] = 0;
    }
}

/* ---- the chain ---- */

void sampler_set_mask(struct sampler *s, const uint64_t *mask) { s->mask = mask; }

/* Gives tokens that are not allowed the logit -inf. */
static void apply_mask(const struct sampler *s, float *x)
{
    for (int i = 0; i < s->n_vocab; i += 64) {
        uint64_t word = s->mask[i / 64];
        int n = s->n_vocab - i < 64 ? s->n_vocab - i : 64;
        if (word == UINT64_MAX) continue;
        if (!word)
            for (int k = 0; k < n; k++) x[i + k] = -INFINITY;
        for (int k = 0; word && k < n; k++) x[i + k] = word >> k & 1 ? x[i + k] : -INFINITY;
    }
}

/* Sets *logits to the adjusted logits: they are in the filter's x if anything changes them. Returns the token of the
 * largest, or QN_ENUMERIC. */
static int adjust(struct sampler *s, const float **logits, uint64_t position, struct qn_error *e)
{
    if (s->p.n_logit_bias || (s->n_history && s->window) || s->mask) {
        float *x = s->filter.x;
        memcpy(x, *logits, (size_t)s->n_vocab * sizeof *x);
        for (size_t i = 0; i < s->p.n_logit_bias; i++) x[s->p.logit_bias[i].token] += s->p.logit_bias[i].bias;
        if (s->n_history > 0 && s->penalty_window > 0) penalise(s, x);
        if (s->n_history > 0 && s->dry_window > 0) dry(s, x);
        if (s->mask) apply_mask(s, x);
        *logits = x;
    }
    int best = s->filter.k->argmax(*logits, s->n_vocab, s->filter.scratch);
    if (best < 0 || (*logits)[best] == -INFINITY)
        return error_set(e, QN_ENUMERIC,
                         "sampling: position %llu has no token to choose: all %d logits are NaN or -infinity",
                         (unsigned long long)position, s->n_vocab);
    return best;
}

static void run_filters(struct sampler *s, const float *logits, uint64_t position)
{
    const struct qn_sampling *p = &s->p;
    struct filter *f = &s->filter;

    bool is_cut = p->top_k > 0 && p->top_n_sigma == 0 && p->mirostat_tau == 0; /* top-k is the first filter */
    if (is_cut)
        filter_begin_top_k(f, logits, s->n_vocab, p->top_k);
    else
        filter_begin(f, logits, s->n_vocab);
    if (p->mirostat_tau > 0) {
        filter_mirostat(f, s->mirostat_mu);
        return;
    }
    if (p->top_n_sigma > 0) filter_top_n_sigma(f, p->top_n_sigma);
    if (p->top_k > 0 && !is_cut) filter_top_k(f, p->top_k);
    if (p->typical_p < 1) filter_typical(f, p->typical_p);
    if (p->top_p < 1) filter_top_p(f, p->top_p);
    if (p->min_p > 0) filter_min_p(f, p->min_p);
    if (p->xtc_probability > 0 && rng_uniform(p->seed, STREAM_XTC, position) < (double)p->xtc_probability)
        filter_xtc(f, p->xtc_threshold);
}

/* +inf has no distribution: a caller gives it to a token that must be taken. */
static bool is_greedy(const struct sampler *s, float best) { return s->p.temperature == 0 || best == INFINITY; }

int sampler_pick(struct sampler *s, const float *logits, uint64_t position, qn_token *out, struct qn_error *e)
{
    struct filter *f = &s->filter;

    int best = adjust(s, &logits, position, e);
    if (best < 0) return best;
    if (is_greedy(s, logits[best])) {
        *out = best;
        return 0;
    }
    run_filters(s, logits, position);
    float max = f->max; /* of all candidates when mirostat is on; not used otherwise */
    double total = f->total;
    filter_weigh(f, s->p.temperature);
    int i = filter_draw(f, rng_uniform(s->p.seed, STREAM_DRAW, position));
    if (s->p.mirostat_tau > 0) {
        s->surprise = filter_surprise(f->x[i], max, total);
        s->picked = f->id[i];
    }
    *out = f->id[i];
    return 0;
}

int sampler_probs(struct sampler *s, const float *logits, uint64_t position, float *probs, struct qn_error *e)
{
    struct filter *f = &s->filter;

    int best = adjust(s, &logits, position, e);
    if (best < 0) return best;
    memset(probs, 0, (size_t)s->n_vocab * sizeof *probs);
    if (is_greedy(s, logits[best])) {
        probs[best] = 1;
        return 0;
    }
    run_filters(s, logits, position);
    filter_weigh(f, s->p.temperature);
    for (int i = 0; i < f->n; i++) probs[f->id[i]] = (float)((double)f->e[i] / f->total);
    return 0;
}
