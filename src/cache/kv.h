/* SPDX-License-Identifier: MIT
 *
 * kv.h: the pages that keys and values live in, one sequence's share of them, and its recurrent state.
 *
 * One reservation of address space, taken from the ledger as a whole when the pool is made,
 * cut into equal pages. A page holds KV_PAGE_SLOTS consecutive slots of one sequence for all
 * layers and KV heads; pages are counted references, so forks share them until one writes.
 * Getting a page never calls the allocator; memory becomes resident as it is first written.
 *
 *   page:  layer 0 [ head 0 keys | head 0 values | head 1 keys | ... ] layer 1 [ ... ] ...
 *
 * The layout inside a head's keys and values is the attention kernel's (kernel/kernel.h).
 *
 * What layers without attention remember of a sequence, their recurrent state, has one size however long the sequence
 * is: a block of state_bytes, from a second reservation of n_states of them, which sequences and copies of their states
 * (snapshots) share. Its layout is the model's. A state stands behind exactly the sequence's last slot; it cannot be
 * cut, only be put back to a copy.
 * Not thread-safe: the engine's own thread gets and drops pages between forward passes.
 */
#ifndef QUERN_CACHE_KV_H
#define QUERN_CACHE_KV_H

#include "base/mem.h"
#include "kernel/kernel.h"

#ifndef KV_PAGE_SLOTS /* tests make pages smaller, so that their edges are everywhere */
#define KV_PAGE_SLOTS 64
#endif

struct kv_shape {
    enum kv_type type;
    int n_layer, n_head_kv; /* of layers with attention */
    int head_dim;           /* of keys */
    int head_dim_v;         /* of values */
    int page_slots;         /* a multiple of KV_GROUP */
    size_t state_bytes;     /* 0: no layer has a state */
};

struct kv_pool;

size_t kv_page_bytes(const struct kv_shape *s);
/* Makes the keys and values of a page's slots from `from` on those of zeros. */
void kv_page_clear(const struct kv_shape *s, uint8_t *page, int from);
/* Bytes that n_states states take. */
size_t kv_states_bytes(const struct kv_shape *s, int n_states);
/* Room for n_slots slots in whole pages, shared by all sequences, and for n_states states (of no meaning when the shape
 * has none). */
int kv_pool_new(struct kv_pool **out, const struct kv_shape *s, int n_slots, int n_states, struct ledger *l,
                struct qn_error *e);
void kv_pool_free(struct kv_pool *p); /* every page must have been dropped */
const struct kv_shape *kv_pool_shape(const struct kv_pool *p);
int kv_pool_n_pages(const struct kv_pool *p);
int kv_pool_n_free(const struct kv_pool *p);    /* pages */
int kv_pool_n_touched(const struct kv_pool *p); /* pages that were ever used: the others are not resident */
int kv_pool_n_states(const struct kv_pool *p);
int kv_pool_n_free_states(const struct kv_pool *p);

/* Bytes from a page's start to the keys (values) of one layer and head. */
size_t kv_key_offset(const struct kv_pool *p, int layer, int head);
size_t kv_value_offset(const struct kv_pool *p, int layer, int head);

/* ---- pages held by others than sequences (prefix.h) ---- */

/* A page that nobody else holds, its contents anything; NULL when none is free. */
uint8_t *kv_page_get(struct kv_pool *p);
void kv_page_ref(struct kv_pool *p, uint8_t *page);
void kv_page_unref(struct kv_pool *p, uint8_t *page); /* the last one frees it */
int kv_page_n_refs(const struct kv_pool *p, const uint8_t *page);

/* ---- states held by others than sequences ---- */

uint8_t *kv_state_get(struct kv_pool *p); /* its contents anything; NULL when none is free */
void kv_state_put(struct kv_pool *p, uint8_t *state);

/* ---- one sequence ---- */

/* A sequence's slots: slot s is slot s % page_slots of pages[s / page_slots]. */
struct memory {
    struct kv_pool *pool;
    uint8_t **pages; /* [n_pages], of max_pages */
    int n_pages, max_pages;
    int n_slots;    /* slots in use; those beyond hold nothing */
    uint8_t *state; /* behind slot n_slots - 1, zeros before slot 0; NULL: the shape has none */
};

/* QN_ENOMEM: no state is free, among other reasons. */
int memory_init(struct memory *m, struct kv_pool *pool, int max_slots, struct qn_error *e);
void memory_deinit(struct memory *m);
/* Makes slots [m->n_slots, n_slots) writable: gets pages, and copies the last one if it is shared.
 * On failure (QN_ENOMEM: no page free, or past max_slots) nothing has changed. n_slots stays. */
int memory_reserve(struct memory *m, int n_slots, struct qn_error *e);
/* Declares slots up to n_slots (reserved before) to be in use. */
void memory_extend(struct memory *m, int n_slots);
/* Forgets the slots from n_slots on. With a state only all of them can be forgotten: it is zeros again then. */
void memory_truncate(struct memory *m, int n_slots);
/* Appends the first n_slots slots of a page that others hold too; m must end on a page's edge and have room. With a
 * state it is to be restored after the last one. */
void memory_attach(struct memory *m, uint8_t *page, int n_slots);
/* Only the state: that it stands behind the slots is the caller's business. */
void memory_set_state(struct memory *m, const void *state);
/* Forgets the slots from n_slots on, reserved ones too, and puts back the state (state_bytes) that was copied when
 * there were n_slots. */
void memory_restore(struct memory *m, int n_slots, const void *state);
/* dst (initialised, empty, same pool, max_slots no smaller) becomes a copy that shares src's pages. */
void memory_fork(struct memory *dst, const struct memory *src);

#endif
