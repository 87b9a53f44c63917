/* SPDX-License-Identifier: MIT
 *
 * pull_hosts.c: copies a model to other hosts through rsync. See pull_hosts.h.
 *
 * A file with the weights of some layers is made next to the whole one, is sent, and is removed. Its name has the
 * layers; who makes it holds a lock on it.
 */
#include "cli/models/pull_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/progress.h"
#include "cli/models/layer_ranges.h"
#include "cluster/hello.h"
#include "cluster/start/hosts.h"
#include "fetch/rsync.h"
#include "format/gguf/gguf_holes.h"
#include "model/load.h"

struct sending {
    const struct fetch_options *o;
    const struct host *host;
    const struct model *model; /* NULL: all weights are sent */
    int lo, hi;                /* the layers whose weights are */
};

/* Where a file goes: next to the path that the list has, under its own name. */
static int name_place(struct buf *out, const struct host *h, const char *path, bool is_first, struct qn_error *e)
{
    const char *slash = strrchr(h->path, '/'), *name = strrchr(path, '/') + 1;
    if (!h->path[0]) return buf_printf(out, e, "%s:%s", h->name, path);
    if (is_first) return buf_printf(out, e, "%s:%s", h->name, h->path);
    return buf_printf(out, e, "%s:%.*s/%s", h->name, (int)(slash - h->path), h->path, name);
}

/* Sends a file or folder, and compares it. */
static int send(const struct sending *s, const char *path, bool has_holes, const char *to, struct qn_error *e)
{
    bool is_folder = os_is_directory(path);
    int r = rsync_send(path, is_folder, has_holes, to, progress_is_wanted() ? STDERR_FILENO : -1, s->o, e);
    if (!r) r = rsync_has_same(path, is_folder, to, s->o, e);
    if (r == 0) return error_set(e, QN_EDATA, "'%s' is not the same as '%s' after it was copied", to, path);
    return r < 0 ? r : 0;
}

/* ---- some layers ---- */

static bool is_needed(const void *arg, const char *tensor)
{
    const struct sending *s = arg;
    return model_stage_needs(s->model, s->lo, s->hi, tensor);
}

static bool goes_on(void *arg)
{
    const struct sending *s = arg;
    return !s->o->watch || s->o->watch(s->o->arg, NULL, 0, 0);
}

/* Makes the file with the layers. It has the time and the rights of the whole one. */
static int make_part(struct sending *s, int fd, const char *part, const char *path, struct qn_error *e)
{
    struct gguf_holes h = {.first = (uint32_t)s->lo,
                           .last = (uint32_t)s->hi - 1,
                           .is_kept = is_needed,
                           .arg = s,
                           .edge = HELLO_EDGE,
                           .goes_on = goes_on,
                           .watcher = s};
    struct stat st;
    if (ftruncate(fd, 0)) return error_set(e, QN_EIO, "cannot write '%s': %s", part, strerror(errno));
    int r = gguf_copy_with_holes(fd, part, path, &h, e);
    if (r) return r;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    if (stat(path, &st)) return error_set(e, QN_EIO, "cannot read '%s': %s", path, strerror(errno));
    times[1] = st.st_mtim;
    if (fchmod(fd, st.st_mode & 0777) || futimens(fd, times))
        return error_set(e, QN_EIO, "cannot set the time and rights of '%s': %s", part, strerror(errno));
    return 0;
}

static int send_part(struct sending *s, const char *path, const char *to, struct qn_error *e)
{
    struct buf part = {0};
    int fd = -1, r = buf_printf(&part, e, "%s.layers-%d-%d.part", path, s->lo, s->hi - 1);
    const char *name = (const char *)part.data;
    if (!r && (fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
        r = error_set(e, QN_EIO, "cannot make '%s': %s", name, strerror(errno));
    bool is_ours = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB);
    if (!r && !is_ours) r = error_set(e, QN_EBUSY, "'%s' is being made by another pull", name);
    if (!r) r = make_part(s, fd, name, path, e);
    if (!r) r = send(s, name, true, to, e);
    if (is_ours) unlink(name);
    if (fd >= 0) close(fd);
    buf_deinit(&part);
    return r;
}

/* ---- all ---- */

enum which {
    WHOLE,    /* the file is sent as it is */
    COMPARED, /* nothing is sent; *is_there: the host has it */
    LAYERS,
};

/* Does that for one file or folder. Returns 0 or an exit status, after a message. */
static int copy(struct sending *s, const char *path, bool is_first, enum which which, bool *is_there)
{
    struct buf place = {0};
    struct qn_error e;
    char real[PATH_MAX];
    if (!realpath(path, real)) return cli_usage("pull: cannot find '%s': %m", path);
    int r = name_place(&place, s->host, real, is_first, &e);
    const char *to = (const char *)place.data;
    if (!r && which == COMPARED) *is_there = rsync_has_same(real, false, to, s->o, NULL) > 0;
    if (!r && which == WHOLE) r = send(s, real, false, to, &e);
    if (!r && which == LAYERS) r = send_part(s, real, to, &e);
    if (!r && which == LAYERS)
        fprintf(stderr, "quern: %s has layers %d to %d of it\n", to, s->lo, s->hi - 1);
    else if (!r && which == WHOLE)
        fprintf(stderr, "quern: %s has the same bytes\n", to);
    buf_deinit(&place);
    return r ? cli_fail(&e) : 0;
}

/* Brings the model to one host. Files with some layers go only with each other, so either all or none are sent. */
static int copy_all(struct sending *s, char *const *path, int n)
{
    int rc = 0;
    bool is_there = s->model != NULL;
    for (int k = 0; k < n && is_there && !rc; k++) rc = copy(s, path[k], k == 0, COMPARED, &is_there);
    if (is_there && !rc) fprintf(stderr, "quern: %s has the whole model\n", s->host->name);
    if (is_there) return rc;
    for (int k = 0; k < n && !rc; k++) rc = copy(s, path[k], k == 0, s->model ? LAYERS : WHOLE, NULL);
    return rc;
}

/* Opens the model whose layers are divided. Returns 0 or an exit status. */
static int divide(struct model **m, struct layer_ranges *ranges, const char *layers, const char *path,
                  const struct hosts *hosts)
{
    struct qn_error e;
    if (os_is_directory(path)) return cli_usage("pull: --layers is for GGUF files, and '%s' is a folder", path);
    if (model_load(m, path, &e) || layer_ranges_read(ranges, layers, hosts, (*m)->hp.n_layer, &e)) return cli_fail(&e);
    return 0;
}

int pull_to_hosts(const char *list, const char *layers, char *const *path, int n, const struct fetch_options *o)
{
    struct hosts hosts;
    struct layer_ranges ranges;
    struct model *m = NULL;
    struct qn_error e;
    if (hosts_read(&hosts, list, NULL, &e)) return cli_fail(&e);
    int rc = layers ? divide(&m, &ranges, layers, path[0], &hosts) : 0;
    for (int i = 0; i < hosts.n && !rc; i++) {
        struct sending s = {.o = o, .host = &hosts.host[i], .model = m};
        if (m) s.lo = ranges.host[i].lo, s.hi = ranges.host[i].hi;
        if (!s.host->is_here) rc = copy_all(&s, path, n);
    }
    model_free(m);
    hosts_deinit(&hosts);
    return rc;
}
