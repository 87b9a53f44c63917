/* SPDX-License-Identifier: MIT
 *
 * config_file.h: the user's one optional configuration file: found, read, and checked against the tables of options.
 *
 * A key is the long name of an option. It stands in the table of its section (struct opt_group): before all tables, or
 * in [COMMAND]. [persona.NAME] holds any options of the commands that have one for personas (WORDS_PERSONA).
 *
 * Messages go to stderr, "quern: FILE:LINE: ...", and the exit status is EX_CONFIG.
 */
#ifndef QUERN_CLI_CONFIG_FILE_H
#define QUERN_CLI_CONFIG_FILE_H

#include "base/toml.h"

#define CONFIG_PERSONAS "persona" /* the table around those of personas */

struct config_file {
    char *path; /* NULL: there is no file, and nothing in toml */
    struct toml toml;
};

/* The file is `named` (--config), else $QUERN_CONFIG: an empty name is no file at all, and one that cannot be read is
 * an error. Else it is the first that exists of $XDG_CONFIG_HOME/quern/config.toml ($HOME/.config when that is not set)
 * and /etc/quern/config.toml. Every table and key in it is known afterwards. 0 or an exit status. */
int config_file_open(struct config_file *c, const char *named);
void config_file_close(struct config_file *c); /* a zeroed one is closed */

/* The entry of a key in a section ("": before all tables), or in a persona's table; NULL: there is none. */
const struct toml_entry *config_file_find(const struct config_file *c, const char *section, const char *key);
const struct toml_entry *config_file_find_persona(const struct config_file *c, const char *persona, const char *key);
/* The persona's table in c->toml; -1: there is none. */
int config_file_persona(const struct config_file *c, const char *name);

/* Says what is wrong with an entry. Returns EX_CONFIG. */
int config_file_fail(const struct config_file *c, const struct toml_entry *entry, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
