/* SPDX-License-Identifier: MIT
 *
 * reuse.c: finds and keeps prefixes for the scheduler. See reuse.h.
 *
 * All sequences of a process have one model and the engine's settings, so the tree's keys contain only the identity and
 * the salt. They are made with a secret, so that no client can make the key of another one. A file on disk has, next to
 * the key, a hash of the model's files and of the settings that decide bits.
 */
#include "engine/reuse.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "cache/secret.h"
#include "cache/store.h"
#include "engine/core/model_id.h"
#include "engine/model_key.h"
#include "format/file/model_files.h"

struct reuse {
    struct prefix *tree;
    const struct qn_engine *engine;
    struct store *store;  /* NULL: nothing is kept on disk, or the store is not open yet: */
    struct store *closed; /* a store that is opened when `id` is done */
    struct model_id *id;
    uint8_t secret[SECRET_BYTES];
    bool reads_ahead;   /* what is on disk, while there is no request */
    bool is_lost;       /* the model's file has changed: nothing is kept any more */
    size_t state_bytes; /* 0: the model has no recurrent state */
    int window;         /* tokens that windowed layers see; 0: there are none, or they keep everything */
    int snapshot_every;
    uint64_t n_lookups, n_hits, n_hit_tokens;
};

/* ---- keys ---- */

static struct prefix_key key_of(const struct reuse *u, const struct request *r)
{
    const uint64_t all[] = {r->p.identity, r->p.salt[0], r->p.salt[1]};
    struct prefix_key key = {.owner = r->p.identity};
    uint8_t hash[SHA256_BYTES];
    sha256_hmac(u->secret, all, sizeof all, hash);
    memcpy(key.word, hash, sizeof key.word);
    return key;
}

uint64_t reuse_owner(const struct reuse *u, const struct request *r) { return key_of(u, r).word[0]; }

/* ---- life ---- */

static void close_disk(struct reuse *u)
{
    store_close(u->store);
    store_close(u->closed);
    u->store = u->closed = NULL;
}

void reuse_open_disk(struct reuse *u)
{
    struct qn_error e;
    uint8_t files[SHA256_BYTES], model[CHAIN_MODEL_BYTES];
    if (!u->closed || !model_id_is_done(u->id)) return;
    int rc = model_id_get(u->id, files, &e);
    if (!rc) model_key(u->engine, u->engine->far ? u->engine->far->what : "quern: keys and values", files, model);
    if (!rc) rc = store_enter(u->closed, model, &e);
    if (!rc) {
        u->store = u->closed;
        u->closed = NULL;
        return;
    }
    log_at(LOG_WARN, "cache: nothing is kept on disk: %s", e.msg);
    close_disk(u);
}

/* Sets the secret. With a directory it is the directory's secret, so that keys are the same after a restart. */
static int open_directory(struct reuse *u, const struct qn_scheduler_params *p, void (*wake)(void *arg), void *arg,
                          struct qn_error *e)
{
    if (!p->cache_dir || !p->cache_bytes) return secret_new(u->secret, e);
    int rc = store_open(&u->closed, p->cache_dir, p->cache_bytes, u->tree, u->engine->far, e);
    if (rc) return rc;
    memcpy(u->secret, store_secret(u->closed), sizeof u->secret);
    rc = model_id_new(&u->id, u->engine->model->weights, p->cache_dir, p->hash_dir, wake, arg, e);
    if (!rc) reuse_open_disk(u);
    return rc;
}

int reuse_new(struct reuse **out, struct qn_engine *g, const struct qn_scheduler_params *p, void (*wake)(void *arg),
              void *arg, struct qn_error *e)
{
    struct reuse *u = mem_calloc(1, sizeof *u);
    if (!u) return error_nomem(e, "the prefix cache", sizeof *u);
    u->engine = g;
    u->state_bytes = kv_pool_shape(g->kv)->state_bytes;
    u->window = kv_pool_shape(g->kv)->window;
    u->snapshot_every = p->snapshot_every;
    u->reads_ahead = p->reads_ahead;
    int n_states = u->state_bytes ? kv_pool_n_states(g->kv) - p->n_running : 0; /* except those of running answers */
    int rc = prefix_new(&u->tree, g->kv, n_states, &g->ledger, e);
    if (!rc) rc = open_directory(u, p, wake, arg, e);
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
    model_id_free(u->id);
    close_disk(u);
    prefix_free(u->tree);
    explicit_bzero(u->secret, sizeof u->secret);
    mem_free(u);
}

void reuse_give_up(struct reuse *u) { u->is_lost = true; }

/* ---- use ---- */

/* Keeps the first n tokens of an answer and their pages. is_passing: no message or answer ends here. Returns false if
 * there is no memory, or nothing may be kept. */
static bool keep(struct reuse *u, const struct request *r, const struct answer *a, int n, bool is_passing)
{
    struct prefix_key key = key_of(u, r);
    if (n < 1 || u->is_lost) return false;
    return !(is_passing ? prefix_insert_passing : prefix_insert)(u->tree, &key, a->tokens, n, &a->memory, NULL);
}

/* Keeps everything that a holds, and its state. */
static void keep_state(struct reuse *u, const struct request *r, const struct answer *a, bool is_passing)
{
    struct prefix_key key = key_of(u, r);
    int n = a->memory.n_slots;
    if (keep(u, r, a, n, is_passing)) prefix_snapshot(u->tree, &key, a->tokens, n, a->memory.state, is_passing, NULL);
}

/* Keeps whole pages only: the answer goes on writing into the last page, so sharing that one is no use. */
static void keep_pages(struct reuse *u, const struct request *r, int n, bool is_passing)
{
    int slots = kv_pool_shape(prefix_pool(u->tree))->page_slots;
    keep(u, r, &r->answers[0], n / slots * slots, is_passing);
}

void reuse_find(struct reuse *u, struct request *r, int most)
{
    struct prefix_match match = {.miss = PREFIX_NOTHING};
    struct kv_seq *m = &r->answers[0].memory;
    r->n_cached = r->n_known = r->miss_position = r->branch = 0;
    r->is_on_disk = false;
    r->miss = "unused";
    /* Logprobs and mean pooling need every row; all other requests need at least the last row. */
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
    r->miss_asked = match.asked;
    r->miss_stored = match.stored;
}

void reuse_find_again(struct reuse *u, const struct request *r, struct answer *a, int most)
{
    struct prefix_match match;
    struct prefix_key key = key_of(u, r);
    if (most > 0) prefix_find_here(u->tree, &key, a->tokens, most, &a->memory, &match);
}

/* Notes that the prompt is only known as far as it is cached now, and why. */
static void miss_at(struct request *r, enum prefix_miss why)
{
    r->miss_position = r->n_known = r->n_cached;
    r->miss = prefix_miss_name(why);
}

/* Whether stored pages are of use only as a whole, with the state or the window after them. */
static bool needs_all(const struct reuse *u) { return u->state_bytes || u->window; }

/* Opens the window after the n tokens that are read. */
static bool open_window(struct reuse *u, struct kv_seq *m, int n)
{
    const struct kv_shape *shape = kv_pool_shape(m->pool);
    int from = kv_window_first(shape, n) * shape->page_slots, after = m->n_pages * shape->page_slots;
    int next = (m->n_slots + shape->page_slots - 1) / shape->page_slots * shape->page_slots;
    return reuse_open(u, m, from > next ? from : next, n < after ? n : after);
}

/* Begins to read pages. The state comes from memory at once, or else from disk with the pages. */
static struct store_read *begin_read(struct reuse *u, struct request *r)
{
    struct kv_seq *m = &r->answers[0].memory;
    struct prefix_key key = key_of(u, r);
    struct prefix_match match;
    prefix_peek(u->tree, &key, r->p.prompt, r->n_known, &match);
    struct prefix_snapshot *s = match.snapshot;
    if (needs_all(u) && match.n_slots < r->n_known) return NULL; /* it was evicted when room was made */
    if (u->window && !open_window(u, m, r->n_known)) return NULL;
    if (s && s->data) kv_seq_set_state(m, s->data); /* the state after the slots that are being read */
    return store_read(u->store, &key, r->p.prompt, r->n_known, m, s && !s->data ? s : NULL);
}

bool reuse_restore(struct reuse *u, struct request *r)
{
    if (!r->is_on_disk) return true;
    r->restore = begin_read(u, r);
    r->avoids_disk = !r->restore && needs_all(u);
    if (!r->restore) miss_at(r, PREFIX_NO_ROOM);
    return !r->avoids_disk;
}

bool reuse_restored(struct reuse *u, struct request *r)
{
    struct kv_seq *m = &r->answers[0].memory;
    struct prefix_key key = key_of(u, r);
    enum prefix_miss why = PREFIX_ALL;
    uint8_t *state;
    int n_pages, slots = kv_pool_shape(prefix_pool(u->tree))->page_slots;
    if (!store_read_end(u->store, r->restore, false, &n_pages, &state, &why)) return false;
    r->restore = NULL;
    int n = m->n_slots + n_pages * slots;
    if (u->window && (why != PREFIX_ALL || n < r->n_known)) n = 0; /* a part is no use */
    if (n > 0) kv_seq_extend(m, n < r->n_known ? n : r->n_known);
    r->n_cached = m->n_slots;
    keep_pages(u, r, r->n_cached, false);
    if (r->n_cached == r->n_known && why == PREFIX_ALL) {
        if (state) kv_seq_set_state(m, state);
        if (state) prefix_snapshot_take(u->tree, &key, r->p.prompt, r->n_known, state);
        return true;
    }
    miss_at(r, why == PREFIX_ALL ? PREFIX_EVICTED : why); /* it has been evicted meanwhile, or was damaged */
    r->avoids_disk = needs_all(u);
    return true;
}

void reuse_abandon(struct reuse *u, struct request *r)
{
    if (!r->restore) return;
    store_read_cancel(u->store, r->restore);
    r->restore = NULL;
    kv_seq_truncate(&r->answers[0].memory, 0); /* its state may belong to slots that were not read */
}

void reuse_count(struct reuse *u, const struct request *r)
{
    u->n_lookups++;
    u->n_hits += r->n_cached > 0;
    u->n_hit_tokens += (uint64_t)r->n_cached;
}

void reuse_keep_prompt(struct reuse *u, const struct request *r) { keep_pages(u, r, (int)r->p.n_prompt, false); }

void reuse_keep_answer(struct reuse *u, const struct request *r, const struct answer *a)
{
    if (u->state_bytes && !r->p.pooling)
        keep_state(u, r, a, false);
    else
        keep(u, r, a, a->memory.n_slots, false);
}

/* Returns the first boundary after `from` that the request itself has, or INT_MAX. */
static int next_boundary(const struct request *r, int from)
{
    int next = r->branch > from ? r->branch : INT_MAX;
    for (size_t i = 0; i < r->p.n_boundaries; i++)
        if (r->p.boundaries[i] > from) return r->p.boundaries[i] < next ? r->p.boundaries[i] : next;
    return next;
}

int reuse_next_cut(const struct reuse *u, const struct request *r, int from)
{
    bool has_cuts = u->state_bytes || (u->window && (int)r->p.n_prompt > u->window);
    if (!has_cuts || r->p.pooling) return INT_MAX;
    int next = next_boundary(r, from), on_the_way = (from / u->snapshot_every + 1) * u->snapshot_every;
    return next < on_the_way ? next : on_the_way;
}

void reuse_keep_cut(struct reuse *u, const struct request *r)
{
    const struct answer *a = &r->answers[0];
    int n = a->memory.n_slots;
    if (reuse_next_cut(u, r, n - 1) != n) return;
    bool is_passing = next_boundary(r, n - 1) != n;
    if (u->state_bytes)
        keep_state(u, r, a, is_passing);
    else
        keep_pages(u, r, n, is_passing);
}

bool reuse_open(struct reuse *u, struct kv_seq *m, int from, int to)
{
    while (kv_seq_open(m, from, to, NULL))
        if (!prefix_evict_windows(u->tree, 1)) return false;
    return true;
}

int reuse_n_evictable_windows(const struct reuse *u, int most) { return prefix_n_evictable_windows(u->tree, most); }

int reuse_evict(struct reuse *u, int n) { return prefix_evict(u->tree, n, false); }
int reuse_n_evictable(const struct reuse *u, int most) { return prefix_n_evictable(u->tree, most); }
int reuse_evict_saved(struct reuse *u, int n) { return prefix_evict(u->tree, n, true); }

bool reuse_has_disk(const struct reuse *u) { return u->store != NULL; }

int reuse_n_on_disk(const struct reuse *u)
{
    struct prefix_stats p;
    prefix_stats(u->tree, &p);
    return p.n_placed;
}

bool reuse_save(struct reuse *u, bool *is_new)
{
    struct qn_error e;
    int rc = 0;
    *is_new = false;
    if (!u->store) return false;
    if (store_is_saving(u->store)) {
        rc = store_settle(u->store, false, &e);
        if (rc == 0) return true;
        *is_new = true; /* even if it failed: its pages can be evicted now */
    }
    /* This check is made before each file, not in each step. Anything computed after a change may be wrong. */
    if (model_files_look(weights_files(u->engine->model->weights), NULL) == MODEL_FILES_CHANGED) u->is_lost = true;
    if (u->is_lost) return false;
    if (rc >= 0) rc = store_save(u->store, &e);
    if (rc < 0) log_at(LOG_WARN, "cache: %s", e.msg);
    return rc > 0;
}

bool reuse_read_ahead(struct reuse *u)
{
    return u->reads_ahead && u->store && !u->is_lost && store_read_ahead(u->store);
}

void reuse_settle_ahead(struct reuse *u)
{
    if (u->store) store_settle_ahead(u->store);
}

bool reuse_holds_pages(struct reuse *u) { return u->store && store_holds_pages(u->store); }

void reuse_stats(const struct reuse *u, struct qn_scheduler_stats *out)
{
    struct prefix_stats p;
    struct store_stats d = {0};
    prefix_stats(u->tree, &p);
    if (u->store) store_stats(u->store, &d);
    out->n_pages_cached = p.n_pages;
    out->n_windows_cached = p.n_windows;
    out->n_snapshots = p.n_states;
    out->n_snapshots_disk = p.n_snapshots_placed;
    out->cache_lookups = u->n_lookups;
    out->cache_hits = u->n_hits;
    out->cache_hit_tokens = u->n_hit_tokens;
    out->cache_disk_bytes = d.bytes;
}

/* ---- chains of an identity ---- */

/* Returns the next chain of the identity; the first one is the most recently used. */
static struct prefix_node *next_of(const struct reuse *u, uint64_t identity, const struct prefix_node *leaf)
{
    struct prefix_node *at = prefix_next_leaf(u->tree, leaf);
    while (at && prefix_root(at)->key.owner != identity) at = prefix_next_leaf(u->tree, at);
    return at;
}

int reuse_list(struct reuse *u, uint64_t identity, struct qn_cached **list, size_t *n, struct qn_error *e)
{
    const struct kv_shape *shape = kv_pool_shape(prefix_pool(u->tree));
    uint64_t page = kv_page_bytes(shape), window = kv_window_page_bytes(shape), now = clock_ns();
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
            .disk_bytes = (uint64_t)c.n_placed * page + (uint64_t)c.n_windows_placed * window +
                          (uint64_t)c.n_states_placed * u->state_bytes,
            .memory_part_bytes = (uint64_t)c.n_counted * page + (uint64_t)c.n_windows_counted * window +
                                 (uint64_t)c.n_states_counted * u->state_bytes,
            .disk_part_bytes = (uint64_t)c.n_placed_counted * page + (uint64_t)c.n_windows_placed_counted * window +
                               (uint64_t)c.n_states_placed_counted * u->state_bytes,
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
