/* SPDX-License-Identifier: MIT
 *
 * commands.h: every command there is. Each is defined in the file of its name.
 */
#ifndef QUERN_CLI_COMMANDS_H
#define QUERN_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct command command_run, command_serve, command_tokenize, command_logits, command_bench, command_explain,
    command_inspect, command_check, command_models;

#endif
