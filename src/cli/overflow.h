/* SPDX-License-Identifier: MIT
 *
 * overflow.h: the largest cut of texts that has room in a context, found with few counts of tokens.
 *
 * What is cut is known to the caller alone: here is a number k, bytes kept of each text, which of two numbers are the
 * same cut, and how many tokens a request with that cut has.
 */
#ifndef QUERN_CLI_OVERFLOW_H
#define QUERN_CLI_OVERFLOW_H

#include <stddef.h>

#include "base/error.h"

struct overflow {
    size_t most; /* k that keeps all there is */
    int n_room;  /* tokens */
    /* Bytes that remain with k; does not fall when k grows. */
    size_t (*kept)(void *arg, size_t k);
    int (*count)(void *arg, size_t k, int *n_tokens, struct qn_error *e);
    void *arg;
};

/* QN_EFULL: not even k = 0 fits; has both counts. */
int overflow_fit(const struct overflow *o, size_t *k, struct qn_error *e);

#endif
