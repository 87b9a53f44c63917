/* SPDX-License-Identifier: MIT
 *
 * mem.h: where every byte comes from.
 *
 * Owns the process-wide allocation entry points (the only callers of malloc in the
 * tree; region.c has the only anonymous mapping), the fault hook that tests use to fail the N-th allocation, and two things
 * built on them: the ledger, a byte budget that is asked before anything that grows
 * with use is allocated, and the arena, a block of scratch that is sized once and
 * then never calls malloc again.
 */
#ifndef QUERN_BASE_MEM_H
#define QUERN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* ---- allocation ---- */

/* As malloc, calloc, realloc, free and aligned_alloc; NULL only when there is no memory or the
 * fault hook says so: zero bytes give a pointer too. n * size is checked for overflow. Thread-safe. mem_aligned's size
 * is rounded up to the alignment; its result is freed with mem_free. */
void *mem_alloc(size_t bytes);
void *mem_calloc(size_t n, size_t size);
void *mem_realloc(void *p, size_t bytes);
void *mem_aligned(size_t align, size_t bytes);
void *mem_dup(const void *p, size_t bytes); /* a copy; one NUL byte follows it */
void mem_free(void *p);
/* Gives what is free to the system: after something large was freed. */
void mem_trim(void);
size_t mem_in_use(void); /* of all allocations together; 0 where the allocator does not say (a sanitizer's) */

/* For a process that stays: blocks of a megabyte and more go back to the system when they are freed, and threads share
 * two pools of small ones instead of having eight for each CPU. Before threads are started. */
void mem_return_early(void);

/* Counts an allocation that does not come from malloc (base/region.c); 0 when it has to fail. */
int mem_enter(void);

/* Counts every successful or refused call above since the start of the process. */
uint64_t mem_n_calls(void);
/* Test hook: the n-th call from now (1 = the next) fails, and only that one; 0 switches it off.
 * Returns nothing; use mem_fault_hit() to learn whether it was reached. */
void mem_fault_set(uint64_t n);
int mem_fault_hit(void);

/* ---- ledger ---- */

struct ledger {
    size_t budget;       /* bytes */
    _Atomic size_t used; /* bytes; never above the budget */
};

void ledger_init(struct ledger *l, size_t budget_bytes);
/* Takes bytes from the budget, or QN_ENOMEM with `what`, the bytes asked, those left and the budget. */
int ledger_take(struct ledger *l, size_t bytes, const char *what, struct qn_error *e);
void ledger_give(struct ledger *l, size_t bytes);
size_t ledger_used(const struct ledger *l);

/* ---- arena ---- */

struct arena {
    uint8_t *base;
    size_t size, used, high; /* bytes; high = the most that was ever used */
};

int arena_init(struct arena *a, size_t bytes, struct qn_error *e);
void arena_deinit(struct arena *a);
/* 64-byte aligned; asserts that it fits: sizes are computed beforehand. Not zeroed. */
void *arena_get(struct arena *a, size_t bytes);
void arena_reset(struct arena *a);

#endif
