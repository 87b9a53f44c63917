/* SPDX-License-Identifier: MIT
 *
 * options.h: commands as tables: options, operands, and the texts about them.
 *
 * There is one table for each command. The command line, the environment and the configuration file are read by it,
 * and the help, the manual and the completion of shells are printed from it. The value of an option is stored in the
 * command's own struct. Options that several commands share are stored in a struct inside that one.
 *
 * A value comes from the command line, or else from the environment, or else from the configuration file, or else it
 * is the default that the command's init function has set. In the file, the table of the requested persona goes before
 * the section. Every command also has --help, --help-all and --config FILE.
 */
#ifndef QUERN_CLI_OPTIONS_H
#define QUERN_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows of the tables leave out the zeros at their end. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum opt_kind {
    OPT_FLAG,    /* bool */
    OPT_INT,     /* int in [lo, hi] */
    OPT_U64,     /* uint64_t, decimal or 0x..., or "random", which is another one each time */
    OPT_FLOAT,   /* float, finite */
    OPT_SIZE,    /* uint64_t bytes: 6G, 5.5G, 500M, 4096 */
    OPT_STRING,  /* const char * */
    OPT_STRINGS, /* struct cli_strings: may be repeated */
    OPT_CHOICE,  /* an enum (int): the index in `choices` */
};

/* The kind of words that a shell offers for a value or an operand. */
enum opt_words { WORDS_NONE, WORDS_FILE, WORDS_FOLDER, WORDS_MODEL, WORDS_PERSONA, WORDS_COMMAND };

struct cli_strings {
    const char **v;
    size_t n;
}; /* v belongs to the invocation */

struct opt {
    const char *name; /* long name without dashes, unique within the command; NULL ends the table */
    char letter;      /* 0: none */
    enum opt_kind kind;
    size_t at;       /* offset of the value in the struct of the group */
    const char *arg; /* "N"; NULL for flags */
    const char *help;
    long lo, hi;         /* OPT_INT; OPT_FLOAT, equal: any number */
    const char *choices; /* OPT_CHOICE: "f16|f32|q8_0" */
    enum opt_words words;
    bool rare; /* for the manual; the short help leaves it out */
};

struct opt_group {
    const char *title; /* heading of its options in the help; NULL ends the list */
    const struct opt *opts;
    size_t at;           /* offset of the group's struct in the options of the command */
    const char *section; /* section of the configuration; NULL: the command's own; "": before all sections */
    bool rare;           /* for the manual; the short help leaves it out */
};

struct invocation;

struct example {
    const char *line; /* a command line; NULL ends the list */
    const char *what; /* what it does, a sentence without its full stop */
};

enum command_rank {
    RANK_COMMON,
    RANK_RARE,   /* only named in the short list of commands */
    RANK_HIDDEN, /* for programs: in no list */
};

struct command {
    const char *name;
    const char *operands; /* "MODEL [PROMPT]" */
    const char *brief;    /* a line, for the list of commands */
    const char *about;    /* paragraphs with empty lines between them, for the manual; the help has the first one */
    int min, max;         /* number of operands; max -1: any number */
    bool wraps;           /* its options end at the first operand; the rest is for the command that the operand names */
    enum opt_words words; /* the kind of the operands */
    const char *choices;  /* values of the first operand, if they are fixed: "bash|zsh|fish" */
    enum command_rank rank;
    bool implied; /* runs if the first word is not a command, so its name may be left out. At most one command */
    const struct example *examples;
    const struct opt_group *groups;
    size_t size;                      /* size of the struct with the options' values, at least 1; zeroed before init */
    void (*init)(void *options);      /* sets defaults; NULL: all zero */
    int (*run)(struct invocation *v); /* returns the exit status */
};

/* The origin of a value. */
enum opt_origin { ORIGIN_DEFAULT, ORIGIN_CONFIG, ORIGIN_ENV, ORIGIN_FLAG };

struct config_file;

/* A command that is about to run. */
struct invocation {
    const struct command *command;
    void *options;  /* of command->size bytes */
    char **operand; /* [n] */
    int n;
    uint8_t *origin;            /* [options_count()] enum opt_origin, in the order of the table */
    int *line;                  /* [options_count()] line in the configuration file, for ORIGIN_CONFIG */
    struct config_file *config; /* values may point into it */
    char **owned;               /* [n_owned] texts that values point into */
    int n_owned;
};

/* Calls `each` for the options of all groups in their order, until it returns non-zero, and returns that value. i
 * counts from 0. */
typedef int options_each(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i);
int options_walk(const struct command *c, options_each *each, void *arg);
/* The number of options of a command, in all groups. */
int options_count(const struct command *c);
/* The origin of the value of the option with this name, which must be in the table. */
enum opt_origin options_origin(const struct invocation *v, const char *name);
/* The section of the configuration that has the options of a group. */
const char *options_section(const struct command *c, const struct opt_group *g);
/* The name of the environment variable that sets an option: QUERN_SERVE_CTX, QUERN_MODEL. */
void options_env_name(char *out, size_t cap, const struct command *c, const struct opt_group *g, const struct opt *o);

/* The address of an option's value in the invocation. */
void *options_value(const struct invocation *v, const struct opt_group *g, const struct opt *o);

/* Takes a text that a value or an operand points into, and releases it with the invocation. */
void options_keep(struct invocation *v, char *text);

enum help_size { HELP_NONE, HELP_SHORT, HELP_LONG };
/* Reads a command line (argv[0] is the name of the command), the environment and the configuration file. Permutes
 * argv: operands come last. Returns 0 or an exit status, after a message. If help was requested it returns 0 with the
 * size in *help, and the command must not run. Always followed by options_free(). */
int options_read(struct invocation *v, const struct command *c, int argc, char **argv, enum help_size *help);
/* Releases the values and the configuration; a zeroed invocation is fine. */
void options_free(struct invocation *v);

/* ---- shared groups ---- */

extern const struct opt opts_sampling[]; /* struct qn_sampling */
extern const struct opt opts_model[];    /* struct qn_model_params */
extern const struct opt opts_engine[];   /* struct qn_engine_params: kv, threads, cpu, memory */
extern const struct opt opts_context[];  /* struct qn_engine_params: ctx, batch, mlock */

/* ---- the commands ---- */

extern const struct command *const commands[];        /* NULL ends it */
const struct command *command_find(const char *name); /* NULL: there is none */
const struct command *command_implied(void);          /* the command with `implied`; NULL: there is none */

#endif
