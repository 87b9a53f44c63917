/* SPDX-License-Identifier: MIT
 *
 * stage_disk.c: writes, reads and deletes a stage's files of pages. See stage_disk.h.
 */
#include "cluster/disk/stage_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out_file.h"
#include "base/worker.h"
#include "cache/chain_io.h"

#define MAGIC   0x51534b56u /* another byte order shows here */
#define VERSION 1
#define ALIGN   4096 /* of the first part in its file */
#define NAME    64
#define ENDING  ".stage"
/* Parts of a file: pages of the longest sequence, their window pages, a state. A longer file is none of ours, and its
 * table is not read. */
#define MOST_PARTS (2 * (CHAIN_MAX_TOKENS / KV_PAGE_SLOTS) + 1)
#define MOST       64 /* orders at a time: a head has a few */

/* What a file begins with. A table of its parts follows. */
struct file_head {
    uint32_t magic, version;
    uint8_t key[CHAIN_MODEL_BYTES];
    uint32_t lo, hi; /* the layers [lo, hi) */
    uint32_t n_parts, zero;
    uint64_t sum; /* of the table */
};

struct file_part {
    uint64_t bytes, sum;
};

struct disk_job {
    struct worker_job job;
    struct disk_job *next;
    struct stage_disk *disk;
    bool reads;
    uint32_t number;
    int n_parts, n_good;
    uint64_t budget;
    struct file_head head; /* of the files */
    struct disk_part parts[];
};

struct stage_disk {
    char dir[PATH_MAX];
    const struct kv_pool *kv;
    int lo, hi;
    bool is_entered;
    uint8_t key[CHAIN_MODEL_BYTES];
    uint64_t budget;
    struct worker *writer, *reader;
    struct disk_job *jobs; /* those that the head may ask about */
    int n_jobs;
};

/* ---- names ---- */

int stage_disk_folder(char *out, size_t size, const char *cache_dir, struct qn_error *e)
{
    int n = snprintf(out, size, "%s/stages", cache_dir);
    if (n < 0 || (size_t)n >= size) return error_set(e, QN_EIO, "cache: the path '%s' is too long", cache_dir);
    if ((mkdir(cache_dir, 0700) && errno != EEXIST) || (mkdir(out, 0700) && errno != EEXIST))
        return error_set(e, QN_EIO, "cache: cannot make '%s': %s", out, strerror(errno));
    return 0;
}

/* The end of all names of this stage. */
static void own_ending(const struct stage_disk *d, char out[NAME])
{
    snprintf(out, NAME, "-%d-%d" ENDING, d->lo, d->hi);
}

static int path_of(const struct stage_disk *d, const uint32_t name[2], char path[PATH_MAX], struct qn_error *e)
{
    char ending[NAME];
    own_ending(d, ending);
    int n = snprintf(path, PATH_MAX, "%s/%08" PRIx32 "%08" PRIx32 "%s", d->dir, name[1], name[0], ending);
    return n < PATH_MAX ? 0 : error_set(e, QN_EIO, "cache: the path '%s' is too long", d->dir);
}

/* Whether it is the name of a file of any stage; *is_temporary: it was being written (out_file.h). */
static bool is_stage_file(const char *name, bool *is_temporary)
{
    const char *end = strstr(name, ENDING);
    if (strspn(name, "0123456789abcdef") != 16 || name[16] != '-' || !end) return false;
    end += strlen(ENDING);
    *is_temporary = *end == '.';
    return !*end || (*end == '.' && strspn(end + 1, "0123456789abcdef") == 8 && !end[9]);
}

static size_t bytes_of(const struct stage_disk *d, uint32_t kind)
{
    const struct kv_shape *shape = kv_pool_shape(d->kv);
    return kind == KV_PAGES     ? kv_page_bytes(shape)
           : kind == KV_WINDOWS ? kv_window_page_bytes(shape)
                                : shape->state_bytes;
}

/* ---- expiry ---- */

/* Calls use() for each file of stages in the folder. */
static void each_file(const struct stage_disk *d,
                      void (*use)(void *arg, int dir, const char *name, const struct stat *st, bool is_temporary),
                      void *arg)
{
    DIR *dir = opendir(d->dir);
    bool is_temporary;
    struct stat st;
    for (const struct dirent *f; dir && (f = readdir(dir));)
        if (is_stage_file(f->d_name, &is_temporary) && !fstatat(dirfd(dir), f->d_name, &st, AT_SYMLINK_NOFOLLOW))
            use(arg, dirfd(dir), f->d_name, &st, is_temporary);
    if (dir) closedir(dir);
}

/* Removes what this stage did not complete. */
static void remove_temporary(void *arg, int dir, const char *name, const struct stat *st, bool is_temporary)
{
    (void)st;
    if (is_temporary && !strncmp(name + 16, arg, strlen(arg))) unlinkat(dir, name, 0);
}

struct usage {
    uint64_t bytes;
    struct timespec oldest_time;
    char oldest[NAME];
};

static void add_usage(void *arg, int dir, const char *name, const struct stat *st, bool is_temporary)
{
    struct usage *u = arg;
    struct timespec t = st->st_mtim, o = u->oldest_time;
    (void)dir;
    u->bytes += (uint64_t)st->st_size;
    bool is_older = !u->oldest[0] || t.tv_sec < o.tv_sec || (t.tv_sec == o.tv_sec && t.tv_nsec < o.tv_nsec);
    if (is_temporary || !is_older || strlen(name) >= sizeof u->oldest) return;
    u->oldest_time = t;
    strcpy(u->oldest, name);
}

/* Deletes the files that were not used for longest, of whatever model, until the rest is within the budget. The head
 * deletes files by their use; this is for those that it does not know any more. */
static void keep_budget(const struct stage_disk *d, uint64_t budget)
{
    for (;;) {
        struct usage u = {0};
        char path[PATH_MAX];
        each_file(d, add_usage, &u);
        if (u.bytes <= budget || !u.oldest[0]) return;
        if (snprintf(path, sizeof path, "%s/%s", d->dir, u.oldest) >= (int)sizeof path || unlink(path)) return;
    }
}

/* ---- writing ---- */

/* The part's bytes: a page that is not full is copied, with zeros after its slots. */
static const uint8_t *part_at(const struct disk_job *j, const struct disk_part *p, uint8_t *copy)
{
    const struct stage_disk *d = j->disk;
    const struct kv_shape *shape = kv_pool_shape(d->kv);
    uint8_t *at = kv_at(d->kv, (enum kv_kind)p->kind, p->number);
    if (p->kind == KV_STATES || (int)p->n_slots >= shape->page_slots) return at;
    memcpy(copy, at, bytes_of(d, p->kind));
    if (p->kind == KV_PAGES)
        kv_page_clear(shape, copy, (int)p->n_slots);
    else
        kv_window_page_clear(shape, copy, (int)p->n_slots);
    return copy;
}

static uint64_t table_bytes(uint32_t n_parts) { return n_parts * sizeof(struct file_part); }

static uint64_t first_offset(uint32_t n_parts)
{
    return (sizeof(struct file_head) + table_bytes(n_parts) + ALIGN - 1) / ALIGN * ALIGN;
}

static int put_file(const struct disk_job *j, struct out_file *f, struct file_part *table, uint8_t *copy,
                    struct qn_error *e)
{
    static const uint8_t zeros[ALIGN];
    struct file_head h = j->head;
    uint64_t n = (uint64_t)j->n_parts;
    h.n_parts = (uint32_t)n;
    for (int i = 0; i < j->n_parts; i++) {
        table[i].bytes = bytes_of(j->disk, j->parts[i].kind);
        table[i].sum = chain_part_sum(part_at(j, &j->parts[i], copy), table[i].bytes);
    }
    h.sum = chain_part_sum(table, table_bytes(h.n_parts));
    int rc = out_file_write(f, &h, sizeof h, e);
    if (!rc) rc = out_file_write(f, table, table_bytes(h.n_parts), e);
    if (!rc) rc = out_file_write(f, zeros, first_offset(h.n_parts) - sizeof h - table_bytes(h.n_parts), e);
    for (int i = 0; i < j->n_parts && !rc; i++)
        rc = out_file_write(f, part_at(j, &j->parts[i], copy), table[i].bytes, e);
    return rc;
}

static int write_file(const struct disk_job *j, struct qn_error *e)
{
    const struct stage_disk *d = j->disk;
    size_t most = bytes_of(d, KV_PAGES) + bytes_of(d, KV_WINDOWS) + 1;
    struct file_part *table = mem_calloc((size_t)j->n_parts, sizeof *table);
    uint8_t *copy = mem_alloc(most);
    struct out_file f = {0};
    char path[PATH_MAX];
    int rc = table && copy ? 0 : error_nomem(e, "a file of pages", most);
    if (!rc) rc = path_of(d, j->parts[0].name, path, e);
    if (!rc) rc = out_file_open(&f, path, e);
    if (!rc && fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot restrict '%s': %s", path, strerror(errno));
    if (!rc) rc = put_file(j, &f, table, copy, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    mem_free(table);
    mem_free(copy);
    return rc;
}

static void run_write(struct worker_job *job)
{
    struct disk_job *j = (struct disk_job *)job;
    struct qn_error e;
    if (write_file(j, &e))
        log_at(LOG_WARN, "cache: %s", e.msg);
    else
        j->n_good = j->n_parts;
    keep_budget(j->disk, j->budget);
}

/* ---- reading ---- */

/* The file that parts are read from. */
struct disk_source {
    int fd; /* -1: none */
    uint32_t name[2], n_parts;
    struct file_part *table;
};

static void close_source(struct disk_source *s)
{
    if (s->fd >= 0) close(s->fd);
    mem_free(s->table);
    *s = (struct disk_source){.fd = -1};
}

static int read_table(struct disk_source *s, const struct file_head *want, struct qn_error *e)
{
    struct file_head h;
    struct stat st;
    int rc = chain_read_at(s->fd, &h, sizeof h, 0, e);
    if (rc) return rc;
    if (fstat(s->fd, &st) || h.magic != MAGIC || h.version != VERSION || memcmp(h.key, want->key, sizeof h.key) ||
        h.lo != want->lo || h.hi != want->hi || h.n_parts > MOST_PARTS ||
        (uint64_t)st.st_size / sizeof *s->table < h.n_parts)
        return error_set(e, QN_EDATA, "it is of another model, of other layers or damaged");
    s->n_parts = h.n_parts;
    s->table = mem_alloc(table_bytes(h.n_parts) + 1);
    if (!s->table) return error_nomem(e, "the table of a file", table_bytes(h.n_parts));
    rc = chain_read_at(s->fd, s->table, table_bytes(h.n_parts), sizeof h, e);
    if (!rc && chain_part_sum(s->table, table_bytes(h.n_parts)) != h.sum)
        rc = error_set(e, QN_EDATA, "its table is damaged");
    return rc;
}

/* Opens the file of a part, unless it is open. Reading it counts as its use. */
static int open_source(struct disk_source *s, const struct disk_job *j, const struct disk_part *p, struct qn_error *e)
{
    char path[PATH_MAX];
    if (s->fd >= 0 && !memcmp(s->name, p->name, sizeof s->name)) return 0;
    close_source(s);
    int rc = path_of(j->disk, p->name, path, e);
    if (rc) return rc;
    s->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (s->fd < 0) return error_set(e, QN_EIO, "%s", strerror(errno));
    memcpy(s->name, p->name, sizeof s->name);
    futimens(s->fd, NULL);
    return read_table(s, &j->head, e);
}

static int read_part(const struct disk_source *s, const struct disk_job *j, const struct disk_part *p,
                     struct qn_error *e)
{
    uint64_t offset = first_offset(s->n_parts), bytes = bytes_of(j->disk, p->kind);
    uint8_t *to = kv_at(j->disk->kv, (enum kv_kind)p->kind, p->number);
    if (p->index >= s->n_parts || s->table[p->index].bytes != bytes)
        return error_set(e, QN_EDATA, "it has no such part %u", p->index);
    for (uint32_t i = 0; i < p->index; i++) offset += s->table[i].bytes;
    int rc = chain_read_at(s->fd, to, bytes, offset, e);
    if (!rc && chain_part_sum(to, bytes) != s->table[p->index].sum)
        rc = error_set(e, QN_EDATA, "the checksum of part %u differs", p->index);
    return rc;
}

static void run_read(struct worker_job *job)
{
    struct disk_job *j = (struct disk_job *)job;
    struct disk_source s = {.fd = -1};
    struct qn_error e;
    int rc = 0;
    for (int i = 0; i < j->n_parts && !rc; i++) {
        const struct disk_part *p = &j->parts[i];
        if (!bytes_of(j->disk, p->kind)) continue; /* this stage has none */
        rc = open_source(&s, j, p, &e);
        if (!rc) rc = read_part(&s, j, p, &e);
        if (!rc) continue;
        log_at(LOG_WARN, "cache: '%s/%08" PRIx32 "%08" PRIx32 "', layers %d to %d: %s", j->disk->dir, p->name[1],
               p->name[0], j->disk->lo, j->disk->hi - 1, e.msg);
        j->n_good = i;
    }
    if (!rc) j->n_good = j->n_parts;
    close_source(&s);
}

/* ---- orders ---- */

int stage_disk_new(struct stage_disk **out, const char *dir, const struct kv_pool *kv, int lo, int hi,
                   struct qn_error *e)
{
    struct stage_disk *d = mem_calloc(1, sizeof *d);
    if (!d) return error_nomem(e, "a stage's files", sizeof *d);
    *d = (struct stage_disk){.kv = kv, .lo = lo, .hi = hi};
    if (snprintf(d->dir, sizeof d->dir, "%s", dir) >= (int)sizeof d->dir) {
        mem_free(d);
        return error_set(e, QN_EIO, "cache: the path '%s' is too long", dir);
    }
    *out = d;
    return 0;
}

static void free_job(struct stage_disk *d, struct disk_job **at)
{
    struct disk_job *j = *at;
    worker_wait(j->reads ? d->reader : d->writer, &j->job);
    *at = j->next;
    d->n_jobs--;
    mem_free(j);
}

void stage_disk_free(struct stage_disk *d)
{
    if (!d) return;
    while (d->jobs) free_job(d, &d->jobs);
    worker_free(d->writer);
    worker_free(d->reader);
    mem_free(d);
}

/* The threads begin here, inside the stage's fence. */
static void enter(struct stage_disk *d, const struct disk_order *o)
{
    char ending[NAME];
    struct qn_error e;
    memcpy(d->key, o->key, sizeof d->key);
    d->budget = o->budget;
    own_ending(d, ending);
    each_file(d, remove_temporary, ending);
    int rc = d->writer ? 0 : worker_new(&d->writer, "cache-writer", &e);
    if (!rc && !d->reader) rc = worker_new(&d->reader, "cache-reader", &e);
    if (rc) log_at(LOG_WARN, "cache: nothing is kept on disk: %s", e.msg);
    d->is_entered = !rc;
}

static void begin(struct stage_disk *d, const struct disk_order *o)
{
    size_t bytes = (size_t)o->n_parts * sizeof *o->parts;
    struct disk_job *j = d->is_entered && d->n_jobs < MOST ? mem_calloc(1, sizeof *j + bytes) : NULL;
    if (!j) return; /* nothing is known of it: it has failed */
    *j = (struct disk_job){.next = d->jobs, .disk = d, .reads = o->op == DISK_READ, .number = o->number};
    j->n_parts = o->n_parts;
    j->budget = d->budget;
    j->job.run = j->reads ? run_read : run_write;
    j->head = (struct file_head){MAGIC, VERSION, {0}, (uint32_t)d->lo, (uint32_t)d->hi, 0, 0, 0};
    memcpy(j->head.key, d->key, sizeof d->key);
    memcpy(j->parts, o->parts, bytes);
    d->jobs = j;
    d->n_jobs++;
    worker_post(j->reads ? d->reader : d->writer, &j->job);
}

static struct disk_job **find(struct stage_disk *d, uint32_t number)
{
    struct disk_job **at = &d->jobs;
    while (*at && (*at)->number != number) at = &(*at)->next;
    return at;
}

static void drop(const struct stage_disk *d, const struct disk_part *p)
{
    char path[PATH_MAX];
    if (!path_of(d, p->name, path, NULL)) unlink(path);
}

void stage_disk_do(struct stage_disk *d, const struct disk_order *o)
{
    struct disk_job **at = find(d, o->number);
    if (o->op == DISK_ENTER) enter(d, o);
    if (o->op == DISK_WRITE || o->op == DISK_READ) begin(d, o);
    if (o->op == DISK_END && *at && worker_is_done((*at)->reads ? d->reader : d->writer, &(*at)->job)) free_job(d, at);
    if (o->op == DISK_DROP) drop(d, o->parts);
}

void stage_disk_ask(struct stage_disk *d, uint32_t number, uint32_t *is_busy, uint32_t *n_good)
{
    struct disk_job *j = d ? *find(d, number) : NULL;
    uint32_t good = 0;
    if (j && !worker_is_done(j->reads ? d->reader : d->writer, &j->job))
        *is_busy = 1;
    else if (j)
        good = (uint32_t)j->n_good;
    if (good < *n_good && !*is_busy) *n_good = good;
}
