/* SPDX-License-Identifier: MIT
 *
 * catalog.c: reads the folders of models. See catalog.h.
 *
 * What does not look like a model is passed over: hidden names, pieces of transfers, pipes, links that lead nowhere.
 * Whether what does look like one is sound is not asked here: only names are read, so that this is quick. Folders are
 * not searched below their first level: a link that leads back to where it lies is no danger.
 */
#include "cli/catalog.h"

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
#include "format/weights.h"

#define ENDING       ".gguf"
#define PART_BYTES   20 /* "-00001-of-00005.gguf" */
#define MAX_PARTS    1000
#define NAMES_LISTED 8 /* in a message */

const struct opt opts_folders[] = {
    {"models", 0, OPT_STRINGS, 0, "DIR", "folder with models; may be repeated (default ~/models)",
     .words = WORDS_FOLDER},
    {0},
};

/* ---- names ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* Which part, from 1, of how many the name of a file says that it is; 1 of 1 when it says nothing. */
static void part_of_name(const char *name, unsigned long *no, unsigned long *n)
{
    size_t len = strlen(name);
    *no = *n = 1;
    if (len <= PART_BYTES) return;
    const char *s = name + len - PART_BYTES;
    if (s[0] != '-' || strspn(s + 1, "0123456789") != 5 || strncmp(s + 6, "-of-", 4) ||
        strspn(s + 10, "0123456789") != 5 || strcmp(s + 15, ENDING))
        return;
    unsigned long a = strtoul(s + 1, NULL, 10), b = strtoul(s + 10, NULL, 10);
    if (a < 1 || a > b || b > MAX_PARTS) return; /* an odd name, but one file */
    *no = a;
    *n = b;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *catalog_name(const char *path)
{
    unsigned long no, n;
    size_t end = strlen(path), begin, len;
    while (end > 1 && path[end - 1] == '/') end--;
    for (begin = end; begin && path[begin - 1] != '/';) begin--;
    len = end - begin;
    part_of_name(path + begin, &no, &n);
    if (n > 1)
        len -= PART_BYTES;
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
    return !stat(path, &st) &&
           ((S_ISREG(st.st_mode) && ends_with(base_of(path), ENDING)) || (S_ISDIR(st.st_mode) && has_config(path)));
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

/* Takes the path over. What is no file is left out. */
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
    unsigned long no, n;
    int rc = 0;
    part_of_name(base_of(path), &no, &n);
    if (n == 1) {
        char *file = mem_dup(path, strlen(path));
        return file ? add_file(f, file, e) : error_nomem(e, "a file name", strlen(path));
    }
    for (unsigned long i = 0; !rc && i < n; i++) {
        char *file;
        rc = weights_part_path(&file, path, i, n, e);
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
    if (rc == QN_ENOINPUT) rc = 0; /* a folder whose config.json was seen, but no more: loading it will tell */
    if (rc) {
        mem_free(name);
        return rc;
    }
    c->entry[c->n++] = (struct catalog_entry){path, name, files.bytes};
    catalog_files_free(&files);
    return 0;
}

/* What a transfer is at, or was no good. */
static bool is_unfinished(const char *file) { return ends_with(file, ".part") || ends_with(file, ".bad"); }

/* One thing in a folder: a model, or passed over. */
static int look_at(struct catalog *c, const char *folder, const char *file, struct qn_error *e)
{
    unsigned long no, n;
    int rc = 0;
    part_of_name(file, &no, &n);
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
    /* Which of two has the name must not depend on the order in a directory. */
    if (c->n > before) qsort(c->entry + before, c->n - before, sizeof *c->entry, by_name);
    return rc;
}

/* Entries come folder by folder, each sorted: an insertion sort keeps that order among those of one name. */
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

/* A folder as named, with "~/" replaced; owned. *out is NULL when there is no home directory. */
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

/* " (did you mean 'NAME'?)" in out, or nothing. */
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
        rc = error_set(e, QN_ENOINPUT, "there is no model in %s: name a file, or get one with quern pull", in);
    else if (name)
        rc = error_set(e, QN_ENOINPUT, "there is no model '%.200s': no such file, and in %s are: %s%s", name, in, have,
                       near);
    else
        rc = error_set(e, QN_ENOINPUT, "which model? There are %zu in %s: %s", c->n, in, have);
    buf_deinit(&where);
    buf_deinit(&names);
    return rc;
}

/* A folder in the working directory that holds no model does not hide a model of its name. */
static bool is_path_of_model(const char *name)
{
    return os_exists(name) && (!os_is_directory(name) || strchr(name, '/') || has_config(name));
}

static const struct catalog_entry *named(const struct catalog *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->entry[i].name, name)) return &c->entry[i];
    for (size_t i = 0; i < c->n; i++) /* with the ending, as the file is called */
        if (!strcmp(base_of(c->entry[i].path), name)) return &c->entry[i];
    return NULL;
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
        const struct catalog_entry *x = name ? named(&c, name) : c.n == 1 ? &c.entry[0] : NULL;
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
