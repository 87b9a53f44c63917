/* SPDX-License-Identifier: MIT
 *
 * rank.c: the order of an array of floats, sorted only as far as it is read.
 *
 * A vocabulary has 150,000 logits, and a filter looks at the first hundred. Sorting all of them would be waste, but the
 * place where a cumulative probability is reached is not known beforehand. One pass counts the values at each distance
 * from the largest, in buckets of 1/16. (For logits, the distance is the logarithm of the odds, whatever their offset.)
 * Each step then takes enough buckets from the top for a batch, gathers their values in one pass and sorts them; the
 * next batch is eight times larger. Everything is O(n) for any input: the sort is a radix sort, and if all values fall
 * into one bucket, everything is sorted once.
 *
 * The order is total: the sort is stable and starts from index order, so equal values (-0 and 0, too) keep that order.
 *
 * Does not allocate after rank_init and does not move the values.
 */
#include "decode/rank.h"

#include <assert.h>
#include <math.h> /* INFINITY; nothing is called */
#include <string.h>

#define RANK_STEPS    16.0f /* buckets per unit of distance: 1024 of them reach down to max - 64 */
#define RANK_FIRST    128   /* items of the first batch: more than the usual top_k */
#define RANK_GROWTH   8
#define INSERTION_MAX 32 /* below this the radix sort's counters cost more than its work */

static size_t half_bytes(int cap) { return ((size_t)cap * sizeof(struct rank_item) + 63) & ~(size_t)63; }

size_t rank_bytes(int cap) { return 2 * half_bytes(cap); }

void rank_init(struct rank *r, int cap, struct arena *a)
{
    *r = (struct rank){.cap = cap, .order = arena_get(a, half_bytes(cap)), .tmp = arena_get(a, half_bytes(cap))};
}

/* The bits of a float order like a sign-magnitude integer; this makes them an unsigned one, downwards. */
static uint32_t key_of(float v)
{
    float positive_zero = v + 0.0f; /* -0 + 0 is 0: the two are equal and must have one key */
    uint32_t u;
    memcpy(&u, &positive_zero, sizeof u);
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

/* Rounding may move a value to the next bucket but never past another value: the subtraction is monotone. */
static int bucket_of(const struct rank *r, float v)
{
    float d = (r->max - v) * RANK_STEPS;
    return d < (float)(RANK_BUCKETS - 1) ? (int)d : RANK_BUCKETS - 1;
}

static void sort_insertion(struct rank_item *a, int n)
{
    for (int i = 1; i < n; i++) {
        struct rank_item it = a[i];
        int j = i;
        for (; j > 0 && a[j - 1].key > it.key; j--) a[j] = a[j - 1];
        a[j] = it;
    }
}

/* Stable, by ascending key, least significant byte first. tmp: [n]. */
static void sort_items(struct rank_item *a, struct rank_item *tmp, int n)
{
    struct rank_item *from = a, *to = tmp;

    if (n <= INSERTION_MAX) {
        sort_insertion(a, n);
        return;
    }
    for (int shift = 0; shift < 32; shift += 8) {
        int32_t start[256] = {0};
        for (int i = 0; i < n; i++) start[from[i].key >> shift & 255]++;
        if (start[from[0].key >> shift & 255] == n) continue; /* all have the same byte */
        int32_t sum = 0;
        for (int d = 0; d < 256; d++) {
            int32_t c = start[d];
            start[d] = sum;
            sum += c;
        }
        for (int i = 0; i < n; i++) to[start[from[i].key >> shift & 255]++] = from[i];
        struct rank_item *swap = from;
        from = to;
        to = swap;
    }
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}

/* Appends the next batch of whole buckets to order[]. */
static void step(struct rank *r)
{
    int lo = r->bucket, hi = lo, n = 0, found = 0;
    struct rank_item *out = r->order + r->n_done;

    while (hi < RANK_BUCKETS && n < r->batch) n += r->count[hi++];
    for (int i = 0; i < r->n; i++) {
        int b = bucket_of(r, r->v[i]);
        if (b >= lo && b < hi) out[found++] = (struct rank_item){.key = key_of(r->v[i]), .index = i};
    }
    assert(found == n);
    sort_items(out, r->tmp, n);
    r->n_done += n;
    r->bucket = hi;
    if (r->batch < r->n) r->batch *= RANK_GROWTH;
}

/* Eight maxima, so that the compiler can compute them together. */
float rank_largest(const float *v, int n)
{
    float max[8];
    int i = 0;

    for (int j = 0; j < 8; j++) max[j] = -INFINITY;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) max[j] = v[i + j] > max[j] ? v[i + j] : max[j];
    for (; i < n; i++) max[0] = v[i] > max[0] ? v[i] : max[0];
    for (int j = 1; j < 8; j++) max[0] = max[j] > max[0] ? max[j] : max[0];
    return max[0];
}

void rank_begin(struct rank *r, const float *v, int n)
{
    assert(n >= 1 && n <= r->cap);
    r->v = v;
    r->n = n;
    r->n_done = 0;
    r->bucket = 0;
    r->batch = RANK_FIRST;
    r->max = rank_largest(v, n);
    memset(r->count, 0, sizeof r->count);
    for (int i = 0; i < n; i++) r->count[bucket_of(r, v[i])]++;
}

int rank_at(struct rank *r, int i)
{
    assert(i >= 0 && i < r->n);
    while (i >= r->n_done) step(r);
    return r->order[i].index;
}
