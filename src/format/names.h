/* SPDX-License-Identifier: MIT
 *
 * names.h: a set of names with a number each, for metadata keys and tensor names.
 *
 * Filled once, while a header is read, and then only asked. The names are borrowed.
 */
#ifndef QUERN_FORMAT_NAMES_H
#define QUERN_FORMAT_NAMES_H

#include "format/weights.h"

struct name_slot {
    const char *p; /* NULL: free */
    uint32_t n;    /* bytes */
    uint32_t value;
};

struct names {
    struct name_slot *slot; /* [n_slots], a power of two, at most half full */
    size_t n_slots;
    uint64_t seed;
};

/* Room for n names, never more. A zeroed struct names is an empty set. */
int names_init(struct names *t, size_t n, struct qn_error *e);
void names_deinit(struct names *t);
/* False, and nothing changed, when the name was there already. */
bool names_add(struct names *t, struct str name, uint32_t value);
bool names_find(const struct names *t, struct str name, uint32_t *value);

#endif
