/* SPDX-License-Identifier: MIT
 *
 * rank.h: the order of an array of floats, largest first, sorted only as far as it is read.
 */
#ifndef QUERN_DECODE_RANK_H
#define QUERN_DECODE_RANK_H

#include <stdint.h>

#include "base/mem.h"

#define RANK_BUCKETS 1024

struct rank_item {
    uint32_t key;  /* ascends as the value descends */
    int32_t index; /* into the ranked array */
};

struct rank {
    const float *v; /* [n] what is ranked; borrowed */
    int n;
    int cap;
    int n_done;              /* order[0..n_done) is final */
    int bucket;              /* buckets below this are in order[] */
    int batch;               /* least number of items the next step sorts */
    float max;               /* of v */
    struct rank_item *order; /* [cap] */
    struct rank_item *tmp;   /* [cap] the other half of the sort */
    int32_t count[RANK_BUCKETS];
};

/* Bytes of arena that rank_init takes. */
size_t rank_bytes(int cap);
/* A rank of up to cap values, its memory from a; there is nothing to free. */
void rank_init(struct rank *r, int cap, struct arena *a);

/* The largest of v[0..n); -INFINITY if there is none. NaN is not a value. */
float rank_largest(const float *v, int n);

/* Starts to rank v[0..n), 1 <= n <= cap, no NaN and a largest value that is finite. v must not change while
 * rank_at() still has to sort. */
void rank_begin(struct rank *r, const float *v, int n);
/* Index in v of the i-th largest value (i < n); among equals the lower index comes first. */
int rank_at(struct rank *r, int i);

#endif
