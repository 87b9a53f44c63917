/* SPDX-License-Identifier: MIT
 *
 * serve.h: what `quern serve` was told to do.
 */
#ifndef QUERN_CLI_SERVE_H
#define QUERN_CLI_SERVE_H

#include "cli/cli.h"
#include "cli/share.h"
#include "server/models.h"

struct serve_options {
    struct models_config models;
    struct cli_strings listen, hosts, origins, pins;
    const char *keys, *cert, *key, *group, *name;
    int grace_s;
    uint64_t cache_bytes;
    bool log, no_sandbox;
    struct share_options share;
    struct cli_strings folders; /* of models; the first is shared */

    /* behind models.source: */
    struct models_source *source;
    char **names; /* [n], those that had to be made */
};

extern const struct opt_group serve_groups[];
void serve_options_init(void *options);
/* What one option alone cannot say; the models. 0 or an exit status. */
int serve_options_finish(struct serve_options *o, int n, char **operands);
void serve_options_free(struct serve_options *o);

#endif
