/* SPDX-License-Identifier: MIT
 *
 * serve.h: what `quern serve` was told to do.
 */
#ifndef QUERN_CLI_SERVE_H
#define QUERN_CLI_SERVE_H

#include <stddef.h>

#include "cli/catalog.h"
#include "cli/cli.h"
#include "cli/share.h"
#include "server/models.h"

struct serve_options {
    struct models_config models;
    struct cli_strings listen, hosts, origins, proxies, pins, folders;
    const char *model; /* where none is named */
    const char *keys, *cert, *key, *group, *name;
    int grace_s, connections, peer_connections;
    uint64_t cache_bytes;
    bool log, no_sandbox;
    struct share_options share;

    /* behind models.source: */
    struct models_source *source;
    char **names, **paths; /* [n], those that had to be made */
    char *default_path;
};

/* The groups of options; a command that serves has a struct serve_options at the beginning of its own. */
extern const struct opt serve_places[], serve_models[], serve_process[], serve_default[];
/* clang-format off */
#define SERVE_GROUPS \
    {"Where", serve_places, 0, "serve"}, \
    {"Models", serve_models, 0, "serve"}, \
    {"Process", serve_process, 0, "serve"}, \
    {"Engine (memory: of all models)", opts_engine, offsetof(struct serve_options, models.engine), "serve"}, \
    {"Context", opts_context, offsetof(struct serve_options, models.engine), "serve"}, \
    {"Model files", opts_model, offsetof(struct serve_options, models.model), "serve", true}, \
    {"Sharing", opts_share, offsetof(struct serve_options, share), "serve"}, \
    {"Default", serve_default, 0, ""}, \
    {"Folders", opts_folders, offsetof(struct serve_options, folders), "", true}
/* clang-format on */

void serve_options_init(void *options);
/* What one option alone cannot say; the models. 0 or an exit status. */
int serve_options_finish(struct serve_options *o, int n, char **operands);
void serve_options_free(struct serve_options *o);

/* `quern serve` with these options: until a signal comes. ready: a descriptor to which a byte is written once requests
 * are answered; -1: nobody waits for it. Returns the exit status. */
int serve_run(struct serve_options *o, int n, char **operands, int ready);

#endif
