/* SPDX-License-Identifier: MIT
 *
 * ceilings_kept.h: the machine's ceilings, from a file if they were measured before.
 *
 * They are for estimates only: measuring takes a second or two, and other programs that run meanwhile change the
 * result.
 */
#ifndef QUERN_CLI_CEILINGS_KEPT_H
#define QUERN_CLI_CEILINGS_KEPT_H

#include <stdbool.h>

#include "cli/measure/ceilings.h"

/* The ceilings of all CPUs that this process may use, without a model file. `refresh` measures in any case. The
 * result is kept for a month if there is a folder for it; a missing folder is not an error. */
int ceilings_kept(struct ceilings *c, bool refresh, struct qn_error *e);
/* Improves what is kept by another measurement, of n_threads threads on `level`: the machine is as fast as the best of
 * them. Does nothing if nothing is kept, if that was another machine, or if nothing is faster. */
void ceilings_improve(const struct ceilings *c, int n_threads, enum cpu_level level);

#endif
