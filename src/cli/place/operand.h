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
    const char *model;     /* a file, or a name in the folders; NULL: none */
    struct qn_wedlm wedlm; /* fields of requests */
};
extern const struct opt opts_draft[];
/* Nothing is said. */
void draft_options_init(struct draft_options *o);
/* The options of windows, for a struct qn_wedlm at `at`. */
#define OPTS_WEDLM(at)                                                                                                 \
    {"wedlm-verify",                                                                                                   \
     0,                                                                                                                \
     OPT_CHOICE,                                                                                                       \
     at + offsetof(struct qn_wedlm, verify),                                                                           \
     "yes|no",                                                                                                         \
     "windows: only guess, so that the answer is that of plain decoding (yes, the default), or take what masks were "  \
     "filled with (no)",                                                                                               \
     .choices = "no|yes",                                                                                              \
     .rare = true},                                                                                                    \
        {"window",    0,                                                                                               \
         OPT_INT,     at + offsetof(struct qn_wedlm, window),                                                          \
         "N",         "windows: masks (default: as many as pay, or the file's number if unverified)",                  \
         1,           16,                                                                                              \
         .rare = true},                                                                                                \
        {"entropy-threshold",                                                                                          \
         0,                                                                                                            \
         OPT_FLOAT,                                                                                                    \
         at + offsetof(struct qn_wedlm, entropy_threshold),                                                            \
         "X",                                                                                                          \
         "windows: fill masks below so many nats (default: as the file says, or 0.4)",                                 \
         0,                                                                                                            \
         100,                                                                                                          \
         .rare = true},                                                                                                \
    {                                                                                                                  \
        "pos-penalty", 0, OPT_FLOAT, at + offsetof(struct qn_wedlm, pos_penalty), "X",                                 \
            "windows: nats for each place after the first mask (default: as the file says, or 0.02)", 0, 100,          \
            .rare = true                                                                                               \
    }
/* Whether anything is said of windows. */
bool draft_options_say_windows(const struct draft_options *o);
/* Writes to *how what --draft and --decoder mean together, and to *path the path of the draft model, for mem_free().
 * NULL: there is none, or no use for it. QN_EUSAGE: the options contradict each other. */
int operand_draft(char **path, enum qn_draft *how, const struct draft_options *o, const struct cli_strings *folders,
                  struct qn_error *e);

#endif
