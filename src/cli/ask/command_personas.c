/* SPDX-License-Identifier: MIT
 *
 * command_personas.c: `quern personas [NAME]`: lists the personas, or shows the text of one.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cli/core/columns.h"
#include "cli/core/commands.h"
#include "cli/core/render.h"
#include "cli/place/persona.h"

#define MOST_SHOWN 50 /* cells of a text in the list */

struct listing {
    const struct invocation *v;
    struct text_columns table;
    struct qn_error e;
    int rc;
};

/* Appends the text of a persona as it is written, wherever it comes from. */
static int read_text(const struct invocation *v, const char *name, struct buf *out, struct qn_error *e)
{
    const struct persona *p;
    int rc = persona_find(&p, v->config, name, e);
    const struct toml_entry *own = rc ? NULL : config_file_find_persona(v->config, name, "system");
    if (own) return buf_str(out, own->value.string, e);
    return rc ? rc : persona_text(out, p, name, NULL, e);
}

static void add_row(void *arg, const char *name)
{
    struct listing *l = arg;
    struct buf text = {0};
    const struct persona *p = NULL;
    struct qn_error e = {0};
    int rc = persona_find(&p, l->v->config, name, &e);
    if (!rc) rc = read_text(l->v, name, &text, &e);
    if (rc) { /* the others are shown */
        if (!l->rc) l->e = e;
        l->rc = rc;
        columns_add(&l->table, "%s", name);
        columns_add(&l->table, "(cannot be read)");
        buf_deinit(&text);
        return;
    }
    bool is_own = !p || strcmp(p->system, text.len ? (char *)text.data : "");
    const char *line = text.len ? (char *)text.data : "";
    if (text.len) text.data[strcspn(line, "\n")] = 0;
    size_t n = columns_fit(line, MOST_SHOWN);
    columns_add(&l->table, "%s", name);
    if (is_own)
        columns_add(&l->table, "%.*s%s", (int)n, line, line[n] ? "..." : "");
    else
        columns_add(&l->table, "%s", p->brief);
    buf_deinit(&text);
}

static int list(struct invocation *v)
{
    struct listing l = {.v = v, .table = {.align = "ll"}};
    columns_add(&l.table, "NAME");
    columns_add(&l.table, "USE");
    persona_each(v->config, add_row, &l);
    columns_print(&l.table);
    return l.rc ? cli_fail(&l.e) : 0;
}

static int show(const struct invocation *v, const char *name)
{
    struct qn_error e = {0};
    struct buf text = {0}, clean = {0};
    int rc = read_text(v, name, &text, &e), status = 0;
    if (!rc) rc = buf_str(&text, "\n", &e);
    bool shown = isatty(STDOUT_FILENO);
    if (!rc && shown) rc = render_clean(&clean, (char *)text.data, text.len, &e);
    if (!rc && cli_write(shown ? clean.data : text.data, shown ? clean.len : text.len)) status = cli_write_status();
    buf_deinit(&text);
    buf_deinit(&clean);
    return rc ? cli_fail(&e) : status;
}

static int run(struct invocation *v) { return v->n ? show(v, v->operand[0]) : list(v); }

static const struct opt_group groups[] = {{0}};

static const struct example examples[] = {
    {"quern personas", "All personas"},
    {"quern personas reviewer > ~/.config/quern/personas/strict.txt", "Begin a persona of your own"},
    {0},
};

const struct command command_personas = {
    .name = "personas",
    .operands = "[NAME]",
    .brief = "list the personas of the filter, or show the text of one",
    .about = "Lists the personas for quern -p NAME and quern @NAME: the built-in ones, those of the configuration, and "
             "the files personas/*.txt next to it. With NAME it writes the text of that one.\n\n"
             "A text is the system message of the model. {{lang}} in it stands for an argument, and {{lang=C}} for one "
             "with a default: quern @NAME lang=Go.",
    .min = 0,
    .max = 1,
    .words = WORDS_PERSONA,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = 1,
    .run = run,
};
