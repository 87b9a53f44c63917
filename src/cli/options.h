/* SPDX-License-Identifier: MIT
 *
 * options.h: what a command is, as a table: its options, its operands, what it says of itself.
 *
 * One table says all: the command line is read by it, the configuration file and the environment are, and the help, the
 * manual and the completion of shells are printed from it. An option's value is stored at a place in the command's own
 * struct; groups of options that several commands share are stored in a struct of their own inside of it.
 *
 * A value comes from the command line, else from the environment, else from the configuration file (there first from
 * the table of the persona that was asked for, then from the section), else it is the default that the command's init
 * function has set. Every command also knows --help, and --config FILE.
 */
#ifndef QUERN_CLI_OPTIONS_H
#define QUERN_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of the tables end where nothing but zeros would follow. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum opt_kind {
    OPT_FLAG,    /* bool */
    OPT_INT,     /* int in [lo, hi] */
    OPT_U64,     /* uint64_t, decimal or 0x... */
    OPT_FLOAT,   /* float, finite */
    OPT_SIZE,    /* uint64_t bytes: 6G, 5.5G, 500M, 4096 */
    OPT_STRING,  /* const char * */
    OPT_STRINGS, /* struct cli_strings: may be repeated */
    OPT_CHOICE,  /* an enum (int): the index in `choices` */
};

/* What a shell may complete a value or an operand with. */
enum opt_words { WORDS_NONE, WORDS_FILE, WORDS_FOLDER, WORDS_MODEL, WORDS_PERSONA, WORDS_COMMAND };

struct cli_strings {
    const char **v;
    size_t n;
}; /* v: of the invocation */

struct opt {
    const char *name; /* long name without dashes, unique within the command; NULL ends the table */
    char letter;      /* 0: none */
    enum opt_kind kind;
    size_t at;       /* of the value, in the struct of the group */
    const char *arg; /* "N"; NULL for flags */
    const char *help;
    long lo, hi;         /* OPT_INT */
    const char *choices; /* OPT_CHOICE: "f16|f32|q8_0" */
    enum opt_words words;
    bool rare; /* for the manual; the short help leaves it out */
};

struct opt_group {
    const char *title; /* over its options in the help; NULL ends the list */
    const struct opt *opts;
    size_t at;           /* of the group's struct, in the options of the command */
    const char *section; /* of the configuration: NULL: the command's own; "": what stands before all sections */
    bool rare;           /* for the manual; the short help leaves it out */
};

struct invocation;

struct example {
    const char *line; /* as it is typed; NULL ends the list */
    const char *what; /* it does, a sentence without its full stop */
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
    const char *about;    /* paragraphs, divided by empty lines, for the manual; the first one for the help too */
    int min, max;         /* operands; max -1: any number */
    bool wraps;           /* its options end at the first operand: what follows is for the command that this names */
    enum opt_words words; /* what operands are */
    const char *choices;  /* the first operand's, when it is one of these: "bash|zsh|fish" */
    enum command_rank rank;
    bool implied; /* what runs when the first word is no command: its name may be left out. One at most */
    const struct example *examples;
    const struct opt_group *groups;
    size_t size;                      /* of the struct with the options' values, zeroed before init; at least 1 */
    void (*init)(void *options);      /* sets defaults; NULL: all zero */
    int (*run)(struct invocation *v); /* returns the exit status */
};

/* Where a value comes from. */
enum opt_origin { ORIGIN_DEFAULT, ORIGIN_CONFIG, ORIGIN_ENV, ORIGIN_FLAG };

struct config_file;

/* A command that is to be run. */
struct invocation {
    const struct command *command;
    void *options;  /* of the command's size */
    char **operand; /* [n] */
    int n;
    uint8_t *origin;            /* [options_count()] enum opt_origin, in the order of the table */
    int *line;                  /* [options_count()] where in the configuration file, of those with ORIGIN_CONFIG */
    struct config_file *config; /* what values point into, too */
    char **owned;               /* [n_owned] texts that values point into */
    int n_owned;
};

/* Options of all groups of a command, in order: calls `each` until it returns non-zero, and returns that. i counts from
 * 0. */
typedef int options_each(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i);
int options_walk(const struct command *c, options_each *each, void *arg);
int options_count(const struct command *c);
/* Where the option of this name has its value from. The name must be in the table. */
enum opt_origin options_origin(const struct invocation *v, const char *name);
/* The section of the configuration in which a group's options stand. */
const char *options_section(const struct command *c, const struct opt_group *g);
/* The name of the environment variable that sets an option: QUERN_SERVE_CTX, QUERN_MODEL. */
void options_env_name(char *out, size_t cap, const struct command *c, const struct opt_group *g, const struct opt *o);

/* Where an option's value is stored. */
void *options_value(const struct invocation *v, const struct opt_group *g, const struct opt *o);

/* Reads a command line (argv[0] is the command's name), the environment and the configuration file. 0; or an exit
 * status, also EX_OK when help was asked for and printed (help.h): then *ready is false. Always followed by
 * options_free(). */
int options_read(struct invocation *v, const struct command *c, int argc, char **argv, bool *ready);
void options_free(struct invocation *v);

/* ---- shared groups ---- */

extern const struct opt opts_sampling[]; /* struct qn_sampling */
extern const struct opt opts_model[];    /* struct qn_model_params */
extern const struct opt opts_engine[];   /* struct qn_engine_params: kv, threads, cpu, memory */
extern const struct opt opts_context[];  /* struct qn_engine_params: ctx, batch, mlock */

/* ---- the commands ---- */

extern const struct command *const commands[];        /* NULL ends it */
const struct command *command_find(const char *name); /* NULL: there is none */
const struct command *command_implied(void);          /* the same */

#endif
