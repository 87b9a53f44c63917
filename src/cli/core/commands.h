/* SPDX-License-Identifier: MIT
 *
 * commands.h: the names of all commands. command_NAME is defined in the file command_NAME.c.
 */
#ifndef QUERN_CLI_COMMANDS_H
#define QUERN_CLI_COMMANDS_H

#include "cli/core/options.h"

extern const struct command command_ask;
extern const struct command command_chat;
extern const struct command command_run;
extern const struct command command_serve;
extern const struct command command_start;
extern const struct command command_stop;
extern const struct command command_ps;
extern const struct command command_models;
extern const struct command command_pull;
extern const struct command command_rm;
extern const struct command command_bench;
extern const struct command command_explain;
extern const struct command command_inspect;
extern const struct command command_check;
extern const struct command command_tokenize;
extern const struct command command_logits;
extern const struct command command_verify;
extern const struct command command_default;
extern const struct command command_count;
extern const struct command command_embed;
extern const struct command command_personas;
extern const struct command command_config;
extern const struct command command_manual;
extern const struct command command_completion;
extern const struct command command_help;
extern const struct command command_complete;

#endif
