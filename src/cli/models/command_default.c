/* SPDX-License-Identifier: MIT
 *
 * command_default.c: `quern default [NAME]`: shows or sets the model that commands use if no other is named.
 *
 * It is the key `model` before all tables of the configuration. Only the value in that line changes, so comments and
 * the ends of lines stay. A link to the file stays a link.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/out_file.h"
#include "base/toml/toml_out.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/config_file.h"
#include "cli/core/home.h"
#include "cli/place/operand.h"

static int show(const struct operand_choice *o)
{
    struct qn_error e = {0};
    char *path, *name, clean[512];
    if (operand_find(&path, &o->models, o->model, &e)) return cli_fail(&e);
    name = o->model ? NULL : catalog_name(path);
    error_clean(clean, sizeof clean, o->model ? o->model : name ? name : path);
    printf("%s\n", clean);
    mem_free(name);
    mem_free(path);
    return 0;
}

/* The start of line `no`, counted from 1, of a text that has it. */
static const char *line_at(const char *text, const char *end, int no)
{
    const char *p = text;
    for (int i = 1; i < no && p; i++)
        if ((p = memchr(p, '\n', (size_t)(end - p)))) p++;
    return p ? p : end;
}

/* The value in a line `model = "..." # ...`: *from and the result are its ends. NULL: it is written in another way. */
static const char *find_value(const char *line, const char *end, const char **from)
{
    const char *stop = memchr(line, '\n', (size_t)(end - line)), *p;
    if (!stop) stop = end;
    if (!(p = memchr(line, '=', (size_t)(stop - line)))) return NULL;
    for (p++; p < stop && (*p == ' ' || *p == '\t'); p++) continue;
    if (p == stop || (*p != '"' && *p != '\'')) return NULL;
    *from = p;
    for (p++; p < stop && *p != **from; p++)
        if (**from == '"' && *p == '\\') p++;
    return p < stop ? p + 1 : NULL;
}

/* Writes the text of the file with another value of `model`: in the place of the old one, or else in a new first line.
 */
static int edit(const struct config_file *c, const struct buf *old, const char *name, struct buf *out,
                struct qn_error *e)
{
    const struct toml_entry *own = config_file_find(c, "", "model");
    const char *text = old->len ? (char *)old->data : "", *end = text + old->len;
    const char *from = text, *to = own ? find_value(line_at(text, end, own->line), end, &from) : text;
    const char *first = memchr(text, '\n', old->len);
    bool has_cr = first && first > text && first[-1] == '\r';
    if (!to) return toml_put_string(out, name, e); /* check() refuses it */
    int rc = buf_add(out, text, (size_t)(from - text), e);
    if (!rc && !own) rc = buf_str(out, "model = ", e);
    if (!rc) rc = toml_put_string(out, name, e);
    if (!rc && !own) rc = buf_str(out, has_cr ? "\r\n" : "\n", e);
    return rc ? rc : buf_add(out, to, (size_t)(end - to), e);
}

/* Checks that the new text says what it shall: the old value may have had several lines. */
static int check(const struct buf *text, const char *path, const char *name, struct qn_error *e)
{
    struct toml t = {0};
    int rc = toml_parse(&t, path, (char *)text->data, text->len, NULL);
    const struct toml_entry *own = rc ? NULL : toml_find(&t, 0, "model");
    bool is_good = own && own->value.type == TOML_STRING && !strcmp(own->value.string, name);
    toml_deinit(&t);
    if (is_good) return 0;
    return error_set(e, QN_EUNSUP, "%s: the key 'model' is written in a way that is left to you: set it to '%s'", path,
                     name);
}

/* Whoever made the file read-only does not want it to change, although it could be replaced. */
static int check_file(const char *path, bool exists, const struct stat *st, struct qn_error *e)
{
    struct stat link;
    if (exists && (!(st->st_mode & 0222) || access(path, W_OK)))
        return error_set(e, QN_EIO, "the configuration '%s' is read-only", path);
    if (!exists && !lstat(path, &link))
        return error_set(e, QN_EIO, "the configuration '%s' is a link to a file that does not exist", path);
    return 0;
}

static int write_file(const char *path, const struct buf *text, struct qn_error *e)
{
    struct out_file f = {0};
    struct stat st;
    bool exists = !stat(path, &st);
    int rc = check_file(path, exists, &st, e);
    if (!rc) rc = home_make_above(path, e);
    if (!rc) rc = out_file_open(&f, path, e);
    if (!rc && exists && fchmod(f.fd, st.st_mode & 0777)) rc = error_set(e, QN_EIO, "cannot protect '%s': %m", path);
    if (!rc) rc = out_file_write(&f, text->data, text->len, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

/* Refuses a file or folder that cannot be a model: the next command would say so, but not why it was chosen. */
static int check_model(const char *path, struct qn_error *e)
{
    struct buf head = {0};
    int rc = 0;
    if (os_is_directory(path)) {
        rc = buf_printf(&head, e, "%s/config.json", path);
        if (!rc && !os_exists((char *)head.data))
            rc = error_set(e, QN_EDATA, "the folder '%s' is no model: it has no config.json", path);
    } else {
        FILE *f = fopen(path, "rbe");
        char magic[4];
        if (!f)
            rc = error_set(e, QN_ENOINPUT, "cannot read '%s': %m", path);
        else if (fread(magic, 1, 4, f) != 4 || memcmp(magic, "GGUF", 4))
            rc = error_set(e, QN_EDATA, "'%s' is no model: it does not begin with GGUF", path);
        if (f) fclose(f);
    }
    buf_deinit(&head);
    return rc;
}

static int set(const struct invocation *v, const char *name, struct qn_error *e)
{
    const struct config_file *c = v->config;
    struct buf old = {0}, new = {0};
    char *usual = NULL;
    int rc =
        c->path ? os_read_file(&old, c->path, TOML_MAX_BYTES, e) : home_path(&usual, HOME_CONFIG, "config.toml", e);
    const char *path = c->path ? c->path : usual;
    if (!rc) rc = edit(c, &old, name, &new, e);
    if (!rc) rc = check(&new, path, name, e);
    if (!rc) rc = write_file(path, &new, e);
    buf_deinit(&old);
    buf_deinit(&new);
    mem_free(usual);
    return rc;
}

static int run(struct invocation *v)
{
    const struct operand_choice *o = v->options;
    struct qn_error e = {0};
    char *path = NULL, folder[PATH_MAX];
    struct buf whole = {0};
    if (!v->n) return show(o);
    const char *name = v->operand[0], *no_file = v->config->refused;
    if (no_file) return cli_usage("default: there is no configuration to write to, because %s is empty", no_file);
    int rc = operand_find(&path, &o->models, name, &e);
    if (!rc) rc = check_model(path, &e);
    if (!rc && *name != '/' && os_exists(name)) { /* commands run in other folders, too */
        rc = getcwd(folder, sizeof folder)
                 ? buf_str(&whole, folder, &e) || buf_str(&whole, "/", &e) || buf_str(&whole, name, &e)
                 : error_set(&e, QN_EIO, "default: cannot find this folder: %m");
        name = (char *)whole.data;
    }
    if (!rc) rc = set(v, name, &e);
    mem_free(path);
    buf_deinit(&whole);
    if (rc) return cli_fail(&e);
    if (options_origin(v, "model") >= ORIGIN_ENV)
        fprintf(stderr, "quern: warning: QUERN_MODEL goes before the configuration: it is '%s'\n", o->model);
    return 0;
}

static const struct opt_group groups[] = {{"Options", opts_choice, 0, ""}, {0}};

static const struct example examples[] = {
    {"quern default", "The model that is used if no other is named"},
    {"quern default qwen3-4b-q4_k_m", "Use this one from now on"},
    {0},
};

const struct command command_default = {
    .name = "default",
    .operands = "[NAME]",
    .brief = "show or set the model that is used if no other is named",
    .about = "Without NAME it writes the name of the default model: that of the configuration, or the only one there "
             "is. With NAME it makes that model the default. NAME is a file, a folder, the name of a model in the "
             "folders of models, or an alias that the running daemon has.\n\n"
             "The default is the key model of the configuration (quern.toml(5)). Only its line is written; the file "
             "is made if there is none.",
    .min = 0,
    .max = 1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct operand_choice),
    .run = run,
};
