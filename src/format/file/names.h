/* SPDX-License-Identifier: MIT
 *
 * names.h: a set of names, each with a number: metadata keys, tensor names, tokens.
 *
 * It is filled once, while a file is read. Afterwards it does not change, and threads may share it. The names are
 * borrowed and must outlive it.
 */
#ifndef QUERN_FORMAT_NAMES_H
#define QUERN_FORMAT_NAMES_H

#include "format/file/meta.h"

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

/* Makes room for n names; no more than n may be added. A zeroed struct names is an empty set. QN_ENOMEM. */
int names_init(struct names *t, size_t n, struct qn_error *e);
void names_deinit(struct names *t);
/* False, and nothing changes, when the name is there already. */
bool names_add(struct names *t, struct str name, uint32_t value);
bool names_find(const struct names *t, struct str name, uint32_t *value);

#endif
