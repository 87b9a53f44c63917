/* SPDX-License-Identifier: MIT
 *
 * filter.h: the candidates for the next token and the filters that cut their number down.
 */
#ifndef QUERN_DECODE_FILTER_H
#define QUERN_DECODE_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "decode/rank.h"
#include "kernel/kernel.h"

/* The candidates are x[0..n) with their tokens id[0..n): by ascending token until a filter needs them sorted, by
 * descending logit (and then ascending token) from then on. Every filter keeps the order and at least one. */
struct filter {
    float *x;    /* [cap] logits, finite */
    int32_t *id; /* [cap] */
    float *e;    /* [cap] exp((x - max) / temperature) after filter_weigh() */
    int n, cap;
    bool is_sorted;
    float max;    /* of x; of the candidates that filter_weigh() saw */
    double total; /* sum of e */
    struct rank rank;
    const struct kernels *k;
    void *scratch; /* of the kernels */
};

size_t filter_bytes(int cap); /* of arena that filter_init takes */
void filter_init(struct filter *f, int cap, const struct kernels *k, struct arena *a);

/* Makes the values of v[0..n_vocab) the candidates, without those that are NaN or -inf. There must be one left and none
 * may be +inf. v may be f->x. */
void filter_begin(struct filter *f, const float *v, int n_vocab);
/* filter_begin() and then filter_top_k(), without looking at most values twice. */
void filter_begin_top_k(struct filter *f, const float *v, int n_vocab, int k);

/* "Probability" is the softmax, at temperature 1, of the candidates that are left when the filter starts. */

/* x >= max - n_sigma * standard deviation of x */
void filter_top_n_sigma(struct filter *f, float n_sigma);
/* the k largest; k >= 1 */
void filter_top_k(struct filter *f, int k);
/* the shortest list, by ascending | -log p - entropy |, whose probabilities reach typical_p */
void filter_typical(struct filter *f, float typical_p);
/* the shortest list, by descending p, whose probabilities reach top_p */
void filter_top_p(struct filter *f, float top_p);
/* p >= min_p * the largest p */
void filter_min_p(struct filter *f, float min_p);
/* Removes the candidates with p >= threshold, except for the least probable of them. */
void filter_xtc(struct filter *f, float threshold);
/* -log2 p <= bits; if there are none, those with the largest p. f->max and f->total stay as they were before the cut,
 * so that filter_surprise() can compute -log2 of a logit's p later. */
void filter_mirostat(struct filter *f, double bits);
double filter_surprise(float logit, float max, double total);

/* e and total at a temperature > 0. */
void filter_weigh(struct filter *f, float temperature);
/* The candidate (an index into x and id) at u, 0 <= u < 1, of the cumulative distribution in sorted order. After
 * filter_weigh(). */
int filter_draw(struct filter *f, double u);

#endif
