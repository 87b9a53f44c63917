/* SPDX-License-Identifier: MIT
 *
 * slabs.c: see slabs.h.
 */
#include "grammar/core/slabs.h"

#include "base/mem.h"

#define SLAB_BYTES ((size_t)4096)

struct slab {
    struct slab *before;
    size_t size;
    _Alignas(16) uint8_t data[];
};

static struct slab *add_slab(struct slabs *c, struct limits *l, size_t bytes)
{
    struct slab *k;
    size_t last = c->last ? c->last->size : SLAB_BYTES / 2;
    size_t size = last < SLAB_BYTES * 16 ? last * 2 : last;
    if (size < bytes) size = bytes;
    if (l->rc) return NULL;
    if (!limits_take(l, sizeof *k + size)) return NULL;
    k = mem_calloc(1, sizeof *k + size);
    if (!k) {
        limits_give(l, sizeof *k + size);
        limits_fail(l, QN_ENOMEM, "there is no memory for %zu bytes of a grammar", size);
        return NULL;
    }
    *k = (struct slab){c->last, size};
    c->last = k;
    c->used = 0;
    return k;
}

void *slabs_get(struct slabs *c, struct limits *l, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if ((!c->last || c->last->size - c->used < bytes) && !add_slab(c, l, bytes)) return NULL;
    void *p = c->last->data + c->used;
    c->used += bytes;
    return p;
}

void slabs_free(struct slabs *c, struct limits *l)
{
    while (c->last) {
        struct slab *k = c->last;
        c->last = k->before;
        limits_give(l, sizeof *k + k->size);
        mem_free(k);
    }
    c->used = 0;
}
