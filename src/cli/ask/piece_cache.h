/* SPDX-License-Identifier: MIT
 *
 * piece_cache.h: keeps computed answers, found by the whole request that they answer.
 *
 * They are plain files in $XDG_CACHE_HOME/quern/pieces, one per answer, named by a hash of the request. Each file has
 * its request, which is compared, and a checksum, so only the exact request is found. When there are too many bytes,
 * the files that were used longest ago are removed. If nothing can be written, there is one warning, and a few hundred
 * answers are kept in memory.
 *
 * Only for requests that have the same answer each time.
 */
#ifndef QUERN_CLI_PIECE_CACHE_H
#define QUERN_CLI_PIECE_CACHE_H

#include <stdbool.h>

#include "base/buf.h"

#define PIECE_CACHE_RECENT 256

struct piece_cache {
    char *dir;       /* ends with '/'; NULL: memory only */
    uint64_t budget; /* most bytes on disk */
    bool wrote;
    struct piece_recent {
        char *key, *answer;
        size_t n_key, n_answer;
    } recent[PIECE_CACHE_RECENT];
};

/* Finds or makes the folder. Prints a warning to stderr if it cannot be used. */
void piece_cache_open(struct piece_cache *c, uint64_t budget_bytes);
/* Removes old files if answers were written, and releases the memory. */
void piece_cache_close(struct piece_cache *c);
/* Appends the answer to *answer. Returns false if it is not there. */
bool piece_cache_find(struct piece_cache *c, const char *key, size_t n_key, struct buf *answer);
/* Keeps an answer. If it cannot be written, warns once and keeps answers in memory from then on. */
void piece_cache_add(struct piece_cache *c, const char *key, size_t n_key, const char *answer, size_t n_answer);

#endif
