/* SPDX-License-Identifier: MIT
 *
 * sampling.h: adds the options of a command that say how tokens are drawn and guessed to a request.
 */
#ifndef QUERN_CLI_SAMPLING_H
#define QUERN_CLI_SAMPLING_H

#include <jansson.h>

#include "cli/core/options.h"
#include "cli/place/persona.h"

/* Adds the options of opts_sampling and opts_draft that somebody has set, under their names in the API. The server
 * decides about the others, except that a persona (NULL: none) has a temperature. Returns non-zero if there is no
 * memory. */
int sampling_add(json_t *request, const struct invocation *v, const struct persona *persona);

#endif
