/* SPDX-License-Identifier: MIT
 *
 * explain_hosts.h: which host has which layers of a model, and where the time of a token goes between them.
 *
 * The hosts are started as for `quern serve --hosts`, an answer is computed, and they are ended.
 */
#ifndef QUERN_CLI_EXPLAIN_HOSTS_H
#define QUERN_CLI_EXPLAIN_HOSTS_H

#include "cli/place/stage_hosts.h"

struct explain_hosts {
    const struct stage_hosts *hosts;
    const char *path, *name; /* of the model; name: printable */
    const struct qn_engine_params *engine;
    const struct qn_model_params *file;
    int n_tokens; /* of the answer, whose medians are shown */
    bool json;
};

/* Measures and prints to standard output. */
int explain_hosts(const struct explain_hosts *p, struct qn_error *e);

#endif
