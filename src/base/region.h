/* SPDX-License-Identifier: MIT
 *
 * region.h: large anonymous memory from the operating system. It is zero and not resident until it is written, aligned
 * to pages, and given back as a whole.
 */
#ifndef QUERN_BASE_REGION_H
#define QUERN_BASE_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct region {
    uint8_t *data;
    size_t size; /* bytes */
};

/* Maps a region. Its first small_bytes are in the system's small pages, the rest in pages of 2 MB where the system can.
 * QN_ENOMEM, with `what`, the bytes and the system's reason. */
int region_open(struct region *r, size_t bytes, size_t small_bytes, const char *what, struct qn_error *e);
/* Makes bytes [at, at + bytes) of the region resident, as the first writes to them would. The contents stay. False: the
 * system cannot do that, or has no memory. */
bool region_touch(const struct region *r, size_t at, size_t bytes);
void region_close(struct region *r); /* a zeroed region may be closed */

#endif
