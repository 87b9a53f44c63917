/* SPDX-License-Identifier: MIT
 *
 * command_complete.c: `quern complete`: prints names for the completion of shells, one per line.
 *
 * A file may have any name, and what is printed here becomes part of command lines. So only names that every shell
 * takes literally are printed. Errors are not reported, because the user is in the middle of a line.
 */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "cli/place/catalog.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/config_file.h"
#include "cli/place/persona.h"

struct complete {
    struct cli_strings folders;
};

/* Prints a name if it is safe. A '-' in front would be an option, and bash divides words at ':' and '='. */
static void offer(const char *name)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+@,%-";
    if (*name && *name != '-' && !name[strspn(name, safe)]) puts(name);
}

static void offer_models(const struct cli_strings *folders)
{
    struct catalog c = {0};
    struct qn_error e = {0};
    if (!catalog_open(&c, folders, &e))
        for (size_t i = 0; i < c.n; i++) offer(c.entry[i].name);
    catalog_close(&c);
}

static void offer_persona(void *arg, const char *name)
{
    (void)arg;
    offer(name);
}

static int run(struct invocation *v)
{
    const struct complete *o = v->options;
    if (!strcmp(v->operand[0], "models"))
        offer_models(&o->folders);
    else if (!strcmp(v->operand[0], "personas"))
        persona_each(v->config, offer_persona, NULL);
    return EX_OK;
}

static const struct opt_group groups[] = {{"Where", opts_folders, offsetof(struct complete, folders), .section = ""},
                                          {0}};

const struct command command_complete = {
    .name = "complete",
    .operands = "models|personas",
    .brief = "names for the completion of shells",
    .min = 1,
    .max = 1,
    .choices = "models|personas",
    .rank = RANK_HIDDEN,
    .groups = groups,
    .size = sizeof(struct complete),
    .run = run,
};
