/* SPDX-License-Identifier: MIT
 *
 * share_models.h: offers the models of this machine to the local network, through an rsync daemon that runs next to
 * `quern serve` and ends with it.
 *
 * Others fetch them with `quern pull rsync://HOST:PORT/models/NAME`.
 */
#ifndef QUERN_CLI_SHARE_MODELS_H
#define QUERN_CLI_SHARE_MODELS_H

#include "base/error.h"
#include "cli/core/options.h"

struct share_options {
    bool is_on;
    int port;
    struct cli_strings to; /* addresses and networks that may fetch; none: the private networks */
};
extern const struct opt opts_share[];
/* Sets the defaults. */
void share_options_init(struct share_options *o);

/* Starts the rsync daemon and returns when it listens. It ends when this process ends. To be called by the main
 * thread before the sandbox closes. QN_EUSAGE: a bad address; QN_EUNSUP: rsync is not installed; QN_ENOINPUT: no such
 * folder; QN_EIO. */
int share_start(const struct share_options *o, const char *folder, struct qn_error *e);

#endif
