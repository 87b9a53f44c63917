/* SPDX-License-Identifier: MIT
 *
 * config_file.h: the user's configuration file: found, read, and checked against the tables of options.
 *
 * A key is the long name of an option. It is in the table of its section (struct opt_group): before all tables, or in
 * [COMMAND]. [persona.NAME] has options of the commands that take a persona (WORDS_PERSONA).
 *
 * Errors are printed to stderr as "quern: FILE:LINE: ...", and the exit status is EX_CONFIG.
 */
#ifndef QUERN_CLI_CONFIG_FILE_H
#define QUERN_CLI_CONFIG_FILE_H

#include "base/toml/toml.h"

#define CONFIG_PERSONAS "persona" /* the table that contains the tables of personas */

struct config_file {
    char *path;          /* NULL: there is no file, and toml is empty */
    const char *refused; /* "--config" or "QUERN_CONFIG", if it is empty, which means no file; otherwise NULL */
    struct toml toml;
};

/* Finds, reads and checks the file. `named` is the value of --config; NULL: use $QUERN_CONFIG. An empty name means
 * no file, and a named file that cannot be read is an error. Without a name it is the first that exists of
 * $XDG_CONFIG_HOME/quern/config.toml ($HOME/.config if the variable is not set) and /etc/quern/config.toml. After
 * success every table and key in it is known. Returns 0 or an exit status, after a message. Closed with
 * config_file_close(). */
int config_file_open(struct config_file *c, const char *named);
void config_file_close(struct config_file *c); /* a zeroed one is fine */

/* The entry of a key in a section ("": before all tables), or in the table of a persona. NULL: there is none.
 * Borrowed from c. */
const struct toml_entry *config_file_find(const struct config_file *c, const char *section, const char *key);
const struct toml_entry *config_file_find_persona(const struct config_file *c, const char *persona, const char *key);
/* The index of the persona's table in c->toml; -1: there is none. */
int config_file_persona(const struct config_file *c, const char *name);

/* Prints the file, the line, the key and the formatted message. Returns EX_CONFIG. */
int config_file_fail(const struct config_file *c, const struct toml_entry *entry, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
