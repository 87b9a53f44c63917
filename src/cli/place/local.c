/* SPDX-License-Identifier: MIT
 *
 * local.c: builds a server for one model without a listener. See local.h.
 */
#include "cli/place/local.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/place/catalog.h"
#include "server/server.h"

struct local {
    char *path, *name; /* path and name of the model; the name is the one a daemon would give it */
    struct models_source source;
    struct models_config models;
    struct server server;
};

int local_open(struct local **out, const char *path, const struct qn_model_params *file,
               const struct qn_engine_params *p, struct qn_error *e)
{
    struct local *l = mem_calloc(1, sizeof *l);
    struct http_config c;
    int rc;
    if (!l) return error_nomem(e, "a server", sizeof *l);
    l->path = mem_dup(path, strlen(path));
    l->name = catalog_name(path);
    if (!l->path || !l->name) {
        local_close(l);
        return error_nomem(e, "a path", strlen(path) + 1);
    }
    l->source = (struct models_source){.name = l->name, .path = l->path};
    l->models = (struct models_config){.source = &l->source, .n = 1, .model = *file, .engine = *p};
    qn_scheduler_params_init(&l->models.scheduler);
    rc = server_share_memory(&l->server, &l->models, e);
    if (!rc) {
        server_config(&l->server, &c);
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
    mem_free(l->path);
    mem_free(l->name);
    mem_free(l);
}
