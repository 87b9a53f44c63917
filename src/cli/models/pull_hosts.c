/* SPDX-License-Identifier: MIT
 *
 * pull_hosts.c: copies a model to other hosts through rsync. See pull_hosts.h.
 */
#include "cli/models/pull_hosts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/progress.h"
#include "cluster/start/hosts.h"
#include "fetch/rsync.h"

/* Where a file goes: next to the path that the list has, under its own name. */
static int name_place(struct buf *out, const struct host *h, const char *path, bool is_first, struct qn_error *e)
{
    const char *slash = strrchr(h->path, '/'), *name = strrchr(path, '/') + 1;
    if (!h->path[0]) return buf_printf(out, e, "%s:%s", h->name, path);
    if (is_first) return buf_printf(out, e, "%s:%s", h->name, h->path);
    return buf_printf(out, e, "%s:%.*s/%s", h->name, (int)(slash - h->path), h->path, name);
}

static int copy(const struct host *h, const char *path, bool is_first, const struct fetch_options *o)
{
    struct buf place = {0};
    struct qn_error e;
    bool is_folder = os_is_directory(path);
    int r = name_place(&place, h, path, is_first, &e);
    const char *to = (const char *)place.data;
    if (!r) r = rsync_send(path, is_folder, to, progress_is_wanted() ? STDERR_FILENO : -1, o, &e);
    if (!r) r = rsync_has_same(path, is_folder, to, o, &e);
    if (r == 0) r = error_set(&e, QN_EDATA, "'%s' is not the same as '%s' after it was copied", to, path);
    if (r > 0) fprintf(stderr, "quern: %s has the same bytes\n", to);
    buf_deinit(&place);
    return r < 0 ? cli_fail(&e) : 0;
}

int pull_to_hosts(const char *list, char *const *path, int n, const struct fetch_options *o)
{
    struct hosts hosts;
    struct qn_error e;
    int rc = 0;
    if (hosts_read(&hosts, list, NULL, &e)) return cli_fail(&e);
    for (int i = 0; i < hosts.n && !rc; i++) {
        if (hosts.host[i].is_here) continue;
        for (int k = 0; k < n && !rc; k++) {
            char real[PATH_MAX];
            rc = realpath(path[k], real) ? copy(&hosts.host[i], real, k == 0, o)
                                         : cli_usage("pull: cannot find '%s': %m", path[k]);
        }
    }
    hosts_deinit(&hosts);
    return rc;
}
