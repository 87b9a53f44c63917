/* SPDX-License-Identifier: MIT
 *
 * kv.c: the page pool, the page tables of sequences, and their states.
 */
#include "cache/kv.h"

#include <assert.h>
#include <string.h>

#include "base/region.h"

#define TOUCH_BYTES ((size_t)2 << 20)

struct kv_pool {
    struct kv_shape shape;
    size_t page_bytes, key_bytes, head_bytes; /* key_bytes: one head's keys in a page */
    struct ledger *ledger;
    struct region region; /* n_pages * page_bytes, zero until written */
    size_t touched[2];    /* bytes that kv_pool_touch() has made resident: of the pages, of the states */
    int n_pages, n_free, n_touched;
    int *free_list;       /* [n_pages]; the first n_free are page numbers */
    int *refs;            /* [n_pages] */
    struct region states; /* [n_states][state_stride] */
    size_t state_stride;  /* bytes */
    int n_states, n_free_states;
    int *free_states; /* [n_states]; the first n_free_states are numbers of states */
};

static size_t head_key_bytes(const struct kv_shape *s)
{
    return kv_key_bytes(s->type, s->head_dim) * (size_t)(s->page_slots / KV_GROUP);
}

static size_t head_bytes(const struct kv_shape *s)
{
    return act_round64(head_key_bytes(s)) + act_round64(kv_value_bytes(s->type, s->head_dim_v) * (size_t)s->page_slots);
}

size_t kv_page_bytes(const struct kv_shape *s) { return head_bytes(s) * (size_t)s->n_head_kv * (size_t)s->n_layer; }

void kv_page_clear(const struct kv_shape *s, uint8_t *page, int from)
{
    static const float zeros[ATTN_MAX_DIM];
    struct kernels k;
    size_t value_bytes = kv_value_bytes(s->type, s->head_dim_v), values = act_round64(head_key_bytes(s));
    assert(s->head_dim <= ATTN_MAX_DIM);
    kernels_init_ref(&k); /* only the kernels know the layout of keys */
    for (int i = 0; i < s->n_layer * s->n_head_kv; i++, page += head_bytes(s)) {
        for (int slot = from; slot < s->page_slots; slot++) k.put_key(s->type, zeros, s->head_dim, page, slot, NULL);
        memset(page + values + (size_t)from * value_bytes, 0, (size_t)(s->page_slots - from) * value_bytes);
    }
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

int kv_pool_new(struct kv_pool **out, const struct kv_shape *s, int n_slots, int n_states, struct ledger *l,
                struct qn_error *e)
{
    assert(s->page_slots % KV_GROUP == 0 && s->page_slots > 0 && n_slots > 0);
    int rc = QN_ENOMEM;
    struct kv_pool *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "the KV pool", sizeof *p);
    p->shape = *s;
    p->ledger = l;
    p->page_bytes = kv_page_bytes(s);
    p->key_bytes = act_round64(head_key_bytes(s));
    p->head_bytes = head_bytes(s);
    p->n_pages = (n_slots + s->page_slots - 1) / s->page_slots;
    size_t bytes = p->page_bytes * (size_t)p->n_pages;
    p->free_list = mem_calloc((size_t)p->n_pages, sizeof *p->free_list);
    p->refs = mem_calloc((size_t)p->n_pages, sizeof *p->refs);
    if (!p->free_list || !p->refs) {
        error_nomem(e, "the KV page table", (size_t)p->n_pages * 2 * sizeof(int));
        goto fail;
    }
    if ((rc = states_open(p, n_states, e))) goto fail;
    if ((rc = ledger_take(l, bytes, "the KV cache", e))) goto fail;
    /* The first token writes a little of every layer's part of its page. With huge pages, all of them would be cleared.
     */
    if ((rc = region_open(&p->region, bytes, p->page_bytes, "the KV cache", e))) {
        ledger_give(l, bytes);
        goto fail;
    }
    for (int i = 0; i < p->n_pages; i++) p->free_list[p->n_free++] = p->n_pages - 1 - i;
    *out = p;
    return 0;
fail:
    states_close(p);
    mem_free(p->free_list);
    mem_free(p->refs);
    mem_free(p);
    return rc;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p) return;
    assert(p->n_free == p->n_pages && p->n_free_states == p->n_states);
    states_close(p);
    region_close(&p->region);
    ledger_give(p->ledger, p->page_bytes * (size_t)p->n_pages);
    mem_free(p->free_list);
    mem_free(p->refs);
    mem_free(p);
}

const struct kv_shape *kv_pool_shape(const struct kv_pool *p) { return &p->shape; }
int kv_pool_n_pages(const struct kv_pool *p) { return p->n_pages; }
int kv_pool_n_free(const struct kv_pool *p) { return p->n_free; }
int kv_pool_n_touched(const struct kv_pool *p) { return p->n_touched; }
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

static int page_number(const struct kv_pool *p, const uint8_t *page)
{
    return (int)((size_t)(page - p->region.data) / p->page_bytes);
}

uint8_t *kv_page_get(struct kv_pool *p)
{
    if (p->n_free == 0) return NULL;
    int i = p->free_list[--p->n_free];
    p->refs[i] = 1;
    /* The page that was freed last is taken first, so untouched pages are taken only when all others are in use. */
    if (p->n_pages - p->n_free > p->n_touched) p->n_touched = p->n_pages - p->n_free;
    return p->region.data + (size_t)i * p->page_bytes;
}

int kv_page_n_refs(const struct kv_pool *p, const uint8_t *page) { return p->refs[page_number(p, page)]; }

void kv_page_ref(struct kv_pool *p, uint8_t *page)
{
    int i = page_number(p, page);
    assert(p->refs[i] > 0);
    p->refs[i]++;
}

void kv_page_unref(struct kv_pool *p, uint8_t *page)
{
    int i = page_number(p, page);
    assert(p->refs[i] > 0);
    if (--p->refs[i] == 0) p->free_list[p->n_free++] = i;
}

/* A step of at most 2 MB: that is one page of the system, where it has large ones. */
static bool touch(const struct region *r, size_t *touched, size_t most)
{
    size_t n = most > *touched ? most - *touched : 0;
    if (n > TOUCH_BYTES) n = TOUCH_BYTES;
    if (!n || !region_touch(r, *touched, n)) return false;
    *touched += n;
    return true;
}

bool kv_pool_touch(struct kv_pool *p, int n_pages)
{
    size_t n_states = (size_t)(p->n_states < 2 ? p->n_states : 2);
    if (n_pages <= 0) return false;
    if (n_pages > p->n_pages) n_pages = p->n_pages;
    if (!touch(&p->region, &p->touched[0], p->page_bytes * (size_t)n_pages))
        return touch(&p->states, &p->touched[1], p->state_stride * n_states);
    int n = (int)((p->touched[0] + p->page_bytes - 1) / p->page_bytes);
    if (n > p->n_touched) p->n_touched = n;
    return true;
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

/* ---- sequences ---- */

int kv_seq_init(struct kv_seq *m, struct kv_pool *pool, int max_slots, struct qn_error *e)
{
    int max_pages = (max_slots + pool->shape.page_slots - 1) / pool->shape.page_slots;
    uint8_t **pages = mem_calloc((size_t)max_pages, sizeof *pages);
    if (!pages) return error_nomem(e, "a sequence's page table", (size_t)max_pages * sizeof *pages);
    uint8_t *state = NULL;
    if (pool->shape.state_bytes) {
        state = kv_state_get(pool);
        if (!state) {
            mem_free(pages);
            return error_set(e, QN_ENOMEM, "kv: all %d recurrent states are in use", pool->n_states);
        }
        memset(state, 0, pool->shape.state_bytes);
    }
    *m = (struct kv_seq){.pool = pool, .pages = pages, .max_pages = max_pages, .state = state};
    return 0;
}

void kv_seq_deinit(struct kv_seq *m)
{
    if (!m->pool) return;
    kv_seq_truncate(m, 0);
    struct kv_pool *p = m->pool;
    if (m->state) kv_state_put(p, m->state);
    mem_free(m->pages);
    *m = (struct kv_seq){0};
}

int kv_seq_reserve(struct kv_seq *m, int n_slots, struct qn_error *e)
{
    struct kv_pool *p = m->pool;
    int slots = p->shape.page_slots;
    int need = (n_slots + slots - 1) / slots;
    if (need > m->max_pages)
        return error_set(e, QN_ENOMEM, "kv: %d tokens do not fit a sequence of %d", n_slots, m->max_pages * slots);
    /* The page in which n_slots continues will be written to, so it must not be shared. */
    int last = m->n_slots / slots;
    int copy = last < m->n_pages && n_slots > m->n_slots && p->refs[page_number(p, m->pages[last])] > 1;
    int fresh = need > m->n_pages ? need - m->n_pages : 0;
    if (fresh + copy > p->n_free)
        return error_set(e, QN_ENOMEM, "kv: %d more pages of %d tokens needed, %d of %d free", fresh + copy, slots,
                         p->n_free, p->n_pages);
    if (copy) {
        uint8_t *mine = kv_page_get(p);
        memcpy(mine, m->pages[last], p->page_bytes);
        kv_page_unref(p, m->pages[last]);
        m->pages[last] = mine;
    }
    while (m->n_pages < need) m->pages[m->n_pages++] = kv_page_get(p);
    return 0;
}

void kv_seq_extend(struct kv_seq *m, int n_slots)
{
    assert(n_slots >= m->n_slots && n_slots <= m->n_pages * m->pool->shape.page_slots);
    m->n_slots = n_slots;
}

static void drop_slots(struct kv_seq *m, int n_slots)
{
    assert(n_slots >= 0 && n_slots <= m->n_slots);
    int slots = m->pool->shape.page_slots;
    int keep = (n_slots + slots - 1) / slots;
    while (m->n_pages > keep) kv_page_unref(m->pool, m->pages[--m->n_pages]);
    m->n_slots = n_slots;
}

void kv_seq_truncate(struct kv_seq *m, int n_slots)
{
    if (m->state && n_slots < m->n_slots) {
        assert(n_slots == 0);
        memset(m->state, 0, m->pool->shape.state_bytes);
    }
    drop_slots(m, n_slots);
}

void kv_seq_set_state(struct kv_seq *m, const void *state) { memcpy(m->state, state, m->pool->shape.state_bytes); }

void kv_seq_restore(struct kv_seq *m, int n_slots, const void *state)
{
    drop_slots(m, n_slots);
    kv_seq_set_state(m, state);
}

void kv_seq_attach(struct kv_seq *m, uint8_t *page, int n_slots)
{
    assert(m->n_pages < m->max_pages && n_slots > 0 && n_slots <= m->pool->shape.page_slots);
    assert(m->n_slots == m->n_pages * m->pool->shape.page_slots);
    kv_page_ref(m->pool, page);
    m->pages[m->n_pages++] = page;
    m->n_slots += n_slots;
}

void kv_seq_fork(struct kv_seq *dst, const struct kv_seq *src)
{
    assert(dst->pool == src->pool && dst->n_pages == 0 && dst->max_pages >= src->n_pages);
    struct kv_pool *p = src->pool;
    int keep = (src->n_slots + p->shape.page_slots - 1) / p->shape.page_slots;
    for (int i = 0; i < keep; i++) {
        kv_page_ref(p, src->pages[i]);
        dst->pages[i] = src->pages[i];
    }
    dst->n_pages = keep;
    dst->n_slots = src->n_slots;
    if (src->state) memcpy(dst->state, src->state, p->shape.state_bytes);
}
