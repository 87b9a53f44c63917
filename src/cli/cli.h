/* SPDX-License-Identifier: MIT
 *
 * cli.h: what the commands share: options, numbers with units, exit codes, output.
 *
 * The commands are the only code that prints, reads the environment or exits.
 */
#ifndef QUERN_CLI_CLI_H
#define QUERN_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <quern.h>

/* One file a command; argv[0] is the command's name; the result is the exit status. */
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_check(int argc, char **argv);

/* Prints "quern: <message>" to stderr and returns the sysexits code that fits e->code. */
int cli_fail(const struct qn_error *e);
/* The same for a command line that makes no sense (exit status 64). */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A file to remove if the program is ended from outside (a signal, a lost page of the model); NULL: none.
 * The name is borrowed. */
extern const char *volatile cli_unfinished;

/* ---- options ---- */

#define CLI_CPU_HELP "instruction set at most: ref, avx2, avxvnni, avx512 or amx" /* of --cpu */

enum opt_kind {
    OPT_FLAG,    /* bool */
    OPT_INT,     /* int in [lo, hi] */
    OPT_U64,     /* uint64_t, decimal or 0x... */
    OPT_FLOAT,   /* float, finite */
    OPT_SIZE,    /* uint64_t bytes: 6G, 5.5G, 500M, 4096 */
    OPT_STRING,  /* const char * */
    OPT_STRINGS, /* struct cli_strings *: may be repeated */
};

struct cli_strings { const char **v; size_t n; }; /* v: room for argc, the caller's */

struct opt {
    const char *name; /* long name without dashes; NULL ends the table */
    char letter;      /* 0: none */
    enum opt_kind kind;
    void *out;
    const char *arg; /* "N"; NULL for flags */
    const char *help;
    long lo, hi; /* OPT_INT */
};

/* Parses options, which may stand anywhere; argv is permuted so that the operands come last and
 * *first is the index of the first one. Prints help and sets *help when asked. 0 or an exit status. */
int cli_parse(int argc, char **argv, const char *usage, const struct opt *opts, int *first, bool *help);

/* The value of a --kv option. 0 or an exit status. */
int cli_parse_kv(const char *name, enum qn_kv *out);

/* ---- input and output ---- */

/* Memory for a command: zeroed; ends the program (75) when there is none. */
void *cli_alloc(size_t n, size_t size);
void cli_free(void *p);
/* Everything on a file descriptor, `name` in messages, at most `limit` bytes; *data is NUL-terminated,
 * freed with cli_free(). 0 or an exit status (65 when there is more). */
int cli_read_all(int fd, const char *name, size_t limit, char **data, size_t *n);
#define CLI_MAX_INPUT ((size_t)1 << 28)
/* Writes everything to stdout; -1 when the reader is gone or the device is full (errno). */
int cli_write(const void *p, size_t n);
/* The exit status after cli_write failed: a reader that went away is no error. */
int cli_write_status(void);

#endif
