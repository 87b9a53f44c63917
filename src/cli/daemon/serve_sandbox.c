/* SPDX-License-Identifier: MIT
 *
 * serve_sandbox.c: lists the files that a daemon needs, and fences all others. See serve_sandbox.h.
 *
 * Models are allowed file by file, because other files lie next to them. A model that is a folder is allowed as a
 * whole, together with the files that its links lead to: a download cache keeps the files of its folders elsewhere.
 * Keys and certificates are read again on SIGHUP, and renewing them puts a new file in place of the old one, so the
 * rule is for their directory. If the path is a link, the directory of the linked file is allowed too, because a
 * renewal may change either.
 *
 * The files that the C library and base/os.h read while a model is opened are readable too: memory, control groups,
 * the time zone.
 */
#include "cli/daemon/serve_sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"
#include "format/file/split.h"
#include "server/sandbox.h"

static int add(struct buf *paths, const char *name, size_t n, enum sandbox_right right, struct qn_error *e)
{
    char *copy = mem_dup(name, n);
    struct sandbox_path p = {.path = copy, .right = right};
    int r = copy ? buf_add(paths, &p, sizeof p, e) : error_nomem(e, "a path", n + 1);

    if (r < 0) mem_free(copy);
    return r;
}

static int add_directory(struct buf *paths, const char *path, enum sandbox_right right, struct qn_error *e)
{
    const char *slash = strrchr(path, '/');

    if (!slash) return add(paths, ".", 1, right, e);
    return add(paths, path, slash == path ? 1 : (size_t)(slash - path), right, e);
}

static int add_replaceable(struct buf *paths, const char *path, struct qn_error *e)
{
    char real[PATH_MAX];
    int r = path ? add_directory(paths, path, SANDBOX_READ, e) : 0;

    return r == 0 && path && realpath(path, real) ? add_directory(paths, real, SANDBOX_READ, e) : r;
}

/* Allows the files that links in a folder lead to. A rule is for the file itself, so only links need a rule in
 * addition to their folder's. */
static int add_links(struct buf *paths, const char *folder, struct qn_error *e)
{
    char path[PATH_MAX];
    struct stat st;
    int r = 0;
    DIR *d = opendir(folder);

    for (const struct dirent *f; d && r == 0 && (f = readdir(d));) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        if (n < 0 || n >= (int)sizeof path || lstat(path, &st) || !S_ISLNK(st.st_mode)) continue;
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) r = add(paths, path, (size_t)n, SANDBOX_READ, e);
    }
    if (d) closedir(d);
    return r;
}

static int add_model(struct buf *paths, const char *path, struct qn_error *e)
{
    size_t len = strlen(path);
    uint64_t no, n;
    char *part;
    int r = add(paths, path, len, SANDBOX_READ, e);

    if (r == 0 && os_is_directory(path)) return add_links(paths, path, e);
    split_parse(path, &no, &n);
    for (uint64_t i = 0; n > 1 && r == 0 && i < n; i++) {
        if ((r = split_path(&part, path, i, n, e)) || !part) break;
        r = add(paths, part, len, SANDBOX_READ, e);
        mem_free(part);
    }
    return r;
}

static int collect(struct buf *paths, const struct serve_paths *p, struct qn_error *e)
{
    static const char *const system[] = {"/proc/meminfo",  "/proc/self/cgroup", "/proc/self/status",
                                         "/sys/fs/cgroup", "/etc/localtime",    "/usr/share/zoneinfo"};
    int r = p->cache_dir ? add(paths, p->cache_dir, strlen(p->cache_dir), SANDBOX_CHANGE, e) : 0;

    if (r == 0 && p->hash_dir) r = add(paths, p->hash_dir, strlen(p->hash_dir), SANDBOX_READ, e);

    for (size_t i = 0; r == 0 && i < p->n_models; i++) r = add_model(paths, p->models[i], e);
    for (size_t i = 0; r == 0 && i < sizeof system / sizeof *system; i++)
        r = add(paths, system[i], strlen(system[i]), SANDBOX_READ, e);
    if (r == 0) r = add_replaceable(paths, p->keys, e);
    if (r == 0) r = add_replaceable(paths, p->cert, e);
    if (r == 0) r = add_replaceable(paths, p->key, e);
    for (int i = 0; r == 0 && i < p->n_sockets; i++)
        if (p->sockets[i].address && p->sockets[i].address[0] == '/')
            r = add_directory(paths, p->sockets[i].address, SANDBOX_REMOVE, e);
    return r;
}

int serve_fence_files(const struct serve_paths *p, struct buf *missing, struct qn_error *e)
{
    struct buf all = {0};
    struct sandbox_path *paths;
    size_t n;
    int r;

    r = collect(&all, p, e);
    paths = (struct sandbox_path *)(void *)all.data;
    n = all.len / sizeof *paths;
    tzset();
    if (r == 0) r = sandbox_files(paths, n, missing, e);
    for (size_t i = 0; i < n; i++) mem_free((void *)(uintptr_t)paths[i].path);
    buf_deinit(&all);
    return r;
}
