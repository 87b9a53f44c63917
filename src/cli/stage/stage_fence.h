/* SPDX-License-Identifier: MIT
 *
 * stage_fence.h: the fence around a stage: that of the daemon, for the model and the files of pages.
 */
#ifndef QUERN_CLI_STAGE_FENCE_H
#define QUERN_CLI_STAGE_FENCE_H

#include "base/error.h"

/* Call it when all files and connections are open. dir: where files are made and removed; NULL: nowhere. Says on
 * standard error what this kernel cannot do. */
int stage_fence(const char *path, const char *dir, struct qn_error *e);

#endif
