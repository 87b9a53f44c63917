/* SPDX-License-Identifier: MIT
 *
 * command_help.c: `quern help [COMMAND]`: the list of all commands, or the long help of one.
 */
#include <sysexits.h>

#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/main/help.h"

static int run(struct invocation *v)
{
    if (v->n == 0) {
        help_program(stdout, HELP_LONG);
        return EX_OK;
    }
    const struct command *c = command_find(v->operand[0]);
    if (!c) return cli_usage("help: there is no command '%s' (quern help lists them)", v->operand[0]);
    help_command(c, HELP_LONG);
    return EX_OK;
}

static const struct example examples[] = {
    {"quern help", "List all commands"},
    {"quern help bench", "All options of one, with examples"},
    {0},
};

const struct command command_help = {
    .name = "help",
    .operands = "[COMMAND]",
    .brief = "list all commands, or all options of one",
    .about = "Lists all commands, or prints what a command's --help-all prints.",
    .min = 0,
    .max = 1,
    .words = WORDS_COMMAND,
    .rank = RANK_RARE,
    .examples = examples,
    .size = 1,
    .run = run,
};
