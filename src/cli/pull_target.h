/* SPDX-License-Identifier: MIT
 *
 * pull_target.h: where `quern pull` puts what it fetches, what is there already, and whether what came is any good.
 */
#ifndef QUERN_CLI_PULL_TARGET_H
#define QUERN_CLI_PULL_TARGET_H

#include "cli/options.h"
#include "fetch/part.h"
#include "fetch/source.h"

/* The path for a source: -o FILE, or its name in -o DIRECTORY, else in the first of the models' folders, else in
 * ~/models, which is made. output: NULL: none was given. 0 or an exit status; *path is freed with cli_free(). */
int pull_target(char **path, const struct source *s, const char *output, const struct cli_strings *folders);

/* Of how many parts the file is one, by its name PREFIX-00001-of-00003.gguf; 1: it is all. */
uint64_t pull_n_parts(const char *name);

/* What can be said of a file or folder without computing with it, by what `quern check` does: of a GGUF file, of a
 * folder that is a model, and of the GGUF files in any other. A part of a split model says nothing alone. name: what it
 * is going to be called. QN_EUNSUP: it is whole, but no model that runs here. */
int pull_check(const char *path, const char *name, struct qn_error *e);

/* Checks the part, and names it if it is sound: 0. If not, it is called NAME.bad; if it is sound but
 * does not run here it has its name all the same. An exit status, after a line that says which. */
int pull_finish(struct part *part, bool replace);

#endif
