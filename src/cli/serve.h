/* SPDX-License-Identifier: MIT
 *
 * serve.h: what `quern serve` was told to do.
 */
#ifndef QUERN_CLI_SERVE_H
#define QUERN_CLI_SERVE_H

#include "cli/cli.h"
#include "server/models.h"

struct serve_options {
    struct models_config models;
    struct cli_strings listen, hosts, origins, pins;
    const char *keys, *cert, *key, *group;
    int grace_s;
    bool log, no_sandbox;

    /* behind models.source: */
    struct models_source *source;
    char **names; /* [n], those that had to be made */
};

/* 0 or an exit status; *help: it was asked for and is printed. */
int serve_options_parse(struct serve_options *o, int argc, char **argv, bool *help);
void serve_options_free(struct serve_options *o);

#endif
