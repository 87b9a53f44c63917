/* SPDX-License-Identifier: MIT
 *
 * check_model.h: the checks of `quern check`, for other commands too.
 */
#ifndef QUERN_CLI_CHECK_MODEL_H
#define QUERN_CLI_CHECK_MODEL_H

#include <stdbool.h>

#include "format/weights.h"

/* Opens a model and runs every check that loading runs; with `deep` it also reads all tensor data, and
 * calls watch, which may be NULL, as weights_check_finite() does. pre: as in
 * vocab_load_with(). Errors name the path. *w is the caller's to close with weights_close(); NULL after an error. */
int check_model(struct weights **w, const char *path, bool deep, const char *pre, weights_watch *watch, void *arg,
                struct qn_error *e);

#endif
