/* SPDX-License-Identifier: MIT
 *
 * reuse.c: the scheduler's use of prefixes that were computed before. See reuse.h.
 *
 * The tree's keys are made of what decides the bits of keys and values, and of the request's salt. Within a process the
 * engine's settings are the same for all; on disk they are told apart by a fingerprint: the numbers of the model and
 * of the engine, and of each tensor its name, its shape and a sample of its bytes. (To hash every byte would mean to
 * read the whole file at each start. Two models that differ in no sample of any tensor would be taken for one.)
 */
#include "engine/reuse.h"

#include <limits.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "cache/store.h"

#define ARITHMETIC   1    /* to be raised whenever docs/KERNELS.md gives keys or values other bits */
#define SAMPLE_BYTES 4096 /* from the beginning and from the middle of a tensor */

struct reuse {
    struct prefix *tree;
    struct store *store; /* NULL: nothing is kept on disk */
    size_t state_bytes;  /* 0: the model has no recurrent state */
    int snapshot_every;
    uint64_t fingerprint[2];
    uint64_t n_lookups, n_hits, n_hit_tokens;
};

/* ---- keys ---- */

static uint64_t hash_tensor(const struct tensor *t, uint64_t h)
{
    size_t n = t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES, middle = t->bytes / 2;
    int64_t shape[] = {t->type, t->n_dims, t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
    h = hash_bytes(t->name, strlen(t->name), h);
    h = hash_bytes(shape, sizeof shape, h);
    h = hash_bytes(t->data, n, h);
    h = hash_bytes(t->data + t->bytes, dtype_get(t->type)->tail, h);
    size_t side = side_row_bytes(&t->side, t->ne[0]); /* of the first row */
    if (side) h = hash_bytes(t->side.bias, side, hash_bytes(t->side.scale, side, h));
    return hash_bytes(t->data + middle, n < t->bytes - middle ? n : t->bytes - middle, h);
}

/* What differs between layers. */
static uint64_t hash_layers(const struct hparams *p, uint64_t h)
{
    for (int i = 0; i < p->n_layer; i++) {
        const struct hp_layer *l = &p->layer[i];
        int32_t numbers[] = {l->is_recurrent, l->has_experts, (int32_t)l->rope, l->n_swa};
        h = hash_bytes(numbers, sizeof numbers, h);
    }
    return h;
}

static uint64_t fingerprint(const struct qn_engine *g, uint64_t seed)
{
    const struct model *m = g->model;
    const struct hparams *p = &m->hp;
    const struct kv_shape *kv = kv_pool_shape(g->kv);
    double numbers[] = {ARITHMETIC,
                        kv->type,
                        kv->page_slots,
                        p->n_layer,
                        p->n_embd,
                        p->n_vocab,
                        p->n_ff,
                        p->n_head,
                        p->n_head_kv,
                        p->head_dim,
                        p->head_dim_v,
                        (double)p->norm_eps,
                        (double)p->attn_scale,
                        p->n_rot,
                        p->rope_adjacent,
                        p->rope_scaling,
                        p->rope_base,
                        p->rope_factor,
                        p->rope_attn_factor,
                        p->yarn_ext_factor,
                        p->yarn_beta_fast,
                        p->yarn_beta_slow,
                        p->rope_ctx_orig,
                        p->yarn_log_mul,
                        (double)p->state_bytes,
                        (double)p->attn_softcap,
                        (double)p->embd_scale,
                        (double)p->residual_scale,
                        p->rope_base_local,
                        p->n_expert_used,
                        p->expert_gate,
                        p->expert_norm,
                        (double)p->expert_scale,
                        p->n_expert_groups,
                        p->n_expert_groups_used,
                        p->delta_is_grouped,
                        p->rope_scaling == ROPE_LONG && g->n_ctx > p->rope_ctx_orig};
    uint64_t h = hash_bytes(p->arch, strlen(p->arch), seed);
    h = hash_layers(p, hash_bytes(numbers, sizeof numbers, h));
    for (size_t i = 0; i < weights_n_tensors(m->weights); i++) h = hash_tensor(weights_tensor_at(m->weights, i), h);
    return h;
}

static struct prefix_key key_of(const struct reuse *u, const struct request *r)
{
    uint64_t all[] = {u->fingerprint[0], u->fingerprint[1], r->p.salt[0], r->p.salt[1]};
    return (struct prefix_key){{hash_bytes(all, sizeof all, 1), hash_bytes(all, sizeof all, 2)}, r->p.identity};
}

/* ---- life ---- */

int reuse_new(struct reuse **out, struct qn_engine *g, const struct qn_scheduler_params *p, struct qn_error *e)
{
    struct reuse *u = mem_calloc(1, sizeof *u);
    if (!u) return error_nomem(e, "the prefix cache", sizeof *u);
    u->state_bytes = kv_pool_shape(g->kv)->state_bytes;
    u->snapshot_every = p->snapshot_every;
    int n_states = u->state_bytes ? kv_pool_n_states(g->kv) - p->n_running : 0; /* but for those of what runs */
    int rc = prefix_new(&u->tree, g->kv, n_states, &g->ledger, e);
    if (!rc && p->cache_dir && p->cache_bytes) {
        for (int i = 0; i < 2; i++) u->fingerprint[i] = fingerprint(g, (uint64_t)i);
        rc = store_open(&u->store, p->cache_dir, p->cache_bytes, u->tree, e);
    }
    if (rc) {
        reuse_free(u);
        return rc;
    }
    *out = u;
    return 0;
}

void reuse_free(struct reuse *u)
{
    if (!u) return;
    store_close(u->store);
    prefix_free(u->tree);
    mem_free(u);
}

/* ---- use ---- */

/* What cannot be kept for want of memory is not kept. */
static bool keep(struct reuse *u, const struct request *r, const struct answer *a, int n)
{
    struct prefix_key key = key_of(u, r);
    return n > 0 && !prefix_insert(u->tree, &key, a->tokens, n, &a->memory, NULL);
}

/* All that a holds, and its state. */
static void keep_state(struct reuse *u, const struct request *r, const struct answer *a, bool is_passing)
{
    struct prefix_key key = key_of(u, r);
    int n = a->memory.n_slots;
    if (keep(u, r, a, n)) prefix_snapshot(u->tree, &key, a->tokens, n, a->memory.state, is_passing, NULL);
}

/* Whole pages only: the answer goes on writing into the last one, which need not be shared. */
static void keep_pages(struct reuse *u, const struct request *r, int n)
{
    int slots = kv_pool_shape(prefix_pool(u->tree))->page_slots;
    keep(u, r, &r->answers[0], n / slots * slots);
}

void reuse_find(struct reuse *u, struct request *r, int most)
{
    struct prefix_match match = {.miss = PREFIX_NOTHING};
    struct memory *m = &r->answers[0].memory;
    r->n_cached = r->n_known = r->miss_position = r->branch = 0;
    r->is_on_disk = false;
    r->miss = "unused";
    /* Logprobs and means want every row; all others want that of the last token at least. */
    if (r->p.prompt_logprobs || r->p.pooling == QN_POOL_MEAN || most < 1) return;
    struct prefix_key key = key_of(u, r);
    if (r->avoids_disk)
        prefix_find_here(u->tree, &key, r->p.prompt, most, m, &match);
    else
        prefix_find(u->tree, &key, r->p.prompt, most, m, &match);
    r->n_cached = m->n_slots;
    r->n_known = r->miss_position = match.n_slots;
    r->branch = match.n_stored > match.n_slots ? match.n_stored : 0;
    r->is_on_disk = prefix_is_on_disk(&match);
    r->miss = match.miss == PREFIX_ALL ? NULL : prefix_miss_name(match.miss);
}

/* Not all that is known could be had. */
static void miss_at(struct request *r, enum prefix_miss why)
{
    r->miss_position = r->n_known = r->n_cached;
    r->miss = prefix_miss_name(why);
}

/* The state comes from memory at once, or from disk with the pages. */
static struct store_read *begin_read(struct reuse *u, struct request *r)
{
    struct memory *m = &r->answers[0].memory;
    struct prefix_key key = key_of(u, r);
    struct prefix_match match;
    prefix_peek(u->tree, &key, r->p.prompt, r->n_known, &match);
    struct prefix_snapshot *s = match.snapshot;
    if (u->state_bytes && match.n_slots < r->n_known) return NULL; /* it went when room was made */
    if (s && s->data) memory_set_state(m, s->data);                /* behind the slots that are to come */
    return store_read(u->store, &key, r->p.prompt, r->n_known, m, s && !s->data ? s : NULL);
}

bool reuse_restore(struct reuse *u, struct request *r)
{
    if (!r->is_on_disk) return true;
    r->restore = begin_read(u, r);
    r->avoids_disk = !r->restore && u->state_bytes;
    if (!r->restore) miss_at(r, PREFIX_NO_ROOM);
    return !r->avoids_disk;
}

bool reuse_restored(struct reuse *u, struct request *r)
{
    struct memory *m = &r->answers[0].memory;
    struct prefix_key key = key_of(u, r);
    enum prefix_miss why = PREFIX_ALL;
    uint8_t *state;
    int n_pages, slots = kv_pool_shape(prefix_pool(u->tree))->page_slots;
    if (!store_read_end(u->store, r->restore, false, &n_pages, &state, &why)) return false;
    r->restore = NULL;
    int n = m->n_slots + n_pages * slots;
    memory_extend(m, n < r->n_known ? n : r->n_known);
    r->n_cached = m->n_slots;
    keep_pages(u, r, r->n_cached);
    if (r->n_cached == r->n_known && why == PREFIX_ALL) {
        if (state) memory_set_state(m, state);
        if (state) prefix_snapshot_take(u->tree, &key, r->p.prompt, r->n_known, state);
        return true;
    }
    miss_at(r, why == PREFIX_ALL ? PREFIX_EVICTED : why); /* the tree has lost it since, or it was damaged */
    r->avoids_disk = u->state_bytes > 0;
    return true;
}

void reuse_abandon(struct reuse *u, struct request *r)
{
    if (!r->restore) return;
    store_read_cancel(u->store, r->restore);
    r->restore = NULL;
    memory_truncate(&r->answers[0].memory, 0); /* a state is not behind the slots that it has so far */
}

void reuse_count(struct reuse *u, const struct request *r)
{
    u->n_lookups++;
    u->n_hits += r->n_cached > 0;
    u->n_hit_tokens += (uint64_t)r->n_cached;
}

void reuse_keep_prompt(struct reuse *u, const struct request *r) { keep_pages(u, r, (int)r->p.n_prompt); }

void reuse_keep_answer(struct reuse *u, const struct request *r, const struct answer *a)
{
    if (u->state_bytes && !r->p.pooling)
        keep_state(u, r, a, false);
    else
        keep(u, r, a, a->memory.n_slots);
}

/* The first boundary of the request itself behind `from`. */
static int next_boundary(const struct request *r, int from)
{
    int next = r->branch > from ? r->branch : INT_MAX;
    for (size_t i = 0; i < r->p.n_boundaries; i++)
        if (r->p.boundaries[i] > from) return r->p.boundaries[i] < next ? r->p.boundaries[i] : next;
    return next;
}

int reuse_next_cut(const struct reuse *u, const struct request *r, int from)
{
    if (!u->state_bytes || r->p.pooling) return INT_MAX;
    int next = next_boundary(r, from), on_the_way = (from / u->snapshot_every + 1) * u->snapshot_every;
    return next < on_the_way ? next : on_the_way;
}

void reuse_keep_cut(struct reuse *u, const struct request *r)
{
    const struct answer *a = &r->answers[0];
    int n = a->memory.n_slots;
    if (reuse_next_cut(u, r, n - 1) == n) keep_state(u, r, a, next_boundary(r, n - 1) != n);
}

int reuse_evict(struct reuse *u, int n) { return prefix_evict(u->tree, n, false); }
int reuse_evict_saved(struct reuse *u, int n) { return prefix_evict(u->tree, n, true); }

bool reuse_has_disk(const struct reuse *u) { return u->store != NULL; }

bool reuse_save(struct reuse *u, bool *is_new)
{
    struct qn_error e;
    int rc = 0;
    *is_new = false;
    if (!u->store) return false;
    if (store_is_saving(u->store)) {
        rc = store_settle(u->store, false, &e);
        if (rc == 0) return true;
        *is_new = true; /* or its pages can be evicted now, as it failed */
    }
    if (rc >= 0) rc = store_save(u->store, &e);
    if (rc < 0) log_at(LOG_WARN, "cache: %s", e.msg);
    return rc > 0;
}

bool reuse_holds_pages(struct reuse *u) { return u->store && store_holds_pages(u->store); }

void reuse_stats(const struct reuse *u, struct qn_scheduler_stats *out)
{
    struct prefix_stats p;
    struct store_stats d = {0};
    prefix_stats(u->tree, &p);
    if (u->store) store_stats(u->store, &d);
    out->n_pages_cached = p.n_pages;
    out->n_snapshots = p.n_states;
    out->n_snapshots_disk = p.n_snapshots_placed;
    out->cache_lookups = u->n_lookups;
    out->cache_hits = u->n_hits;
    out->cache_hit_tokens = u->n_hit_tokens;
    out->cache_disk_bytes = d.bytes;
}

/* ---- whose chains ---- */

/* The next chain of the identity, most recently used first. */
static struct prefix_node *next_of(const struct reuse *u, uint64_t identity, const struct prefix_node *leaf)
{
    struct prefix_node *at = prefix_next_leaf(u->tree, leaf);
    while (at && prefix_root(at)->key.owner != identity) at = prefix_next_leaf(u->tree, at);
    return at;
}

int reuse_list(struct reuse *u, uint64_t identity, struct qn_cached **list, size_t *n, struct qn_error *e)
{
    uint64_t page_bytes = kv_page_bytes(kv_pool_shape(prefix_pool(u->tree))), now = clock_ns();
    size_t n_all = 0, i = 0;
    for (struct prefix_node *leaf = NULL; (leaf = next_of(u, identity, leaf));) n_all++;
    struct qn_cached *all = mem_calloc(n_all, sizeof *all);
    if (!all) return error_nomem(e, "the list of what is cached", n_all * sizeof *all);
    for (struct prefix_node *leaf = NULL; (leaf = next_of(u, identity, leaf)); i++) {
        struct prefix_chain c;
        prefix_chain(u->tree, leaf, &c);
        all[i] = (struct qn_cached){
            .id = c.id,
            .n_tokens = c.n_tokens,
            .memory_bytes = c.bytes + (uint64_t)c.n_states * u->state_bytes,
            .disk_bytes = (uint64_t)c.n_placed * page_bytes + (uint64_t)c.n_states_placed * u->state_bytes,
            .memory_part_bytes = (uint64_t)c.n_counted * page_bytes + (uint64_t)c.n_states_counted * u->state_bytes,
            .disk_part_bytes =
                (uint64_t)c.n_placed_counted * page_bytes + (uint64_t)c.n_states_placed_counted * u->state_bytes,
            .idle_s = c.used_ns ? 1e-9 * (double)(now - c.used_ns) : -1,
        };
    }
    *list = all;
    *n = n_all;
    return 0;
}

size_t reuse_drop(struct reuse *u, uint64_t identity, uint64_t id)
{
    size_t n = 0;
    for (struct prefix_node *leaf = NULL; (leaf = next_of(u, identity, leaf));) {
        if (id && leaf->id != id) continue;
        prefix_drop(u->tree, leaf);
        n++;
        leaf = NULL; /* the list has changed */
    }
    if (u->store) store_sweep(u->store);
    return n;
}
