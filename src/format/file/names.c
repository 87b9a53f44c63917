/* SPDX-License-Identifier: MIT
 *
 * names.c: a hash set of borrowed names: open addressing, linear probing, no removal.
 *
 * The names come from files of strangers. So the hash has a seed from the operating system, and nobody can make a file
 * whose names all fall into one slot. Names are compared by length and bytes, because they may hold NULs.
 */
#include "format/file/names.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

int names_init(struct names *t, size_t n, struct qn_error *e)
{
    size_t n_slots = 4;
    while (n_slots < 2 * n) n_slots *= 2;
    struct name_slot *slot = mem_calloc(n_slots, sizeof *slot);
    if (!slot) return error_nomem(e, "an index of names", n_slots * sizeof *slot);
    *t = (struct names){.slot = slot, .n_slots = n_slots, .seed = rng_seed_from_os()};
    return 0;
}

void names_deinit(struct names *t)
{
    mem_free(t->slot);
    *t = (struct names){0};
}

/* The slot that holds the name, or the free one where it would go. */
static struct name_slot *lookup(const struct names *t, struct str name)
{
    size_t mask = t->n_slots - 1;
    size_t i = hash_bytes(name.p, name.n, t->seed) & mask;
    for (;; i = (i + 1) & mask) {
        struct name_slot *s = &t->slot[i];
        if (!s->p || (s->n == name.n && !memcmp(s->p, name.p, name.n))) return s;
    }
}

bool names_add(struct names *t, struct str name, uint32_t value)
{
    assert(name.p && name.n <= UINT32_MAX);
    struct name_slot *s = lookup(t, name);
    if (s->p) return false;
    *s = (struct name_slot){.p = name.p, .n = (uint32_t)name.n, .value = value};
    return true;
}

bool names_find(const struct names *t, struct str name, uint32_t *value)
{
    if (!t->slot) return false;
    const struct name_slot *s = lookup(t, name);
    if (!s->p) return false;
    *value = s->value;
    return true;
}
