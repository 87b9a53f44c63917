/* SPDX-License-Identifier: MIT
 *
 * filter.c: the candidates for the next token and the filters that cut their number down.
 *
 * There is one list of candidates, and every filter is one of two kinds. A bound on the logit (top-n-sigma, min-p,
 * mirostat) is one pass that closes the gaps and needs no order. A count (top-k, top-p) needs the head of the list
 * sorted: rank.h sorts on demand. The candidates that a count keeps stay sorted, so that later filters work on tens of
 * candidates and not on a vocabulary. Typical sampling ranks by another number; it is a mark and a bound.
 *
 * Weights are the float exp of the contract (kernel.h), and sums are in double in a fixed order, so they have the same
 * bits on every machine. libm is not used, because its exp and log differ between versions.
 *
 * Sources: top-p: Holtzman et al. 2020, "The curious case of neural text degeneration". Typical: Meister et al. 2023,
 * "Locally typical sampling". Min-p: Nguyen et al. 2024, "Turning up the heat". Top-n-sigma: Tang et al. 2024.
 * Mirostat: Basu et al. 2020. XTC ("exclude top choices") has no paper; it is defined in filter.h.
 *
 * History, seeds and the order in which filters run are sampler.c's.
 */
#include "decode/filter.h"

#include <assert.h>
#include <float.h>
#include <math.h> /* INFINITY; nothing is called */

#include "base/math.h"
#include "base/exact_math.h"

#define TOP_BLOCK 64  /* values of which the largest is found first */
#define TOP_MOST  256 /* candidates; for more of them the bound saves little */

#define LN_2 0x1.62e42fefa39efp-1

static size_t column_bytes(int cap) { return ((size_t)cap * 4 + 63) & ~(size_t)63; }

size_t filter_bytes(int cap) { return 3 * column_bytes(cap) + KERNEL_SCRATCH_BYTES + rank_bytes(cap); }

void filter_init(struct filter *f, int cap, const struct kernels *k, struct arena *a)
{
    *f = (struct filter){.cap = cap, .k = k};
    f->x = arena_get(a, column_bytes(cap));
    f->id = arena_get(a, column_bytes(cap));
    f->e = arena_get(a, column_bytes(cap));
    f->scratch = arena_get(a, KERNEL_SCRATCH_BYTES);
    rank_init(&f->rank, cap, a);
}

/* Appends those of v[lo..hi) that are at least `least` to the n candidates, without NaN and -inf. Returns their number.
 */
static int take(struct filter *f, int n, const float *v, int lo, int hi, float least)
{
    for (int i = lo; i < hi; i++) {
        if (!(v[i] >= least) || v[i] == -INFINITY) continue;
        f->x[n] = v[i];
        f->id[n++] = i;
    }
    return n;
}

void filter_begin(struct filter *f, const float *v, int n_vocab)
{
    assert(n_vocab <= f->cap);
    f->n = take(f, 0, v, 0, n_vocab, -INFINITY);
    assert(f->n > 0);
    f->is_sorted = false;
}

/* ---- common parts of the filters ---- */

/* Removes the candidates below `least` and closes the gaps. A filter drops single candidates by making them -inf. */
static void keep_from(struct filter *f, double least)
{
    int n = 0;

    for (int i = 0; i < f->n; i++) {
        if ((double)f->x[i] < least) continue;
        f->x[n] = f->x[i];
        f->id[n++] = f->id[i];
    }
    assert(n > 0);
    f->n = n;
}

static void drop_marked(struct filter *f) { keep_from(f, -(double)FLT_MAX); }

static void order_begin(struct filter *f)
{
    if (!f->is_sorted) rank_begin(&f->rank, f->x, f->n);
}

/* The candidate at place r of the order; x must not have changed since order_begin(). */
static int order_at(struct filter *f, int r) { return f->is_sorted ? r : rank_at(&f->rank, r); }

/* Keeps the first n of the order, sorted. After order_begin(). */
static void keep_first(struct filter *f, int n)
{
    assert(n >= 1 && n <= f->n);
    if (!f->is_sorted) {
        struct rank_item *o = f->rank.order;
        rank_at(&f->rank, n - 1);
        /* Logits go by way of e and tokens by way of the order itself: both are read out of order. */
        for (int i = 0; i < n; i++) {
            f->e[i] = f->x[o[i].index];
            o[i].index = f->id[o[i].index];
        }
        for (int i = 0; i < n; i++) {
            f->x[i] = f->e[i];
            f->id[i] = o[i].index;
        }
        f->is_sorted = true;
    }
    f->n = n;
}

static void find_max(struct filter *f) { f->max = f->is_sorted ? f->x[0] : f->x[f->k->argmax(f->x, f->n, f->scratch)]; }

/* Four chains, so that the additions overlap; pairwise at the end. */
static double sum(const float *e, int n)
{
    double s[4] = {0};
    int i = 0;

    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) s[j] += (double)e[i + j];
    for (; i < n; i++) s[0] += (double)e[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

void filter_weigh(struct filter *f, float temperature)
{
    assert(temperature > 0);
    find_max(f);
    /* Subtracts before it divides: x / temperature may overflow, and then both terms of the difference would be
     * infinite. */
    for (int i = 0; i < f->n; i++) f->e[i] = (f->x[i] - f->max) / temperature;
    f->k->softmax_exp(f->e, f->n, f->e, f->scratch);
    f->total = sum(f->e, f->n);
}

double filter_surprise(float logit, float max, double total)
{
    return (math_log(total) - ((double)logit - (double)max)) / LN_2;
}

/* ---- the filters ---- */

void filter_top_n_sigma(struct filter *f, float n_sigma)
{
    double mean = 0, square = 0;

    find_max(f);
    for (int i = 0; i < f->n; i++) mean += (double)f->x[i];
    mean /= f->n;
    for (int i = 0; i < f->n; i++) {
        double d = (double)f->x[i] - mean;
        square += d * d;
    }
    keep_from(f, (double)f->max - (double)n_sigma * __builtin_sqrt(square / f->n));
}

void filter_top_k(struct filter *f, int k)
{
    assert(k >= 1);
    if (k >= f->n) return;
    order_begin(f);
    keep_first(f, k);
}

/* In pieces that are read as a whole, because a grammar's mask may leave hardly any value to stop at. */
static bool is_any_below(const float *v, int n, float bound)
{
    for (int i = 0; i < n; i += TOP_BLOCK) {
        int hi = i + TOP_BLOCK < n ? i + TOP_BLOCK : n, any = 0;
        for (int k = i; k < hi; k++) any |= (v[k] < bound) & (v[k] > -INFINITY);
        if (any) return true;
    }
    return false;
}

/* The k-th largest of the maxima of blocks is a bound: k blocks have a value that reaches it. Few blocks do, so nearly
 * all values are read only once, for the maxima. */
void filter_begin_top_k(struct filter *f, const float *v, int n_vocab, int k)
{
    int n_blocks = (n_vocab + TOP_BLOCK - 1) / TOP_BLOCK, n = 0;
    float *max = f->e;

    if (k > TOP_MOST || k > n_blocks) {
        filter_begin(f, v, n_vocab);
        filter_top_k(f, k);
        return;
    }
    assert(n_vocab <= f->cap && k >= 1);
    for (int b = 0; b < n_blocks; b++) {
        int left = n_vocab - b * TOP_BLOCK;
        max[b] = rank_largest(v + (size_t)b * TOP_BLOCK, left < TOP_BLOCK ? left : TOP_BLOCK);
    }
    f->k->topk(max, n_blocks, k, f->id, f->scratch); /* id is free until candidates are taken */
    float least = max[f->id[k - 1]];
    bool is_any_left = least > -INFINITY && is_any_below(v, n_vocab, least); /* v may be overwritten below */
    for (int b = 0; b < n_blocks; b++) {
        int hi = (b + 1) * TOP_BLOCK;
        if (max[b] >= least && max[b] > -INFINITY) n = take(f, n, v, b * TOP_BLOCK, hi < n_vocab ? hi : n_vocab, least);
    }
    assert(n > 0);
    f->n = n;
    f->is_sorted = false;
    if (n > k || is_any_left) {
        order_begin(f);
        keep_first(f, k);
    }
}

void filter_typical(struct filter *f, float typical_p)
{
    double entropy, reached = 0;
    int n_kept = 0;

    filter_weigh(f, 1);
    double log_total = math_log(f->total);
    entropy = log_total;
    for (int i = 0; i < f->n; i++)
        if (f->e[i] > 0) entropy -= (double)f->e[i] * ((double)f->x[i] - (double)f->max) / f->total;
    for (int i = 0; i < f->n; i++) {
        double d = log_total - ((double)f->x[i] - (double)f->max) - entropy;
        d = d < 0 ? d : -d;
        f->e[i] = d < -(double)FLT_MAX ? -FLT_MAX : (float)d;
    }
    /* rank_begin ranks any numbers. The weights that the distances overwrote are computed again, to the same bits,
     * for the few that are kept. A positive distance is the mark of those. */
    rank_begin(&f->rank, f->e, f->n);
    while (n_kept < f->n && (n_kept == 0 || reached < (double)typical_p * f->total))
        reached += (double)math_expf(f->x[rank_at(&f->rank, n_kept++)] - f->max);
    for (int i = 0; i < n_kept; i++) f->e[rank_at(&f->rank, i)] = 1;
    for (int i = 0; i < f->n; i++)
        if (f->e[i] <= 0) f->x[i] = -INFINITY;
    drop_marked(f);
}

void filter_top_p(struct filter *f, float top_p)
{
    double reached = 0;
    int n = 0;

    filter_weigh(f, 1);
    order_begin(f);
    while (n < f->n && (n == 0 || reached < (double)top_p * f->total)) reached += (double)f->e[order_at(f, n++)];
    keep_first(f, n);
}

void filter_min_p(struct filter *f, float min_p)
{
    filter_weigh(f, 1);
    for (int i = 0; i < f->n; i++)
        if (f->e[i] < min_p) /* the largest e is 1 */
            f->x[i] = -INFINITY;
    drop_marked(f);
}

void filter_xtc(struct filter *f, float threshold)
{
    int n = 0; /* candidates that reach the threshold */

    filter_weigh(f, 1);
    order_begin(f);
    while (n < f->n && (double)f->e[order_at(f, n)] >= (double)threshold * f->total) n++;
    for (int i = 0; i < n - 1; i++) f->x[order_at(f, i)] = -INFINITY;
    if (n >= 2) drop_marked(f);
}

void filter_mirostat(struct filter *f, double bits)
{
    filter_weigh(f, 1);
    double least = (double)f->max + math_log(f->total) - bits * LN_2;
    keep_from(f, least < (double)f->max ? least : (double)f->max);
}

int filter_draw(struct filter *f, double u)
{
    double left = u * f->total;
    int chosen = -1;

    assert(u >= 0 && u < 1);
    order_begin(f);
    for (int r = 0; r < f->n; r++) {
        int i = order_at(f, r);
        if (!(f->e[i] > 0)) break;
        chosen = i; /* the last one with a weight, in case rounding leaves a rest */
        left -= (double)f->e[i];
        if (left < 0) break;
    }
    assert(chosen >= 0);
    return chosen;
}
