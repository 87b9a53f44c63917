/* SPDX-License-Identifier: MIT
 *
 * mem.h: all memory of the process.
 *
 * These functions are the only callers of malloc() in the tree; region.c has the only anonymous mapping. A test can
 * make the N-th allocation fail. Two things are built on them: the ledger, a budget in bytes from which everything that
 * grows with use is taken before it is allocated; and the arena, a block of scratch memory that is allocated once.
 */
#ifndef QUERN_BASE_MEM_H
#define QUERN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* ---- allocation ---- */

/* As malloc, calloc, realloc, free and aligned_alloc. They return NULL only when there is no memory, or when a test
 * asked for a failure; zero bytes give a pointer too. n * size is checked for overflow. mem_aligned() rounds its size
 * up to the alignment. All results are freed with mem_free(). Thread-safe. */
void *mem_alloc(size_t bytes);
void *mem_calloc(size_t n, size_t size);
void *mem_realloc(void *p, size_t bytes);
void *mem_aligned(size_t align, size_t bytes);
void *mem_dup(const void *p, size_t bytes); /* a copy, with a NUL byte after it */
void mem_free(void *p);
/* Gives free memory back to the system. To be called after something large was freed. */
void mem_trim(void);
size_t mem_in_use(void); /* bytes of all allocations; 0 where the allocator does not say (a sanitizer's) */

/* For a process that runs for long: blocks of a megabyte and more go back to the system when they are freed, and
 * threads share two pools of small blocks, instead of eight for each CPU. Call it before threads are started. */
void mem_return_early(void);

/* Counts an allocation that does not come from malloc() (base/region.c); 0: it must fail, because a test said so. */
int mem_enter(void);

/* How many of the calls above there were since the start of the process, those that failed included. */
uint64_t mem_n_calls(void);
/* For tests: the n-th call from now on fails (1: the next), and no other; 0: none. mem_fault_hit(): whether that call
 * was reached. */
void mem_fault_set(uint64_t n);
int mem_fault_hit(void);

/* ---- ledger ---- */

struct ledger {
    size_t budget;        /* bytes */
    _Atomic size_t used;  /* bytes; never above the budget */
    struct ledger *whole; /* borrowed: what is taken from this ledger is taken from it, too; NULL: there is none */
};

void ledger_init(struct ledger *l, size_t budget_bytes);
/* A part of `whole`, which lives longer. */
void ledger_init_part(struct ledger *l, struct ledger *whole, size_t budget_bytes);
/* Takes bytes from the budget; thread-safe. QN_ENOMEM: there are not enough; the message names `what`, the bytes that
 * were asked for, those that are left, and the budget. */
int ledger_take(struct ledger *l, size_t bytes, const char *what, struct qn_error *e);
void ledger_give(struct ledger *l, size_t bytes);
size_t ledger_used(const struct ledger *l);

/* ---- arena ---- */

struct arena {
    uint8_t *base;
    size_t size, used, high; /* bytes; high: the most that was ever used */
};

int arena_init(struct arena *a, size_t bytes, struct qn_error *e);
void arena_deinit(struct arena *a);
/* Memory that is aligned to 64 bytes and not zeroed. It must fit: sizes are computed before. */
void *arena_get(struct arena *a, size_t bytes);
void arena_reset(struct arena *a);

#endif
