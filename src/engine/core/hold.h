/* SPDX-License-Identifier: MIT
 *
 * hold.h: counted references to an object of the public interface.
 *
 * A caller may free a model before its engines by mistake, or an engine before its sessions. The object then stays
 * until its last user drops its reference. So the mistake costs memory and does not crash the process.
 */
#ifndef QUERN_ENGINE_HOLD_H
#define QUERN_ENGINE_HOLD_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"

struct hold {
    atomic_int n; /* references: one of the program that made the object, and one of each user */
};

static inline void hold_init(struct hold *h) { atomic_init(&h->n, 1); }

static inline void hold_get(struct hold *h) { atomic_fetch_add_explicit(&h->n, 1, memory_order_relaxed); }

/* Drops one reference. Returns true if it was the last one: the caller then frees the object. */
static inline bool hold_put(struct hold *h) { return atomic_fetch_sub_explicit(&h->n, 1, memory_order_acq_rel) == 1; }

/* The same for the reference of the program that made the object. If users are left, a warning names `function`. */
static inline bool hold_give_up(struct hold *h, const char *function)
{
    int left = atomic_fetch_sub_explicit(&h->n, 1, memory_order_acq_rel) - 1;
    if (left > 0) log_at(LOG_WARN, "%s: %d in use: the memory is freed with the last user", function, left);
    return left == 0;
}

#endif
