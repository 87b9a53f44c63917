/* SPDX-License-Identifier: MIT
 *
 * command_rm.c: `quern rm MODEL...`: shows the files of models, asks, and removes them.
 *
 * It removes the names that are there: a link and never the file it leads to; from a folder the files that belong to a
 * model, and the folder only if nothing else is in it. The file that makes it a model (the first part, config.json)
 * goes last, so a model that was removed in part is still listed and can be removed again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/place/catalog.h"
#include "cli/core/cli.h"
#include "cli/core/columns.h"
#include "cli/core/commands.h"
#include "cli/place/daemon.h"

struct rm {
    struct cli_strings folders;
    const char *socket;
    bool yes, force;
};

/* One model, and the files to remove. */
struct removal {
    char *path;
    struct catalog_files files;
    bool is_link;   /* the model is a link to a folder: only the link is removed */
    uint64_t bytes; /* bytes that become free */
};

/* ---- the files ---- */

static bool goes_last(const char *path) { return !strcmp(catalog_last_name(path), "config.json"); }

static int by_order(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    int d = goes_last(x) - goes_last(y);
    return d ? d : strcmp(y, x); /* the first part goes last too */
}

/* Adds up the bytes of the files, not of links. */
static void count_bytes(struct removal *r)
{
    struct stat st;
    for (size_t i = 0; i < r->files.n && !r->is_link; i++)
        if (!lstat(r->files.path[i], &st) && S_ISREG(st.st_mode)) r->bytes += (uint64_t)st.st_size;
}

static int find(struct removal *r, const struct rm *o, const char *name)
{
    struct qn_error e = {0};
    struct stat st;
    if (catalog_find(&r->path, &o->folders, name, &e)) return cli_fail(&e);
    for (size_t n = strlen(r->path); n > 1 && r->path[n - 1] == '/'; n--)
        r->path[n - 1] = 0; /* the link itself, not the folder it leads to */
    if (!catalog_is_model(r->path)) {
        error_set(&e, QN_ENOINPUT, "'%s' is not a model: neither a file NAME.gguf nor a folder with a config.json",
                  r->path);
        return cli_fail(&e);
    }
    if (catalog_files(&r->files, r->path, &e)) return cli_fail(&e);
    r->is_link = r->files.is_folder && !lstat(r->path, &st) && S_ISLNK(st.st_mode);
    count_bytes(r);
    qsort(r->files.path, r->files.n, sizeof *r->files.path, by_order);
    return 0;
}

/* ---- permission ---- */

/* Whether a daemon's model is this file. The daemon's relative paths begin where it was started. */
static bool is_same_file(const char *path, const json_t *model, pid_t pid)
{
    char theirs[PATH_MAX];
    const char *said = daemon_text(model, "path");
    struct stat a, b;
    int n = said[0] == '/' ? snprintf(theirs, sizeof theirs, "%s", said)
                           : snprintf(theirs, sizeof theirs, "/proc/%ld/cwd/%s", (long)pid, said);
    return *said && (size_t)n < sizeof theirs && !stat(path, &a) && !stat(theirs, &b) && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Refuses models that a running daemon serves. The daemon would continue with a file that has no name, and could not
 * load it again. */
static int check_unused(const struct removal *r, int n, const char *socket)
{
    struct daemon d;
    struct qn_error e;
    json_t *status = NULL, *m;
    size_t i;
    int rc = 0;
    if (!daemon_open(&d, socket, true) && !daemon_ask(&d, "/v1/status", &status, NULL)) {
        pid_t pid = daemon_pid(status);
        json_array_foreach(json_object_get(status, "models"), i, m)
        {
            for (int k = 0; k < n && !rc; k++) {
                if (!is_same_file(r[k].path, m, pid)) continue;
                error_set(&e, QN_EBUSY,
                          "'%s' is served by the daemon at %s: quern stop ends it, --force removes it all the same",
                          r[k].path, d.socket);
                rc = cli_fail(&e);
            }
        }
    }
    json_decref(status);
    daemon_close(&d);
    return rc;
}

static void show(const struct removal *r, int n)
{
    struct text_columns t = {.align = "lrl"};
    struct stat st;
    char size[32];
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < (r[i].is_link ? 1 : r[i].files.n); k++) {
            const char *path = r[i].is_link ? r[i].path : r[i].files.path[k];
            bool is_link = !lstat(path, &st) && S_ISLNK(st.st_mode);
            columns_size(is_link ? 0 : (uint64_t)st.st_size, size);
            columns_add(&t, "%s", path);
            columns_add(&t, "%s", is_link ? "" : size);
            columns_add(&t, "%s", is_link ? "a link: what it points to stays" : "");
        }
    columns_print(&t);
    fflush(stdout);
}

static int confirm(const struct removal *r, int n)
{
    char size[32], answer[16] = "";
    uint64_t bytes = 0;
    size_t n_files = 0;
    for (int i = 0; i < n; i++) {
        bytes += r[i].bytes;
        n_files += r[i].is_link ? 1 : r[i].files.n;
    }
    if (!isatty(STDIN_FILENO)) return cli_usage("rm: there is no terminal to ask at: --yes removes without asking");
    columns_size(bytes, size);
    fprintf(stderr, "remove %zu file%s, %s? [y/N] ", n_files, n_files == 1 ? "" : "s", size);
    fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin)) fputc('\n', stderr);
    return answer[0] == 'y' || answer[0] == 'Y' ? 0 : EX_NOPERM;
}

/* ---- removing ---- */

static int failed(const char *path)
{
    struct qn_error e;
    error_set(&e, QN_EIO, "cannot remove '%s': %s", path, strerror(errno));
    return cli_fail(&e);
}

/* Removes the files through the folder's descriptor, so that replacing the folder by a link meanwhile changes
 * nothing. */
static int remove_folder(const struct removal *r)
{
    int dir = open(r->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
    if (dir < 0) return failed(r->path);
    for (size_t i = 0; i < r->files.n && !rc; i++)
        if (unlinkat(dir, catalog_last_name(r->files.path[i]), 0) && errno != ENOENT) rc = failed(r->files.path[i]);
    close(dir);
    if (rc || !rmdir(r->path)) return rc;
    if (errno != ENOTEMPTY && errno != EEXIST) return failed(r->path);
    char name[4 * PATH_MAX];
    error_clean(name, sizeof name, r->path);
    fprintf(stderr, "quern: '%s' stays: it has other files\n", name);
    return 0;
}

static int remove_one(const struct removal *r)
{
    if (r->is_link) return unlink(r->path) ? failed(r->path) : 0;
    if (r->files.is_folder) return remove_folder(r);
    for (size_t i = 0; i < r->files.n; i++)
        if (unlink(r->files.path[i]) && errno != ENOENT) return failed(r->files.path[i]);
    return 0;
}

static int run(struct invocation *v)
{
    const struct rm *o = v->options;
    struct removal *r = cli_alloc((size_t)v->n, sizeof *r);
    int rc = 0;
    for (int i = 0; i < v->n && !rc; i++) rc = find(&r[i], o, v->operand[i]);
    if (!rc && !o->force) rc = check_unused(r, v->n, o->socket);
    if (!rc && !o->yes) {
        show(r, v->n);
        rc = confirm(r, v->n);
    }
    for (int i = 0; i < v->n && !rc; i++) rc = remove_one(&r[i]);
    for (int i = 0; i < v->n; i++) {
        catalog_files_free(&r[i].files);
        mem_free(r[i].path);
    }
    cli_free(r);
    return rc;
}

#define AT(field) offsetof(struct rm, field)
static const struct opt opts[] = {
    {"yes", 'y', OPT_FLAG, AT(yes), NULL, "do not ask"},
    {"force", 0, OPT_FLAG, AT(force), NULL, "remove models that a running daemon serves too"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Folders", opts_folders, AT(folders), ""}, {"Daemon", opts_socket, AT(socket), ""}, {0}};

static const struct example examples[] = {
    {"quern rm small", "Show the files and ask"},
    {"quern rm --yes ~/models/small.gguf", "Do not ask, for a script"},
    {0},
};

const struct command command_rm = {
    .name = "rm",
    .operands = "MODEL... [OPTIONS]",
    .brief = "remove a model from the disk",
    .about = "Shows the files of the models, asks, and removes them.\n\n"
             "For a split model these are all parts; for a folder the files that belong to a model, and the folder "
             "itself if it is empty then. Links are removed, not the files that they lead to. Without a terminal --yes "
             "is needed. A model that a running daemon serves stays, unless --force is given.",
    .examples = examples,
    .min = 1,
    .max = -1,
    .words = WORDS_MODEL,
    .groups = groups,
    .size = sizeof(struct rm),
    .run = run,
};
