/* SPDX-License-Identifier: MIT
 *
 * roff_plain.c: the macros of man(7) that the manual uses, as indented paragraphs. See roff_plain.h.
 */
#include "cli/main/roff_plain.h"

#include <stdbool.h>
#include <string.h>

enum { WIDTH = 78, INDENT = 7, SECTION_INDENT = 3 };

struct plain {
    FILE *out;
    int column;    /* characters on the current line; 0: it has not begun */
    int indent;    /* of the paragraph's next lines */
    int deeper;    /* of literal lines */
    bool literal;  /* lines stay as they are */
    bool tag_next; /* the next line is what a paragraph describes */
    bool headed;   /* the last line was a title */
    bool gap;      /* an empty line comes before the next text */
};

/* Replaces the escapes of a line by what they stand for, in place. Fonts are dropped. */
static void unescape(char *line)
{
    static const char names[][4] = {"rs\\", "aq'", "dq\"", "ga`", "ha^", "ti~"};
    char *to = line;
    for (const char *p = line; *p;) {
        if (*p != '\\' || !p[1]) {
            *to++ = *p++;
        } else if (p[1] == 'f' && p[2]) {
            p += 3;
        } else if (p[1] == '(' && p[2] && p[3]) {
            for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (!strncmp(names[i], p + 2, 2)) *to++ = names[i][2];
            p += 4;
        } else {
            if (p[1] != '&') *to++ = p[1];
            p += 2;
        }
    }
    *to = 0;
}

static void end_line(struct plain *t)
{
    if (t->column) fputc('\n', t->out);
    t->column = 0;
}

static void begin_line(struct plain *t, int indent)
{
    if (t->gap) fputc('\n', t->out);
    t->gap = t->headed = false;
    t->column = indent;
    fprintf(t->out, "%*s", indent, "");
}

/* Puts the words of a text on the current line and further ones. */
static void fill(struct plain *t, char *text)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
        int n = (int)strlen(word);
        if (t->column && t->column + 1 + n > WIDTH) end_line(t);
        if (!t->column)
            begin_line(t, t->indent);
        else if (t->column != t->indent)
            t->column += fputc(' ', t->out) == ' ';
        fputs(word, t->out);
        t->column += n;
    }
}

static void whole_line(struct plain *t, int indent, const char *text)
{
    end_line(t);
    if (*text) begin_line(t, indent);
    fprintf(t->out, "%s\n", text);
    t->column = 0;
}

static void paragraph(struct plain *t, bool tagged)
{
    end_line(t);
    t->gap = !t->headed;
    t->tag_next = tagged;
    t->indent = INDENT;
}

/* The text of a macro, without its quotes. */
static char *argument(char *line)
{
    char *a = line + 3 + (line[3] == ' ');
    size_t n = strlen(a);
    if (n > 1 && a[0] == '"' && a[n - 1] == '"') {
        a[n - 1] = 0;
        a++;
    }
    unescape(a);
    return a;
}

static void macro(struct plain *t, char *line)
{
    static const struct {
        char name[4];
        int indent;
    } heads[] = {{".SH", 0}, {".SS", SECTION_INDENT}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (!strncmp(line, heads[i].name, 3) && strlen(line) > 3) {
            paragraph(t, false);
            whole_line(t, heads[i].indent, argument(line));
            t->headed = true;
        }
    if (!strncmp(line, ".PP", 3) || !strncmp(line, ".TP", 3)) paragraph(t, line[1] == 'T');
    if (!strncmp(line, ".br", 3)) end_line(t);
    if (!strncmp(line, ".RS", 3)) t->deeper += 4;
    if (!strncmp(line, ".RE", 3) && t->deeper) t->deeper -= 4;
    if (!strncmp(line, ".EX", 3) || !strncmp(line, ".EE", 3)) {
        end_line(t);
        t->literal = line[2] == 'X';
    }
}

/* Turns ".B WORDS" into WORDS, and ".BR NAME (1)" into NAME(1). */
static void drop_font(char *line)
{
    bool joined = line[2] != ' ';
    const char *p = line + (joined ? 4 : 3);
    char *to = line;
    for (; *p; p++)
        if (*p != '"' && !(joined && *p == ' ')) *to++ = *p;
    *to = 0;
}

static void one_line(struct plain *t, char *line)
{
    if (*line == '.' && (line[1] == 'B' || line[1] == 'I') && strlen(line) > 4) {
        drop_font(line);
    } else if (*line == '.') {
        macro(t, line);
        return;
    }
    unescape(line);
    if (t->literal) {
        whole_line(t, t->indent + t->deeper, line);
    } else if (t->tag_next) {
        whole_line(t, INDENT, line);
        t->tag_next = false;
        t->indent = 2 * INDENT;
    } else {
        fill(t, line);
    }
}

void roff_plain(FILE *page, FILE *out)
{
    struct plain t = {.out = out, .indent = INDENT, .headed = true};
    char line[8192]; /* twice as long as the longest line of the manual */
    while (fgets(line, sizeof line, page)) {
        line[strcspn(line, "\n")] = 0;
        one_line(&t, line);
    }
    end_line(&t);
}
