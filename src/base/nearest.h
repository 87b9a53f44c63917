/* SPDX-License-Identifier: MIT
 *
 * nearest.h: which of the words there are somebody may have meant who wrote another: "(did you mean 'ctx'?)".
 */
#ifndef QUERN_BASE_NEAREST_H
#define QUERN_BASE_NEAREST_H

#include <stddef.h>

/* Begins with the word that was written, and zeros; each word there is is offered once. */
struct nearest {
    const char *word;
    const char *best; /* of those offered, borrowed: the first with the fewest mistakes; NULL when none is near */
    size_t distance;  /* of best, in mistakes */
};

void nearest_offer(struct nearest *s, const char *candidate);

/* Mistakes between two words: letters (bytes) left out, added, replaced, or swapped with the next. SIZE_MAX when either
 * is longer than NEAREST_MAX bytes. */
#define NEAREST_MAX 64
size_t nearest_distance(const char *a, const char *b);

#endif
