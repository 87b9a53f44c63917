/* SPDX-License-Identifier: MIT
 *
 * command_manual.c: `quern manual`: prints the manual from the tables of the commands, as pages for man.
 *
 * man shows the page; with --roff it is printed in the macros of man(7). quern(1) is the page
 * of the command whose name may be left out, with everything about the whole program. Each other command has its own
 * page, and the configuration has quern.toml(5). tools/make-api-page makes the page of the daemon's API.
 */
#include "cli/main/manual_text.h"

#include <ctype.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/main/help.h"
#include "cli/place/persona.h"
#include "cli/main/roff.h"
#include "cli/main/roff_plain.h"

static const char config_page[] = "quern.toml";
static const char program_brief[] = "language models as a Unix tool";
static const char config_brief[] = "the configuration of quern";

/* ---- parts ---- */

static void text(FILE *f, const char *s) { roff_text(f, s, strlen(s)); }

static void section(FILE *f, const char *title)
{
    fputs(".SH \"", f);
    for (; *title; title++) fputc(toupper((unsigned char)*title), f);
    fputs("\"\n", f);
}

static void head(FILE *f, const char *page, int number, const char *brief)
{
    size_t version = strcspn(qn_version(), " ");
    fputs(".TH \"", f);
    for (const char *p = page; *p; p++) {
        char c = (char)toupper((unsigned char)*p);
        roff_text(f, &c, 1);
    }
    fprintf(f, "\" %d \"\" \"quern %.*s\" \"Quern\"\n.nh\n.ad l\n", number, (int)version, qn_version());
    section(f, "name");
    text(f, page);
    fputs(" \\- ", f);
    text(f, brief);
    fputc('\n', f);
}

/* Prints a paragraph. manual_text.h describes the format. */
static void paragraph(FILE *f, const char *s, size_t n)
{
    const char *line = memchr(s, '\n', n);
    if (*s == '@' && line) {
        fputs(".TP\n", f);
        roff_font(f, 'B', s + 1, (size_t)(line - s) - 1);
        fputc('\n', f);
        n -= (size_t)(line + 1 - s);
        s = line + 1;
    } else {
        fputs(".PP\n", f);
    }
    roff_prose(f, s, n, 0);
    fputc('\n', f);
}

/* Prints lines as they are, without their indent, up to the next paragraph; there may be empty lines between them. */
static const char *literal(FILE *f, const char *s)
{
    char lines[4096];
    size_t n = 0;
    while (*s == ' ' || (*s == '\n' && s[1] == ' ')) {
        size_t len = strcspn(s, "\n"), skip = len < 4 ? len : 4;
        if (n + len + 2 > sizeof lines) break;
        memcpy(lines + n, s + skip, len - skip);
        n += len - skip;
        lines[n++] = '\n';
        s += len + (s[len] == '\n');
    }
    roff_literal(f, lines, n);
    return s + strspn(s, "\n");
}

static void paragraphs(FILE *f, const char *s)
{
    while (s && *s) {
        if (*s == ' ') {
            s = literal(f, s);
        } else {
            size_t n = help_paragraph(s);
            while (n && s[n - 1] == '\n') n--;
            paragraph(f, s, n);
            s = help_next(s, n);
        }
    }
}

static void parts(FILE *f, const struct manual_part *p)
{
    for (; p->title; p++) {
        section(f, p->title);
        paragraphs(f, p->text);
    }
}

/* ---- options ---- */

/* Prints the allowed values as a sentence. */
static void values(FILE *f, const struct opt *o)
{
    if (o->kind == OPT_INT && o->hi >= INT32_MAX) {
        fputs(" At least ", f);
        fprintf(f, o->lo < 0 ? "\\-%ld." : "%ld.", o->lo < 0 ? -o->lo : o->lo);
    } else if (o->kind == OPT_INT) {
        fprintf(f, o->lo < 0 ? " From \\-%ld to %ld." : " From %ld to %ld.", o->lo < 0 ? -o->lo : o->lo, o->hi);
    } else if (o->kind == OPT_CHOICE) {
        fputs(" One of ", f);
        for (const char *p = o->choices; *p;) {
            size_t n = strcspn(p, "|");
            roff_font(f, 'B', p, n);
            p += n + (p[n] == '|');
            if (*p) fputs(", ", f);
        }
        fputc('.', f);
    } else if (o->kind == OPT_SIZE) {
        fputs(" A number of bytes, or with a unit: 500M, 5.5G.", f);
    }
}

static void sentence(FILE *f, const char *s)
{
    char first = (char)toupper((unsigned char)*s);
    roff_text(f, &first, 1);
    roff_prose(f, s + 1, strlen(s + 1), 0);
    if (*s && s[strlen(s) - 1] != '.') fputc('.', f);
}

struct options_page {
    FILE *f;
    const struct opt_group *group;
};

static int option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct options_page *p = arg;
    char name[96];
    (void)i;
    if (p->group != g) {
        fputs(".SS \"", p->f);
        text(p->f, g->title);
        fputs("\"\n", p->f);
    }
    p->group = g;
    fputs(".TP\n", p->f);
    if (o->letter) fprintf(p->f, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", p->f);
    text(p->f, o->name);
    fputs("\\fR", p->f);
    if (o->arg) {
        fputc(' ', p->f);
        roff_font(p->f, 'I', o->arg, strlen(o->arg));
    }
    fputc('\n', p->f);
    sentence(p->f, o->help);
    values(p->f, o);
    options_env_name(name, sizeof name, c, g, o);
    fputs("\n.br\n", p->f);
    roff_font(p->f, 'I', name, strlen(name));
    fputs("; in quern.toml(5) ", p->f);
    if (*options_section(c, g)) fprintf(p->f, "[%s] ", options_section(c, g));
    roff_font(p->f, 'I', o->name, strlen(o->name));
    fputc('\n', p->f);
    return 0;
}

static void options(FILE *f, const struct command *c)
{
    struct options_page p = {.f = f};
    section(f, "options");
    paragraphs(f, "Options may be anywhere on the line; -- ends them. Below each option are its environment variable "
                  "and its key in "
                  "the configuration. The command line goes first, then the environment, then the configuration.");
    options_walk(c, option, &p);
    fputs(".SS All commands\n.TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nUse this configuration file; an empty "
          "name means none. The variable is QUERN_CONFIG.\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrint the common "
          "options "
          "and exit.\n"
          ".TP\n\\fB\\-\\-help\\-all\\fR\nPrint all options and exit.\n",
          f);
}

/* ---- pages ---- */

static void synopsis(FILE *f, const char *name, const char *operands)
{
    fputs("\\fBquern", f);
    if (*name) {
        fputc(' ', f);
        text(f, name);
    }
    fputs("\\fR ", f);
    roff_prose(f, operands, strlen(operands), 1);
    fputc('\n', f);
}

static void examples(FILE *f, const struct command *c)
{
    if (!c->examples) return;
    section(f, "examples");
    for (const struct example *e = c->examples; e->line; e++) {
        fputs(".PP\n", f);
        sentence(f, e->what);
        fputs("\n", f);
        roff_literal(f, e->line, strlen(e->line));
    }
}

static bool has_page(const struct command *c) { return c->rank != RANK_HIDDEN && !c->implied; }

static void see_also(FILE *f, const struct command *self)
{
    section(f, "see also");
    if (self) fputs("\\fBquern\\fR(1),\n", f);
    for (const struct command *const *c = commands; *c; c++)
        if (*c != self && has_page(*c)) {
            fputs("\\fBquern\\-", f);
            text(f, (*c)->name);
            fputs("\\fR(1),\n", f);
        }
    fputs("\\fBquern.toml\\fR(5),\n\\fBquern\\-api\\fR(7)\n", f);
}

static void command_page(FILE *f, const struct command *c)
{
    char page[64];
    snprintf(page, sizeof page, "quern-%s", c->name);
    head(f, page, 1, c->brief);
    section(f, "synopsis");
    synopsis(f, c->name, c->operands);
    section(f, "description");
    paragraphs(f, c->about ? c->about : c->brief);
    options(f, c);
    parts(f, manual_status);
    examples(f, c);
    see_also(f, c);
}

static void built_in_personas(FILE *f)
{
    for (const struct persona *p = personas; p->name; p++) {
        fputs(".TP\n", f);
        roff_font(f, 'B', p->name, strlen(p->name));
        fputc('\n', f);
        sentence(f, p->brief);
        fputc('\n', f);
    }
}

static void program_page(FILE *f)
{
    const struct command *implied = command_implied();
    head(f, "quern", 1, program_brief);
    section(f, "synopsis");
    if (implied) {
        synopsis(f, "", implied->operands);
        fputs(".br\n", f);
    }
    synopsis(f, "", "COMMAND [OPTIONS] ...");
    section(f, "description");
    paragraphs(f, "Quern runs language models on this computer, as a filter, as a daemon and as a library.");
    if (implied) paragraphs(f, implied->about);
    section(f, "commands");
    for (const struct command *const *c = commands; *c; c++)
        if (has_page(*c)) {
            fputs(".TP\n\\fBquern\\-", f);
            text(f, (*c)->name);
            fputs("\\fR(1)\n", f);
            sentence(f, (*c)->brief);
            fputc('\n', f);
        }
    if (implied) options(f, implied);
    section(f, "personas");
    paragraphs(
        f, "A persona is a named system prompt with options. These are built in; quern.toml(5) describes how to define "
           "others:");
    built_in_personas(f);
    parts(f, manual_program);
    parts(f, manual_status);
    if (implied) examples(f, implied);
    see_also(f, NULL);
}

/* ---- the page of the configuration ---- */

struct key_list {
    FILE *f;
    const char *section;
    const struct opt *seen[256]; /* options that several commands share are one key */
    size_t n_seen;
};

static bool seen(struct key_list *k, const struct opt *o)
{
    for (size_t i = 0; i < k->n_seen; i++)
        if (!strcmp(k->seen[i]->name, o->name)) return true;
    if (k->n_seen < sizeof k->seen / sizeof *k->seen) k->seen[k->n_seen++] = o;
    return false;
}

static int key(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    static const char *const types[] = {"true or false", "whole number", "whole number", "number",
                                        "size",          "text",         "list",         "text"};
    struct key_list *k = arg;
    (void)i;
    if (strcmp(options_section(c, g), k->section) || seen(k, o)) return 0;
    fputs(".TP\n", k->f);
    roff_font(k->f, 'B', o->name, strlen(o->name));
    fprintf(k->f, " (%s)\n", types[o->kind]);
    sentence(k->f, o->help);
    values(k->f, o);
    fputc('\n', k->f);
    return 0;
}

static void keys(FILE *f, const char *name)
{
    struct key_list k = {.f = f, .section = name};
    fputs(".SS \"", f);
    if (*name)
        fprintf(f, "[%s]", name);
    else
        fputs("Before all sections", f);
    fputs("\"\n", f);
    for (const struct command *const *c = commands; *c; c++)
        if ((*c)->rank != RANK_HIDDEN) options_walk(*c, key, &k);
}

struct sections {
    FILE *f;
    const char *name[64];
    size_t n;
};

/* Collects the names of the sections, each once. */
static int add_section(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct sections *s = arg;
    const char *name = options_section(c, g);
    (void)o, (void)i;
    for (size_t k = 0; k < s->n; k++)
        if (!strcmp(s->name[k], name)) return 0;
    if (s->n < sizeof s->name / sizeof *s->name) s->name[s->n++] = name;
    return 0;
}

static void config_keys(FILE *f)
{
    struct sections s = {.f = f};
    for (const struct command *const *c = commands; *c; c++)
        if ((*c)->rank != RANK_HIDDEN) options_walk(*c, add_section, &s);
    section(f, "keys");
    for (size_t i = 0; i < s.n; i++)
        if (!*s.name[i]) keys(f, "");
    for (size_t i = 0; i < s.n; i++)
        if (*s.name[i]) keys(f, s.name[i]);
}

static void config_manual(FILE *f)
{
    head(f, config_page, 5, config_brief);
    parts(f, manual_config);
    config_keys(f);
    parts(f, manual_personas);
    built_in_personas(f);
    section(f, "see also");
    fputs("\\fBquern\\fR(1)\n", f);
}

/* ---- the command ---- */

/* A page, found by a name: "run", "quern-run", "quern-run.1"; "" and "quern" are the page of the program. */
struct manual_page {
    const struct command *command; /* NULL: the page of the program, or of the configuration */
    bool config;
};

static bool find_page(struct manual_page *p, const char *name)
{
    char word[64];
    size_t n = strlen(name);
    *p = (struct manual_page){0};
    if (n > 2 && name[n - 2] == '.' && isdigit((unsigned char)name[n - 1])) n -= 2;
    if (n >= sizeof word) return false;
    memcpy(word, name, n);
    word[n] = 0;
    p->config = !strcmp(word, config_page);
    if (p->config || !strcmp(word, "quern")) return true;
    p->command = command_find(strncmp(word, "quern-", 6) ? word : word + 6);
    return p->command && p->command->rank != RANK_HIDDEN;
}

static void print_page(FILE *f, const struct manual_page *p)
{
    if (p->config)
        config_manual(f);
    else if (!p->command || p->command->implied)
        program_page(f);
    else
        command_page(f, p->command);
}

/* Shows a page with man at a terminal, where it uses a pager. */
static bool page_at_terminal(const struct manual_page *p)
{
    FILE *man = popen("exec man -l - 2> /dev/null", "w");
    if (!man) return false;
    print_page(man, p);
    int status = pclose(man);
    return WIFEXITED(status) && WEXITSTATUS(status) != 127;
}

/* Writes a page as man writes it into a pipe. What man cannot write it does not tell; so this program writes. */
static bool page_as_text(const struct manual_page *p)
{
    char block[4096];
    size_t n, all = 0;
    FILE *roff = tmpfile();
    if (!roff) return false;
    print_page(roff, p);
    if (fflush(roff) || lseek(fileno(roff), 0, SEEK_SET) || dup2(fileno(roff), STDIN_FILENO) < 0) {
        fclose(roff);
        return false;
    }
    FILE *man = popen("exec man -l - 2> /dev/null", "r");
    fclose(roff);
    if (!man) return false;
    for (; (n = fread(block, 1, sizeof block, man)) > 0; all += n) fwrite(block, 1, n, stdout);
    pclose(man);
    return all > 0;
}

/* For a machine without man, as a container is. */
static void page_without_man(const struct manual_page *p)
{
    FILE *roff = tmpfile();
    if (!roff) {
        print_page(stdout, p);
        return;
    }
    print_page(roff, p);
    rewind(roff);
    roff_plain(roff, stdout);
    fclose(roff);
}

static void show_page(const struct manual_page *p)
{
    if (!(isatty(STDOUT_FILENO) ? page_at_terminal(p) : page_as_text(p))) page_without_man(p);
}

/* The file of the API's page, which is not in the program but installed next to it; false: it is not there. */
static bool find_api_page(char path[PATH_MAX])
{
    char program[PATH_MAX - 64];
    static const char *const endings[] = {"", ".gz"};
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = 0;
    *strrchr(program, '/') = 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, PATH_MAX, "%s/../share/man/man7/quern-api.7%s", program, endings[i]);
        if (os_exists(path)) return true;
    }
    return false;
}

static bool is_api_page(const char *name)
{
    return !strcmp(name, "api") || !strcmp(name, "quern-api") || !strcmp(name, "quern-api.7");
}

static int show_api_page(void)
{
    char path[PATH_MAX];
    if (!find_api_page(path))
        return cli_usage("manual: quern-api(7) comes with the installation; in the sources it is docs/API.md");
    setenv("QUERN_PAGE", path, 1);
    if (!system("exec man -l \"$QUERN_PAGE\" 2> /dev/null")) return EX_OK;
    FILE *page = popen("exec gzip -cdf \"$QUERN_PAGE\"", "r");
    if (!page) return EX_UNAVAILABLE;
    roff_plain(page, stdout);
    return pclose(page) ? EX_UNAVAILABLE : EX_OK;
}

static void list_one(bool files, const char *page, const char *name, int number, const char *brief)
{
    if (files)
        printf("%s%s.%d\n", page, name, number);
    else
        printf("  %s%s(%d)%*s%s\n", page, name, number, (int)(14 - strlen(page) - strlen(name)), "", brief);
}

/* Prints the list of pages for people, or the file names that the program's own pages are installed as. */
static void list_pages(bool files)
{
    char path[PATH_MAX];
    list_one(files, "quern", "", 1, program_brief);
    for (const struct command *const *c = commands; *c; c++)
        if (has_page(*c)) list_one(files, "quern-", (*c)->name, 1, (*c)->brief);
    list_one(files, config_page, "", 5, config_brief);
    if (!files && find_api_page(path)) list_one(files, "quern-api", "", 7, "the daemon's API");
    if (!files) puts("\nquern manual NAME shows one of them.");
}

struct manual_options {
    bool roff;
};

static int run(struct invocation *v)
{
    const struct manual_options *o = v->options;
    struct manual_page p;
    if (v->n == 0)
        list_pages(o->roff);
    else if (!o->roff && is_api_page(v->operand[0]))
        return show_api_page();
    else if (!find_page(&p, v->operand[0]))
        return cli_usage("manual: there is no page '%s' (quern manual lists them)", v->operand[0]);
    else if (o->roff)
        print_page(stdout, &p);
    else
        show_page(&p);
    return EX_OK;
}

static const struct opt manual_opts[] = {
    {"roff", 0, OPT_FLAG, offsetof(struct manual_options, roff), NULL,
     "write the page in the format of man; without NAME: names of files", .rare = true},
    {0},
};

static const struct opt_group manual_groups[] = {{"Options", manual_opts}, {0}};

static const struct example manual_examples[] = {
    {"quern manual serve", "Read the page of a command"},
    {"for p in $(quern manual --roff); do quern manual --roff $p > man/$p; done",
     "Make the files that a package installs"},
    {0},
};

const struct command command_manual = {
    .name = "manual",
    .operands = "[NAME]",
    .brief = "show a page of the manual, or list the pages",
    .about = "Shows a page of the manual. NAME is a command, quern, quern.toml, or api for that of the daemon's API. "
             "Without NAME it lists the pages.\n\n"
             "man shows the page; without man, it is plain text. --roff writes it in the format of man instead, for "
             "installing it.",
    .min = 0,
    .max = 1,
    .words = WORDS_COMMAND,
    .examples = manual_examples,
    .groups = manual_groups,
    .size = sizeof(struct manual_options),
    .run = run,
};
