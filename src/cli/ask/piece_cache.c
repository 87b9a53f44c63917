/* SPDX-License-Identifier: MIT
 *
 * piece_cache.c: answers in files, or in memory where no file can be written. See piece_cache.h.
 *
 * A file has eight bytes that name the format, the XXH3 of the rest, the length of the request (64 bits,
 * little-endian), the request and the answer. Files are not trusted: each is checked, and ignored if it is wrong.
 */
#include "cli/ask/piece_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/out_file.h"
#include "cli/core/cli.h"
#include "cli/core/home.h"

#define MAGIC    "quernpc1"
#define HEAD     24
#define MAX_FILE ((size_t)32 << 20)

/* ---- the folder ---- */

static void give_up(struct piece_cache *c, const char *why)
{
    fprintf(stderr, "quern: warning: answers for pieces are not kept: %s\n", why);
    mem_free(c->dir);
    c->dir = NULL;
}

void piece_cache_open(struct piece_cache *c, uint64_t budget_bytes)
{
    struct qn_error e = {0};
    *c = (struct piece_cache){.budget = budget_bytes};
    if (home_path(&c->dir, HOME_CACHE, "pieces/", &e) || home_make_above(c->dir, &e)) give_up(c, e.msg);
}

struct kept_file {
    struct timespec used;
    off_t bytes;
    char name[33];
};

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept_file *)a)->used, *y = &((const struct kept_file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool is_ours(const char *name) { return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32; }

/* Lists our files in the folder; *total gets their bytes. */
static struct kept_file *list_files(DIR *d, size_t *n, uint64_t *total)
{
    struct kept_file *all = NULL;
    size_t cap = 0;
    *n = 0;
    *total = 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        struct stat st;
        if (!is_ours(entry->d_name) || fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        if (*n == cap) {
            cap = cap ? 2 * cap : 1024;
            struct kept_file *more = cli_alloc(cap, sizeof *more);
            if (*n) memcpy(more, all, *n * sizeof *more);
            cli_free(all);
            all = more;
        }
        all[*n] = (struct kept_file){.used = st.st_mtim, .bytes = st.st_size};
        memcpy(all[(*n)++].name, entry->d_name, 33);
        *total += (uint64_t)st.st_size;
    }
    return all;
}

/* Removes old files until three quarters of the budget are used, so that not every run has to do it. */
static void trim(const struct piece_cache *c)
{
    DIR *d = opendir(c->dir);
    size_t n;
    uint64_t total;
    if (!d) return;
    struct kept_file *all = list_files(d, &n, &total);
    if (total > c->budget) {
        qsort(all, n, sizeof *all, by_age);
        for (size_t i = 0; i < n && total > c->budget / 4 * 3; i++)
            if (!unlinkat(dirfd(d), all[i].name, 0)) total -= (uint64_t)all[i].bytes;
    }
    cli_free(all);
    closedir(d);
}

void piece_cache_close(struct piece_cache *c)
{
    if (c->dir && c->wrote) trim(c);
    mem_free(c->dir);
    for (size_t i = 0; i < PIECE_CACHE_RECENT; i++) {
        cli_free(c->recent[i].key);
        cli_free(c->recent[i].answer);
    }
}

/* ---- in memory ---- */

static struct piece_recent *slot_of(struct piece_cache *c, const char *key, size_t n_key)
{
    return &c->recent[hash_bytes(key, n_key, 0) % PIECE_CACHE_RECENT];
}

static bool find_recent(struct piece_cache *c, const char *key, size_t n_key, struct buf *answer)
{
    const struct piece_recent *r = slot_of(c, key, n_key);
    if (!r->key || r->n_key != n_key || memcmp(r->key, key, n_key)) return false;
    return !buf_add(answer, r->answer, r->n_answer, NULL);
}

static char *copy_of(const char *p, size_t n)
{
    char *copy = cli_alloc(n + 1, 1);
    if (n) memcpy(copy, p, n);
    return copy;
}

static void add_recent(struct piece_cache *c, const char *key, size_t n_key, const char *answer, size_t n_answer)
{
    struct piece_recent *r = slot_of(c, key, n_key);
    cli_free(r->key);
    cli_free(r->answer);
    *r = (struct piece_recent){copy_of(key, n_key), copy_of(answer, n_answer), n_key, n_answer};
}

/* ---- on disk ---- */

static void name_file(char *path, size_t cap, const struct piece_cache *c, const char *key, size_t n_key)
{
    snprintf(path, cap, "%s%016llx%016llx", c->dir, (unsigned long long)hash_bytes(key, n_key, 1),
             (unsigned long long)hash_bytes(key, n_key, 2));
}

/* The answer in a file for this request; NULL: the file is for another request, or damaged. */
static const uint8_t *answer_in(const struct buf *file, const char *key, size_t n_key, size_t *n_answer)
{
    uint64_t sum, n;
    if (file->len < HEAD || memcmp(file->data, MAGIC, 8)) return NULL;
    memcpy(&sum, file->data + 8, 8);
    memcpy(&n, file->data + 16, 8);
    if (n != n_key || n > file->len - HEAD || memcmp(file->data + HEAD, key, n_key)) return NULL;
    if (sum != hash_bytes(file->data + 16, file->len - 16, 0)) return NULL;
    *n_answer = file->len - HEAD - n_key;
    return file->data + HEAD + n_key;
}

bool piece_cache_find(struct piece_cache *c, const char *key, size_t n_key, struct buf *answer)
{
    char path[4096];
    struct buf file = {0};
    size_t n = 0;
    if (!c->dir) return find_recent(c, key, n_key, answer);
    name_file(path, sizeof path, c, key, n_key);
    const uint8_t *text = os_read_file(&file, path, MAX_FILE, NULL) ? NULL : answer_in(&file, key, n_key, &n);
    bool found = text && !buf_add(answer, text, n, NULL);
    if (found) utimensat(AT_FDCWD, path, NULL, 0); /* marks the file as used */
    buf_deinit(&file);
    return found;
}

static int write_file(const char *path, const struct buf *body, struct qn_error *e)
{
    struct out_file f = {0};
    uint64_t sum = hash_bytes(body->data, body->len, 0);
    int rc = out_file_open(&f, path, e);
    cli_unfinished = f.temp;
    if (!rc) rc = out_file_write(&f, MAGIC, 8, e);
    if (!rc) rc = out_file_write(&f, &sum, 8, e);
    if (!rc) rc = out_file_write(&f, body->data, body->len, e);
    if (!rc) rc = out_file_commit(&f, e);
    cli_unfinished = NULL;
    out_file_abort(&f);
    return rc;
}

void piece_cache_add(struct piece_cache *c, const char *key, size_t n_key, const char *answer, size_t n_answer)
{
    char path[4096];
    struct buf body = {0};
    struct qn_error e = {0};
    uint64_t n = n_key;
    if (c->dir) {
        name_file(path, sizeof path, c, key, n_key);
        int rc = buf_add(&body, &n, sizeof n, &e);
        if (!rc) rc = buf_add(&body, key, n_key, &e);
        if (!rc) rc = buf_add(&body, answer, n_answer, &e);
        if (!rc) rc = write_file(path, &body, &e);
        buf_deinit(&body);
        if (rc) give_up(c, e.msg);
        c->wrote = true;
    }
    if (!c->dir) add_recent(c, key, n_key, answer, n_answer);
}
