/* SPDX-License-Identifier: MIT
 *
 * manual.h: the texts of manual pages that stand in no table: manual_text.c.
 *
 * Paragraphs are divided by empty lines. One whose first line begins with '@' explains the term on that line; one whose
 * lines begin with four spaces is shown as it is.
 */
#ifndef QUERN_CLI_MANUAL_H
#define QUERN_CLI_MANUAL_H

struct manual_part {
    const char *title; /* NULL ends the list */
    const char *text;
};

extern const struct manual_part manual_program[];  /* of quern(1), behind its commands */
extern const struct manual_part manual_config[];   /* of quern.toml(5), before its keys */
extern const struct manual_part manual_personas[]; /* behind them */
extern const struct manual_part manual_status[];   /* of every command */

#endif
