/* SPDX-License-Identifier: MIT
 *
 * persona.h: named ways to ask: a system prompt, and options that go with it.
 */
#ifndef QUERN_CLI_PERSONA_H
#define QUERN_CLI_PERSONA_H

#include "base/error.h"
#include "cli/config_file.h"

struct persona {
    const char *name, *brief; /* brief: for the manual */
    const char *system;
    float temperature;
};

extern const struct persona personas[]; /* those that are built in; ended by one without a name */

/* Each name once: the built-in ones, then those of the configuration alone. */
void persona_each(const struct config_file *config, void (*each)(void *arg, const char *name), void *arg);

/* *out: the built-in one; NULL when only the configuration has it. There the options of [persona.NAME] are options of
 * the command already, and go before those that are built in. QN_EUSAGE: there is none of this name; says which there
 * are. */
int persona_find(const struct persona **out, const struct config_file *config, const char *name, struct qn_error *e);

#endif
