/* SPDX-License-Identifier: MIT
 *
 * local.c: builds a server for one model without a listener. See local.h.
 */
#include "cli/place/local.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/core/home.h"
#include "cli/place/catalog.h"
#include "cli/place/place.h"
#include "server/server.h"

struct local {
    char *draft;       /* path of the draft model; NULL: none */
    char *hashes;      /* folder of hashes, which need not exist; NULL: none is known */
    char *path, *name; /* path and name of the model; the name is the one a daemon would give it */
    struct models_source source;
    struct models_config models;
    struct server server;
};

int local_open(struct local **out, const char *path, const struct local_draft *d, const struct qn_model_params *file,
               const struct qn_engine_params *p, const struct stage_hosts *hosts, struct qn_error *e)
{
    struct local *l = mem_calloc(1, sizeof *l);
    struct http_config c;
    int rc;
    if (!l) return error_nomem(e, "a server", sizeof *l);
    l->path = mem_dup(path, strlen(path));
    l->name = catalog_name(path);
    if (d->model) l->draft = mem_dup(d->model, strlen(d->model));
    if (!l->path || !l->name || (d->model && !l->draft)) {
        local_close(l);
        return error_nomem(e, "a path", strlen(path) + 1);
    }
    l->source = (struct models_source){.name = l->name, .path = l->path, .draft = l->draft};
    l->models = (struct models_config){.source = &l->source, .n = 1, .model = *file, .engine = *p};
    qn_scheduler_params_init(&l->models.scheduler);
    l->models.scheduler.draft = hosts ? stage_hosts_draft(hosts, d->how, d->model) : d->how;
    if (!home_path(&l->hashes, HOME_CACHE, "hashes", NULL)) l->models.scheduler.hash_dir = l->hashes;
    rc = hosts ? stage_hosts_start(&l->models.group, hosts, path, p, false, e) : 0;
    if (!rc) rc = server_share_memory(&l->server, &l->models, e);
    if (!rc) {
        server_config(&l->server, &c);
        c.max_connections = c.peer_connections = PLACE_CONNECTIONS;
        rc = http_open(&l->server.http, &c, e);
    }
    if (!rc) rc = server_load(&l->server, &l->models, false, e);
    if (!rc) rc = server_start(&l->server, e);
    if (rc)
        local_close(l);
    else
        *out = l;
    return rc;
}

int local_connect(struct local *l, int *fd, struct qn_error *e)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return error_set(e, QN_EIO, "a pair of sockets: %m");
    int rc = http_adopt(l->server.http, ends[1], e);
    if (rc)
        close(ends[0]);
    else
        *fd = ends[0];
    return rc;
}

void local_close(struct local *l)
{
    if (!l) return;
    server_close(&l->server);
    group_free(l->models.group);
    mem_free(l->hashes);
    mem_free(l->draft);
    mem_free(l->path);
    mem_free(l->name);
    mem_free(l);
}
