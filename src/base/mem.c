/* SPDX-License-Identifier: MIT
 *
 * mem.c: the allocation functions, the ledger and the arena.
 *
 * All calls go through mem_enter(), which counts them and lets a test refuse one of them. A test that runs an operation
 * with the first allocation failing, then the second, and so on, walks every out-of-memory path. The ledger is one
 * atomic number, so taking from it needs no lock. It does not allocate: its user allocates after taking, and gives the
 * same number back. The arena is a bump pointer. Its size is computed before, so asking it for more is a bug, not an
 * error.
 */
#include "base/mem.h"

#include <assert.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN ((size_t)64) /* a cache line, and the widest vector register */

static _Atomic uint64_t n_calls;
static _Atomic uint64_t fault_left; /* calls until the one that fails, that one included; 0 = off */
static _Atomic int fault_was_hit;

int mem_enter(void)
{
    atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);
    uint64_t left = atomic_load_explicit(&fault_left, memory_order_relaxed);
    while (left > 0 && !atomic_compare_exchange_weak(&fault_left, &left, left - 1))
        ;
    if (left != 1) return 1;
    atomic_store(&fault_was_hit, 1);
    return 0;
}

void *mem_alloc(size_t bytes) { return mem_enter() ? malloc(bytes ? bytes : 1) : NULL; }

void *mem_calloc(size_t n, size_t size)
{
    if (!mem_enter() || (size && n > SIZE_MAX / size)) return NULL;
    return n && size ? calloc(n, size) : calloc(1, 1);
}

void *mem_realloc(void *p, size_t bytes) { return mem_enter() ? realloc(p, bytes ? bytes : 1) : NULL; }

void *mem_aligned(size_t align, size_t bytes)
{
    assert(align >= sizeof(void *) && (align & (align - 1)) == 0);
    if (!mem_enter() || bytes > SIZE_MAX - align) return NULL;
    bytes = (bytes + align - 1) & ~(align - 1);
    return aligned_alloc(align, bytes ? bytes : align);
}

void *mem_dup(const void *p, size_t bytes)
{
    if (bytes == SIZE_MAX) return NULL;
    uint8_t *d = mem_alloc(bytes + 1);
    if (!d) return NULL;
    if (bytes) memcpy(d, p, bytes);
    d[bytes] = 0;
    return d;
}

void mem_free(void *p) { free(p); }

void mem_trim(void) { malloc_trim(0); }
size_t mem_in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

void mem_return_early(void)
{
    /* Setting the first two also keeps glibc from raising them, which it does to the size of freed blocks, up to 64 MB.
     */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    mallopt(M_ARENA_MAX, 2);
}

uint64_t mem_n_calls(void) { return atomic_load(&n_calls); }

void mem_fault_set(uint64_t n)
{
    atomic_store(&fault_was_hit, 0);
    atomic_store(&fault_left, n);
}

int mem_fault_hit(void) { return atomic_load(&fault_was_hit); }

/* ---- ledger ---- */

void ledger_init(struct ledger *l, size_t budget_bytes) { ledger_init_part(l, NULL, budget_bytes); }

void ledger_init_part(struct ledger *l, struct ledger *whole, size_t budget_bytes)
{
    l->budget = budget_bytes;
    l->whole = whole;
    atomic_init(&l->used, 0);
}

int ledger_take(struct ledger *l, size_t bytes, const char *what, struct qn_error *e)
{
    size_t used = atomic_load(&l->used);
    int rc = 0;

    do {
        if (bytes > l->budget - used)
            return error_set(e, QN_ENOMEM, "memory budget: %s needs %zu bytes, %zu of %zu are left", what, bytes,
                             l->budget - used, l->budget);
    } while (!atomic_compare_exchange_weak(&l->used, &used, used + bytes));
    if (l->whole) rc = ledger_take(l->whole, bytes, what, e);
    if (rc) atomic_fetch_sub(&l->used, bytes);
    return rc;
}

void ledger_give(struct ledger *l, size_t bytes)
{
    size_t before = atomic_fetch_sub(&l->used, bytes);
    assert(before >= bytes);
    if (l->whole) ledger_give(l->whole, bytes);
}

size_t ledger_used(const struct ledger *l) { return atomic_load(&l->used); }

/* ---- arena ---- */

static size_t arena_round(size_t bytes) { return (bytes + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1); }

int arena_init(struct arena *a, size_t bytes, struct qn_error *e)
{
    uint8_t *base = mem_aligned(ARENA_ALIGN, bytes);
    if (!base) return error_nomem(e, "a scratch arena", bytes);
    *a = (struct arena){.base = base, .size = arena_round(bytes)};
    return 0;
}

void arena_deinit(struct arena *a)
{
    mem_free(a->base);
    *a = (struct arena){0};
}

void *arena_get(struct arena *a, size_t bytes)
{
    assert(bytes <= a->size - a->used); /* both are multiples of the alignment, so rounding up fits too */
    uint8_t *p = a->base + a->used;
    a->used += arena_round(bytes);
    if (a->used > a->high) a->high = a->used;
    return p;
}

void arena_reset(struct arena *a) { a->used = 0; }
