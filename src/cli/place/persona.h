/* SPDX-License-Identifier: MIT
 *
 * persona.h: personas: system prompts with a name, and options that go with them.
 */
#ifndef QUERN_CLI_PERSONA_H
#define QUERN_CLI_PERSONA_H

#include "base/error.h"
#include "cli/core/config_file.h"

struct persona {
    const char *name, *brief; /* `brief` is for the manual */
    const char *system;
    float temperature;
};

extern const struct persona personas[]; /* the built-in personas, ended by one without a name */

/* Calls `each` once for each name: the built-in personas first, then those that only the configuration has. */
void persona_each(const struct config_file *config, void (*each)(void *arg, const char *name), void *arg);

/* Finds a persona. *out is the built-in one, or NULL if only the configuration has it. The options of [persona.NAME]
 * are already options of the command, and go before those of a built-in persona. QN_EUSAGE: there is no such persona;
 * the message lists them. */
int persona_find(const struct persona **out, const struct config_file *config, const char *name, struct qn_error *e);

#endif
