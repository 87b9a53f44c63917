/* SPDX-License-Identifier: MIT
 *
 * chat_complete.c: what Tab offers after a slash command: files, and the models of the place.
 */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "cli/chat/chat_run.h"

#define MOST_MODELS ((size_t)1 << 22) /* bytes of a list of models */

/* Adds a line that begins with n bytes of `line`; names with control characters are left out. */
static void offer(struct chat_words *w, const char *line, size_t n, const char *name)
{
    char **more;
    struct buf text = {0};
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F) return;
    if (buf_add(&text, line, n, NULL) || buf_str(&text, name, NULL)) return;
    if (!(more = mem_realloc(w->v, (w->n + 1) * sizeof *more))) {
        buf_deinit(&text);
        return;
    }
    w->v = more;
    w->v[w->n++] = (char *)text.data;
}

void chat_words_clear(struct chat_words *w)
{
    for (size_t i = 0; i < w->n; i++) mem_free(w->v[i]);
    mem_free(w->v);
    *w = (struct chat_words){0};
}

/* The files whose path begins as the line does after its first `at` bytes. */
static void offer_files(struct chat_words *w, const char *line, size_t at, size_t n)
{
    struct buf pattern = {0};
    glob_t found = {0};
    size_t folder = n; /* the end of the path's folders, as they were typed */
    while (folder > at && line[folder - 1] != '/') folder--;
    const char *home = n - at >= 2 && !strncmp(line + at, "~/", 2) ? getenv("HOME") : NULL;
    int rc = home ? buf_str(&pattern, home, NULL) : 0;
    for (size_t i = at + (home != NULL); i < n && !rc; i++)
        rc = buf_printf(&pattern, NULL, strchr("*?[]\\", line[i]) ? "\\%c" : "%c", line[i]);
    if (!rc) rc = buf_str(&pattern, "*", NULL);
    if (!rc && !glob((char *)pattern.data, GLOB_MARK, NULL, &found)) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *path = found.gl_pathv[i], *name = path + strlen(path);
            while (name > path && (name[-1] != '/' || !*name)) name--; /* a folder ends in a slash */
            offer(w, line, folder, name);
        }
        globfree(&found);
    }
    buf_deinit(&pattern);
}

static void offer_models(struct chat_words *w, struct chat_run *c, const char *line, size_t at, size_t n)
{
    struct chat_result result;
    json_t *list = NULL;
    const json_t *m;
    size_t i;
    if (c->broken || chat_fetch(c->place.client, "GET", "/v1/models", NULL, MOST_MODELS, &list, &result, NULL)) return;
    json_array_foreach(json_object_get(list, "data"), i, m)
    {
        const char *id = json_string_value(json_object_get(m, "id"));
        if (id && !strncmp(id, line + at, n - at)) offer(w, line, at, id);
    }
    json_decref(list);
}

void chat_words_find(struct chat_words *w, struct chat_run *c, const char *line, size_t n)
{
    static const char *const with_file[] = {"/file ", "/save ", "/load "};
    chat_words_clear(w);
    for (size_t i = 0; i < 3; i++)
        if (n >= 6 && !strncmp(line, with_file[i], 6)) offer_files(w, line, 6, n);
    if (n >= 7 && !strncmp(line, "/model ", 7)) offer_models(w, c, line, 7, n);
}
