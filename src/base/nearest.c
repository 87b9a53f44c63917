/* SPDX-License-Identifier: MIT
 *
 * nearest.c: counts the mistakes between words, and keeps the word with the fewest.
 *
 * The count is the restricted Damerau-Levenshtein distance ("optimal string alignment"): L. Boytsov, Indexing methods
 * for approximate dictionary searching, 2011, section 2.2.1. Its table has one row for each letter of the first word,
 * of which the last three are kept. A word is near when at most a third of the letters of the longer one are mistakes.
 */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

#include "base/inline/minmax.h"

size_t nearest_distance(const char *a, const char *b)
{
    size_t row[3][NEAREST_MAX + 1], n = strnlen(a, NEAREST_MAX + 1), m = strnlen(b, NEAREST_MAX + 1);

    if (n > NEAREST_MAX || m > NEAREST_MAX) return SIZE_MAX;
    for (size_t k = 0; k <= m; k++) row[0][k] = k;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = row[i % 3];
        const size_t *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= m; k++) {
            now[k] = min_size(min_size(last[k], now[k - 1]) + 1, last[k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                now[k] = min_size(now[k], before[k - 2] + 1);
        }
    }
    return row[n % 3][m];
}

void nearest_offer(struct nearest *s, const char *candidate)
{
    size_t n = strlen(s->word), m = strlen(candidate), d = nearest_distance(s->word, candidate);

    if (d > (n > m ? n : m) / 3 || (s->best && d >= s->distance)) return;
    s->best = candidate;
    s->distance = d;
}
