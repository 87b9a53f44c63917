/* SPDX-License-Identifier: MIT
 *
 * store.c: the files of the prefix cache: writing, reading, expiry.
 *
 * A conversation grows at its end. So each turn writes one file with the pages that it added, and does not write the
 * pages before them again. A file repeats the tokens from the start of the sequence, which are 4 bytes each, while a
 * token's keys and values are 100 KB. So each file can be read without any other, and the tree can be built from the
 * files in any order. If the file with the pages before is gone, the nodes of those pages stay without data until they
 * are computed again.
 *
 * A file appears by rename, complete and synced, and is never changed. A kill leaves only temporary files, which the
 * next start removes. Files expire in the order of their modification times, which are set when they are used.
 *
 * A snapshot is a file of its own without pages, so that it can expire while the pages stay. Of a chain, only the first
 * snapshot (after the beginning that others may share) and the last two are kept on disk. Snapshots are entered after
 * all pages, because without its pages a snapshot is useless and is deleted.
 *
 * Files are not compressed, and pages that were only read are not written again.
 */
#include "cache/store.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file_hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "cache/chain_io.h"
#include "cache/secret.h"

#define FILE_BYTES ((uint64_t)256 << 20) /* of pages in one file, about: as many as one call of store_save writes */

#define LAST_STATES 2 /* of a chain: after the answer, and before it, because a template may change the answer */

/* The node or snapshot that refers to the part; both NULL: the tree has a better copy. */
struct stored_part {
    uint64_t sum;
    struct prefix_node *node;
    struct prefix_snapshot *snapshot;
};

struct store_file {
    char name[CHAIN_NAME_BYTES];
    struct store_file *next, *prev;
    uint64_t bytes;      /* on disk */
    uint64_t written_ns; /* modification time */
    struct chain_head head;
    int n_parts, n_live; /* n_live: parts that the tree refers to; of another model both are 0 */
    bool needed;         /* part of the chain being written */
    bool is_dropped;     /* has pages that must never be found again */
    struct stored_part parts[];
};

struct store_read {
    struct chain_read io;
    struct store_read *next; /* the next one that was given up */
    int n_pages;
    uint8_t *state; /* one of the tree's states, read after the pages; NULL: none */
    struct chain_part parts[];
};

struct store {
    struct prefix *tree;
    struct kv_pool *pool;
    char *dir;
    int dir_fd, lock_fd;
    struct store_file *files;
    struct worker *writer, *readers[CHAIN_MAX_READERS];
    int n_readers;
    struct chain_write *write;     /* under way; NULL: none */
    struct store_file *write_file; /* the file that it writes, in the list already, with its parts in the tree */
    struct prefix_snapshot *write_snapshot; /* held for it; NULL: it writes pages */
    struct store_read *given_up;            /* reads that were given up and are not done yet */
    bool is_closing;                        /* files that the tree forgets stay on disk */
    uint64_t last_ns;                       /* the last modification time given */
    struct store_stats stats;
    uint8_t secret[SECRET_BYTES];
    uint8_t model[CHAIN_MODEL_BYTES];
};

static int dir_failed(const struct store *s, const char *what, struct qn_error *e)
{
    return error_set(e, QN_EIO, "cannot %s the cache directory '%s': %s", what, s->dir, strerror(errno));
}

static void log_dropped(const struct store *s, const char *name, const char *why)
{
    log_at(LOG_WARN, "cache: '%s/%s' dropped: %s", s->dir, name, why);
}

/* ---- files known ---- */

static void file_add(struct store *s, struct store_file *f)
{
    f->prev = NULL;
    f->next = s->files;
    if (s->files) s->files->prev = f;
    s->files = f;
    s->stats.n_files++;
    s->stats.bytes += f->bytes;
}

/* Takes a file, to which the tree no longer refers, out of the list. */
static void file_forget(struct store *s, struct store_file *f)
{
    assert(f->n_live == 0);
    *(f->prev ? &f->prev->next : &s->files) = f->next;
    if (f->next) f->next->prev = f->prev;
    s->stats.n_files--;
    s->stats.bytes -= f->bytes;
    mem_free(f);
}

/* Takes the places of the file's parts from the tree, the last first. This may free nodes, their parents, and their
 * snapshots, and then the files of these. */
static void file_unplace(struct store *s, struct store_file *f)
{
    for (int i = f->n_parts - 1; i >= 0; i--) {
        struct stored_part was = f->parts[i];
        if (!was.node && !was.snapshot) continue;
        f->parts[i].node = NULL;
        f->parts[i].snapshot = NULL;
        f->n_live--;
        if (was.node)
            prefix_unplace(s->tree, was.node);
        else
            prefix_snapshot_unplace(s->tree, was.snapshot);
    }
}

static void file_delete(struct store *s, struct store_file *f)
{
    file_unplace(s, f);
    unlinkat(s->dir_fd, f->name, 0);
    file_forget(s, f);
}

/* The file's last use by the clock of this process, which the tree has. */
static uint64_t used_ns(const struct store_file *f)
{
    uint64_t used = 0;
    for (int i = 0; i < f->n_parts; i++) {
        const struct stored_part *p = &f->parts[i];
        uint64_t ns = 0;
        if (p->node)
            ns = p->node->used_ns;
        else if (p->snapshot)
            ns = p->snapshot->used_ns;
        if (ns > used) used = ns;
    }
    return used;
}

/* Deletes files until `bytes` more fit the budget, the least recently used first; only files that were used before
 * `before_ns` and are not needed. Returns the bytes that fit then. */
static uint64_t make_room(struct store *s, uint64_t bytes, uint64_t before_ns)
{
    while (s->stats.bytes > s->stats.budget_bytes || bytes > s->stats.budget_bytes - s->stats.bytes) {
        struct store_file *oldest = NULL;
        uint64_t oldest_used = before_ns;
        for (struct store_file *f = s->files; f; f = f->next) {
            uint64_t used = f->needed || f == s->write_file ? UINT64_MAX : used_ns(f);
            if (used > oldest_used || used >= before_ns) continue;
            if (oldest && used == oldest_used && f->written_ns >= oldest->written_ns) continue;
            oldest = f;
            oldest_used = used;
        }
        if (!oldest) break;
        s->stats.n_expired++;
        file_delete(s, oldest);
    }
    return s->stats.bytes < s->stats.budget_bytes ? s->stats.budget_bytes - s->stats.bytes : 0;
}

/* ---- the tree's side ---- */

/* A longer page has replaced this one, or its chain was dropped. A file of which no part is used any more is deleted.
 */
static void forget(void *arg, struct prefix_place place, bool dropped)
{
    struct store *s = arg;
    struct store_file *f = place.file;
    f->parts[place.index].node = NULL;
    f->parts[place.index].snapshot = NULL;
    f->is_dropped |= dropped;
    if (--f->n_live == 0 && f != s->write_file && !s->is_closing) file_delete(s, f);
}

/* A time for a file's last use, later than all times before, so that the order is right even if the clock stands still
 * or is set back. */
static uint64_t next_time(struct store *s, struct store_file *f)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    s->last_ns = now > s->last_ns ? now : s->last_ns + 1000;
    return f->written_ns = s->last_ns;
}

/* ---- opening ---- */

static struct store_file *file_new(const char *name, uint64_t bytes, uint32_t n_parts, struct qn_error *e)
{
    size_t size = sizeof(struct store_file) + n_parts * sizeof(struct stored_part);
    struct store_file *f = mem_calloc(1, size);
    if (!f) {
        error_nomem(e, "the list of stored pages", size);
        return NULL;
    }
    snprintf(f->name, sizeof f->name, "%s", name);
    f->bytes = bytes;
    return f;
}

static int same_shape(const struct chain_head *h, const struct kv_pool *pool)
{
    const struct kv_shape *a = &h->shape, *b = kv_pool_shape(pool);
    return a->type == b->type && a->n_layer == b->n_layer && a->n_head_kv == b->n_head_kv &&
           a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v && a->page_slots == b->page_slots &&
           a->state_bytes == b->state_bytes && h->page_bytes == kv_page_bytes(b);
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
    struct prefix_snapshot **out = &f->parts[n_pages].snapshot;
    rc = prefix_snapshot_graft(s->tree, &f->head.key, chain_index_tokens(index), (int)f->head.n_tokens,
                               (struct prefix_place){f, n_pages}, out, e);
    f->n_live += *out != NULL;
    if (rc) file_unplace(s, f);
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
    if (!rc) rc = (f = file_new(name, (uint64_t)st->st_size, chain_n_parts(&h), e)) ? 0 : QN_ENOMEM;
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
        log_dropped(s, name, fd < 0 ? strerror(errno) : "not a regular file");
        s->stats.n_dropped++;
        if (fd >= 0) close(fd);
        return 0;
    }
    rc = read_file(s, fd, name, &st, is_later, &f, &why);
    close(fd);
    if (rc == LATER) return rc;
    if (rc == QN_EDATA) {
        log_dropped(s, name, why.msg);
        s->stats.n_dropped++;
        unlinkat(s->dir_fd, name, 0);
        return 0;
    }
    if (rc == QN_ENOMEM || rc == QN_EIO) log_at(LOG_WARN, "cache: '%s/%s' not used: %s", s->dir, name, why.msg);
    if (rc && !(f = file_new(name, (uint64_t)st.st_size, 0, e))) return QN_ENOMEM;
    f->written_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    file_add(s, f);
    if (!rc && f->n_live == 0) file_delete(s, f); /* other files have all its parts, or its pages are lost */
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

int store_open(struct store **out, const char *dir, uint64_t budget_bytes, struct prefix *tree, struct qn_error *e)
{
    int rc = QN_EIO;
    struct store *s = mem_calloc(1, sizeof *s);
    if (!s || !(s->dir = mem_dup(dir, strlen(dir)))) {
        mem_free(s);
        return error_nomem(e, "the store", sizeof *s);
    }
    s->tree = tree;
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
    prefix_set_backing(s->tree, &(struct prefix_backing){s, forget});
    if ((rc = worker_new(&s->writer, "cache-writer", e))) return rc;
    for (int n = os_n_cpus(); s->n_readers < n && s->n_readers < CHAIN_MAX_READERS; s->n_readers++)
        if ((rc = worker_new(&s->readers[s->n_readers], "cache-reader", e))) return rc;
    if (!(rc = read_dir(s, e))) make_room(s, 0, UINT64_MAX);
    return rc;
}

/* Whether all readers are done with it. */
static bool is_read(struct store *s, const struct store_read *r, bool wait)
{
    for (int i = 0; i < r->io.n_readers; i++) {
        const struct worker_job *job = &r->io.readers[i].job;
        if (wait) worker_wait(s->readers[i], job);
        if (!worker_is_done(s->readers[i], job)) return false;
    }
    return true;
}

void store_close(struct store *s)
{
    struct qn_error e;
    if (!s) return;
    for (struct store_read *r = s->given_up; r; r = r->next) is_read(s, r, true);
    store_holds_pages(s);
    while (s->n_readers) worker_free(s->readers[--s->n_readers]);
    if (store_settle(s, true, &e) < 0) log_at(LOG_WARN, "cache: %s", e.msg);
    worker_free(s->writer);
    s->is_closing = true;
    while (s->files) {
        file_unplace(s, s->files);
        file_forget(s, s->files);
    }
    prefix_set_backing(s->tree, NULL);
    if (s->lock_fd >= 0) close(s->lock_fd);
    if (s->dir_fd >= 0) close(s->dir_fd);
    mem_free(s->dir);
    mem_free(s);
}

void store_stats(const struct store *s, struct store_stats *out) { *out = s->stats; }

/* ---- saving ---- */

/* A chain to be written: its nodes from the root's child on. */
struct chain {
    struct prefix_node **nodes;
    int n;
    int first, end;                /* the pages for one file */
    struct prefix_snapshot *state; /* or a state for one, after the page `end`; NULL: pages */
};

/* Whether the node is in the pool and not on disk. A running sequence still writes into its last page. */
static bool is_unsaved(const struct store *s, const struct prefix_node *node)
{
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    bool is_open =
        shape->state_bytes && node->n < shape->page_slots && node->page && kv_page_n_refs(s->pool, node->page) > 1;
    return node->page && !node->place.file && !is_open;
}

/* The node's longest snapshot of less than `below` slots. */
static struct prefix_snapshot *last_snapshot(const struct prefix_node *node, int below)
{
    struct prefix_snapshot *last = NULL;
    for (struct prefix_snapshot *x = node->snapshots; x; x = x->next)
        if (x->n_slots < below && (!last || x->n_slots > last->n_slots)) last = x;
    return last;
}

/* Whether the pages up to the i-th are on disk. */
static bool are_placed(const struct chain *c, int i)
{
    while (i >= 0 && c->nodes[i]->place.file) i--;
    return i < 0;
}

/* The first run of pages that are in the pool and not on disk; 0: there is none. */
static int find_run(const struct store *s, struct chain *c)
{
    uint64_t page_bytes = kv_page_bytes(kv_pool_shape(s->pool)), most = FILE_BYTES / page_bytes;
    int i = 0;
    while (i < c->n && !is_unsaved(s, c->nodes[i])) i++;
    c->first = i;
    while (i < c->n && is_unsaved(s, c->nodes[i]) && (uint64_t)(i - c->first) < (most ? most : 1)) i++;
    c->end = i;
    return c->end > c->first;
}

/* Walks the chain's snapshots from its end. Deletes the files of those that are not to be kept on disk, in the part of
 * the chain that no other shares. Returns a snapshot that is to be written; NULL: none. */
static struct prefix_snapshot *find_state(struct store *s, const struct chain *c)
{
    struct prefix_snapshot *first = NULL, *found = NULL;
    bool is_own = true;
    int n = 0;
    for (int i = 0; i < c->n && !first; i++)
        for (struct prefix_snapshot *x = c->nodes[i]->snapshots; x; x = x->next)
            if (!first || x->n_slots < first->n_slots) first = x;
    for (int i = c->n - 1; i >= 0; i--) {
        if (c->nodes[i]->child && c->nodes[i]->child->next) is_own = false;
        int below = INT_MAX;
        for (struct prefix_snapshot *x; (x = last_snapshot(c->nodes[i], below));) {
            below = x->n_slots;
            bool is_wanted = n++ < LAST_STATES || x == first;
            struct store_file *f = x->place.file;
            if (is_wanted && x->data && !f && !found && are_placed(c, i)) found = x;
            if (!is_wanted && is_own && f && f->n_parts == 1) file_delete(s, f);
        }
    }
    return found;
}

static void fill_head(const struct store *s, const struct chain *c, struct chain_head *h)
{
    const struct prefix_node *last = c->nodes[c->end - 1];
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    int n = c->state ? c->state->n_slots : last->depth * shape->page_slots + last->n;
    *h = (struct chain_head){
        .key = prefix_root(last)->key,
        .shape = *shape,
        .page_bytes = kv_page_bytes(shape),
        .n_tokens = (uint32_t)n,
        .first_page = (uint32_t)c->first,
        .has_state = c->state != NULL,
    };
    memcpy(h->model, s->model, sizeof h->model);
}

/* A name that no file has. */
static void new_name(const struct store *s, char name[CHAIN_NAME_BYTES])
{
    struct stat st;
    do snprintf(name, CHAIN_NAME_BYTES, "%016" PRIx64 ".kv", rng_seed_from_os());
    while (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
}

static void set_needed(const struct chain *c, bool needed)
{
    for (int i = 0; i < c->n; i++)
        if (c->nodes[i]->place.file) ((struct store_file *)c->nodes[i]->place.file)->needed = needed;
}

/* Sets the times of the chain's files, those at its end first, so that they expire first. */
static void set_times(struct store *s, const struct chain *c)
{
    const void *last = NULL;
    for (int i = c->n - 1; i >= 0; i--) {
        struct store_file *f = c->nodes[i]->place.file;
        if (f && f != last) {
            uint64_t ns = next_time(s, f);
            struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
            if (f == s->write_file)
                s->write->time_ns = ns; /* the file does not exist yet */
            else
                utimensat(s->dir_fd, f->name, (struct timespec[2]){t, t}, AT_SYMLINK_NOFOLLOW);
        }
        last = f;
    }
}

/* Lists the file's parts as if they were written. */
static void place_parts(struct store *s, const struct chain *c)
{
    struct store_file *f = s->write_file;
    struct chain_write *w = s->write;
    f->n_parts = f->n_live = (int)chain_n_parts(&f->head);
    if (c->state) {
        w->parts[0] = c->state->data;
        f->parts[0].snapshot = s->write_snapshot = c->state;
        prefix_snapshot_hold(s->tree, c->state);
        prefix_snapshot_place(s->tree, c->state, (struct prefix_place){f, 0});
        w->time_ns = next_time(s, f);
        return;
    }
    for (int i = 0; i < f->n_parts; i++) {
        struct prefix_node *node = c->nodes[c->first + i];
        w->parts[i] = node->page;
        kv_page_ref(s->pool, node->page);
        f->parts[i].node = node;
        prefix_place(s->tree, node, (struct prefix_place){f, i});
    }
}

/* Enters the file into the list and the tree as if it were written, and gives it to the writing thread. */
static int begin_write(struct store *s, const struct chain *c, struct qn_error *e)
{
    struct chain_head h;
    char name[CHAIN_NAME_BYTES];
    fill_head(s, c, &h);
    new_name(s, name);
    struct store_file *f = file_new(name, chain_file_bytes(&h), chain_n_parts(&h), e);
    struct chain_write *w = f ? chain_write_new(&h, e) : NULL;
    if (!w) {
        mem_free(f);
        return QN_ENOMEM;
    }
    qn_token *tokens = chain_index_tokens(w->index);
    for (int i = 0, left = (int)h.n_tokens; i < c->end; i++, tokens += h.shape.page_slots, left -= h.shape.page_slots)
        memcpy(tokens, c->nodes[i]->tokens, (size_t)(left < c->nodes[i]->n ? left : c->nodes[i]->n) * sizeof *tokens);
    memcpy(w->name, name, sizeof w->name);
    w->dir = s->dir;
    f->head = h;
    file_add(s, f);
    s->write = w;
    s->write_file = f;
    place_parts(s, c);
    set_times(s, c);
    worker_post(s->writer, &w->job);
    return 1;
}

static int save_chain(struct store *s, struct prefix_node *leaf, struct chain *c, struct qn_error *e)
{
    uint64_t page_bytes = kv_page_bytes(kv_pool_shape(s->pool));
    struct chain_head h;
    for (struct prefix_node *node = leaf; node->parent; node = node->parent) c->nodes[node->depth] = node;
    c->n = leaf->depth + 1;
    c->state = NULL;
    if (!find_run(s, c)) {
        if (!(c->state = find_state(s, c))) return 0;
        c->first = c->end = c->state->node->depth + 1;
    }
    fill_head(s, c, &h);
    set_needed(c, true);
    uint64_t bytes = chain_file_bytes(&h), fits = make_room(s, bytes, c->nodes[c->end - 1]->used_ns);
    set_needed(c, false);
    if (c->state) return fits < bytes ? 0 : begin_write(s, c, e);
    if (fits < bytes) { /* the beginning of the run is better than nothing */
        uint64_t over = (bytes - fits + page_bytes - 1) / page_bytes;
        c->end = over < (uint64_t)(c->end - c->first) ? c->end - (int)over : c->first;
    }
    return c->end > c->first ? begin_write(s, c, e) : 0;
}

int store_save(struct store *s, struct qn_error *e)
{
    struct prefix_stats stats;
    int longest = 0, rc = 0;
    assert(!s->write);
    prefix_stats(s->tree, &stats);
    if (stats.n_unsaved == 0 && stats.n_states == 0) return 0;
    for (struct prefix_node *leaf = NULL; (leaf = prefix_next_leaf(s->tree, leaf));)
        if (leaf->depth >= longest) longest = leaf->depth + 1;
    struct chain c = {.nodes = mem_calloc((size_t)longest, sizeof *c.nodes)};
    if (!c.nodes) return error_nomem(e, "a list of nodes", (size_t)longest * sizeof *c.nodes);
    for (struct prefix_node *leaf = NULL; !rc && (leaf = prefix_next_leaf(s->tree, leaf));)
        rc = save_chain(s, leaf, &c, e);
    mem_free(c.nodes);
    return rc;
}

bool store_is_saving(const struct store *s) { return s->write != NULL; }

int store_settle(struct store *s, bool wait, struct qn_error *e)
{
    struct chain_write *w = s->write;
    struct store_file *f = s->write_file;
    if (!w) return 0;
    if (wait) worker_wait(s->writer, &w->job);
    if (!worker_is_done(s->writer, &w->job)) return 0;
    int rc = w->rc;
    s->write = NULL;
    s->write_file = NULL;
    const uint64_t *sums = chain_index_sums(&w->head, w->index);
    for (int i = 0; i < f->n_parts; i++) {
        f->parts[i].sum = sums[i];
        if (!s->write_snapshot) kv_page_unref(s->pool, w->parts[i]);
    }
    if (s->write_snapshot) prefix_snapshot_release(s->tree, s->write_snapshot);
    s->write_snapshot = NULL;
    if (rc) {
        if (e) *e = w->error;
        file_delete(s, f); /* if only syncing the directory failed, the file exists */
    } else if (f->n_live == 0 || f->is_dropped) {
        file_delete(s, f);
    }
    chain_write_free(w);
    return rc ? rc : 1;
}

void store_sweep(struct store *s)
{
    for (struct store_file *f = s->files; f;) {
        if (!f->is_dropped || f == s->write_file) {
            f = f->next;
            continue;
        }
        file_delete(s, f); /* this may delete other files, too */
        f = s->files;
    }
}

/* ---- reading ---- */

static void fill_part(struct store_read *r, int i, struct prefix_place place, uint8_t *to)
{
    const struct store_file *f = place.file;
    r->parts[i] = (struct chain_part){.index = place.index,
                                      .offset = chain_part_offset(&f->head, (uint32_t)place.index),
                                      .bytes = chain_part_bytes(&f->head, (uint32_t)place.index),
                                      .sum = f->parts[place.index].sum,
                                      .to = to};
    memcpy(r->parts[i].name, f->name, sizeof f->name);
}

/* Sets the times of the files that are read, those at the end first, and lists the places of their pages. */
static void fill_read(struct store *s, struct store_read *r, const struct prefix_place *places, uint8_t *const *to,
                      const struct prefix_snapshot *snapshot)
{
    if (snapshot) {
        fill_part(r, r->n_pages, snapshot->place, r->state);
        r->parts[r->n_pages].time_ns = next_time(s, snapshot->place.file);
    }
    for (int i = r->n_pages - 1; i >= 0; i--) {
        struct store_file *f = places[i].file;
        fill_part(r, i, places[i], to[i]);
        if (i == 0 || places[i - 1].file != f) r->parts[i].time_ns = next_time(s, f);
        kv_page_ref(s->pool, to[i]);
    }
}

static struct store_read *read_new(struct store *s, int n_pages, const struct prefix_snapshot *snapshot)
{
    int n = n_pages + (snapshot != NULL);
    struct store_read *r = n ? mem_calloc(1, sizeof *r + (size_t)n * sizeof *r->parts) : NULL;
    if (!r) return NULL;
    chain_read_init(&r->io, s->dir_fd, r->parts, n, s->n_readers);
    r->n_pages = n_pages;
    if (!snapshot || (r->state = prefix_state_get(s->tree))) return r;
    mem_free(r);
    return NULL;
}

struct store_read *store_read(struct store *s, const struct prefix_key *key, const qn_token *tokens, int n,
                              const struct kv_seq *m, const struct prefix_snapshot *snapshot)
{
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    int first = (m->n_slots + shape->page_slots - 1) / shape->page_slots, room = m->n_pages - first;
    struct prefix_place *places = mem_calloc((size_t)room + 1, sizeof *places);
    if (!places) return NULL;
    int n_pages = prefix_places(s->tree, key, tokens, n, first, places, room);
    for (int i = 0; i < n_pages; i++)
        if (places[i].file == s->write_file) n_pages = i;
    bool is_all = first + n_pages == (n + shape->page_slots - 1) / shape->page_slots;
    struct store_read *r = shape->state_bytes && !is_all ? NULL : read_new(s, n_pages, snapshot);
    if (r) {
        fill_read(s, r, places, m->pages + first, snapshot);
        for (int i = 0; i < s->n_readers; i++) worker_post(s->readers[i], &r->io.readers[i].job);
    }
    mem_free(places);
    return r;
}

/* Passes the state to the caller, or puts it back. */
static void read_free(struct store *s, struct store_read *r)
{
    for (int i = 0; i < r->n_pages; i++) kv_page_unref(s->pool, r->parts[i].to);
    if (r->state) prefix_state_put(s->tree, r->state);
    mem_free(r);
}

/* The file has a page that cannot be used. It may have been deleted already, to make room. */
static void damaged(struct store *s, const char *name, const struct qn_error *why)
{
    struct store_file *f = s->files;
    while (f && strcmp(f->name, name) != 0) f = f->next;
    if (!f) return;
    log_dropped(s, name, why->msg);
    s->stats.n_dropped++;
    if (why->code == QN_EDATA)
        file_delete(s, f);
    else
        file_unplace(s, f); /* it may be readable later */
}

bool store_read_end(struct store *s, struct store_read *r, bool wait, int *n_pages, uint8_t **state,
                    enum prefix_miss *miss)
{
    const struct qn_error *why = NULL;
    if (!is_read(s, r, wait)) return false;
    int n = chain_read_n_good(&r->io, &why);
    *n_pages = n < r->n_pages ? n : r->n_pages;
    *state = NULL;
    if (n < r->io.n_parts) {
        damaged(s, r->parts[n].name, why);
        *miss = PREFIX_DAMAGED;
    } else {
        *state = r->state;
        r->state = NULL;
    }
    read_free(s, r);
    return true;
}

void store_read_cancel(struct store *s, struct store_read *r)
{
    atomic_store_explicit(&r->io.is_cancelled, true, memory_order_relaxed);
    r->next = s->given_up;
    s->given_up = r;
}

bool store_holds_pages(struct store *s)
{
    for (struct store_read **at = &s->given_up, *r; (r = *at);) {
        if (!is_read(s, r, false)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        read_free(s, r);
    }
    return s->given_up || s->write;
}
