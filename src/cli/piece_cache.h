/* SPDX-License-Identifier: MIT
 *
 * piece_cache.h: answers that were computed before, by the whole request they answer.
 *
 * Plain files in $XDG_CACHE_HOME/quern/pieces, one an answer, named by a hash of the request. Each has its request in
 * it, which is compared, and a checksum: what is not exactly the same is not found. Those used longest ago go when
 * there are too many bytes. Where nothing can be written, a few hundred answers are kept in memory instead, with one
 * warning.
 *
 * Only for requests whose answer is the same each time.
 */
#ifndef QUERN_CLI_PIECE_CACHE_H
#define QUERN_CLI_PIECE_CACHE_H

#include <stdbool.h>

#include "base/buf.h"

#define PIECE_CACHE_RECENT 256

struct piece_cache {
    char *dir;       /* with a '/' at the end; NULL: memory only */
    uint64_t budget; /* bytes on disk */
    bool wrote;
    struct piece_recent {
        char *key, *answer;
        size_t n_key, n_answer;
    } recent[PIECE_CACHE_RECENT];
};

/* Warns on stderr when the folder cannot be used. */
void piece_cache_open(struct piece_cache *c, uint64_t budget_bytes);
void piece_cache_close(struct piece_cache *c);
/* Adds the answer to *answer. False: it is not there. */
bool piece_cache_find(struct piece_cache *c, const char *key, size_t n_key, struct buf *answer);
void piece_cache_add(struct piece_cache *c, const char *key, size_t n_key, const char *answer, size_t n_answer);

#endif
