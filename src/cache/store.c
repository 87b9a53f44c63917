/* SPDX-License-Identifier: MIT
 *
 * store.c: see store.h.
 *
 * A conversation grows at its end, so a turn writes one file with the pages that it added, and no byte of those before
 * it again. A file repeats the tokens from the start of the sequence, 4 bytes where a token's keys and values are 100
 * KB: that makes it readable without any other, and the tree can be put together from the files in any order. When a
 * file that holds the pages before is gone, the rest waits as nodes without data until they are computed again.
 *
 * A file appears by rename, complete and synced, and is never changed; so whatever a kill leaves behind is a temporary
 * name, which the next start removes. Its place in the order of expiry is its modification time, set when it is used.
 *
 * Does not compress, and does not write what only has been read: state that cannot be cut (snapshots) stays in memory.
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

#include "base/log.h"
#include "base/out_file.h"
#include "base/rng.h"
#include "cache/chain_file.h"

#define FILE_BYTES ((uint64_t)256 << 20) /* of pages in one file, about: what one call of store_save writes */
#define NAME_BYTES 20                    /* 16 digits, ".kv" and NUL */
#define LOCK_NAME  "lock"

struct stored_page {
    uint64_t sum;
    struct prefix_node *node; /* NULL: the tree has a better copy */
};

struct store_file {
    char name[NAME_BYTES];
    struct store_file *next, *prev;
    uint64_t bytes;      /* on disk */
    uint64_t written_ns; /* modification time */
    struct chain_head head;
    int n_pages, n_live; /* n_live: pages with a node; of another model both are 0 */
    int needed;          /* part of the chain being written */
    struct stored_page pages[];
};

struct store {
    struct prefix *tree;
    struct kv_pool *pool;
    char *dir;
    int dir_fd, lock_fd;
    struct store_file *files;
    struct store_file *open_file; /* the one that open_fd reads, or NULL */
    int open_fd;
    uint64_t last_ns; /* the last modification time given */
    struct store_stats stats;
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

static void close_open_file(struct store *s)
{
    if (s->open_file) close(s->open_fd);
    s->open_file = NULL;
}

/* Out of the list; the tree does not refer to it any more. */
static void file_forget(struct store *s, struct store_file *f)
{
    assert(f->n_live == 0);
    if (s->open_file == f) close_open_file(s);
    *(f->prev ? &f->prev->next : &s->files) = f->next;
    if (f->next) f->next->prev = f->prev;
    s->stats.n_files--;
    s->stats.bytes -= f->bytes;
    mem_free(f);
}

/* Takes its pages' places from the tree, the last first: a node may go with its page, and parents with it. */
static void file_unplace(struct store *s, struct store_file *f)
{
    for (int i = f->n_pages - 1; i >= 0; i--) {
        struct prefix_node *node = f->pages[i].node;
        if (!node) continue;
        f->pages[i].node = NULL;
        f->n_live--;
        prefix_unplace(s->tree, node);
    }
}

static void file_delete(struct store *s, struct store_file *f)
{
    file_unplace(s, f);
    unlinkat(s->dir_fd, f->name, 0);
    file_forget(s, f);
}

/* The file's last use by the clock of this process; its pages' nodes know. */
static uint64_t used_ns(const struct store_file *f)
{
    uint64_t used = 0;
    for (int i = 0; i < f->n_pages; i++)
        if (f->pages[i].node && f->pages[i].node->used_ns > used) used = f->pages[i].node->used_ns;
    return used;
}

/* Deletes files until `bytes` more fit the budget, the least recently used first, only ones used before `before_ns` and
 * none that is needed. Returns the bytes that fit at the end. */
static uint64_t make_room(struct store *s, uint64_t bytes, uint64_t before_ns)
{
    while (s->stats.bytes > s->stats.budget_bytes || bytes > s->stats.budget_bytes - s->stats.bytes) {
        struct store_file *oldest = NULL;
        uint64_t oldest_used = before_ns;
        for (struct store_file *f = s->files; f; f = f->next) {
            uint64_t used = f->needed ? UINT64_MAX : used_ns(f);
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

static int read_at(int fd, void *p, uint64_t n, uint64_t offset, struct qn_error *e)
{
    uint8_t *to = p;
    while (n > 0) {
        ssize_t done = pread(fd, to, n, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return error_set(e, QN_EIO, "%s", strerror(errno));
        if (done == 0) return error_set(e, QN_EDATA, "it ends %llu bytes early", (unsigned long long)n);
        to += done;
        offset += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return 0;
}

/* Later than every time given before, so that the order is kept where the clock stands or is set back. */
static void set_time(struct store *s, struct store_file *f)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    s->last_ns = now > s->last_ns ? now : s->last_ns + 1000;
    f->written_ns = s->last_ns;
    t = (struct timespec){(time_t)(s->last_ns / 1000000000u), (long)(s->last_ns % 1000000000u)};
    utimensat(s->dir_fd, f->name, (struct timespec[2]){t, t}, AT_SYMLINK_NOFOLLOW); /* if not, it expires early */
}

static int load(void *arg, struct prefix_place place, uint8_t *page, struct qn_error *e)
{
    struct store *s = arg;
    struct store_file *f = place.file;
    if (s->open_file != f) {
        close_open_file(s);
        s->open_fd = openat(s->dir_fd, f->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (s->open_fd < 0) return error_set(e, QN_EIO, "%s", strerror(errno));
        s->open_file = f;
        posix_fadvise(s->open_fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        set_time(s, f);
    }
    uint64_t bytes = f->head.page_bytes, offset = chain_page_offset(&f->head, (uint32_t)place.index);
    /* The disk reads the next page while this one is verified. */
    posix_fadvise(s->open_fd, (off_t)offset, (off_t)(2 * bytes), POSIX_FADV_WILLNEED);
    int rc = read_at(s->open_fd, page, bytes, offset, e);
    if (rc) return rc;
    if (chain_page_sum(page, bytes) == f->pages[place.index].sum) return 0;
    return error_set(e, QN_EDATA, "the checksum of page %d differs", place.index);
}

static void damaged(void *arg, struct prefix_place place, const struct qn_error *why)
{
    struct store *s = arg;
    struct store_file *f = place.file;
    log_dropped(s, f->name, why->msg);
    s->stats.n_dropped++;
    if (why->code == QN_EDATA)
        file_delete(s, f);
    else
        file_unplace(s, f); /* it may be readable another day */
}

/* A longer page took this one's place; a file of which nothing is used any more goes. */
static void forget(void *arg, struct prefix_place place)
{
    struct store *s = arg;
    struct store_file *f = place.file;
    f->pages[place.index].node = NULL;
    if (--f->n_live == 0) file_delete(s, f);
}

/* ---- opening ---- */

static struct store_file *file_new(const char *name, uint64_t bytes, uint32_t n_pages, struct qn_error *e)
{
    size_t size = sizeof(struct store_file) + n_pages * sizeof(struct stored_page);
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
           a->head_dim == b->head_dim && a->page_slots == b->page_slots && h->page_bytes == kv_page_bytes(b);
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
        f->pages[i] = (struct stored_page){chain_index_sums(&f->head, index)[i], nodes[i]};
        f->n_live += nodes[i] != NULL;
    }
    f->n_pages = rc ? 0 : n_pages;
    mem_free(nodes);
    return rc;
}

/* Reads what tells about the file's pages; on success *out is new, in the tree, not yet in the list. */
static int read_file(struct store *s, int fd, const char *name, const struct stat *st, struct store_file **out,
                     struct qn_error *e)
{
    uint8_t bytes[CHAIN_HEAD_BYTES];
    struct chain_head h;
    int rc = read_at(fd, bytes, sizeof bytes, 0, e);
    if (!rc) rc = chain_head_read(&h, bytes, (uint64_t)st->st_size, e);
    if (rc) return rc;
    if (!same_shape(&h, s->pool)) return error_set(e, QN_EUNSUP, "of another model or KV type");
    uint64_t n = chain_index_bytes(&h);
    void *index = mem_alloc(n);
    if (!index) return error_nomem(e, "a token list", n);
    struct store_file *f = NULL;
    rc = read_at(fd, index, n, sizeof bytes, e);
    if (!rc) rc = chain_index_check(&h, index, e);
    if (!rc) rc = (f = file_new(name, (uint64_t)st->st_size, chain_n_pages(&h), e)) ? 0 : QN_ENOMEM;
    if (!rc) {
        f->head = h;
        rc = enter_pages(s, f, index, e);
    }
    mem_free(index);
    if (rc)
        mem_free(f);
    else
        *out = f;
    return rc;
}

/* One file with a name of ours. Damaged ones go; ones that cannot be used now (another model, another version, no
 * memory for their tokens, not readable) stay on disk and count. */
static int enter_file(struct store *s, const char *name, struct qn_error *e)
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
    rc = read_file(s, fd, name, &st, &f, &why);
    close(fd);
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
    if (!rc && f->n_live == 0) file_delete(s, f); /* others hold all that it has */
    return 0;
}

static int n_hex(const char *s) { return (int)strspn(s, "0123456789abcdef"); }

/* 1: a stored file; 2: one that was being written (out_file.h); 3: the lock, ".", ".."; 0: not ours. */
static int name_kind(const char *name)
{
    if (!strcmp(name, LOCK_NAME) || !strcmp(name, ".") || !strcmp(name, "..")) return 3;
    if (n_hex(name) != 16 || strncmp(name + 16, ".kv", 3)) return 0;
    if (!name[19]) return 1;
    return name[19] == '.' && n_hex(name + 20) == 8 && !name[28] ? 2 : 0;
}

static int read_dir(struct store *s, struct qn_error *e)
{
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
        if (kind == 1) rc = enter_file(s, entry->d_name, e);
        if (kind == 2) unlinkat(s->dir_fd, entry->d_name, 0);
    }
    closedir(d);
    return rc;
}

static int take_lock(struct store *s, struct qn_error *e)
{
    s->lock_fd = openat(s->dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
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
    /* Asked first, because a process that may use a folder is not always one that may make folders. */
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
    prefix_set_backing(tree, &(struct prefix_backing){s, load, damaged, forget});
    if ((rc = read_dir(s, e))) goto fail;
    make_room(s, 0, UINT64_MAX);
    *out = s;
    return 0;
fail:
    store_close(s);
    return rc;
}

void store_close(struct store *s)
{
    if (!s) return;
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
    int first, end; /* the pages for one file */
};

/* The first run of pages that are in the pool and not on disk; 0 when there is none. */
static int find_run(const struct store *s, struct chain *c)
{
    uint64_t page_bytes = kv_page_bytes(kv_pool_shape(s->pool)), most = FILE_BYTES / page_bytes;
    int i = 0;
    while (i < c->n && (!c->nodes[i]->page || c->nodes[i]->place.file)) i++;
    c->first = i;
    while (i < c->n && c->nodes[i]->page && !c->nodes[i]->place.file && (uint64_t)(i - c->first) < (most ? most : 1))
        i++;
    c->end = i;
    return c->end > c->first;
}

static void fill_head(const struct store *s, const struct chain *c, struct chain_head *h)
{
    const struct prefix_node *last = c->nodes[c->end - 1];
    const struct kv_shape *shape = kv_pool_shape(s->pool);
    *h = (struct chain_head){
        .key = prefix_root(last)->key,
        .shape = *shape,
        .page_bytes = kv_page_bytes(shape),
        .n_tokens = (uint32_t)(last->depth * shape->page_slots + last->n),
        .first_page = (uint32_t)c->first,
    };
}

static void fill_index(const struct chain *c, const struct chain_head *h, void *index)
{
    qn_token *tokens = chain_index_tokens(index);
    uint64_t *sums = chain_index_sums(h, index);
    for (int i = 0; i < c->end; i++, tokens += h->shape.page_slots)
        memcpy(tokens, c->nodes[i]->tokens, (size_t)c->nodes[i]->n * sizeof *tokens);
    for (int i = c->first; i < c->end; i++) sums[i - c->first] = chain_page_sum(c->nodes[i]->page, h->page_bytes);
    chain_index_seal(h, index);
}

static int write_parts(const struct store *s, const struct chain *c, const struct chain_head *h, const char *name,
                       const void *index, struct qn_error *e)
{
    static const uint8_t zeros[4096];
    uint8_t head[CHAIN_HEAD_BYTES];
    char path[PATH_MAX];
    struct out_file f = {0};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", s->dir, name) >= sizeof path)
        return error_set(e, QN_EIO, "the cache directory's name is too long");
    int rc = out_file_open(&f, path, e);
    if (!rc && fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot restrict '%s': %s", path, strerror(errno));
    chain_head_write(h, head);
    uint64_t index_bytes = chain_index_bytes(h);
    if (!rc) rc = out_file_write(&f, head, sizeof head, e);
    if (!rc) rc = out_file_write(&f, index, index_bytes, e);
    if (!rc) rc = out_file_write(&f, zeros, chain_page_offset(h, 0) - sizeof head - index_bytes, e);
    for (int i = c->first; i < c->end && !rc; i++) rc = out_file_write(&f, c->nodes[i]->page, h->page_bytes, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

/* A name that nothing has. */
static void new_name(const struct store *s, char name[NAME_BYTES])
{
    struct stat st;
    do snprintf(name, NAME_BYTES, "%016" PRIx64 ".kv", rng_seed_from_os());
    while (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
}

static int write_run(struct store *s, const struct chain *c, struct qn_error *e)
{
    struct chain_head h;
    char name[NAME_BYTES];
    fill_head(s, c, &h);
    new_name(s, name);
    uint64_t index_bytes = chain_index_bytes(&h);
    struct store_file *f = file_new(name, chain_file_bytes(&h), chain_n_pages(&h), e);
    void *index = f ? mem_calloc(1, index_bytes) : NULL;
    int rc = f ? 0 : QN_ENOMEM;
    if (f && !index) rc = error_nomem(e, "a token list", index_bytes);
    if (!rc) {
        fill_index(c, &h, index);
        rc = write_parts(s, c, &h, name, index, e);
    }
    if (rc) {
        mem_free(index);
        mem_free(f);
        return rc;
    }
    f->head = h;
    f->n_pages = f->n_live = c->end - c->first;
    for (int i = 0; i < f->n_pages; i++) {
        f->pages[i] = (struct stored_page){chain_index_sums(&h, index)[i], c->nodes[c->first + i]};
        prefix_place(s->tree, c->nodes[c->first + i], (struct prefix_place){f, i});
    }
    file_add(s, f);
    mem_free(index);
    return 1;
}

static void set_needed(const struct chain *c, int needed)
{
    for (int i = 0; i < c->n; i++)
        if (c->nodes[i]->place.file) ((struct store_file *)c->nodes[i]->place.file)->needed = needed;
}

/* Sets the times of the chain's files, those of its end first: they expire first. */
static void set_times(struct store *s, const struct chain *c)
{
    const void *last = NULL;
    for (int i = c->n - 1; i >= 0; i--) {
        struct store_file *f = c->nodes[i]->place.file;
        if (f && f != last) set_time(s, f);
        last = f;
    }
}

static int save_chain(struct store *s, struct prefix_node *leaf, struct chain *c, struct qn_error *e)
{
    uint64_t page_bytes = kv_page_bytes(kv_pool_shape(s->pool));
    struct chain_head h;
    int rc = 0;
    for (struct prefix_node *node = leaf; node->parent; node = node->parent) c->nodes[node->depth] = node;
    c->n = leaf->depth + 1;
    if (!find_run(s, c)) return 0;
    fill_head(s, c, &h);
    set_needed(c, 1);
    uint64_t bytes = chain_file_bytes(&h), fits = make_room(s, bytes, c->nodes[c->end - 1]->used_ns);
    if (fits < bytes) { /* the beginning of the run is better than nothing */
        uint64_t over = (bytes - fits + page_bytes - 1) / page_bytes;
        c->end = over < (uint64_t)(c->end - c->first) ? c->end - (int)over : c->first;
    }
    if (c->end > c->first) rc = write_run(s, c, e);
    set_needed(c, 0);
    if (rc > 0) set_times(s, c);
    return rc;
}

int store_save(struct store *s, struct qn_error *e)
{
    int longest = 0, rc = 0;
    for (struct prefix_node *leaf = NULL; (leaf = prefix_next_leaf(s->tree, leaf));)
        if (leaf->depth >= longest) longest = leaf->depth + 1;
    if (longest == 0) return 0;
    struct chain c = {.nodes = mem_calloc((size_t)longest, sizeof *c.nodes)};
    if (!c.nodes) return error_nomem(e, "a list of nodes", (size_t)longest * sizeof *c.nodes);
    for (struct prefix_node *leaf = NULL; !rc && (leaf = prefix_next_leaf(s->tree, leaf));)
        rc = save_chain(s, leaf, &c, e);
    mem_free(c.nodes);
    return rc;
}
