/* SPDX-License-Identifier: MIT
 *
 * disk_order.c: writes and reads the body of a DISK packet. See disk_order.h.
 */
#include "cluster/disk/disk_order.h"

#include <string.h>

#include "cache/kv.h"
#include "cluster/step_packet.h"

#define N_HEAD 6

_Static_assert(CHAIN_MODEL_BYTES % 4 == 0, "packets are made of numbers of 4 bytes");

int disk_order_most(const struct step_limits *l)
{
    int64_t n = 2 * (int64_t)l->n_pages_each + 1;
    return n < CHAIN_MAX_TOKENS ? (int)n : CHAIN_MAX_TOKENS;
}

double disk_order_bytes(const struct step_limits *l)
{
    return PACKET_HEAD_BYTES + 4.0 * N_HEAD + CHAIN_MODEL_BYTES + 8 +
           (double)disk_order_most(l) * (double)sizeof(struct disk_part);
}

void disk_order_put(struct packet_out *out, uint32_t group, uint64_t step, const struct disk_order *o)
{
    const uint32_t head[N_HEAD] = {o->op, o->number, o->n_good, o->is_busy, (uint32_t)o->n_parts, 0};
    packet_begin(out, PACKET_DISK, group, step);
    packet_put(out, head, sizeof head);
    if (o->op == DISK_ENTER) packet_put(out, o->key, CHAIN_MODEL_BYTES);
    if (o->op == DISK_ENTER) packet_put(out, &o->budget, sizeof o->budget);
    packet_put(out, o->parts, (size_t)o->n_parts * sizeof *o->parts);
    packet_end(out);
}

/* How many pages, window pages or states there are. */
static int n_of(const struct step_limits *l, uint32_t kind)
{
    const int n[] = {[KV_PAGES] = l->n_pages, [KV_WINDOWS] = l->n_windows, [KV_STATES] = l->n_states};
    return kind < sizeof n / sizeof *n ? n[kind] : 0;
}

static int check_part(const struct disk_part *p, int i, const struct step_limits *l, struct qn_error *e)
{
    if (p->number >= 0 && p->number < n_of(l, p->kind) && p->n_slots <= (uint32_t)l->page_slots &&
        p->index < CHAIN_MAX_TOKENS)
        return 0;
    return error_set(e, QN_EDATA, "cluster: part %d of a file: kind %u, number %d of %d, index %u, %u slots", i,
                     p->kind, p->number, n_of(l, p->kind), p->index, p->n_slots);
}

int disk_order_read(struct disk_order *o, struct packet_in in, const struct step_limits *l, struct qn_error *e)
{
    const uint32_t *head = packet_take(&in, N_HEAD, sizeof *head);
    if (!head || head[0] < DISK_ENTER || head[0] >= DISK_OPS || head[3] > 1 || head[5])
        return error_set(e, QN_EDATA, "cluster: an order about files with operation %u", head ? head[0] : 0);
    *o = (struct disk_order){
        .op = (enum disk_op)head[0], .number = head[1], .n_good = head[2], .is_busy = head[3], .n_parts = (int)head[4]};
    bool has_parts = o->op == DISK_WRITE || o->op == DISK_READ;
    uint32_t least = has_parts || o->op == DISK_DROP, most = has_parts ? (uint32_t)disk_order_most(l) : least;
    if (o->op == DISK_ENTER) {
        o->key = packet_take(&in, CHAIN_MODEL_BYTES / 4, 4);
        const uint8_t *budget = o->key ? packet_take(&in, 2, 4) : NULL;
        if (!budget) return error_set(e, QN_EDATA, "cluster: an order about files has no key");
        memcpy(&o->budget, budget, sizeof o->budget);
    }
    if (head[4] < least || head[4] > most || in.n != head[4] * sizeof *o->parts)
        return error_set(e, QN_EDATA, "cluster: an order about files has %u parts in %zu bytes, not %u to %u", head[4],
                         in.n, least, most);
    o->parts = head[4] ? packet_take(&in, head[4], sizeof *o->parts) : NULL;
    int rc = 0;
    for (int i = 0; i < o->n_parts && !rc && has_parts; i++) rc = check_part(&o->parts[i], i, l, e);
    return rc;
}
