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
 * Layers that look back no further than a window have pages of their own, from a second pool: windows. A sequence has
 * the window of its last slots only:
 *
 *   - A window page holds the same slots as the page of the same number, for the layers with a window. kv_seq_open()
 *     gets it before a pass writes into it, so a long prompt never has more of them than one pass needs.
 *   - kv_seq_extend() drops the window pages that no later row can see. It spares one page more than the next row
 *     needs, so rows can be taken back to the start of the last page. Pages are counted as above: the last sequence
 *     (or node of the tree, prefix.h) that lets go of a window page frees it.
 *   - A sequence can be cut only where the window before the cut is still there: kv_seq_whole() finds the nearest such
 *     place. A pin keeps the window before one place.
 *   - The tree keeps the windows that a sequence has when it is stored, so it is stored at its cuts (engine/reuse.h).
 *     They are evicted by themselves, and a lookup ends at the nearest place that has a whole window.
 *   - A model without such layers, or a shape without them (the reference), has no windows: all layers keep all slots.
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
    int n_layer_win;        /* layers with attention in addition to n_layer that keep a window only */
    int window;             /* a row sees its own slot and window - 1 before it; 0 if n_layer_win is 0 */
};

struct kv_pool;

size_t kv_page_bytes(const struct kv_shape *s);
size_t kv_window_page_bytes(const struct kv_shape *s); /* 0: the shape has no windows */
/* Sets the slots of a page (or window page) from `from` on to keys and values of zero. */
void kv_page_clear(const struct kv_shape *s, uint8_t *page, int from);
void kv_window_page_clear(const struct kv_shape *s, uint8_t *page, int from);
/* The most window pages that a sequence holds before a pass of one row. */
int kv_window_pages(const struct kv_shape *s);
/* The first page whose window page is needed after n_slots slots. */
int kv_window_first(const struct kv_shape *s, int n_slots);
/* Bytes that n_states states take. */
size_t kv_states_bytes(const struct kv_shape *s, int n_states);
/* Room for n_slots slots in whole pages, shared by all sequences, for n_states states and for n_windows window pages
 * (either is ignored if the shape has none). */
int kv_pool_new(struct kv_pool **out, const struct kv_shape *s, int n_slots, int n_states, int n_windows,
                struct ledger *l, struct qn_error *e);
void kv_pool_free(struct kv_pool *p); /* every page must have been dropped */
const struct kv_shape *kv_pool_shape(const struct kv_pool *p);
int kv_pool_n_pages(const struct kv_pool *p);
int kv_pool_n_free(const struct kv_pool *p);           /* pages */
int kv_pool_n_touched(const struct kv_pool *p);        /* pages that were ever used; the others are not resident */
size_t kv_pool_touched_bytes(const struct kv_pool *p); /* of these, and of window pages that were ever used */
int kv_pool_n_windows(const struct kv_pool *p);        /* window pages */
int kv_pool_n_free_windows(const struct kv_pool *p);
/* Makes a little more of the pool resident, from its beginning on, where the next pages and states will be taken: up to
 * n_pages pages and as many window pages and, if these are any, two states. False: nothing is left to do, or the system
 * cannot do it. */
bool kv_pool_touch(struct kv_pool *p, int n_pages);
int kv_pool_n_states(const struct kv_pool *p);
int kv_pool_n_free_states(const struct kv_pool *p);

/* Bytes from a page's (or window page's) start to the keys (values) of one of its layers and a head. */
size_t kv_key_offset(const struct kv_pool *p, int layer, int head);
size_t kv_value_offset(const struct kv_pool *p, int layer, int head);

/* ---- pages outside of sequences (prefix.h) ---- */

/* A page (or window page) with one reference and undefined contents; NULL: none is free. */
uint8_t *kv_page_get(struct kv_pool *p);
uint8_t *kv_window_page_get(struct kv_pool *p);
/* These take window pages, too. */
void kv_page_ref(struct kv_pool *p, uint8_t *page);
void kv_page_unref(struct kv_pool *p, uint8_t *page); /* the last reference frees it */
int kv_page_n_refs(const struct kv_pool *p, const uint8_t *page);
/* Replaces a shared page by a copy with one reference, and lets go of it. A page of its kind must be free. */
void kv_page_own(struct kv_pool *p, uint8_t **page);

/* ---- states outside of sequences ---- */

uint8_t *kv_state_get(struct kv_pool *p); /* with undefined contents; NULL: none is free */
void kv_state_put(struct kv_pool *p, uint8_t *state);
/* to becomes a copy of from, which is a state of the pool, or state_bytes of the caller's where nobody watches. */
void kv_state_copy(struct kv_pool *p, uint8_t *to, const void *from);
void kv_state_clear(struct kv_pool *p, uint8_t *to); /* zeros */

/* ---- pools that others mirror (cluster/) ---- */

enum kv_kind { KV_PAGES, KV_WINDOWS, KV_STATES };

/* Told of every copy that the pool makes of a page, a window page or a state, by their numbers. from -1: zeros. */
struct kv_watch {
    void (*copied)(void *arg, enum kv_kind kind, int to, int from);
    void *arg;
};
void kv_pool_watch(struct kv_pool *p, const struct kv_watch *w);
/* The number of a page, a window page or a state of the pool: 0 and more, below that of all of its kind. */
int kv_number(const struct kv_pool *p, enum kv_kind kind, const uint8_t *at);
/* The page, window page or state of that number, whoever uses it. */
uint8_t *kv_at(const struct kv_pool *p, enum kv_kind kind, int number);

/* ---- one sequence ---- */

#define KV_PINS 6 /* of a sequence */

/* A sequence's slots: slot s is slot s % page_slots of pages[s / page_slots], and for layers with a window of
 * windows[s / page_slots]. */
struct kv_seq {
    struct kv_pool *pool;
    uint8_t **pages;   /* [n_pages], of max_pages */
    uint8_t **windows; /* [max_pages]; NULL where a page was dropped or not opened. NULL: the shape has no windows */
    int n_pages, max_pages;
    int n_dropped;             /* window pages before this one were dropped, but for pinned ones */
    int n_pins, pins[KV_PINS]; /* numbers of slots, the newest first */
    int n_slots;               /* slots in use; those beyond hold nothing */
    uint8_t *state;            /* after slot n_slots - 1, zeros before slot 0; NULL: the shape has none */
};

/* QN_ENOMEM: no state is free, among other reasons. */
int kv_seq_init(struct kv_seq *m, struct kv_pool *pool, int max_slots, struct qn_error *e);
void kv_seq_deinit(struct kv_seq *m);
/* Makes slots [m->n_slots, n_slots) writable: gets pages, and copies the last one if it is shared. m->n_slots stays. On
 * failure (QN_ENOMEM: no page is free, or n_slots is more than max_slots) nothing has changed. */
int kv_seq_reserve(struct kv_seq *m, int n_slots, struct qn_error *e);
/* Gives back the pages that are reserved beyond n_slots slots, which are at least those in use. */
void kv_seq_unreserve(struct kv_seq *m, int n_slots);
/* Makes the slots [from, to), which are reserved, writable in layers with a window: gets window pages, and copies the
 * one with the last slot in use if it is shared. If pages are missing, it gives up its pins. Does nothing if the shape
 * has no windows. On failure (QN_ENOMEM) nothing else has changed. */
int kv_seq_open(struct kv_seq *m, int from, int to, struct qn_error *e);
bool kv_seq_is_open(const struct kv_seq *m);  /* the next slot is writable in layers with a window */
int kv_seq_n_windows(const struct kv_seq *m); /* window pages that it holds */
/* The largest number of slots, at most n_slots (which are in use), to which it can be truncated. */
int kv_seq_whole(const struct kv_seq *m, int n_slots);
/* Keeps the window of the present slots until it is truncated to fewer. The oldest pin gives way if there are `most`
 * (at most KV_PINS). */
void kv_seq_pin(struct kv_seq *m, int most);
/* Declares slots up to n_slots (reserved and opened before) to be in use, and drops window pages that are not needed.
 */
void kv_seq_extend(struct kv_seq *m, int n_slots);
/* Forgets the slots from n_slots on, which must be kv_seq_whole(). A sequence with a state can only forget all slots;
 * the state is then zeros. */
void kv_seq_truncate(struct kv_seq *m, int n_slots);
/* Forgets the first n_pages pages: slot s becomes slot s - n_pages * page_slots. m has no state and no windows. */
void kv_seq_drop_front(struct kv_seq *m, int n_pages);
/* Appends the first n_slots slots of a shared page and its window page (NULL: it is not needed). m must end at a page
 * boundary and have room. If m has a state, the caller restores it after the last page. */
void kv_seq_attach(struct kv_seq *m, uint8_t *page, uint8_t *window, int n_slots);
/* Replaces only the state. The caller makes sure that it is the one after the last slot. */
void kv_seq_set_state(struct kv_seq *m, const void *state);
/* Forgets the slots from n_slots on, reserved ones included, and puts back the state (state_bytes) that was copied when
 * there were n_slots. */
void kv_seq_restore(struct kv_seq *m, int n_slots, const void *state);
/* The same, but exchanges the states: *state is one of the pool's, and becomes the one that the sequence had. */
void kv_seq_exchange(struct kv_seq *m, int n_slots, uint8_t **state);
/* dst (initialised, empty, same pool, max_slots no smaller) becomes a copy that shares src's pages. */
void kv_seq_fork(struct kv_seq *dst, const struct kv_seq *src);

#endif
