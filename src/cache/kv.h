/* SPDX-License-Identifier: MIT
 *
 * kv.h: the pages that hold keys and values, the pages of one sequence, and its recurrent state.
 *
 * One reservation of address space, taken from the ledger as a whole when the pool is made, is cut into equal pages. A
 * page holds KV_PAGE_SLOTS consecutive slots of one sequence for all layers and KV heads. Pages have reference counts,
 * so forks share them until one writes. Getting a page never calls the allocator; memory becomes resident when it is
 * first written.
 *
 *   page:  layer 0 [ head 0 keys | head 0 values | head 1 keys | ... ] layer 1 [ ... ] ...
 *
 * The attention kernel defines the layout inside a head's keys and values (kernel/kernel.h).
 *
 * Layers without attention keep a recurrent state of each sequence. Its size does not depend on the sequence's length:
 * it is a block of state_bytes, from a second reservation of n_states blocks, which sequences and copies of their
 * states (snapshots) share. The model defines its layout. A state is the one after exactly the sequence's last slot; it
 * cannot be cut, only be replaced by a copy.
 * Not thread-safe: the engine's thread gets and drops pages between forward passes.
 */
#ifndef QUERN_CACHE_KV_H
#define QUERN_CACHE_KV_H

#include "base/mem.h"
#include "kernel/kernel.h"

#ifndef KV_PAGE_SLOTS /* tests make pages smaller, so that sequences have many of them */
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
/* Sets the slots of a page from `from` on to keys and values of zero. */
void kv_page_clear(const struct kv_shape *s, uint8_t *page, int from);
/* Bytes that n_states states take. */
size_t kv_states_bytes(const struct kv_shape *s, int n_states);
/* Room for n_slots slots in whole pages, shared by all sequences, and for n_states states (ignored if the shape has
 * none). */
int kv_pool_new(struct kv_pool **out, const struct kv_shape *s, int n_slots, int n_states, struct ledger *l,
                struct qn_error *e);
void kv_pool_free(struct kv_pool *p); /* every page must have been dropped */
const struct kv_shape *kv_pool_shape(const struct kv_pool *p);
int kv_pool_n_pages(const struct kv_pool *p);
int kv_pool_n_free(const struct kv_pool *p);    /* pages */
int kv_pool_n_touched(const struct kv_pool *p); /* pages that were ever used; the others are not resident */
/* Makes a little more of the pool resident, from its beginning on, where the next pages and states will be taken: up to
 * n_pages pages and, if these are any, two states. False: nothing is left to do, or the system cannot do it. */
bool kv_pool_touch(struct kv_pool *p, int n_pages);
int kv_pool_n_states(const struct kv_pool *p);
int kv_pool_n_free_states(const struct kv_pool *p);

/* Bytes from a page's start to the keys (values) of one layer and head. */
size_t kv_key_offset(const struct kv_pool *p, int layer, int head);
size_t kv_value_offset(const struct kv_pool *p, int layer, int head);

/* ---- pages outside of sequences (prefix.h) ---- */

/* A page with one reference and undefined contents; NULL: none is free. */
uint8_t *kv_page_get(struct kv_pool *p);
void kv_page_ref(struct kv_pool *p, uint8_t *page);
void kv_page_unref(struct kv_pool *p, uint8_t *page); /* the last reference frees it */
int kv_page_n_refs(const struct kv_pool *p, const uint8_t *page);

/* ---- states outside of sequences ---- */

uint8_t *kv_state_get(struct kv_pool *p); /* with undefined contents; NULL: none is free */
void kv_state_put(struct kv_pool *p, uint8_t *state);

/* ---- one sequence ---- */

/* A sequence's slots: slot s is slot s % page_slots of pages[s / page_slots]. */
struct kv_seq {
    struct kv_pool *pool;
    uint8_t **pages; /* [n_pages], of max_pages */
    int n_pages, max_pages;
    int n_slots;    /* slots in use; those beyond hold nothing */
    uint8_t *state; /* after slot n_slots - 1, zeros before slot 0; NULL: the shape has none */
};

/* QN_ENOMEM: no state is free, among other reasons. */
int kv_seq_init(struct kv_seq *m, struct kv_pool *pool, int max_slots, struct qn_error *e);
void kv_seq_deinit(struct kv_seq *m);
/* Makes slots [m->n_slots, n_slots) writable: gets pages, and copies the last one if it is shared. m->n_slots stays. On
 * failure (QN_ENOMEM: no page is free, or n_slots is more than max_slots) nothing has changed. */
int kv_seq_reserve(struct kv_seq *m, int n_slots, struct qn_error *e);
/* Declares slots up to n_slots (reserved before) to be in use. */
void kv_seq_extend(struct kv_seq *m, int n_slots);
/* Forgets the slots from n_slots on. A sequence with a state can only forget all slots; the state is then zeros. */
void kv_seq_truncate(struct kv_seq *m, int n_slots);
/* Appends the first n_slots slots of a shared page. m must end at a page boundary and have room. If m has a state, the
 * caller restores it after the last page. */
void kv_seq_attach(struct kv_seq *m, uint8_t *page, int n_slots);
/* Replaces only the state. The caller makes sure that it is the one after the last slot. */
void kv_seq_set_state(struct kv_seq *m, const void *state);
/* Forgets the slots from n_slots on, reserved ones included, and puts back the state (state_bytes) that was copied when
 * there were n_slots. */
void kv_seq_restore(struct kv_seq *m, int n_slots, const void *state);
/* dst (initialised, empty, same pool, max_slots no smaller) becomes a copy that shares src's pages. */
void kv_seq_fork(struct kv_seq *dst, const struct kv_seq *src);

#endif
