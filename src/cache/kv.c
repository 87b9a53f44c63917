/* SPDX-License-Identifier: MIT
 *
 * kv.c: the pool of pages, window pages and states. Sequences are in kv_seq.c.
 */
#include "cache/kv.h"

#include <assert.h>
#include <string.h>

#include "base/region.h"

#define TOUCH_BYTES ((size_t)2 << 20)

/* Pages of one kind. */
struct page_set {
    struct region region; /* n * page_bytes, zero until written */
    size_t page_bytes;
    size_t touched; /* bytes that kv_pool_touch() has made resident */
    int n, n_free, n_touched;
    int *free_list; /* [n]; the first n_free are page numbers */
    int *refs;      /* [n] */
};

struct kv_pool {
    struct kv_shape shape;
    size_t key_bytes, head_bytes; /* key_bytes: one head's keys in a page */
    struct ledger *ledger;
    struct page_set pages, windows;
    size_t touched_states; /* bytes that kv_pool_touch() has made resident */
    struct region states;  /* [n_states][state_stride] */
    size_t state_stride;   /* bytes */
    int n_states, n_free_states;
    int *free_states; /* [n_states]; the first n_free_states are numbers of states */
    struct kv_watch watch;
};

static size_t head_key_bytes(const struct kv_shape *s)
{
    return kv_key_bytes(s->type, s->head_dim) * (size_t)(s->page_slots / KV_GROUP);
}

static size_t head_bytes(const struct kv_shape *s)
{
    return act_round64(head_key_bytes(s)) + act_round64(kv_value_bytes(s->type, s->head_dim_v) * (size_t)s->page_slots);
}

static size_t layer_bytes(const struct kv_shape *s) { return head_bytes(s) * (size_t)s->n_head_kv; }

size_t kv_page_bytes(const struct kv_shape *s) { return layer_bytes(s) * (size_t)s->n_layer; }
size_t kv_window_page_bytes(const struct kv_shape *s) { return layer_bytes(s) * (size_t)s->n_layer_win; }

static void clear(const struct kv_shape *s, int n_layer, uint8_t *page, int from)
{
    static const float zeros[ATTN_MAX_DIM];
    struct kernels k;
    size_t value_bytes = kv_value_bytes(s->type, s->head_dim_v), values = act_round64(head_key_bytes(s));
    assert(s->head_dim <= ATTN_MAX_DIM);
    kernels_init_ref(&k); /* only the kernels know the layout of keys */
    for (int i = 0; i < n_layer * s->n_head_kv; i++, page += head_bytes(s)) {
        for (int slot = from; slot < s->page_slots; slot++) k.put_key(s->type, zeros, s->head_dim, page, slot, NULL);
        memset(page + values + (size_t)from * value_bytes, 0, (size_t)(s->page_slots - from) * value_bytes);
    }
}

void kv_page_clear(const struct kv_shape *s, uint8_t *page, int from) { clear(s, s->n_layer, page, from); }
void kv_window_page_clear(const struct kv_shape *s, uint8_t *page, int from) { clear(s, s->n_layer_win, page, from); }

/* The window's pages, one more because it begins anywhere in a page, and the spare one. */
int kv_window_pages(const struct kv_shape *s) { return (s->window + s->page_slots - 1) / s->page_slots + 2; }

int kv_window_first(const struct kv_shape *s, int n_slots)
{
    int from = n_slots + 1 - s->window; /* of the row after them */
    return from > 0 ? from / s->page_slots : 0;
}

size_t kv_states_bytes(const struct kv_shape *s, int n_states)
{
    return act_round64(s->state_bytes) * (size_t)n_states;
}

/* Reserves the states, if the shape has them. */
static int states_open(struct kv_pool *p, int n_states, struct qn_error *e)
{
    if (!p->shape.state_bytes) return 0;
    p->state_stride = act_round64(p->shape.state_bytes);
    size_t bytes = kv_states_bytes(&p->shape, n_states);
    p->free_states = mem_calloc((size_t)n_states, sizeof *p->free_states);
    if (!p->free_states) return error_nomem(e, "the table of states", (size_t)n_states * sizeof *p->free_states);
    int rc = ledger_take(p->ledger, bytes, "the recurrent states", e);
    if (rc) return rc;
    if ((rc = region_open(&p->states, bytes, p->state_stride, "the recurrent states", e))) {
        ledger_give(p->ledger, bytes);
        return rc;
    }
    p->n_states = n_states;
    while (p->n_free_states < n_states) {
        p->free_states[p->n_free_states] = n_states - 1 - p->n_free_states;
        p->n_free_states++;
    }
    return 0;
}

static void states_close(struct kv_pool *p)
{
    mem_free(p->free_states);
    if (!p->n_states) return;
    region_close(&p->states);
    ledger_give(p->ledger, p->state_stride * (size_t)p->n_states);
}

static void pages_close(struct page_set *set, struct ledger *l)
{
    assert(set->n_free == set->n);
    if (set->n) {
        region_close(&set->region);
        ledger_give(l, set->page_bytes * (size_t)set->n);
    }
    mem_free(set->free_list);
    mem_free(set->refs);
}

/* n pages of one kind, which may be 0. */
static int pages_open(struct page_set *set, size_t page_bytes, int n, struct ledger *l, struct qn_error *e)
{
    size_t bytes = page_bytes * (size_t)n;
    if (!bytes) return 0;
    set->page_bytes = page_bytes;
    set->free_list = mem_calloc((size_t)n, sizeof *set->free_list);
    set->refs = mem_calloc((size_t)n, sizeof *set->refs);
    if (!set->free_list || !set->refs) return error_nomem(e, "the KV page table", (size_t)n * 2 * sizeof(int));
    int rc = ledger_take(l, bytes, "the KV cache", e);
    if (rc) return rc;
    /* The first token writes a little of every layer's part of its page. With huge pages, all of them would be cleared.
     */
    if ((rc = region_open(&set->region, bytes, page_bytes, "the KV cache", e))) {
        ledger_give(l, bytes);
        return rc;
    }
    set->n = n;
    while (set->n_free < n) {
        set->free_list[set->n_free] = n - 1 - set->n_free;
        set->n_free++;
    }
    return 0;
}

int kv_pool_new(struct kv_pool **out, const struct kv_shape *s, int n_slots, int n_states, int n_windows,
                struct ledger *l, struct qn_error *e)
{
    assert(s->page_slots % KV_GROUP == 0 && s->page_slots > 0 && n_slots > 0 && s->n_layer > 0);
    struct kv_pool *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "the KV pool", sizeof *p);
    p->shape = *s;
    p->ledger = l;
    p->key_bytes = act_round64(head_key_bytes(s));
    p->head_bytes = head_bytes(s);
    int rc = states_open(p, n_states, e);
    if (!rc) rc = pages_open(&p->pages, kv_page_bytes(s), (n_slots + s->page_slots - 1) / s->page_slots, l, e);
    if (!rc) rc = pages_open(&p->windows, kv_window_page_bytes(s), n_windows, l, e);
    if (rc)
        kv_pool_free(p);
    else
        *out = p;
    return rc;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p) return;
    assert(p->n_free_states == p->n_states);
    states_close(p);
    pages_close(&p->pages, p->ledger);
    pages_close(&p->windows, p->ledger);
    mem_free(p);
}

const struct kv_shape *kv_pool_shape(const struct kv_pool *p) { return &p->shape; }
int kv_pool_n_pages(const struct kv_pool *p) { return p->pages.n; }
int kv_pool_n_free(const struct kv_pool *p) { return p->pages.n_free; }
int kv_pool_n_touched(const struct kv_pool *p) { return p->pages.n_touched; }

size_t kv_pool_touched_bytes(const struct kv_pool *p)
{
    return p->pages.page_bytes * (size_t)p->pages.n_touched + p->windows.page_bytes * (size_t)p->windows.n_touched;
}

int kv_pool_n_windows(const struct kv_pool *p) { return p->windows.n; }
int kv_pool_n_free_windows(const struct kv_pool *p) { return p->windows.n_free; }
int kv_pool_n_states(const struct kv_pool *p) { return p->n_states; }
int kv_pool_n_free_states(const struct kv_pool *p) { return p->n_free_states; }

size_t kv_key_offset(const struct kv_pool *p, int layer, int head)
{
    return p->head_bytes * ((size_t)layer * (size_t)p->shape.n_head_kv + (size_t)head);
}

size_t kv_value_offset(const struct kv_pool *p, int layer, int head)
{
    return kv_key_offset(p, layer, head) + p->key_bytes;
}

static int page_number(const struct page_set *set, const uint8_t *page)
{
    return (int)((size_t)(page - set->region.data) / set->page_bytes);
}

static uint8_t *get(struct page_set *set)
{
    if (set->n_free == 0) return NULL;
    int i = set->free_list[--set->n_free];
    set->refs[i] = 1;
    /* The page that was freed last is taken first, so untouched pages are taken only when all others are in use. */
    if (set->n - set->n_free > set->n_touched) set->n_touched = set->n - set->n_free;
    return set->region.data + (size_t)i * set->page_bytes;
}

/* The kind of a page. */
static struct page_set *set_of(const struct kv_pool *p, const uint8_t *page)
{
    uintptr_t at = (uintptr_t)page, start = (uintptr_t)p->windows.region.data;
    bool is_window = p->windows.n && at >= start && at - start < p->windows.page_bytes * (size_t)p->windows.n;
    return (struct page_set *)(is_window ? &p->windows : &p->pages);
}

uint8_t *kv_page_get(struct kv_pool *p) { return get(&p->pages); }
uint8_t *kv_window_page_get(struct kv_pool *p) { return get(&p->windows); }

int kv_page_n_refs(const struct kv_pool *p, const uint8_t *page)
{
    const struct page_set *set = set_of(p, page);
    return set->refs[page_number(set, page)];
}

void kv_page_ref(struct kv_pool *p, uint8_t *page)
{
    struct page_set *set = set_of(p, page);
    int i = page_number(set, page);
    assert(set->refs[i] > 0);
    set->refs[i]++;
}

void kv_page_unref(struct kv_pool *p, uint8_t *page)
{
    struct page_set *set = set_of(p, page);
    int i = page_number(set, page);
    assert(set->refs[i] > 0);
    if (--set->refs[i] == 0) set->free_list[set->n_free++] = i;
}

void kv_page_own(struct kv_pool *p, uint8_t **page)
{
    struct page_set *set = set_of(p, *page);
    uint8_t *mine = get(set);
    memcpy(mine, *page, set->page_bytes);
    if (p->watch.copied)
        p->watch.copied(p->watch.arg, set == &p->windows ? KV_WINDOWS : KV_PAGES, page_number(set, mine),
                        page_number(set, *page));
    kv_page_unref(p, *page);
    *page = mine;
}

/* A step of at most 2 MB: that is one page of the system, where it has large ones. */
static bool touch_region(const struct region *r, size_t *touched, size_t most)
{
    size_t n = most > *touched ? most - *touched : 0;
    if (n > TOUCH_BYTES) n = TOUCH_BYTES;
    if (!n || !region_touch(r, *touched, n)) return false;
    *touched += n;
    return true;
}

static bool touch_pages(struct page_set *set, int n_pages)
{
    if (n_pages > set->n) n_pages = set->n;
    if (!touch_region(&set->region, &set->touched, set->page_bytes * (size_t)n_pages)) return false;
    int n = (int)((set->touched + set->page_bytes - 1) / set->page_bytes);
    if (n > set->n_touched) set->n_touched = n;
    return true;
}

bool kv_pool_touch(struct kv_pool *p, int n_pages)
{
    size_t n_states = (size_t)(p->n_states < 2 ? p->n_states : 2);
    if (n_pages <= 0) return false;
    return touch_pages(&p->pages, n_pages) || touch_pages(&p->windows, n_pages) ||
           touch_region(&p->states, &p->touched_states, p->state_stride * n_states);
}

/* As with pages, the state that was freed last is taken first. */
uint8_t *kv_state_get(struct kv_pool *p)
{
    if (!p->n_free_states) return NULL;
    return p->states.data + p->state_stride * (size_t)p->free_states[--p->n_free_states];
}

void kv_state_put(struct kv_pool *p, uint8_t *state)
{
    assert(p->n_free_states < p->n_states);
    p->free_states[p->n_free_states++] = (int)((size_t)(state - p->states.data) / p->state_stride);
}

void kv_state_copy(struct kv_pool *p, uint8_t *to, const void *from)
{
    memcpy(to, from, p->shape.state_bytes);
    if (p->watch.copied)
        p->watch.copied(p->watch.arg, KV_STATES, kv_number(p, KV_STATES, to), kv_number(p, KV_STATES, from));
}

void kv_state_clear(struct kv_pool *p, uint8_t *to)
{
    memset(to, 0, p->shape.state_bytes);
    if (p->watch.copied) p->watch.copied(p->watch.arg, KV_STATES, kv_number(p, KV_STATES, to), -1);
}

void kv_pool_watch(struct kv_pool *p, const struct kv_watch *w) { p->watch = *w; }

int kv_number(const struct kv_pool *p, enum kv_kind kind, const uint8_t *at)
{
    if (kind != KV_STATES) return page_number(kind == KV_WINDOWS ? &p->windows : &p->pages, at);
    size_t offset = (size_t)(at - p->states.data);
    assert(at >= p->states.data && offset < p->state_stride * (size_t)p->n_states);
    return (int)(offset / p->state_stride);
}

uint8_t *kv_at(const struct kv_pool *p, enum kv_kind kind, int number)
{
    const struct page_set *set = kind == KV_WINDOWS ? &p->windows : &p->pages;
    if (kind == KV_STATES) return p->states.data + p->state_stride * (size_t)number;
    return set->region.data + set->page_bytes * (size_t)number;
}
