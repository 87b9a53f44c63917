/* SPDX-License-Identifier: MIT
 *
 * help.c: prints a command's table for a terminal. See help.h.
 */
#include "cli/main/help.h"

#include <string.h>

#include "cli/core/commands.h"
#include "cli/core/term.h"

#define MOST_LEFT 32 /* columns for the names of options; a longer name has a line of its own */

struct help_page {
    FILE *f;
    enum help_size size;
    int width, left; /* left: column where the help begins */
    const char *bold, *plain;
    int n_hidden;
    const struct opt_group *group; /* the group whose title was printed last */
};

static struct help_page page_of(FILE *f, enum help_size size)
{
    bool colour = term_colour(fileno(f));
    return (struct help_page){.f = f,
                              .size = size,
                              .width = term_width(fileno(f)),
                              .bold = colour ? "\033[1m" : "",
                              .plain = colour ? "\033[0m" : ""};
}

/* ---- text ---- */

int help_wrap(FILE *f, const char *text, size_t n, int column, int indent, int width)
{
    static const char blanks[] = " \n\t";
    const char *end = text + n;
    for (bool first = true;; first = false) {
        while (text < end && strchr(blanks, *text)) text++;
        if (text == end) return column;
        const char *word = text;
        while (text < end && !strchr(blanks, *text)) text++;
        int len = (int)(text - word);
        if (!first && column + 1 + len > width) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', f);
            column++;
        }
        fwrite(word, 1, (size_t)len, f);
        column += len;
    }
}

size_t help_paragraph(const char *text)
{
    const char *end = strstr(text, "\n\n");
    return end ? (size_t)(end - text) : strlen(text);
}

const char *help_next(const char *text, size_t n)
{
    text += n + strspn(text + n, "\n");
    return *text ? text : NULL;
}

static void paragraph(struct help_page *p, const char *text, size_t n, int indent)
{
    fprintf(p->f, "%*s", indent, "");
    help_wrap(p->f, text, n, indent, indent, p->width);
    fputc('\n', p->f);
}

/* ---- options ---- */

static bool shown(const struct help_page *p, const struct opt_group *g, const struct opt *o)
{
    return p->size == HELP_LONG || (!g->rare && !o->rare);
}

static int names_of(char *out, size_t cap, char letter, const char *name, const char *arg)
{
    char first[5] = "    ";
    if (letter) snprintf(first, sizeof first, "-%c, ", letter);
    return snprintf(out, cap, "  %s--%s%s%s", first, name, arg ? " " : "", arg ? arg : "");
}

static int measure(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct help_page *p = arg;
    char left[80];
    int n = names_of(left, sizeof left, o->letter, o->name, o->arg) + 2;
    (void)c, (void)i;
    if (!shown(p, g, o))
        p->n_hidden++;
    else if (n > p->left && n <= MOST_LEFT)
        p->left = n;
    return 0;
}

static void line(struct help_page *p, const char *left, int n, const char *help)
{
    fprintf(p->f, "%s%s%s", p->bold, left, p->plain);
    if (n + 2 > p->left) {
        fputc('\n', p->f);
        n = 0;
    }
    fprintf(p->f, "%*s", p->left - n, "");
    help_wrap(p->f, help, strlen(help), p->left, p->left, p->width);
    fputc('\n', p->f);
}

static int option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct help_page *p = arg;
    char left[80];
    (void)c, (void)i;
    if (!shown(p, g, o)) return 0;
    if (p->size == HELP_LONG && p->group != g)
        fprintf(p->f, "%s%s%s:%s\n", p->group ? "\n" : "", p->bold, g->title, p->plain);
    p->group = g;
    line(p, left, names_of(left, sizeof left, o->letter, o->name, o->arg), o->help);
    return 0;
}

static void options(struct help_page *p, const struct command *c)
{
    char left[80];
    p->left = 2 + (p->size == HELP_LONG ? names_of(left, sizeof left, 0, "config", "FILE")
                                        : names_of(left, sizeof left, 'h', "help", NULL));
    options_walk(c, measure, p);
    options_walk(c, option, p);
    if (p->size == HELP_LONG) {
        if (p->group) fputc('\n', p->f);
        line(p, left, names_of(left, sizeof left, 0, "config", "FILE"), "use this configuration file; '': none");
    }
    line(p, left, names_of(left, sizeof left, 'h', "help", NULL), "print the common options and exit");
    if (p->size != HELP_LONG) return;
    line(p, left, names_of(left, sizeof left, 0, "help-all", NULL), "print all options and exit");
}

/* ---- commands ---- */

static void usage(struct help_page *p, const struct command *c)
{
    char head[80];
    int n = c->implied ? snprintf(head, sizeof head, "usage: quern ")
                       : snprintf(head, sizeof head, "usage: quern %s ", c->name);
    fprintf(p->f, "%s%s%s", p->bold, head, p->plain);
    help_wrap(p->f, c->operands, strlen(c->operands), n, n, p->width);
    fputs("\n", p->f);
}

static void examples(struct help_page *p, const struct command *c)
{
    for (const struct example *e = c->examples; e && e->line; e++) {
        fprintf(p->f, "%s    %s\n", e == c->examples ? "\n" : "", e->line);
        paragraph(p, e->what, strlen(e->what), 8);
    }
}

void help_command(const struct command *c, enum help_size size)
{
    struct help_page p = page_of(stdout, size);
    usage(&p, c);
    for (const char *text = c->about; text; text = size == HELP_LONG ? help_next(text, help_paragraph(text)) : NULL) {
        fputc('\n', p.f);
        paragraph(&p, text, help_paragraph(text), 0);
    }
    fputc('\n', p.f);
    options(&p, c);
    if (size == HELP_LONG) examples(&p, c);
    if (p.n_hidden) fprintf(p.f, "\nmore options: quern manual %s, or --help-all\n", c->name);
}

/* Prints the commands that are only named: "also: name, name". */
static void rest(struct help_page *p)
{
    char names[1024] = "also:";
    size_t n = strlen(names);
    for (const struct command *const *c = commands; *c; c++)
        if ((*c)->rank == RANK_RARE && n < sizeof names) {
            n += (size_t)snprintf(names + n, sizeof names - n, "%s %s", n > 5 ? "," : "", (*c)->name);
        }
    if (n > 5) paragraph(p, names, strlen(names), 2);
}

void help_program(FILE *f, enum help_size size)
{
    struct help_page p = page_of(f, size);
    const struct command *implied = command_implied();
    if (implied) usage(&p, implied);
    fprintf(f, "%s%s%s COMMAND [OPTIONS] ...\n\n", implied ? "" : p.bold, implied ? "       quern" : "usage: quern",
            implied ? "" : p.plain);
    for (const struct command *const *c = commands; *c; c++) {
        if ((*c)->rank == RANK_HIDDEN || ((*c)->rank == RANK_RARE && size == HELP_SHORT)) continue;
        fprintf(f, "  %s%-10s%s ", p.bold, (*c)->name, p.plain);
        help_wrap(f, (*c)->brief, strlen((*c)->brief), 13, 13, p.width);
        fputc('\n', f);
    }
    if (size == HELP_SHORT) rest(&p);
    static const char last[] = "quern COMMAND --help lists a command's options, quern manual COMMAND prints its page; "
                               "quern --version prints the build.";
    fputc('\n', f);
    paragraph(&p, last, sizeof last - 1, 0);
}
