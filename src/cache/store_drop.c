/* SPDX-License-Identifier: MIT
 *
 * store_drop.c: deletes an owner's files in a directory that no store has open.
 *
 * The owner is in the head of each file, so neither the model nor the tree is needed. Each file has all tokens of its
 * sequence, so the sequences can be counted too: a file that another one continues is not the end of one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "cache/chain_io.h"
#include "cache/store.h"

/* A deleted file. */
struct dropped {
    struct prefix_key key;
    size_t n, at; /* tokens; where they begin in the list of all tokens */
};

struct drop {
    int dir_fd;
    uint64_t owner;
    struct buf files;  /* struct dropped */
    struct buf tokens; /* of all of them */
};

/* Reads an open file. 1: it is the owner's, and its tokens are in the lists if they can be read. 0: it is not. */
static int read_file(struct drop *d, int fd, struct qn_error *e)
{
    uint8_t head[CHAIN_HEAD_BYTES];
    struct chain_head h;
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || chain_read_at(fd, head, sizeof head, 0, NULL) ||
        chain_head_read(&h, head, (uint64_t)st.st_size, NULL) || h.key.owner != d->owner)
        return 0;
    struct dropped f = {h.key, h.n_tokens, d->tokens.len / sizeof(qn_token)};
    uint64_t n = chain_index_bytes(&h);
    void *index = mem_alloc(n);
    if (!index) return error_nomem(e, "a token list", n);
    int rc = 0;
    if (!chain_read_at(fd, index, n, sizeof head, NULL) && !chain_index_check(&h, index, NULL)) {
        rc = buf_add(&d->tokens, chain_index_tokens(index), f.n * sizeof(qn_token), e);
        if (!rc) rc = buf_add(&d->files, &f, sizeof f, e);
    }
    mem_free(index);
    return rc ? rc : 1;
}

static int drop_file(struct drop *d, const char *name, struct qn_error *e)
{
    int fd = openat(d->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int rc = fd < 0 ? 0 : read_file(d, fd, e);
    if (fd >= 0) close(fd);
    if (rc == 1 && unlinkat(d->dir_fd, name, 0) && errno != ENOENT)
        return error_set(e, QN_EIO, "cache: cannot delete '%s': %s", name, strerror(errno));
    return rc < 0 ? rc : 0;
}

static int drop_files(struct drop *d, struct qn_error *e)
{
    int rc = 0, fd = openat(d->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        error_set(e, QN_EIO, "cache: cannot read the directory: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return QN_EIO;
    }
    for (const struct dirent *entry; !rc && (entry = readdir(dir));)
        if (chain_is_name(entry->d_name)) rc = drop_file(d, entry->d_name, e);
    closedir(dir);
    return rc;
}

/* Whether the sequence of file a goes on in file b; of two equal ones, in the later one. */
static bool goes_on(const struct drop *d, const struct dropped *a, const struct dropped *b)
{
    const qn_token *t = (const qn_token *)d->tokens.data;
    if (a == b || a->n > b->n || memcmp(&a->key, &b->key, sizeof a->key)) return false;
    return (a->n < b->n || a < b) && !memcmp(t + a->at, t + b->at, a->n * sizeof *t);
}

static size_t count_sequences(const struct drop *d)
{
    const struct dropped *f = (const struct dropped *)d->files.data;
    size_t n_files = d->files.len / sizeof *f, n = 0;
    for (size_t i = 0; i < n_files; i++) {
        bool continued = false;
        for (size_t k = 0; k < n_files && !continued; k++) continued = goes_on(d, &f[i], &f[k]);
        n += !continued;
    }
    return n;
}

int store_drop_files(const char *dir, uint64_t owner, size_t *n, struct qn_error *e)
{
    struct drop d = {.dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .owner = owner};
    int rc = 0, lock = d.dir_fd < 0 ? -1 : openat(d.dir_fd, STORE_LOCK_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    *n = 0;
    if (lock < 0 && errno != ENOENT) /* a directory without a lock has never been used */
        rc = error_set(e, QN_EIO, "cache: cannot open '%s': %s", dir, strerror(errno));
    else if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB))
        rc = error_set(e, QN_EBUSY, "cache: '%s' is in use", dir);
    else if (lock >= 0)
        rc = drop_files(&d, e);
    *n = count_sequences(&d);
    buf_deinit(&d.files);
    buf_deinit(&d.tokens);
    if (lock >= 0) close(lock);
    if (d.dir_fd >= 0) close(d.dir_fd);
    return rc;
}
