/* SPDX-License-Identifier: MIT
 *
 * share.h: the models of this machine for others on the local network, through an rsync daemon that runs beside
 * `quern serve` and ends with it. They fetch them with `quern pull rsync://HOST:PORT/models/NAME`.
 */
#ifndef QUERN_CLI_SHARE_H
#define QUERN_CLI_SHARE_H

#include "base/error.h"
#include "cli/options.h"

struct share_options {
    bool is_on;
    int port;
    struct cli_strings to; /* addresses and networks that may fetch; none: private networks */
};
extern const struct opt opts_share[];
void share_options_init(struct share_options *o);

/* Starts the daemon and returns once it listens. From here on it is on its own, and ends when this process does. To be
 * called before the sandbox closes, by the main thread. QN_EUSAGE: an address that is none; QN_EUNSUP: there is no
 * rsync here; QN_ENOINPUT: no such folder; QN_EIO. */
int share_start(const struct share_options *o, const char *folder, struct qn_error *e);

#endif
