/* SPDX-License-Identifier: MIT
 *
 * catalog.c: reads the folders of models. See catalog.h.
 *
 * It skips what does not look like a model: hidden names, incomplete transfers, pipes, links that lead nowhere. It
 * reads only names, which is quick, and does not check that a model is sound. It does not search folders below their
 * first level, so a link to a folder above is harmless.
 */
#include "cli/place/catalog.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/os.h"
#include "format/file/split.h"

#define ENDING       ".gguf"
#define NAMES_LISTED 8 /* in a message */

const struct opt opts_folders[] = {
    {"models", 0, OPT_STRINGS, 0, "DIR", "a folder of models; may be repeated (default ~/models)",
     .words = WORDS_FOLDER},
    {0},
};

/* ---- names ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

const char *catalog_last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *catalog_name(const char *path)
{
    uint64_t no, n;
    size_t end = strlen(path), begin, len;
    while (end > 1 && path[end - 1] == '/') end--;
    for (begin = end; begin && path[begin - 1] != '/';) begin--;
    len = end - begin;
    split_parse(path + begin, &no, &n);
    if (n > 1)
        len -= SPLIT_SUFFIX_BYTES;
    else if (len > strlen(ENDING) && !strncmp(path + end - strlen(ENDING), ENDING, strlen(ENDING)))
        len -= strlen(ENDING);
    return mem_dup(path + begin, len);
}

static char *join(const char *folder, const char *name, struct qn_error *e)
{
    struct buf b = {0};
    if (buf_printf(&b, e, "%s%s%s", folder, ends_with(folder, "/") ? "" : "/", name)) return NULL;
    return (char *)b.data;
}

static bool has_config(const char *folder)
{
    struct stat st;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/config.json", folder);
    return n > 0 && (size_t)n < sizeof path && !stat(path, &st) && S_ISREG(st.st_mode);
}

bool catalog_is_model(const char *path)
{
    struct stat st;
    return !stat(path, &st) && ((S_ISREG(st.st_mode) && ends_with(catalog_last_name(path), ENDING)) ||
                                (S_ISDIR(st.st_mode) && has_config(path)));
}

/* ---- the files of a model ---- */

static bool is_of_folder(const char *name)
{
    static const char *const names[] = {"tokenizer.model", "merges.txt", "vocab.txt", "README.md",     "LICENSE",
                                        "LICENSE.txt",     "LICENSE.md", "NOTICE",    ".gitattributes"};
    if (ends_with(name, ".safetensors") || ends_with(name, ".json") || ends_with(name, ".jinja")) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* Adds a file; f owns the path. What is not a regular file is left out. */
static int add_file(struct catalog_files *f, char *path, struct qn_error *e)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) {
        mem_free(path);
        return 0;
    }
    char **more = mem_realloc(f->path, (f->n + 1) * sizeof *more);
    if (!more) {
        mem_free(path);
        return error_nomem(e, "a list of files", (f->n + 1) * sizeof *more);
    }
    f->path = more;
    f->path[f->n++] = path;
    f->bytes += (uint64_t)st.st_size;
    return 0;
}

static int folder_files(struct catalog_files *f, const char *path, struct qn_error *e)
{
    int rc = 0;
    DIR *d = opendir(path);
    if (!d) return error_set(e, QN_ENOINPUT, "cannot read folder '%s': %s", path, strerror(errno));
    for (struct dirent *entry; !rc && (entry = readdir(d));) {
        if (!is_of_folder(entry->d_name)) continue;
        char *file = join(path, entry->d_name, e);
        rc = file ? add_file(f, file, e) : QN_ENOMEM;
    }
    closedir(d);
    return rc;
}

static int part_files(struct catalog_files *f, const char *path, struct qn_error *e)
{
    uint64_t no, n;
    int rc = 0;
    split_parse(catalog_last_name(path), &no, &n);
    if (n == 1) {
        char *file = mem_dup(path, strlen(path));
        return file ? add_file(f, file, e) : error_nomem(e, "a file name", strlen(path));
    }
    for (uint64_t i = 0; !rc && i < n; i++) {
        char *file;
        rc = split_path(&file, path, i, n, e);
        if (!rc) rc = add_file(f, file, e);
    }
    return rc;
}

int catalog_files(struct catalog_files *f, const char *path, struct qn_error *e)
{
    *f = (struct catalog_files){.is_folder = os_is_directory(path)};
    int rc = f->is_folder ? folder_files(f, path, e) : part_files(f, path, e);
    if (rc) catalog_files_free(f);
    return rc;
}

void catalog_files_free(struct catalog_files *f)
{
    for (size_t i = 0; i < f->n; i++) mem_free(f->path[i]);
    mem_free(f->path);
    *f = (struct catalog_files){0};
}

/* ---- the folders ---- */

static int add_entry(struct catalog *c, char *path, struct qn_error *e)
{
    struct catalog_files files;
    struct catalog_entry *more = mem_realloc(c->entry, (c->n + 1) * sizeof *more);
    if (!more) return error_nomem(e, "a list of models", (c->n + 1) * sizeof *more);
    c->entry = more;
    char *name = catalog_name(path);
    if (!name) return error_nomem(e, "the name of a model", strlen(path));
    int rc = catalog_files(&files, path, e);
    if (rc == QN_ENOINPUT) rc = 0; /* the folder has a config.json but cannot be read: loading it will say so */
    if (rc) {
        mem_free(name);
        return rc;
    }
    c->entry[c->n++] = (struct catalog_entry){path, name, files.bytes};
    catalog_files_free(&files);
    return 0;
}

/* Whether the file belongs to a transfer that is not complete, or that failed its check. */
static bool is_unfinished(const char *file) { return ends_with(file, ".part") || ends_with(file, ".bad"); }

/* Adds a file or folder if it is a model. */
static int look_at(struct catalog *c, const char *folder, const char *file, struct qn_error *e)
{
    uint64_t no, n;
    int rc = 0;
    split_parse(file, &no, &n);
    if (file[0] == '.' || no > 1 || is_unfinished(file)) return 0;
    char *path = join(folder, file, e);
    if (!path) return QN_ENOMEM;
    bool is_model = catalog_is_model(path);
    if (is_model) rc = add_entry(c, path, e);
    if (!is_model || rc) mem_free(path);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct catalog_entry *x = a, *y = b;
    int d = strcmp(x->name, y->name);
    return d ? d : strcmp(x->path, y->path);
}

static int read_folder(struct catalog *c, const char *folder, bool must_exist, struct qn_error *e)
{
    int rc = 0;
    size_t before = c->n;
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT && !must_exist) return 0;
    if (!d) return error_set(e, QN_ENOINPUT, "cannot read the models' folder '%s': %s", folder, strerror(errno));
    for (struct dirent *entry; !rc && (entry = readdir(d));) rc = look_at(c, folder, entry->d_name, e);
    closedir(d);
    /* The order in a directory must not decide which of two models has the name. */
    if (c->n > before) qsort(c->entry + before, c->n - before, sizeof *c->entry, by_name);
    return rc;
}

/* Sorts the entries by name. They come folder by folder, each sorted; an insertion sort keeps that order for equal
 * names. */
static int order(struct catalog *c, struct qn_error *e)
{
    for (size_t i = 1; i < c->n; i++) {
        struct catalog_entry x = c->entry[i];
        size_t k = i;
        for (; k > 0 && strcmp(c->entry[k - 1].name, x.name) > 0; k--) c->entry[k] = c->entry[k - 1];
        c->entry[k] = x;
    }
    for (size_t i = 0, k = 1; k < c->n; k++) {
        if (strcmp(c->entry[i].name, c->entry[k].name)) {
            i = k;
            continue;
        }
        char *name = mem_dup(c->entry[k].path, strlen(c->entry[k].path));
        if (!name) return error_nomem(e, "the name of a model", strlen(c->entry[k].path));
        mem_free(c->entry[k].name);
        c->entry[k].name = name;
    }
    return 0;
}

/* Expands "~/" in the name of a folder; *out is for mem_free(), and NULL if there is no home directory. */
static int expand(char **out, const char *folder, struct qn_error *e)
{
    const char *home = getenv("HOME");
    bool is_home = !strncmp(folder, "~/", 2);
    *out = NULL;
    if (is_home && (!home || !*home)) return 0;
    *out = is_home ? join(home, folder + 2, e) : mem_dup(folder, strlen(folder));
    return *out ? 0 : error_nomem(e, "the name of a folder", strlen(folder));
}

int catalog_first_folder(char **path, const struct cli_strings *folders, struct qn_error *e)
{
    const char *first = folders->n ? folders->v[0] : "~/models";
    int rc = expand(path, first, e);
    if (rc || *path) return rc;
    return error_set(e, QN_ENOINPUT, "the models' folder '%s' cannot be found: HOME is not set", first);
}

int catalog_open(struct catalog *c, const struct cli_strings *folders, struct qn_error *e)
{
    struct catalog new = {0};
    size_t n = folders->n ? folders->n : 1;
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        char *folder;
        if ((rc = expand(&folder, folders->n ? folders->v[i] : "~/models", e))) break;
        if (folder)
            rc = read_folder(&new, folder, folders->n > 0, e);
        else if (folders->n)
            rc = error_set(e, QN_ENOINPUT, "cannot read the models' folder '%s': HOME is not set", folders->v[i]);
        mem_free(folder);
    }
    if (!rc) rc = order(&new, e);
    if (rc)
        catalog_close(&new);
    else
        *c = new;
    return rc;
}

void catalog_close(struct catalog *c)
{
    for (size_t i = 0; i < c->n; i++) {
        mem_free(c->entry[i].path);
        mem_free(c->entry[i].name);
    }
    mem_free(c->entry);
    *c = (struct catalog){0};
}

/* ---- one of them ---- */

static void list_names(const struct catalog *c, struct buf *b)
{
    for (size_t i = 0; i < c->n && i < NAMES_LISTED; i++) buf_printf(b, NULL, "%s%s", i ? ", " : "", c->entry[i].name);
    if (c->n > NAMES_LISTED) buf_printf(b, NULL, " and %zu more", c->n - NAMES_LISTED);
}

/* Writes " (did you mean 'NAME'?)" to out, or nothing. */
static void suggest(const struct catalog *c, const char *name, char *out, size_t cap)
{
    struct nearest near = {.word = name};
    *out = 0;
    for (size_t i = 0; i < c->n; i++) nearest_offer(&near, c->entry[i].name);
    if (near.best) snprintf(out, cap, " (did you mean '%s'?)", near.best);
}

static int no_model(const struct catalog *c, const struct cli_strings *folders, const char *name, struct qn_error *e)
{
    struct buf where = {0}, names = {0};
    char near[NEAREST_MAX + 32];
    int rc;
    for (size_t i = 0; i < folders->n; i++) buf_printf(&where, NULL, "%s%s", i ? ", " : "", folders->v[i]);
    if (!folders->n) buf_str(&where, "~/models", NULL);
    list_names(c, &names);
    if (name) suggest(c, name, near, sizeof near);
    const char *in = where.data ? (const char *)where.data : "", *have = names.data ? (const char *)names.data : "";
    if (!c->n && name)
        rc = error_set(e, QN_ENOINPUT, "there is no model '%.200s': no such file, and none in %s (quern pull gets one)",
                       name, in);
    else if (!c->n)
        rc = error_set(e, QN_ENOINPUT, "there is no model in %s: name a file with -m, or get one with quern pull", in);
    else if (name)
        rc = error_set(e, QN_ENOINPUT, "there is no model '%.200s': no such file, and in %s are: %s%s", name, in, have,
                       near);
    else
        rc = error_set(e, QN_ENOINPUT,
                       "which model? Say it with -m, or once with quern default: there are %zu in %s: %s", c->n, in,
                       have);
    buf_deinit(&where);
    buf_deinit(&names);
    return rc;
}

/* Whether the name is the path of a model. A folder in the working directory that has no model does not hide a model
 * of its name. */
static bool is_path_of_model(const char *name)
{
    return os_exists(name) && (!os_is_directory(name) || strchr(name, '/') || has_config(name));
}

static const struct catalog_entry *named(const struct catalog *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->entry[i].name, name)) return &c->entry[i];
    for (size_t i = 0; i < c->n; i++) /* the name of the file, with its ending */
        if (!strcmp(catalog_last_name(c->entry[i].path), name)) return &c->entry[i];
    return NULL;
}

bool catalog_is_empty(const struct cli_strings *folders)
{
    struct catalog c = {0};
    bool is_empty = !catalog_open(&c, folders, NULL) && !c.n;
    catalog_close(&c);
    return is_empty;
}

int catalog_find(char **path, const struct cli_strings *folders, const char *name, struct qn_error *e)
{
    struct catalog c;
    char *found = NULL;
    int rc = 0;
    if (name && is_path_of_model(name)) {
        found = mem_dup(name, strlen(name));
    } else {
        if ((rc = catalog_open(&c, folders, e))) return rc;
        const struct catalog_entry *x = NULL;
        if (name)
            x = named(&c, name);
        else if (c.n == 1)
            x = &c.entry[0];
        if (x)
            found = mem_dup(x->path, strlen(x->path));
        else
            rc = no_model(&c, folders, name, e);
        catalog_close(&c);
    }
    if (!rc && !found) rc = error_nomem(e, "the path of a model", 1);
    if (!rc) *path = found;
    return rc;
}
