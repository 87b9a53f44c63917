/* SPDX-License-Identifier: MIT
 *
 * stage_speed.c: measures a layer. See stage_speed.h.
 */
#include "cluster/stage_speed.h"

#include <stdbool.h>

#include "base/os.h"
#include "model/forward.h"
#include "model/load.h"

#define N_LAYERS 4 /* hybrids have attention in every third or fourth */
#define N_TURNS  6 /* the first ones read the weights from disk */
/* Small layers take microseconds, and other programs milliseconds at a time: then there are more turns. */
#define MOST_TURNS KV_PAGE_SLOTS
#define LEAST_NS   20000000u

struct speed_trial {
    struct forward forward;
    struct kv_pool *kv;
    struct kv_seq seq;
    struct batch batch;
    float *row;
    struct ledger ledger;
};

static int open_trial(struct speed_trial *t, const struct model *m, const struct kernels *k, struct pool *team,
                      struct qn_error *e)
{
    struct kv_shape shape = forward_kv_shape(m, KV_F16);
    ledger_init(&t->ledger, SIZE_MAX);
    int rc = kv_pool_new(&t->kv, &shape, KV_PAGE_SLOTS, 1, 1, &t->ledger, e);
    if (!rc) rc = forward_init(&t->forward, m, k, team, 1, 1, KV_PAGE_SLOTS, &t->ledger, e);
    if (!rc) rc = batch_init(&t->batch, 1, e);
    if (!rc) rc = kv_seq_init(&t->seq, t->kv, KV_PAGE_SLOTS, e);
    if (!rc && !(t->row = mem_alloc((size_t)m->hp.n_embd * sizeof *t->row))) rc = error_nomem(e, "a row", 0);
    for (int i = 0; !rc && i < m->hp.n_embd; i++) t->row[i] = (float)(i % 7 - 3) * 0.1f;
    if (!rc) rc = kv_seq_reserve(&t->seq, MOST_TURNS, e);
    return rc ? rc : kv_seq_open(&t->seq, 0, MOST_TURNS, e);
}

static void close_trial(struct speed_trial *t)
{
    if (t->seq.pool) kv_seq_deinit(&t->seq);
    batch_deinit(&t->batch);
    forward_deinit(&t->forward);
    kv_pool_free(t->kv);
    mem_free(t->row);
}

int stage_speed(uint32_t *layer_ns, struct model *m, const struct kernels *k, struct pool *team, struct qn_error *e)
{
    int lo = m->file_lo > 1 ? m->file_lo : 1; /* not the first layer, nor the last one: they have more to do */
    int n = (m->file_hi < m->hp.n_layer ? m->file_hi : m->hp.n_layer - 1) - lo;
    struct speed_trial t = {0};
    uint64_t best = UINT64_MAX, all = 0;
    *layer_ns = 0;
    if (n < 1) return 0;
    if (n > N_LAYERS) n = N_LAYERS;
    int rc = model_cut(m, lo, lo + n, e);
    if (!rc) rc = open_trial(&t, m, k, team, e);
    for (int i = 0; !rc && i < MOST_TURNS && (i < N_TURNS || all < LEAST_NS); i++) {
        struct kv_seq *mem = &t.seq;
        batch_clear(&t.batch);
        batch_add(&t.batch, 0, i, 0, false);
        t.batch.slot[0] = i;
        uint64_t begin = clock_ns();
        forward_run_stage(&t.forward, &t.batch, &mem, t.row, NULL);
        uint64_t took = clock_ns() - begin;
        kv_seq_extend(&t.seq, i + 1);
        if (took < best) best = took;
        all += took;
    }
    if (!rc) *layer_ns = (uint32_t)(best / (uint64_t)n < UINT32_MAX ? best / (uint64_t)n : UINT32_MAX);
    close_trial(&t);
    return rc;
}
