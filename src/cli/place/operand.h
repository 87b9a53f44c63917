/* SPDX-License-Identifier: MIT
 *
 * operand.h: the model that an operand or --model names: a file, a folder, the name of one in the folders of models, or
 * an alias that the running daemon has for one of these.
 */
#ifndef QUERN_CLI_OPERAND_H
#define QUERN_CLI_OPERAND_H

#include <quern.h>

#include "cli/place/catalog.h"
#include "engine/core/decoder.h"

/* The group with --models, for commands with such an operand; `at` is the offset of a struct cli_strings. */
#define OPERAND_GROUP(at)                                                                                              \
    {                                                                                                                  \
        "Folders", opts_folders, at, "", .rare = true                                                                  \
    }

/* The options --model and --models of commands that look into a model file themselves; section "". */
struct operand_choice {
    const char *model; /* NULL: the only one there is */
    struct cli_strings models;
};
extern const struct opt opts_choice[];

/* Writes the path of a model to *path, for mem_free(). name: NULL for the only model there is. Errors are those of
 * catalog_find(). */
int operand_find(char **path, const struct cli_strings *folders, const char *name, struct qn_error *e);

/* Replaces the name of a model in v->operand[i] by its path, which belongs to the invocation. What is a path stays as
 * it is, so opening it says what is wrong with it. Returns 0 or an exit status, after a message. */
int operand_model(struct invocation *v, int i, const struct cli_strings *folders);

/* Who guesses tokens: the options --draft, --decoder and --draft-model. */
struct draft_options {
    enum qn_draft how;
    enum decoder decoder;
    const char *model; /* a file, or a name in the folders; NULL: none */
};
extern const struct opt opts_draft[];
/* Writes to *how what --draft and --decoder mean together, and to *path the path of the draft model, for mem_free().
 * NULL: there is none, or no use for it. QN_EUSAGE: the options contradict each other. */
int operand_draft(char **path, enum qn_draft *how, const struct draft_options *o, const struct cli_strings *folders,
                  struct qn_error *e);

#endif
