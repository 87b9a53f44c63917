/* SPDX-License-Identifier: MIT
 *
 * pull_target.h: the path that `quern pull` gives to a download, and the check of what has arrived.
 */
#ifndef QUERN_CLI_PULL_TARGET_H
#define QUERN_CLI_PULL_TARGET_H

#include "cli/core/options.h"
#include "fetch/partial.h"
#include "fetch/location.h"

/* Writes the path for a source to *path, for cli_free(): -o FILE, or the source's name in -o DIRECTORY, or else in
 * the first folder of models. A folder is made if necessary. output NULL: there is no -o. Returns 0 or an exit status,
 * after a message. */
int pull_target(char **path, const struct location *s, const char *output, const struct cli_strings *folders);

/* The number of parts of the model that the file belongs to, by its name PREFIX-00001-of-00003.gguf; 1: it is the
 * whole model. */
uint64_t pull_n_parts(const char *name);

/* Checks a file or folder with the checks of `quern check`: a GGUF file, a folder that is a model, and the GGUF
 * files in any other folder. A single part of a split model cannot be checked. name: the name it will have. QN_EUNSUP:
 * it is sound, but the model cannot run here. */
int pull_check(const char *path, const char *name, struct qn_error *e);

/* Checks the part. A sound part gets its name: returns 0. A damaged one is renamed to NAME.bad. A sound part that
 * cannot run here gets its name too. In both cases returns an exit status, after a message. */
int pull_finish(struct partial_file *part, bool replace);

#endif
