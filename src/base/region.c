/* SPDX-License-Identifier: MIT
 *
 * region.c: mmap for anonymous memory, in huge pages where they pay.
 *
 * Reading a long stream is faster from huge pages, because one address translation lasts for 2 MB. But the first byte
 * that is written to a huge page costs clearing all of it. Under a hypervisor that still has to find the memory, that
 * takes milliseconds a page. So the beginning of a region, of which little is written at first, can be in small pages.
 */
#include "base/region.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/os.h"

int region_open(struct region *r, size_t bytes, size_t small_bytes, const char *what, struct qn_error *e)
{
    void *p = MAP_FAILED;

    errno = ENOMEM; /* the test hook's reason */
    if (mem_enter()) p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return error_set(e, QN_ENOMEM, "cannot reserve %zu bytes for %s: %m", bytes, what);
    size_t page = os_page_bytes(), head = (small_bytes + page - 1) / page * page;
    if (head < bytes) madvise((uint8_t *)p + head, bytes - head, MADV_HUGEPAGE);
    *r = (struct region){p, bytes};
    return 0;
}

bool region_touch(const struct region *r, size_t at, size_t bytes)
{
    size_t first = at / os_page_bytes() * os_page_bytes();
    return madvise(r->data + first, at + bytes - first, MADV_POPULATE_WRITE) == 0;
}

void region_close(struct region *r)
{
    if (r->data) munmap(r->data, r->size);
    *r = (struct region){0};
}
