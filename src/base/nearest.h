/* SPDX-License-Identifier: MIT
 *
 * nearest.h: finds the known word that is most similar to a misspelt one, for "(did you mean 'ctx'?)".
 */
#ifndef QUERN_BASE_NEAREST_H
#define QUERN_BASE_NEAREST_H

#include <stddef.h>

/* Set word to the misspelt word and the rest to zero. Then offer each known word once, and read best. */
struct nearest {
    const char *word; /* borrowed */
    const char *best; /* borrowed: of the words that were offered, the first one with the fewest mistakes; NULL: none */
    size_t distance;  /* of best, in mistakes */
};

void nearest_offer(struct nearest *s, const char *candidate);

/* The number of mistakes between two words. A mistake is a letter (byte) left out, added, replaced, or swapped with the
 * next one. SIZE_MAX when either word is longer than NEAREST_MAX bytes. */
#define NEAREST_MAX 64
size_t nearest_distance(const char *a, const char *b);

#endif
