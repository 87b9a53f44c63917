/* SPDX-License-Identifier: MIT
 *
 * check.h: what `quern check` does, for commands that do it too.
 */
#ifndef QUERN_CLI_CHECK_H
#define QUERN_CLI_CHECK_H

#include <stdbool.h>

#include "format/weights.h"

/* Runs every check that loading runs; deep: and reads all tensor data; pre:
 * as in vocab_load_with(). Errors name the path. *w is weights_close()d by
 * the caller; NULL after a failure. */
int check_model(struct weights **w, const char *path, bool deep, const char *pre, struct qn_error *e);

#endif
