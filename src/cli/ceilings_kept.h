/* SPDX-License-Identifier: MIT
 *
 * ceilings_kept.h: what this machine can do, as it was measured before.
 *
 * For estimates only: measuring takes a second or two, and what else the machine does meanwhile is in the numbers.
 */
#ifndef QUERN_CLI_CEILINGS_KEPT_H
#define QUERN_CLI_CEILINGS_KEPT_H

#include <stdbool.h>

#include "cli/ceilings.h"

/* The ceilings of all CPUs that this process may use, without a file. refresh: measures in any case. They are kept for
 * a month where there is a folder for it; that there is none is no error. */
int ceilings_kept(struct ceilings *c, bool refresh, struct qn_error *e);

#endif
