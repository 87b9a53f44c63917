/* SPDX-License-Identifier: MIT
 *
 * config_file.c: finds, reads and checks the configuration file. See config_file.h.
 *
 * The place follows the XDG Base Directory Specification (0.8): a relative $XDG_CONFIG_HOME is ignored. A folder that
 * cannot be read counts as a folder without a file, because services often run with a home that they cannot read.
 *
 * Values are not looked at here. options.c reads them when a command is about to use them.
 */
#include "cli/core/config_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/home.h"

/* ---- errors ---- */

static int fail_with(const struct qn_error *e)
{
    fprintf(stderr, "quern: %s\n", e->msg);
    return EX_CONFIG;
}

static int fail_at(const struct config_file *c, int line, const char *text)
{
    struct qn_error e;
    error_set(&e, QN_EDATA, "%s:%d: %s", c->path, line, text);
    return fail_with(&e);
}

int config_file_fail(const struct config_file *c, const struct toml_entry *entry, const char *fmt, ...)
{
    char what[400], text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    snprintf(text, sizeof text, "%s: %s", entry->key, what);
    return fail_at(c, entry->line, text);
}

/* Prints that a name is unknown, with the nearest name that is known. */
static int fail_unknown(const struct config_file *c, int line, const char *what, const struct nearest *known,
                        const char *where)
{
    char text[500], meant[100] = "";
    if (known->best) snprintf(meant, sizeof meant, " (did you mean '%s'?)", known->best);
    snprintf(text, sizeof text, "unknown %s '%.100s'%s%s", what, known->word, where, meant);
    return fail_at(c, line, text);
}

/* ---- the path ---- */

static char *joined(const char *folder, const char *rest)
{
    size_t n = strlen(folder) + strlen(rest) + 1;
    char *path = cli_alloc(n, 1);
    snprintf(path, n, "%s%s", folder, rest);
    return path;
}

/* The path of the first usual file that exists, for cli_free(); NULL: there is none. */
static char *usual_path(void)
{
    const char *home = home_folder("HOME"), *xdg = home_folder("XDG_CONFIG_HOME");
    char *places[] = {NULL, joined("/etc", "/quern/config.toml")};
    char *found = NULL;
    if (xdg)
        places[0] = joined(xdg, "/quern/config.toml");
    else if (home)
        places[0] = joined(home, "/.config/quern/config.toml");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!found && places[i] && os_exists(places[i]))
            found = places[i];
        else
            cli_free(places[i]);
    return found;
}

/* ---- checking names ---- */

/* A search through all tables of options: is there such a section, or such a key in a section? */
struct question {
    const char *section; /* the section of the key; NULL: a persona's table */
    bool about_keys;     /* otherwise the search is for a section */
    bool found;
    struct nearest known; /* the word, and the nearest known one */
};

static void consider(struct question *q, const char *name)
{
    if (!strcmp(name, q->known.word)) q->found = true;
    nearest_offer(&q->known, name);
}

static int consider_option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct question *q = arg;
    const char *section = options_section(c, g);
    (void)i;
    if (!q->about_keys && *section)
        consider(q, section);
    else if (q->about_keys && (q->section ? !strcmp(section, q->section) : o->words != WORDS_PERSONA))
        consider(q, o->name);
    return 0;
}

static int is_persona_option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    (void)arg, (void)c, (void)g, (void)i;
    return o->words == WORDS_PERSONA;
}

static void ask(struct question *q)
{
    for (const struct command *const *c = commands; *c; c++)
        if (q->section || !q->about_keys || options_walk(*c, is_persona_option, NULL))
            options_walk(*c, consider_option, q);
}

/* A table must be a section, [persona], or a table in [persona]. */
static int check_table(const struct config_file *c, int i)
{
    const struct toml_table *t = &c->toml.table[i], *parent = &c->toml.table[t->parent];
    char name[100], where[160];
    struct question q = {.known = {.word = t->name}};
    if (t->parent == 0) {
        ask(&q);
        consider(&q, CONFIG_PERSONAS);
        return q.found ? 0 : fail_unknown(c, t->line, "table", &q.known, "");
    }
    if (parent->parent == 0 && !strcmp(parent->name, CONFIG_PERSONAS)) return 0;
    toml_table_name(&c->toml, t->parent, name, sizeof name);
    snprintf(where, sizeof where, ": there are none in [%s]", name);
    return fail_unknown(c, t->line, "table", &q.known, where);
}

static int check_key(const struct config_file *c, const struct toml_entry *e)
{
    const struct toml_table *t = &c->toml.table[e->table];
    struct question q = {.section = t->name, .about_keys = true, .known = {.word = e->key}};
    char name[100], where[160] = "";
    if (e->table > 0) {
        toml_table_name(&c->toml, e->table, name, sizeof name);
        snprintf(where, sizeof where, " in [%s]", name);
    }
    if (t->parent > 0) q.section = NULL;
    ask(&q);
    return q.found ? 0 : fail_unknown(c, e->line, "key", &q.known, where);
}

static int check(const struct config_file *c)
{
    int rc = 0;
    for (int i = 1; i < c->toml.n_tables && !rc; i++) rc = check_table(c, i);
    for (int i = 0; i < c->toml.n_entries && !rc; i++) rc = check_key(c, &c->toml.entry[i]);
    return rc;
}

/* ---- the file ---- */

static int read_file(struct config_file *c)
{
    struct qn_error e = {0};
    struct buf text = {0};
    int rc = os_read_file(&text, c->path, TOML_MAX_BYTES, &e);
    if (rc) {
        struct qn_error why = e;
        error_set(&e, rc, "configuration: %s", why.msg);
    }
    if (!rc) rc = toml_parse(&c->toml, c->path, text.len ? (const char *)text.data : "", text.len, &e);
    buf_deinit(&text);
    return rc ? fail_with(&e) : 0;
}

int config_file_open(struct config_file *c, const char *named)
{
    int rc = 0;
    *c = (struct config_file){0};
    const char *by = named ? "--config" : "QUERN_CONFIG";
    if (!named) named = getenv("QUERN_CONFIG");
    if (named && !*named) {
        c->refused = by;
        return 0;
    }
    c->path = named ? joined(named, "") : usual_path();
    if (c->path) rc = read_file(c);
    if (c->path && !rc) rc = check(c);
    if (rc) config_file_close(c);
    return rc;
}

void config_file_close(struct config_file *c)
{
    cli_free(c->path);
    toml_deinit(&c->toml);
    c->path = NULL;
}

/* ---- looking up ---- */

const struct toml_entry *config_file_find(const struct config_file *c, const char *section, const char *key)
{
    return toml_find(&c->toml, *section ? toml_child(&c->toml, 0, section) : 0, key);
}

int config_file_persona(const struct config_file *c, const char *name)
{
    return toml_child(&c->toml, toml_child(&c->toml, 0, CONFIG_PERSONAS), name);
}

const struct toml_entry *config_file_find_persona(const struct config_file *c, const char *persona, const char *key)
{
    return toml_find(&c->toml, config_file_persona(c, persona), key);
}
