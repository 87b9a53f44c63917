/* SPDX-License-Identifier: MIT
 *
 * merge.c: greedy pair merging in O(n log n).
 *
 * Symbols are a doubly linked list over an array. Candidate pairs wait in a heap ordered by (rank, left index), packed
 * in one 64-bit key. A node of the heap has four children, because these share a cache line. A merge makes at most two
 * new candidates and leaves stale ones in the heap. A stale candidate is recognised when it comes up: symbols only ever
 * grow, so a candidate is fresh exactly when the lengths of its two symbols still add up to its own. At most 3 n
 * candidates are made in all.
 *
 * The caller's rule (bpe.c, spm.c) says what may be merged, and in which order.
 */
#include "text/token/merge.h"

#include <assert.h>

#include "base/mem.h"

struct merge_pair {
    uint64_t key;   /* rank << 32 | index of the left symbol */
    uint32_t bytes; /* of both symbols together */
    qn_token id;    /* what they become */
};

void merge_deinit(struct merge *m)
{
    mem_free(m->sym);
    mem_free(m->heap);
    *m = (struct merge){0};
}

void merge_clear(struct merge *m) { m->n_sym = 0; }

int merge_add(struct merge *m, uint32_t start, uint32_t bytes, qn_token id, struct qn_error *e)
{
    assert(bytes > 0 && m->n_sym < INT32_MAX);
    if (m->n_sym == m->cap_sym) {
        size_t cap = m->cap_sym ? m->cap_sym * 2 : 64;
        struct sym *p = mem_realloc(m->sym, cap * sizeof *p);
        if (!p) return error_nomem(e, "tokenizer symbols", cap * sizeof *p);
        m->sym = p;
        m->cap_sym = cap;
    }
    int32_t i = (int32_t)m->n_sym++;
    m->sym[i] = (struct sym){start, bytes, -1, i - 1, id};
    if (i > 0) m->sym[i - 1].next = i;
    return wanted_after(&m->wanted, 1, e);
}

static int heap_push(struct merge *m, struct merge_pair x, struct qn_error *e)
{
    if (m->n_heap == m->cap_heap) {
        size_t cap = m->cap_heap ? m->cap_heap * 2 : 64;
        struct merge_pair *p = mem_realloc(m->heap, cap * sizeof *p);
        if (!p) return error_nomem(e, "tokenizer candidates", cap * sizeof *p);
        m->heap = p;
        m->cap_heap = cap;
    }
    size_t i = m->n_heap++;
    for (; i > 0 && m->heap[(i - 1) / 4].key > x.key; i = (i - 1) / 4) m->heap[i] = m->heap[(i - 1) / 4];
    m->heap[i] = x;
    return 0;
}

static struct merge_pair heap_pop(struct merge *m)
{
    struct merge_pair top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0, n = m->n_heap;
    for (size_t c, best; (c = 4 * i + 1) < n; i = best) {
        best = c;
        for (size_t k = c + 1; k < c + 4 && k < n; k++)
            if (m->heap[k].key < m->heap[best].key) best = k;
        if (m->heap[best].key >= last.key) break;
        m->heap[i] = m->heap[best];
    }
    m->heap[i] = last;
    return top;
}

/* Makes a candidate of symbol l and its right neighbour, if both exist and the rule allows it. */
static int consider(struct merge *m, int32_t l, merge_rule *rule, const void *arg, struct qn_error *e)
{
    if (l < 0 || m->sym[l].next < 0) return 0;
    const struct sym *a = &m->sym[l], *b = &m->sym[a->next];
    uint32_t rank;
    qn_token id;
    if (!rule(arg, a, b, &rank, &id)) return 0;
    return heap_push(m, (struct merge_pair){(uint64_t)rank << 32 | (uint32_t)l, a->bytes + b->bytes, id}, e);
}

int merge_run(struct merge *m, merge_rule *rule, const void *arg, struct qn_error *e)
{
    int rc = 0;
    m->n_heap = 0;
    for (size_t i = 0; rc == 0 && i < m->n_sym; i++) {
        rc = consider(m, (int32_t)i, rule, arg, e);
        if (rc == 0) rc = wanted_after(&m->wanted, 1, e);
    }
    while (rc == 0 && m->n_heap > 0) {
        if ((rc = wanted_after(&m->wanted, 1, e))) break;
        struct merge_pair x = heap_pop(m);
        int32_t li = (int32_t)(uint32_t)x.key;
        struct sym *l = &m->sym[li];
        if (l->bytes == 0 || l->next < 0) continue;
        struct sym *r = &m->sym[l->next];
        if (l->bytes + r->bytes != x.bytes) continue;
        l->bytes += r->bytes;
        l->id = x.id;
        l->next = r->next;
        r->bytes = 0;
        if (l->next >= 0) m->sym[l->next].prev = li;
        rc = consider(m, l->prev, rule, arg, e);
        if (rc == 0) rc = consider(m, li, rule, arg, e);
    }
    return rc;
}

int ids_push(struct ids *ids, qn_token id, struct qn_error *e)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 32;
        qn_token *p = mem_realloc(ids->id, cap * sizeof *p);
        if (!p) return error_nomem(e, "token ids", cap * sizeof *p);
        ids->id = p;
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
    return 0;
}
