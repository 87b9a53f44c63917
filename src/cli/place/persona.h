/* SPDX-License-Identifier: MIT
 *
 * persona.h: personas: system prompts with a name, and options that go with them.
 *
 * A persona is built in, or the configuration has a table [persona.NAME], or there is a file personas/NAME.txt next to
 * the user's configuration, whose text is the system message. A file goes before the text of a built-in persona, and a
 * system message of the configuration goes before both.
 *
 * A text may have arguments: {{lang}} stands for the value of lang, and {{lang=C}} has a default.
 */
#ifndef QUERN_CLI_PERSONA_H
#define QUERN_CLI_PERSONA_H

#include "base/buf.h"
#include "cli/core/config_file.h"
#include "cli/core/options.h"

struct persona {
    const char *name, *brief; /* `brief` is for the manual */
    const char *system;
    float temperature;
};

extern const struct persona personas[]; /* the built-in personas, ended by one without a name */

/* Calls `each` once for each name: the built-in personas first, then those of the configuration, then the files. */
void persona_each(const struct config_file *config, void (*each)(void *arg, const char *name), void *arg);

/* Finds a persona. *out is the built-in one, or NULL if it is not built in. The options of [persona.NAME]
 * are already options of the command, and go before those of a built-in persona. QN_EUSAGE: there is no such persona;
 * the message lists them. */
int persona_find(const struct persona **out, const struct config_file *config, const char *name, struct qn_error *e);

/* Appends the text of a persona that was found: that of its file, or else of `built_in` (NULL: it is none), with its
 * arguments filled in. It is empty if the persona has no text. args: "NAME=VALUE"; NULL: leaves the text as it is.
 * Errors are those of persona_fill(), and of reading the file. */
int persona_text(struct buf *out, const struct persona *built_in, const char *name, const struct cli_strings *args,
                 struct qn_error *e);
/* Appends a text of the persona, with its arguments filled in. QN_EUSAGE: an argument is missing, or the text has no
 * such argument. */
int persona_fill(struct buf *out, const char *name, const char *text, size_t n, const struct cli_strings *args,
                 struct qn_error *e);

#endif
