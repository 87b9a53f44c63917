/* SPDX-License-Identifier: MIT
 *
 * complete.c: `quern complete`: names for the shells' completion, one a line.
 *
 * Files may be called anything, and what is printed here ends up in command lines: only names that every shell takes
 * literally are printed. Nothing is said of errors, for the user is in the middle of a line.
 */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "cli/catalog.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/persona.h"

struct complete {
    struct cli_strings folders;
};

/* No '-' in front, which would be an option; no ':' or '=', which bash divides words at. */
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
