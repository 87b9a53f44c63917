/* SPDX-License-Identifier: MIT
 *
 * loaded.c: makes and frees the parts of a loaded model.
 *
 * Each model has a cache folder of its own, because a store has one lock and one budget: two stores in one folder would
 * each count the other's files as they were when it was opened (docs/SESSIONS.md). The folders are made before the
 * daemon gives up the right to make folders, and that is before most models are loaded.
 */
#include "server/models/loaded.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"

/* ---- folders ---- */

/* The path of the folder for any name: characters other than letters, digits, '_' and '-', and dots inside, are written
 * as %XX. */
static int folder_path(struct buf *b, const char *dir, const char *name, struct qn_error *e)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    int rc = buf_printf(b, e, "%s/", dir);
    for (const char *p = name; *p && !rc; p++)
        rc = strchr(plain, *p) && (*p != '.' || p > name) ? buf_add(b, p, 1, e)
                                                          : buf_printf(b, e, "%%%02X", (unsigned char)*p);
    return rc ? rc : buf_add(b, "", 1, e);
}

static int make(const char *path, struct qn_error *e)
{
    if (!mkdir(path, 0700) || errno == EEXIST) return 0;
    return error_set(e, QN_EIO, "cannot make the cache directory '%s': %s", path, strerror(errno));
}

int loaded_make_folder(const char *cache_dir, const char *name, struct qn_error *e)
{
    struct buf path = {0};
    int rc = make(cache_dir, e);
    if (!rc) rc = folder_path(&path, cache_dir, name, e);
    if (!rc) rc = make((char *)path.data, e);
    buf_deinit(&path);
    return rc;
}

int loaded_drop_files(const char *cache_dir, const char *name, uint64_t identity, size_t *n, struct qn_error *e)
{
    struct buf path = {0};
    *n = 0;
    int rc = folder_path(&path, cache_dir, name, e);
    if (!rc) rc = qn_cache_drop_files((char *)path.data, identity, n, e);
    buf_deinit(&path);
    return rc;
}

/* ---- parts ---- */

void loaded_free(struct loaded_model *p)
{
    qn_scheduler_free(p->scheduler);
    qn_engine_free(p->engine);
    qn_chat_free(p->chat);
    qn_model_close(p->draft);
    qn_model_close(p->model);
    *p = (struct loaded_model){0};
    mem_trim();
}

int loaded_open(struct loaded_model *p, const char *path, const char *draft, const struct qn_model_params *file,
                struct qn_error *why, struct qn_error *e)
{
    *p = (struct loaded_model){0};
    *why = (struct qn_error){0};
    int rc = qn_model_open_with(&p->model, path, file, e);
    if (!rc && draft) rc = qn_model_open_with(&p->draft, draft, file, e);
    if (!rc && qn_chat_new(&p->chat, p->model, NULL, 0, why) == QN_ENOMEM) {
        *e = *why;
        rc = QN_ENOMEM;
    } /* without a template the model can still continue texts */
    if (rc) loaded_free(p);
    return rc;
}

static int start_scheduler(struct loaded_model *p, const char *name, struct qn_scheduler_params c, struct qn_error *e)
{
    struct buf folder = {0};
    int rc = c.cache_dir ? folder_path(&folder, c.cache_dir, name, e) : 0;
    if (c.cache_dir) c.cache_dir = (char *)folder.data;
    c.draft_model = p->draft;
    if (!rc) rc = qn_scheduler_new(&p->scheduler, p->engine, &c, e);
    buf_deinit(&folder);
    return rc;
}

int loaded_start(struct loaded_model *p, const char *name, const struct qn_engine_params *engine,
                 const struct qn_scheduler_params *scheduler, struct group *group, struct qn_error *e)
{
    int rc =
        group ? group_engine(group, &p->engine, p->model, engine, e) : qn_engine_new(&p->engine, p->model, engine, e);
    if (!rc) rc = start_scheduler(p, name, *scheduler, e);
    if (!rc && group) rc = group_attach(group, p->scheduler, e);
    if (rc) loaded_free(p);
    return rc;
}
