/* SPDX-License-Identifier: MIT
 *
 * store_home.h: a directory with a store, and a prefix_world that reads from it, for the tests of the store.
 *
 * Found pages are always checked number by number: a page has the numbers of exactly its tokens, or it is not found.
 * Include it after cmocka.h.
 */
#ifndef TEST_STORE_HOME_H
#define TEST_STORE_HOME_H

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/chain_file.h"
#include "cache/store.h"
#include "prefix_world.h"

#define ROOMY ((uint64_t)1 << 30)

static char dir[] = "/tmp/test_store.XXXXXX";
static qn_token t[MAX_SEQ];
static const uint8_t this_model[CHAIN_MODEL_BYTES] = {1, 2, 3}, other_model[CHAIN_MODEL_BYTES] = {1, 2, 4};
static char last_log[1024];
static int n_logged;

static inline void keep_log(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(last_log, sizeof last_log, "%s", line);
    n_logged++;
}

/* Opens the store and enters its files. */
static inline int open_store(struct store **s, uint64_t budget, struct prefix *tree, const uint8_t *for_model,
                             struct qn_error *e)
{
    int rc = store_open(s, dir, budget, tree, NULL, e);
    if (rc || !(rc = store_enter(*s, for_model, e))) return rc;
    store_close(*s);
    *s = NULL;
    return rc;
}

/* Calls `what` for every file of the directory except the lock and the secret; returns their number. */
static inline int each_file(void (*what)(const char *path))
{
    char path[600];
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) return 0;
    for (const struct dirent *x; (x = readdir(d));) {
        if (x->d_name[0] == '.' || !strcmp(x->d_name, "lock") || !strcmp(x->d_name, "secret")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
        if (what) what(path);
        n++;
    }
    closedir(d);
    return n;
}

static inline void remove_path(const char *path)
{
    if (unlink(path)) rmdir(path);
}

static char found_path[600];
static inline void remember_path(const char *path) { snprintf(found_path, sizeof found_path, "%s", path); }

struct home {
    struct prefix_world w;
    struct store *store;
};

/* Reads pages and state from disk; it is struct prefix_world's `restore`. */
static inline int restore(const struct prefix_world *w, const struct prefix_key *key, const qn_token *tokens, int n,
                          struct kv_seq *m, struct prefix_match *match)
{
    struct home *h = w->arg;
    struct prefix_match now = {0};
    uint8_t *state = NULL;
    int n_pages = 0, n_slots = m->n_slots;
    if (m->state) prefix_peek(w->tree, key, tokens, n = match->n_slots, &now);
    struct prefix_snapshot *s = now.snapshot;
    struct store_read *r = store_read(h->store, key, tokens, n, m, s && !s->data ? s : NULL);
    bool has_state = s && s->data;
    if (has_state) kv_seq_set_state(m, s->data);
    if (r) {
        assert_true(store_read_end(h->store, r, true, &n_pages, &state, &match->miss));
        n_slots += n_pages * PAGE;
    }
    if (n_slots > match->n_slots) n_slots = match->n_slots;
    if (!m->state) return n_slots;
    if (n_slots < match->n_slots || now.n_slots < n || (!has_state && !state)) {
        kv_seq_truncate(m, 0);
        return 0;
    }
    kv_seq_extend(m, n_slots);
    if (state) kv_seq_set_state(m, state);
    if (state) prefix_snapshot_take(w->tree, key, tokens, n, state);
    return n_slots;
}

static inline void home_open_with(struct home *h, int n_pages, int n_snapshots, uint64_t budget)
{
    struct qn_error e = {0};
    world_open(&h->w, n_pages, n_snapshots);
    if (open_store(&h->store, budget, h->w.tree, this_model, &e)) fail_msg("%s", e.msg);
    h->w.restore = restore;
    h->w.arg = h;
    check_tree(&h->w, 0);
}

static inline void home_open(struct home *h, int n_pages, uint64_t budget) { home_open_with(h, n_pages, 0, budget); }

static inline void home_close(struct home *h)
{
    store_close(h->store);
    check_tree(&h->w, 0);
    world_close(&h->w);
}

/* One file, waited for. */
static inline int save_one(struct store *s, struct qn_error *e)
{
    int rc = store_save(s, e);
    return rc > 0 ? store_settle(s, true, e) : rc;
}

static inline int save_all(struct home *h)
{
    struct qn_error e = {0};
    int rc, n = 0;
    while ((rc = save_one(h->store, &e)) > 0) n++;
    if (rc < 0) fail_msg("%s", e.msg);
    return n;
}

static inline struct store_stats disk_of(const struct home *h)
{
    struct store_stats s;
    store_stats(h->store, &s);
    return s;
}

static inline int empty_dir(void **state)
{
    (void)state;
    each_file(remove_path);
    n_logged = 0;
    last_log[0] = 0;
    return 0;
}

/* For all tests of a program: their directory. */
static inline int make_dir(void **state)
{
    (void)state;
    log_set_sink(keep_log, NULL);
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    static const char *const names[] = {"lock", "secret"};
    empty_dir(state);
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir);
}

#endif
