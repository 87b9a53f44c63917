/* SPDX-License-Identifier: MIT
 *
 * slabs.h: memory for many small things that are freed together.
 */
#ifndef QUERN_GRAMMAR_SLABS_H
#define QUERN_GRAMMAR_SLABS_H

#include "grammar/core/limits.h"

struct slab;

/* A zeroed one is empty. */
struct slabs {
    struct slab *last;
    size_t used; /* bytes of the last one */
};

/* Zeroed memory, aligned for anything; NULL after noting a failure. */
void *slabs_get(struct slabs *c, struct limits *l, size_t bytes);
void slabs_free(struct slabs *c, struct limits *l);

#endif
