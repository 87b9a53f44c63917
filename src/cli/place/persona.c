/* SPDX-License-Identifier: MIT
 *
 * persona.c: the built-in personas, and the search for one. See persona.h.
 *
 * Their prompts say what the text is, what is wanted and in which form, in few words that small models follow too. The
 * user's instruction adds to them. The prompts decide the bits of answers: changing one changes docs/pipes.txt.
 */
#include "cli/place/persona.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "base/os.h"
#include "cli/core/home.h"
#include "text/token/unicode.h"

const struct persona personas[] = {
    {"summarize", "Summarizes a text in a few sentences or points.",
     "You summarize the text that you are given. Say what matters, in the order of its weight, in at most "
     "{{length=five sentences or short points}}. Keep names, numbers and dates exactly. Add nothing that the text does "
     "not say. "
     "Write in the language of the text. An instruction after the text says more exactly what is wanted.",
     0.3f},
    {"translate", "Translates a text into English or a language that you name.",
     "You translate the text that you are given into "
     "{{to=the language that the instruction names; into English when it names none}}. Keep the meaning, the tone and "
     "the layout. Leave code, names, URLs and placeholders as they are. "
     "Answer with the translation and nothing else.",
     0.2f},
    {"diagnose", "Says from a log what went wrong, and what to check.",
     "You are an experienced system administrator who reads logs and error messages. Name the first error that "
     "caused the others, and quote its line. Say in plain words what it means and which cause is the likeliest. Then "
     "give at most three steps to check or mend it, with the exact commands. When the text does not show the cause, "
     "say what to look at next. Be short.",
     0.3f},
    {"commit-message", "Writes the message of a commit from its diff.",
     "You write the message of a commit for the diff that you are given. The first line has at most 70 characters, "
     "is in the imperative mood and says what changes. When the reason is not plain from that, an empty line "
     "follows, and a short paragraph that says why, in lines of at most 72 characters. Answer with the message and "
     "nothing else: no quotation marks, no fences.",
     0.3f},
    {"reviewer", "Reports what is wrong with a change or a source file.",
     "You review {{what=a change, or a source file}}. Look for errors first: wrong results, crashes, leaks, races, "
     "missing "
     "checks of input, holes in security. Then for what is hard to understand or to test. Each finding is one point: "
     "file and line, what is wrong, how to mend it; the gravest first. Say nothing of style, and nothing in praise. "
     "When you find nothing wrong, say so in one sentence.",
     0.3f},
    {0},
};

static const struct persona *built_in(const char *name)
{
    for (const struct persona *p = personas; p->name; p++)
        if (!strcmp(p->name, name)) return p;
    return NULL;
}

/* ---- files ---- */

#define FOLDER    "personas/"
#define ENDING    ".txt"
#define MOST_TEXT ((size_t)1 << 20)

/* Writes the path of a persona's file to *path, for mem_free(). Returns false if there is no such file. */
static bool find_file(char **path, const char *name)
{
    struct buf file = {0};
    *path = NULL;
    if (strchr(name, '/') || name[0] == '.') return false;
    if (!buf_printf(&file, NULL, FOLDER "%s" ENDING, name)) home_path(path, HOME_CONFIG, (char *)file.data, NULL);
    buf_deinit(&file);
    if (*path && os_exists(*path)) return true;
    mem_free(*path);
    *path = NULL;
    return false;
}

/* Adds the name of a persona's file, without its ending, if it is one. */
static int add_name(char ***name, size_t *n, const char *file)
{
    size_t len = strlen(file), end = strlen(ENDING);
    if (file[0] == '.' || len <= end || strcmp(file + len - end, ENDING)) return 0;
    char **more = mem_realloc(*name, (*n + 1) * sizeof *more);
    if (more) *name = more;
    if (!more || !(more[*n] = mem_dup(file, len - end))) return QN_ENOMEM;
    ++*n;
    return 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Calls `each` for the files of personas that are neither built in nor in the configuration. */
static void each_file(const struct config_file *config, void (*each)(void *arg, const char *name), void *arg)
{
    char *folder, **name = NULL;
    size_t n = 0;
    if (home_path(&folder, HOME_CONFIG, FOLDER, NULL)) return;
    DIR *d = opendir(folder);
    for (struct dirent *file; d && (file = readdir(d));)
        if (add_name(&name, &n, file->d_name)) break;
    if (d) closedir(d);
    if (n) qsort(name, n, sizeof *name, by_text);
    for (size_t i = 0; i < n; i++) {
        if (!built_in(name[i]) && config_file_persona(config, name[i]) < 0) each(arg, name[i]);
        mem_free(name[i]);
    }
    mem_free(name);
    mem_free(folder);
}

void persona_each(const struct config_file *config, void (*each)(void *arg, const char *name), void *arg)
{
    const struct toml *t = &config->toml;
    int own = toml_child(t, 0, CONFIG_PERSONAS);
    for (const struct persona *p = personas; p->name; p++) each(arg, p->name);
    for (int i = 1; i < t->n_tables && own > 0; i++)
        if (t->table[i].parent == own && !built_in(t->table[i].name)) each(arg, t->table[i].name);
    each_file(config, each, arg);
}

struct persona_names {
    struct nearest near;
    struct buf names;
    char best[NEAREST_MAX + 1]; /* the nearest one, whose name is not kept */
    bool failed;                /* no memory */
};

static void list(void *arg, const char *name)
{
    struct persona_names *l = arg;
    nearest_offer(&l->near, name);
    if (l->near.best == name) {
        snprintf(l->best, sizeof l->best, "%s", name);
        l->near.best = l->best;
    }
    l->failed |= (l->names.len && buf_str(&l->names, ", ", NULL)) || buf_str(&l->names, name, NULL);
}

static int refuse(const struct config_file *config, const char *name, struct qn_error *e)
{
    struct persona_names l = {.near = {.word = name}};
    persona_each(config, list, &l);
    const char *names = l.failed ? "..." : (char *)l.names.data;
    int rc = l.near.best ? error_set(e, QN_EUSAGE, "there is no persona '%s' (did you mean '%s'?); there are %s", name,
                                     l.near.best, names)
                         : error_set(e, QN_EUSAGE, "there is no persona '%s'; there are %s", name, names);
    buf_deinit(&l.names);
    return rc;
}

int persona_find(const struct persona **out, const struct config_file *config, const char *name, struct qn_error *e)
{
    char *path = NULL;
    *out = built_in(name);
    bool is_there = *out || config_file_persona(config, name) >= 0 || find_file(&path, name);
    mem_free(path);
    return is_there ? 0 : refuse(config, name, e);
}

/* ---- arguments ---- */

/* A place of an argument in a text: "{{name}}" or "{{name=default}}". */
struct place_of {
    const char *begin, *end; /* with the braces */
    const char *name, *value;
    size_t n_name, n_value;
    bool has_value;
};

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

/* Finds the first argument in [p, end). Braces of another form are text. */
static bool next_place(const char *p, const char *end, struct place_of *a)
{
    for (; (p = memmem(p, (size_t)(end - p), "{{", 2)); p++) {
        const char *q = p + 2, *stop;
        *a = (struct place_of){.begin = p, .name = q};
        while (q < end && is_name(*q)) q++;
        a->n_name = (size_t)(q - a->name);
        a->has_value = q < end && *q == '=';
        if (!a->n_name || (!a->has_value && (end - q < 2 || memcmp(q, "}}", 2) != 0))) continue;
        if (!(stop = memmem(q, (size_t)(end - q), "}}", 2))) return false;
        a->value = q + 1;
        a->n_value = a->has_value ? (size_t)(stop - a->value) : 0;
        a->end = stop + 2;
        return true;
    }
    return false;
}

/* The value that is given for an argument: the last one counts. */
static const char *given(const struct cli_strings *args, const char *name, size_t n)
{
    for (size_t i = args->n; i-- > 0;)
        if (!strncmp(args->v[i], name, n) && args->v[i][n] == '=') return args->v[i] + n + 1;
    return NULL;
}

/* Whether an argument has no place in the text before this one. */
static bool is_first(const char *text, const struct place_of *a)
{
    struct place_of b;
    for (const char *p = text; next_place(p, a->begin, &b); p = b.end)
        if (b.n_name == a->n_name && !memcmp(b.name, a->name, a->n_name)) return false;
    return true;
}

/* Refuses an argument that the text does not have, and names those that it has. */
static int check_known(const char *name, const char *text, size_t n, const char *arg, struct qn_error *e)
{
    struct buf all = {0};
    struct place_of a;
    size_t n_name = strcspn(arg, "=");
    bool is_known = false;
    if (!arg[n_name] || !n_name) return error_set(e, QN_EUSAGE, "the argument '%.60s' is not NAME=VALUE", arg);
    for (const char *p = text; next_place(p, text + n, &a); p = a.end) {
        is_known |= a.n_name == n_name && !memcmp(a.name, arg, n_name);
        if (!is_first(text, &a)) continue;
        if (buf_printf(&all, e, "%s%.*s", all.len ? ", " : "; it has ", (int)a.n_name, a.name)) return QN_ENOMEM;
    }
    int rc = is_known ? 0
                      : error_set(e, QN_EUSAGE, "persona '%s' has no argument '%.*s'%s", name, (int)n_name, arg,
                                  all.len ? (char *)all.data : "");
    buf_deinit(&all);
    return rc;
}

int persona_fill(struct buf *out, const char *name, const char *text, size_t n, const struct cli_strings *args,
                 struct qn_error *e)
{
    struct place_of a;
    const char *p = text;
    int rc = 0;
    for (size_t i = 0; i < args->n && !rc; i++) rc = check_known(name, text, n, args->v[i], e);
    for (; !rc && next_place(p, text + n, &a); p = a.end) {
        const char *value = given(args, a.name, a.n_name);
        if (!value && !a.has_value)
            return error_set(e, QN_EUSAGE, "persona '%s' needs an argument: %.*s=VALUE", name, (int)a.n_name, a.name);
        rc = buf_add(out, p, (size_t)(a.begin - p), e);
        if (!rc) rc = value ? buf_str(out, value, e) : buf_add(out, a.value, a.n_value, e);
    }
    return rc ? rc : buf_add(out, p, (size_t)(text + n - p), e);
}

int persona_text(struct buf *out, const struct persona *p, const char *name, const struct cli_strings *args,
                 struct qn_error *e)
{
    struct buf raw = {0};
    char *path;
    int rc = 0;
    if (find_file(&path, name)) {
        rc = os_read_file(&raw, path, MOST_TEXT, e);
        if (!rc && !unicode_is_utf8(raw.data, raw.len)) rc = error_set(e, QN_EDATA, "%s: it is not UTF-8", path);
        while (raw.len && raw.data[raw.len - 1] == '\n') raw.len--;
        mem_free(path);
    } else if (p) {
        rc = buf_str(&raw, p->system, e);
    }
    const char *text = raw.len ? (char *)raw.data : "";
    if (!rc) rc = args ? persona_fill(out, name, text, raw.len, args, e) : buf_add(out, text, raw.len, e);
    buf_deinit(&raw);
    return rc;
}
