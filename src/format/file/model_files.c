/* SPDX-License-Identifier: MIT
 *
 * model_files.c: remembers the marks of a model's files, and compares them with the present ones.
 *
 * As long as a name leads to the inode that was opened, stat() of the name says the same as fstat() of the open file.
 * So no file has to be kept open, of which a model can have a thousand.
 */
#include "format/file/model_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"

int model_files_add(struct model_files *f, const char *path, struct qn_error *e)
{
    struct model_file *more = mem_realloc(f->file, (f->n + 1) * sizeof *more);
    if (!more) return error_nomem(e, "a list of files", (f->n + 1) * sizeof *more);
    f->file = more;
    struct model_file x = {.path = mem_dup(path, strlen(path))};
    if (!x.path) return error_nomem(e, "a file name", strlen(path));
    file_mark_get(&x.mark, path); /* a failure is reported when the file is opened */
    f->file[f->n++] = x;
    return 0;
}

int model_files_add_small(struct model_files *f, const char *dir, struct qn_error *e)
{
    static const char *const names[] = {
        "config.json",           "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json",      "generation_config.json",
        "chat_template.jinja"};
    char path[4096];
    struct stat st;
    int rc = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !rc; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (n > 0 && (size_t)n < sizeof path && !stat(path, &st)) rc = model_files_add(f, path, e);
    }
    return rc;
}

void model_files_deinit(struct model_files *f)
{
    for (size_t i = 0; i < f->n; i++) mem_free(f->file[i].path);
    mem_free(f->file);
    *f = (struct model_files){0};
}

static bool can_be_opened(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

enum model_files_now model_files_look(const struct model_files *f, struct qn_error *e)
{
    enum model_files_now now = MODEL_FILES_SAME;
    for (size_t i = 0; i < f->n; i++) {
        const struct file_mark *was = &f->file[i].mark;
        struct file_mark is;
        if (!file_mark_get(&is, f->file[i].path) || file_mark_is_same(was, &is)) continue;
        if (is.dev != was->dev || is.ino != was->ino) {
            if (can_be_opened(f->file[i].path)) now = MODEL_FILES_REPLACED;
            continue;
        }
        error_set(e, QN_EDATA, "the file changed while it was in use: '%s'", f->file[i].path);
        return MODEL_FILES_CHANGED;
    }
    return now;
}

uint64_t model_files_mark(const struct model_files *f, uint64_t seed)
{
    uint64_t h = seed;
    for (size_t i = 0; i < f->n; i++) {
        const struct file_mark *m = &f->file[i].mark;
        const uint64_t all[] = {m->dev, m->ino, m->bytes, m->mtime_ns};
        h = hash_bytes(all, sizeof all, h);
    }
    return h;
}
