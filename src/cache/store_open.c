/* SPDX-License-Identifier: MIT
 *
 * store_open.c: opens the directory of the prefix cache and enters its files into the tree, and closes it. See store.h.
 */
#include "cache/store_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_hash.h"
#include "base/log.h"
#include "base/os.h"

static int dir_failed(const struct store *s, const char *what, struct qn_error *e)
{
    return error_set(e, QN_EIO, "cannot %s the cache directory '%s': %s", what, s->dir, strerror(errno));
}

/* ---- opening ---- */

static int same_shape(const struct chain_head *h, const struct kv_pool *pool)
{
    const struct kv_shape *a = &h->shape, *b = kv_pool_shape(pool);
    return a->type == b->type && a->n_layer == b->n_layer && a->n_head_kv == b->n_head_kv &&
           a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v && a->page_slots == b->page_slots &&
           a->state_bytes == b->state_bytes && a->n_layer_win == b->n_layer_win && a->window == b->window &&
           h->page_bytes == kv_page_bytes(b);
}

/* Enters the pages of a verified index into the tree. */
static int enter_pages(struct store *s, struct store_file *f, void *index, struct qn_error *e)
{
    int n_pages = (int)chain_n_pages(&f->head);
    struct prefix_node **nodes = mem_calloc((size_t)n_pages, sizeof *nodes);
    if (!nodes) return error_nomem(e, "a list of nodes", (size_t)n_pages * sizeof *nodes);
    int rc = prefix_graft(s->tree, &f->head.key, chain_index_tokens(index), (int)f->head.n_tokens,
                          (int)f->head.first_page, f, nodes, e);
    for (int i = 0; i < n_pages && !rc; i++) {
        f->parts[i].node = nodes[i];
        f->n_live += nodes[i] != NULL;
    }
    if (!rc) store_place_windows(f, chain_index_windows(&f->head, index));
    mem_free(nodes);
    return rc;
}

/* Enters all parts. */
static int enter_parts(struct store *s, struct store_file *f, void *index, struct qn_error *e)
{
    int n_pages = (int)chain_n_pages(&f->head), rc = 0;
    const uint64_t *sums = chain_index_sums(&f->head, index);
    f->n_parts = (int)chain_n_parts(&f->head);
    for (int i = 0; i < f->n_parts; i++) f->parts[i].sum = sums[i];
    if (n_pages) rc = enter_pages(s, f, index, e);
    if (rc || !f->head.has_state) return rc;
    struct prefix_snapshot **out = &f->parts[f->n_parts - 1].snapshot;
    rc = prefix_snapshot_graft(s->tree, &f->head.key, chain_index_tokens(index), (int)f->head.n_tokens,
                               (struct prefix_place){.file = f, .index = f->n_parts - 1}, out, e);
    f->n_live += *out != NULL;
    if (rc) store_file_unplace(s, f);
    return rc;
}

#define LATER 1

/* Reads a file's head and index. On success *out is new, in the tree and not yet in the list. LATER: the file has a
 * state and no pages. */
static int read_file(struct store *s, int fd, const char *name, const struct stat *st, bool is_later,
                     struct store_file **out, struct qn_error *e)
{
    uint8_t bytes[CHAIN_HEAD_BYTES];
    struct chain_head h;
    int rc = chain_read_at(fd, bytes, sizeof bytes, 0, e);
    if (!rc) rc = chain_head_read(&h, bytes, (uint64_t)st->st_size, e);
    if (rc) return rc;
    if (!same_shape(&h, s->pool) || memcmp(h.model, s->model, sizeof h.model))
        return error_set(e, QN_EUNSUP, "of another model or KV type");
    if (!chain_n_pages(&h) && !is_later) return LATER;
    uint64_t n = chain_index_bytes(&h);
    void *index = mem_alloc(n);
    if (!index) return error_nomem(e, "a token list", n);
    struct store_file *f = NULL;
    rc = chain_read_at(fd, index, n, sizeof bytes, e);
    if (!rc) rc = chain_index_check(&h, index, e);
    if (!rc)
        rc = (f = store_file_new(name, (uint64_t)st->st_size + store_far_bytes(s, &h), chain_n_parts(&h), e))
                 ? 0
                 : QN_ENOMEM;
    if (!rc) {
        f->head = h;
        rc = enter_parts(s, f, index, e);
    }
    mem_free(index);
    if (rc)
        mem_free(f);
    else
        *out = f;
    return rc;
}

/* Enters one file with a name of ours, or returns LATER. Damaged files are deleted. Files that cannot be used now
 * (another model, another version, no memory for their tokens, not readable) stay on disk and count. */
static int enter_file(struct store *s, const char *name, bool is_later, struct qn_error *e)
{
    struct stat st;
    struct qn_error why = {0};
    struct store_file *f = NULL;
    int rc, fd = openat(s->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        store_log_dropped(s, name, fd < 0 ? strerror(errno) : "not a regular file");
        s->stats.n_dropped++;
        if (fd >= 0) close(fd);
        return 0;
    }
    rc = read_file(s, fd, name, &st, is_later, &f, &why);
    close(fd);
    if (rc == LATER) return rc;
    if (rc == QN_EDATA) {
        store_log_dropped(s, name, why.msg);
        s->stats.n_dropped++;
        unlinkat(s->dir_fd, name, 0);
        return 0;
    }
    if (rc == QN_ENOMEM || rc == QN_EIO) log_at(LOG_WARN, "cache: '%s/%s' not used: %s", s->dir, name, why.msg);
    if (rc && !(f = store_file_new(name, (uint64_t)st.st_size, 0, e))) return QN_ENOMEM;
    f->written_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    store_file_add(s, f);
    if (!rc && f->n_live == 0) store_file_delete(s, f); /* other files have all its parts, or its pages are lost */
    return 0;
}

static int n_hex(const char *s) { return (int)strspn(s, "0123456789abcdef"); }

/* 1: a stored file; 2: one that was being written (out_file.h); 3: the lock, the secret, a file's hash, ".", ".."; 0:
 * not ours. */
static int name_kind(const char *name)
{
    if (file_hash_is_name(name)) return strchr(name, '.') ? 2 : 3;
    if (!strncmp(name, SECRET_NAME ".", sizeof SECRET_NAME) && n_hex(name + sizeof SECRET_NAME) == 8) return 2;
    if (!strcmp(name, SECRET_NAME)) return 3;
    if (!strcmp(name, STORE_LOCK_NAME) || !strcmp(name, ".") || !strcmp(name, "..")) return 3;
    if (chain_is_name(name)) return 1;
    if (n_hex(name) != 16 || strncmp(name + 16, ".kv", 3)) return 0;
    return name[19] == '.' && n_hex(name + 20) == 8 && !name[28] ? 2 : 0;
}

static int read_dir(struct store *s, struct qn_error *e)
{
    struct buf later = {0}; /* names: char[CHAIN_NAME_BYTES] */
    int rc = 0, fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        dir_failed(s, "read", e);
        if (fd >= 0) close(fd);
        return QN_EIO;
    }
    for (const struct dirent *entry; !rc && (entry = readdir(d));) {
        int kind = name_kind(entry->d_name);
        if (kind == 0) log_at(LOG_WARN, "cache: '%s/%s' ignored: not a name the cache gives", s->dir, entry->d_name);
        if (kind == 1) rc = enter_file(s, entry->d_name, false, e);
        if (rc == LATER) rc = buf_add(&later, entry->d_name, CHAIN_NAME_BYTES, e);
        if (kind == 2) unlinkat(s->dir_fd, entry->d_name, 0);
    }
    closedir(d);
    for (size_t at = 0; !rc && at < later.len; at += CHAIN_NAME_BYTES)
        rc = enter_file(s, (const char *)later.data + at, true, e);
    buf_deinit(&later);
    return rc;
}

static int take_lock(struct store *s, struct qn_error *e)
{
    s->lock_fd = openat(s->dir_fd, STORE_LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) return dir_failed(s, "lock", e);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK) return dir_failed(s, "lock", e);
    return error_set(e, QN_EIO, "the cache directory '%s' is in use by another process", s->dir);
}

int store_open(struct store **out, const char *dir, uint64_t budget_bytes, struct prefix *tree,
               const struct store_far *far, struct qn_error *e)
{
    int rc = QN_EIO;
    struct store *s = mem_calloc(1, sizeof *s);
    if (!s || !(s->dir = mem_dup(dir, strlen(dir)))) {
        mem_free(s);
        return error_nomem(e, "the store", sizeof *s);
    }
    s->tree = tree;
    s->far = far;
    s->pool = prefix_pool(tree);
    s->dir_fd = s->lock_fd = -1;
    s->stats.budget_bytes = budget_bytes;
    /* Opens the folder before it tries to make it, because not every process that may use it may make folders. */
    if (access(dir, F_OK) && mkdir(dir, 0700) && errno != EEXIST) {
        dir_failed(s, "make", e);
        goto fail;
    }
    s->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir_fd < 0) {
        dir_failed(s, "open", e);
        goto fail;
    }
    if ((rc = take_lock(s, e))) goto fail;
    if ((rc = secret_of_directory(s->secret, dir, s->dir_fd, e))) goto fail;
    *out = s;
    return 0;
fail:
    store_close(s);
    return rc;
}

const uint8_t *store_secret(const struct store *s) { return s->secret; }

int store_enter(struct store *s, const uint8_t model[CHAIN_MODEL_BYTES], struct qn_error *e)
{
    int rc;
    memcpy(s->model, model, sizeof s->model);
    prefix_set_backing(s->tree, &(struct prefix_backing){s, store_forget});
    if ((rc = worker_new(&s->writer, "cache-writer", e))) return rc;
    for (int n = os_n_cpus(); s->n_readers < n && s->n_readers < CHAIN_MAX_READERS; s->n_readers++)
        if ((rc = worker_new(&s->readers[s->n_readers], "cache-reader", e))) return rc;
    store_far_enter(s);
    if (!(rc = read_dir(s, e))) store_make_room(s, 0, UINT64_MAX);
    return rc;
}

void store_close(struct store *s)
{
    struct qn_error e;
    if (!s) return;
    s->is_closing = true;
    for (struct store_read *r = s->given_up; r; r = r->next) store_is_read(s, r, true);
    if (s->ahead) store_is_read(s, s->ahead, true);
    store_holds_pages(s);
    while (s->n_readers) worker_free(s->readers[--s->n_readers]);
    if (store_settle(s, true, &e) < 0) log_at(LOG_WARN, "cache: %s", e.msg);
    worker_free(s->writer);
    while (s->files) {
        store_file_unplace(s, s->files);
        store_file_forget(s, s->files);
    }
    prefix_set_backing(s->tree, NULL);
    if (s->lock_fd >= 0) close(s->lock_fd);
    if (s->dir_fd >= 0) close(s->dir_fd);
    mem_free(s->dir);
    mem_free(s);
}
