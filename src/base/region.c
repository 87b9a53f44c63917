/* SPDX-License-Identifier: MIT
 *
 * region.c: mmap for anonymous memory. Huge pages are asked for: the big users (KV cache,
 * scratch) are read in long streams.
 */
#include "base/region.h"

#include <sys/mman.h>

int region_open(struct region *r, size_t bytes, struct qn_error *e)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return error_nomem(e, "a memory region", bytes);
    madvise(p, bytes, MADV_HUGEPAGE);
    *r = (struct region){p, bytes};
    return 0;
}

void region_close(struct region *r)
{
    if (r->data) munmap(r->data, r->size);
    *r = (struct region){0};
}
