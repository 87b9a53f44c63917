/* SPDX-License-Identifier: MIT
 *
 * serve.h: the options of `quern serve`, and running with them.
 */
#ifndef QUERN_CLI_SERVE_H
#define QUERN_CLI_SERVE_H

#include <stddef.h>

#include "cli/place/catalog.h"
#include "cli/place/stage_hosts.h"
#include "cli/core/cli.h"
#include "cli/daemon/share_models.h"
#include "engine/core/decoder.h"
#include "server/models/served.h"

struct serve_options {
    struct models_config models;
    struct cli_strings listen, hosts, origins, proxies, pins, aliases, drafts, folders;
    const char *model; /* served if no model is named */
    const char *keys, *cert, *key, *group, *name, *receipts, *context;
    struct stage_hosts stages;
    int grace_s, connections, peer_connections;
    uint64_t cache_bytes;
    bool log, no_sandbox, page, no_read_ahead;
    struct share_options share;
    enum decoder decoder;

    /* The memory of models.source: */
    struct models_source *source;
    struct models_alias *alias;
    char **names, **paths; /* [n], the texts that were made */
    char **alias_names;    /* [aliases.n], the same */
    char **draft_paths;    /* [drafts.n], the same */
    char *default_path;
    struct catalog found; /* the models in the folders, if all of them are served */
};

/* The groups of options. A command that serves has a struct serve_options at the beginning of its own struct. */
extern const struct opt serve_places[], serve_models[], serve_process[], serve_default[];
/* clang-format off */
#define SERVE_GROUPS \
    {"Where", serve_places, 0, "serve"}, \
    {"Models", serve_models, 0, "serve"}, \
    {"Several hosts", opts_stage_hosts, offsetof(struct serve_options, stages), "serve", true}, \
    {"Process", serve_process, 0, "serve"}, \
    {"Engine (memory: of all models)", opts_engine, offsetof(struct serve_options, models.engine), "serve"}, \
    {"Context", opts_context, offsetof(struct serve_options, models.engine), "serve"}, \
    {"Model files", opts_model, offsetof(struct serve_options, models.model), "serve", true}, \
    {"Sharing", opts_share, offsetof(struct serve_options, share), "serve"}, \
    {"Default", serve_default, 0, ""}, \
    {"Folders", opts_folders, offsetof(struct serve_options, folders), "", true}
/* clang-format on */

/* Sets the defaults. options: a struct serve_options. */
void serve_options_init(void *options);
/* Checks what depends on several options, and finds the models. Returns 0 or an exit status, after a message. */
int serve_options_finish(struct serve_options *o, int n, char **operands);
/* Releases the names and paths that were made. */
void serve_options_free(struct serve_options *o);

/* Runs `quern serve` with these options until a signal comes. ready: a descriptor that gets a byte when requests are
 * answered; -1: nobody waits. Returns the exit status. */
int serve_run(struct serve_options *o, int n, char **operands, int ready);

#endif
