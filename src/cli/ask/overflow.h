/* SPDX-License-Identifier: MIT
 *
 * overflow.h: finds the largest cut of texts that fits into a context, with few counts of tokens.
 *
 * Only the caller knows the texts. Here a cut is a number k, the bytes kept of each text. The caller says how many
 * bytes remain with k, and how many tokens a request with that cut has.
 */
#ifndef QUERN_CLI_OVERFLOW_H
#define QUERN_CLI_OVERFLOW_H

#include <stddef.h>

#include "base/error.h"

struct overflow {
    size_t most; /* the k that keeps everything */
    int n_room;  /* tokens */
    /* The bytes that remain with k. Does not fall when k grows. */
    size_t (*kept)(void *arg, size_t k);
    int (*count)(void *arg, size_t k, int *n_tokens, struct qn_error *e);
    void *arg;
};

/* Finds the largest *k that fits. QN_EFULL: not even k = 0 fits; the message has both counts. */
int overflow_fit(const struct overflow *o, size_t *k, struct qn_error *e);

#endif
