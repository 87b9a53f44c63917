/* SPDX-License-Identifier: MIT
 *
 * store_far.c: a store's orders to those who have the data of its pages. See store_far.h and store_impl.h.
 */
#include "cache/store_far.h"

#include <stdlib.h>
#include <string.h>

#include "cache/store_impl.h"

uint64_t store_page_bytes(const struct store *s)
{
    uint64_t bytes = s->far ? s->far->page_bytes : kv_page_bytes(kv_pool_shape(s->pool));
    return bytes ? bytes : 1;
}

uint64_t store_far_bytes(const struct store *s, const struct chain_head *h)
{
    if (!s->far) return 0;
    return chain_n_pages(h) * s->far->page_bytes + h->n_windows * s->far->window_bytes +
           (h->has_state ? s->far->state_bytes : 0);
}

void store_far_enter(struct store *s)
{
    if (s->far) s->far->enter(s->far->arg, s->model, s->stats.budget_bytes);
}

static uint64_t name_of(const char *name) { return strtoull(name, NULL, 16); }

/* The i-th part of a file. */
static struct store_far_part part_of(const struct store *s, const char *name, const struct chain_head *h, int i,
                                     const uint8_t *at)
{
    int n_pages = (int)chain_n_pages(h);
    enum kv_kind kind = i < n_pages ? KV_PAGES : i < n_pages + (int)h->n_windows ? KV_WINDOWS : KV_STATES;
    return (struct store_far_part){.name = name_of(name),
                                   .index = (uint32_t)i,
                                   .kind = kind,
                                   .number = kv_number(s->pool, kind, at),
                                   .n_slots = kind == KV_STATES ? 0 : h->shape.page_slots};
}

void store_far_write(struct store *s)
{
    const struct chain_write *w = s->write;
    const struct chain_head *h = &w->head;
    int n = (int)chain_n_parts(h), n_pages = (int)chain_n_pages(h), rest = (int)h->n_tokens % h->shape.page_slots;
    if (!s->far) return;
    struct store_far_part *parts = mem_calloc((size_t)n, sizeof *parts);
    s->far_number = 0;
    s->far_failed = !parts;
    if (!parts) return;
    for (int i = 0; i < n; i++) parts[i] = part_of(s, w->name, h, i, w->parts[i]);
    if (rest && n_pages) parts[n_pages - 1].n_slots = rest;
    if (rest && h->n_windows &&
        chain_index_windows(h, w->index)[h->n_windows - 1] + 1 == h->first_page + (uint32_t)n_pages)
        parts[n_pages + (int)h->n_windows - 1].n_slots = rest;
    s->far_number = s->far->write(s->far->arg, parts, n);
    mem_free(parts);
}

void store_far_read(struct store *s, struct store_read *r)
{
    int n = r->io.n_parts;
    r->far_good = n;
    if (!s->far) return;
    struct store_far_part *parts = mem_calloc((size_t)n, sizeof *parts);
    r->far_good = parts ? n : STORE_FAR_LOST;
    for (int i = 0; i < n && parts; i++) {
        const struct chain_part *p = &r->parts[i];
        parts[i] = part_of(s, p->name, &store_find_file(s, p->name)->head, p->index, p->to);
    }
    if (parts) r->far_number = s->far->read(s->far->arg, parts, n);
    mem_free(parts);
}

void store_far_drop(struct store *s, const char *name)
{
    if (s->far) s->far->drop(s->far->arg, name_of(name));
}

/* STORE_FAR_BUSY, or what has become of it; *number is then 0. */
static int ask(struct store *s, uint32_t *number)
{
    int n = s->is_closing ? STORE_FAR_LOST : s->far->ask(s->far->arg, *number);
    if (n != STORE_FAR_BUSY) *number = 0;
    return n;
}

bool store_far_is_written(struct store *s)
{
    if (!s->far_number) return true;
    int n = ask(s, &s->far_number);
    if (n != STORE_FAR_BUSY) s->far_failed = n < (int)chain_n_parts(&s->write->head);
    return n != STORE_FAR_BUSY;
}

bool store_far_is_read(struct store *s, struct store_read *r)
{
    if (!r->far_number) return true;
    int n = ask(s, &r->far_number);
    if (n != STORE_FAR_BUSY) r->far_good = n;
    return n != STORE_FAR_BUSY;
}

int store_n_good(const struct store_read *r, const struct qn_error **why)
{
    static const struct qn_error lost = {QN_ECANCEL, "the stages are gone"},
                                 missing = {QN_EDATA, "a stage does not have it, or only damaged"};
    int n = chain_read_n_good(&r->io, why);
    if (r->far_good >= n) return n;
    *why = r->far_good == STORE_FAR_LOST ? &lost : &missing;
    return r->far_good == STORE_FAR_LOST ? 0 : r->far_good;
}
