/* SPDX-License-Identifier: MIT
 *
 * command_config.c: `quern config [COMMAND [OPTIONS]]`: prints every value that commands would run with, and where it
 * comes from.
 *
 * The output is itself a configuration with the same meaning. It has the sections in the order of the commands, and
 * each value once, with its origin as a comment. Defaults are comments as a whole, because a written default would not
 * change with a later version. With a COMMAND the output is for that command alone, run with these options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/toml/toml_out.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/config_file.h"
#include "cli/main/help.h"

#define COMMENT_COLUMN 40
#define LINE_COLUMNS   80

struct config_output {
    struct invocation *v; /* [n], one for each command */
    int n;
    const char *section; /* the section that is being printed */
    bool begun;          /* whether its header was printed */
    struct buf line;
};

/* Checks the result of a function of buf or toml_out. Without memory the program ends, as in cli_alloc(). */
static void add(int rc)
{
    if (!rc) return;
    fputs("quern: not enough memory for a line\n", stderr);
    exit(EX_TEMPFAIL);
}

/* ---- values ---- */

/* Writes the word with this index in "a|b|c". */
static void put_choice(struct buf *out, const char *choices, int place)
{
    for (; place > 0; place--) choices += strcspn(choices, "|") + 1;
    add(buf_printf(out, NULL, "\"%.*s\"", (int)strcspn(choices, "|"), choices));
}

/* Writes a number. TOML's numbers are signed, so a large one is a string. */
static void put_u64(struct buf *out, uint64_t x)
{
    const char *quote = x > INT64_MAX ? "\"" : "";
    add(buf_printf(out, NULL, "%s%ju%s", quote, (uintmax_t)x, quote));
}

/* Writes a size, with a unit if that is exact. */
static void put_size(struct buf *out, uint64_t bytes)
{
    static const char units[] = "KMGT";
    int k = 0;
    for (; k < 4 && bytes % 1024 == 0 && bytes; k++) bytes /= 1024;
    if (k)
        add(buf_printf(out, NULL, "\"%ju%c\"", (uintmax_t)bytes, units[k - 1]));
    else
        add(buf_printf(out, NULL, "%ju", (uintmax_t)bytes));
}

static void put_float(struct buf *out, float x)
{
    char s[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)x);
        if (strtof(s, NULL) == x) break;
    }
    add(buf_str(out, s, NULL));
}

/* Writes a list. QN_EDATA: TOML cannot have one of the texts. */
static int put_strings(struct buf *out, const struct cli_strings *s)
{
    int rc = 0;
    add(buf_str(out, "[", NULL));
    for (size_t i = 0; i < s->n && !rc; i++) {
        if (i) add(buf_str(out, ", ", NULL));
        rc = toml_put_string(out, s->v[i], NULL);
    }
    add(buf_str(out, "]", NULL));
    return rc;
}

static int put_option_value(struct buf *out, const struct opt *o, const void *value)
{
    switch (o->kind) {
    case OPT_FLAG: add(buf_str(out, *(const bool *)value ? "true" : "false", NULL)); break;
    case OPT_INT: add(buf_printf(out, NULL, "%d", *(const int *)value)); break;
    case OPT_U64: put_u64(out, *(const uint64_t *)value); break;
    case OPT_SIZE: put_size(out, *(const uint64_t *)value); break;
    case OPT_FLOAT: put_float(out, *(const float *)value); break;
    case OPT_CHOICE: put_choice(out, o->choices, *(const int *)value); break;
    case OPT_STRING: return toml_put_string(out, *(const char *const *)value, NULL);
    case OPT_STRINGS: return put_strings(out, value);
    }
    return 0;
}

/* Whether a default can be printed. Some are found out later, and a seed differs each time. */
static bool is_fixed(const struct invocation *v, const struct opt_group *g, const struct opt *o)
{
    const void *value = options_value(v, g, o);
    if (o->kind == OPT_INT) return *(const int *)value >= o->lo && *(const int *)value <= o->hi;
    if (o->kind == OPT_SIZE) return *(const uint64_t *)value != 0;
    if (o->kind == OPT_STRING) return *(const char *const *)value != NULL;
    return o->kind != OPT_U64;
}

/* ---- lines ---- */

static void put_origin(struct buf *out, const struct invocation *v, const struct opt_group *g, const struct opt *o,
                       int i)
{
    char name[1024];
    switch ((enum opt_origin)v->origin[i]) {
    case ORIGIN_DEFAULT: add(buf_str(out, "default", NULL)); break;
    case ORIGIN_FLAG: add(buf_printf(out, NULL, "--%s", o->name)); break;
    case ORIGIN_ENV:
        options_env_name(name, sizeof name, v->command, g, o);
        add(buf_str(out, name, NULL));
        break;
    case ORIGIN_CONFIG:
        error_clean(name, sizeof name, v->config->path);
        add(buf_printf(out, NULL, "%s:%d", name, v->line[i]));
        break;
    }
}

/* Goes to the column of comments. Returns where that is. */
static size_t pad(struct buf *out)
{
    int n = out->len < COMMENT_COLUMN ? COMMENT_COLUMN - (int)out->len : 1;
    add(buf_printf(out, NULL, "%*s", n, ""));
    return out->len;
}

/* Prints the line, whose comment begins at `at`. If it is too long for 80 columns, the comment goes on in the next
 * lines, as comments of their own. */
static void print_line(const struct buf *line, size_t at)
{
    const char *p = (const char *)line->data;
    size_t used = at + 1;
    if (line->len <= LINE_COLUMNS || at > COMMENT_COLUMN) {
        puts(p);
        return;
    }
    printf("%.*s", (int)used, p);
    for (p += used; *p;) {
        p += strspn(p, " ");
        size_t n = strcspn(p, " ");
        if (used > at + 1 && used + 1 + n > LINE_COLUMNS) {
            printf("\n%*s#", (int)at, "");
            used = at + 1;
        }
        printf(" %.*s", (int)n, p);
        used += 1 + n;
        p += n;
    }
    putchar('\n');
}

static void print_option(struct config_output *p, const struct invocation *v, const struct opt_group *g,
                         const struct opt *o, int i)
{
    struct buf *out = &p->line;
    bool is_default = v->origin[i] == ORIGIN_DEFAULT;
    size_t at;
    buf_clear(out);
    add(buf_printf(out, NULL, "%s%s = ", is_default ? "# " : "", o->name));
    if (is_default && !is_fixed(v, g, o)) {
        add(buf_str(out, o->arg ? o->arg : "...", NULL));
        at = pad(out);
        add(buf_printf(out, NULL, "# not set: %s", o->help));
    } else if (put_option_value(out, o, options_value(v, g, o))) {
        buf_clear(out);
        add(buf_printf(out, NULL, "# %s", o->name));
        at = pad(out);
        add(buf_str(out, "# not UTF-8, which a configuration is, but set by ", NULL));
        put_origin(out, v, g, o, i);
    } else {
        at = pad(out);
        add(buf_str(out, "# ", NULL));
        put_origin(out, v, g, o, i);
    }
    print_line(out, at);
}

struct search {
    const char *section, *name;
};

static int is_same(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    const struct search *s = arg;
    (void)i;
    return !strcmp(options_section(c, g), s->section) && (!s->name || !strcmp(o->name, s->name));
}

/* Whether an earlier command has an option with this section and name; name NULL: any option of the section. */
static bool is_before(const struct config_output *p, const struct command *c, const char *section, const char *name)
{
    struct search s = {section, name};
    for (int i = 0; i < p->n && p->v[i].command != c; i++)
        if (options_walk(p->v[i].command, is_same, &s)) return true;
    return false;
}

struct visit {
    struct config_output *p;
    const struct invocation *v;
};

static int print_if_here(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct visit *x = arg;
    struct config_output *p = x->p;
    if (strcmp(options_section(c, g), p->section) || is_before(p, c, p->section, o->name)) return 0;
    if (!p->begun && *p->section) printf("\n[%s]\n", p->section);
    p->begun = true;
    print_option(p, x->v, g, o, i);
    return 0;
}

static void print_section(struct config_output *p, const char *section)
{
    p->section = section;
    p->begun = false;
    for (int i = 0; i < p->n; i++) {
        struct visit x = {p, &p->v[i]};
        options_walk(p->v[i].command, print_if_here, &x);
    }
}

static void print_sections(struct config_output *p)
{
    print_section(p, "");
    for (int i = 0; i < p->n; i++) {
        const struct command *c = p->v[i].command;
        for (const struct opt_group *g = c->groups; g && g->title; g++) {
            const char *section = options_section(c, g);
            bool again = !*section || is_before(p, c, section, NULL);
            for (const struct opt_group *b = c->groups; b < g && !again; b++)
                again = !strcmp(section, options_section(c, b));
            if (!again) print_section(p, section);
        }
    }
}

/* Prints the personas as they are in the file. */
static void print_personas(struct config_output *p, const struct config_file *c)
{
    const struct toml *t = &c->toml;
    char path[1024] = "";
    int personas = toml_child(t, 0, "persona");
    if (c->path) error_clean(path, sizeof path, c->path);
    for (int i = 1; i < t->n_tables && personas > 0; i++) {
        if (t->table[i].parent != personas) continue;
        buf_clear(&p->line);
        add(toml_put_name(&p->line, t->table[i].name, NULL));
        printf("\n[persona.%s]\n", p->line.data);
        for (int k = 0; k < t->n_entries; k++) {
            if (t->entry[k].table != i) continue;
            buf_clear(&p->line);
            add(buf_printf(&p->line, NULL, "%s = ", t->entry[k].key));
            add(toml_put_value(&p->line, &t->entry[k].value, NULL));
            size_t at = pad(&p->line);
            add(buf_printf(&p->line, NULL, "# %s:%d", path, t->entry[k].line));
            print_line(&p->line, at);
        }
    }
}

/* ---- the command ---- */

/* Reads the options as the command would, with any operands. */
static int read_command(struct config_output *p, struct command *copy, const struct command *c, int argc, char **argv)
{
    enum help_size help;
    *copy = *c;
    copy->min = 0;
    copy->max = -1;
    int rc = options_read(&p->v[p->n++], copy, argc, argv, &help);
    if (help) {
        help_command(copy, help);
        return -1;
    }
    return rc;
}

static int unknown_command(const char *name)
{
    struct nearest near = {.word = name};
    for (const struct command *const *c = commands; *c; c++) nearest_offer(&near, (*c)->name);
    return near.best ? cli_usage("config: there is no command '%s' (did you mean '%s'?)", name, near.best)
                     : cli_usage("config: there is no command '%s'", name);
}

static void print_page(struct config_output *p)
{
    char path[1024] = "no configuration file";
    const struct config_file *c = p->v[0].config;
    if (c->path) error_clean(path, sizeof path, c->path);
    printf("# %s\n", path);
    print_sections(p);
    print_personas(p, c);
}

static int run(struct invocation *v)
{
    const struct command *named = v->n ? command_find(v->operand[0]) : NULL;
    int rc = 0, n = 0;
    if (v->n && !named) return unknown_command(v->operand[0]);
    /* The commands below read the same file as this command, also with --config. */
    if (setenv("QUERN_CONFIG", v->config->path ? v->config->path : "", 1)) return EX_TEMPFAIL;
    while (commands[n]) n++;
    struct config_output p = {.v = cli_alloc((size_t)n, sizeof *p.v)};
    struct command *copies = cli_alloc((size_t)n, sizeof *copies);
    if (named) rc = read_command(&p, copies, named, v->n, v->operand);
    for (int i = 0; i < n && !named && !rc; i++) {
        char *argv[] = {(char *)(uintptr_t)commands[i]->name, NULL};
        rc = read_command(&p, &copies[i], commands[i], 1, argv);
    }
    if (!rc) print_page(&p);
    for (int i = 0; i < p.n; i++) options_free(&p.v[i]);
    buf_deinit(&p.line);
    cli_free(p.v);
    cli_free(copies);
    return rc < 0 ? EX_OK : rc; /* below 0: the help of the command was printed */
}

static const struct example examples[] = {
    {"quern config", "All settings of all commands"},
    {"quern config serve --ctx 8192", "What quern serve would use with this option"},
    {"quern config | grep -v \"# default\"", "Only what somebody has set"},
    {0},
};

const struct command command_config = {
    .name = "config",
    .operands = "[COMMAND [OPTIONS]]",
    .brief = "show every setting, and where it comes from",
    .about = "Shows every setting and where it comes from: the command line, the environment, the configuration, or "
             "the default.\n\n"
             "The output is a configuration file with the same meaning. With COMMAND it shows the settings of that "
             "command with these OPTIONS. quern.toml(5) describes the file.",
    .max = -1,
    .wraps = true,
    .words = WORDS_COMMAND,
    .examples = examples,
    .size = 1,
    .run = run,
};
