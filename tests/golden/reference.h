/* SPDX-License-Identifier: MIT
 *
 * reference.h: one record of the reference data: a prompt, what an independent engine made of
 * it, and how sure it was. Format: the README beside the data.
 */
#ifndef QUERN_TESTS_GOLDEN_REFERENCE_H
#define QUERN_TESTS_GOLDEN_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

struct reference {
    char model[256]; /* path of the GGUF */
    int n_vocab, n_ctx, n_tokens, n_positions, n_greedy, n_gaps;
    int32_t *tokens, *positions; /* positions: of the rows of logits, each below n_tokens */
    int32_t *greedy;
    float *gaps;   /* top-1 minus top-2 at each greedy step; NULL when not recorded */
    float *logits; /* [n_positions][n_vocab] */
};

/* $QUERN_GOLDEN/<dir>/<name>.txt with its .f32; exits with a message when something is wrong with it. */
void reference_load(struct reference *r, const char *golden, const char *dir, const char *name);
void reference_free(struct reference *r);
/* Ends the program with status 77 (skipped), or 1 in CI, when $QUERN_GOLDEN is not set. */
const char *reference_dir(void);

#endif
