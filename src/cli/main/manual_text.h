/* SPDX-License-Identifier: MIT
 *
 * manual_text.h: the texts of manual pages that are in no table.
 *
 * Paragraphs have empty lines between them. A paragraph whose first line begins with '@' explains the term on that
 * line. A paragraph whose lines begin with four spaces is shown as it is.
 */
#ifndef QUERN_CLI_MANUAL_TEXT_H
#define QUERN_CLI_MANUAL_TEXT_H

struct manual_part {
    const char *title; /* NULL ends the list */
    const char *text;
};

extern const struct manual_part manual_program[];  /* in quern(1), after its commands */
extern const struct manual_part manual_config[];   /* in quern.toml(5), before its keys */
extern const struct manual_part manual_personas[]; /* in quern.toml(5), after its keys */
extern const struct manual_part manual_status[];   /* in the page of every command */

#endif
