/* SPDX-License-Identifier: MIT
 *
 * pull_target.c: chooses the path of a download, and checks what has arrived. See pull_target.h.
 */
#include "cli/models/pull_target.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "cli/place/catalog.h"
#include "cli/models/check_model.h"
#include "cli/core/cli.h"
#include "format/file/split.h"

/* ---- the path ---- */

static char *joined(const char *dir, const char *name)
{
    size_t n = strlen(dir), m = strlen(name);
    char *s = cli_alloc(n + m + 2, 1);

    while (n > 1 && dir[n - 1] == '/') n--;
    memcpy(s, dir, n);
    if (n > 0 && dir[n - 1] != '/') s[n++] = '/';
    memcpy(s + n, name, m + 1);
    return s;
}

static int make_folder(const char *dir)
{
    if (mkdir(dir, 0777) == 0 || (errno == EEXIST && os_is_directory(dir))) return 0;
    cli_usage("pull: cannot make the folder '%s': %s; -o names another", dir, strerror(errno));
    return EX_CANTCREAT;
}

int pull_target(char **path, const struct location *s, const char *output, const struct cli_strings *folders)
{
    struct qn_error e;
    bool is_dir = !output || os_is_directory(output) || (*output && output[strlen(output) - 1] == '/');
    char *dir = NULL;
    int rc;

    if (output && !*output) return cli_usage("pull: -o names no file");
    if (!is_dir) {
        *path = joined("", output);
        return 0;
    }
    if (location_check_name(s->name, s->place, &e)) return cli_fail(&e);
    if (!output && catalog_first_folder(&dir, folders, &e)) return cli_fail(&e);
    rc = make_folder(output ? output : dir);
    if (!rc) *path = joined(output ? output : dir, s->name);
    mem_free(dir);
    return rc;
}

/* ---- the check ---- */

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcmp(name + n - m, ending);
}

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    FILE *f = fopen(path, "rbe");
    size_t n = f ? fread(magic, 1, sizeof magic, f) : 0;

    if (f) fclose(f);
    return n == sizeof magic && !memcmp(magic, "GGUF", sizeof magic);
}

uint64_t pull_n_parts(const char *name)
{
    uint64_t no, n;
    split_parse(name, &no, &n);
    return n;
}

static int check_file(const char *path, const char *name, struct qn_error *e)
{
    struct weights *w = NULL;
    int r;

    if ((!ends_in(name, ".gguf") && !is_gguf(path)) || pull_n_parts(name) > 1) return 0;
    r = check_model(&w, path, false, NULL, NULL, NULL, e);
    weights_close(w);
    return r;
}

static int check_folder(const char *path, struct qn_error *e)
{
    char *config = joined(path, "config.json");
    struct weights *w = NULL;
    int r = 0;
    DIR *d;

    if (os_exists(config)) {
        r = check_model(&w, path, false, NULL, NULL, NULL, e);
        weights_close(w);
    } else if ((d = opendir(path))) {
        for (const struct dirent *f; r == 0 && (f = readdir(d));) {
            char *file = joined(path, f->d_name);
            if (f->d_name[0] != '.' && !os_is_directory(file)) r = check_file(file, f->d_name, e);
            cli_free(file);
        }
        closedir(d);
    }
    cli_free(config);
    return r;
}

int pull_check(const char *path, const char *name, struct qn_error *e)
{
    return os_is_directory(path) ? check_folder(path, e) : check_file(path, name, e);
}

int pull_finish(struct partial_file *part, bool replace)
{
    struct qn_error e, why;
    int r = pull_check(part->part, part->path, &why), rc;

    if (r && r != QN_EUNSUP) {
        rc = partial_reject(part, &e) ? cli_fail(&e) : 0;
        if (!rc) error_set(&e, r, "%s; what came is '%s'", why.msg, part->bad);
        return rc ? rc : cli_fail(&e);
    }
    if (partial_commit(part, replace, &e)) return cli_fail(&e);
    if (!r) return 0;
    error_set(&e, r, "%s; it came whole, and is '%s'", why.msg, part->path);
    return cli_fail(&e);
}
