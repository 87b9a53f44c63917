/* SPDX-License-Identifier: MIT
 *
 * sampling.h: the sampling options of a command, as fields of a request.
 */
#ifndef QUERN_CLI_SAMPLING_H
#define QUERN_CLI_SAMPLING_H

#include <jansson.h>

#include "cli/options.h"
#include "cli/persona.h"

/* Adds those of opts_sampling that somebody has set, under the names of the API; what nobody has set is the server's to
 * choose, but for a persona's temperature (NULL: none). Non-zero: no memory. */
int sampling_add(json_t *request, const struct invocation *v, const struct persona *persona);

#endif
