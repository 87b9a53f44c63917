/* SPDX-License-Identifier: MIT
 *
 * region.h: large anonymous memory straight from the operating system: zero until written,
 * resident only where it was written, page aligned, given back as a whole.
 */
#ifndef QUERN_BASE_REGION_H
#define QUERN_BASE_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct region {
    uint8_t *data;
    size_t size; /* bytes */
};

/* The first small_bytes in the system's small pages, the rest 2 MB at a time where the system can. QN_ENOMEM with
 * `what`, the bytes and the system's reason. */
int region_open(struct region *r, size_t bytes, size_t small_bytes, const char *what, struct qn_error *e);
void region_close(struct region *r); /* a zeroed region may be closed */

#endif
