/* SPDX-License-Identifier: MIT
 *
 * options.c: reads command lines, the environment and the configuration by the tables of commands. See options.h.
 *
 * A value from the configuration becomes the text that the option would have on the command line, so there is one way
 * to read it. Only its TOML type is checked before.
 */
#include "cli/core/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>

#include "base/nearest.h"
#include "base/rng.h"
#include "cli/core/cli.h"
#include "cli/core/config_file.h"

/* What getopt_long() returns: a letter, or one of these. The i-th option of the table is CODE_OPTION + i. */
enum { CODE_HELP_ALL = 256, CODE_CONFIG, CODE_OPTION };

/* ---- the table ---- */

int options_walk(const struct command *c, options_each *each, void *arg)
{
    int i = 0;
    for (const struct opt_group *g = c->groups; g && g->title; g++)
        for (const struct opt *o = g->opts; o->name; o++) {
            int rc = each(arg, c, g, o, i++);
            if (rc) return rc;
        }
    return 0;
}

static int count_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    (void)c, (void)g, (void)o;
    *(int *)arg = i + 1;
    return 0;
}

int options_count(const struct command *c)
{
    int n = 0;
    options_walk(c, count_one, &n);
    return n;
}

struct find {
    const char *name;
    int index;
};

static int find_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct find *f = arg;
    (void)c, (void)g;
    f->index = i;
    return !strcmp(f->name, o->name);
}

enum opt_origin options_origin(const struct invocation *v, const char *name)
{
    struct find f = {.name = name};
    return options_walk(v->command, find_one, &f) ? (enum opt_origin)v->origin[f.index] : ORIGIN_DEFAULT;
}

const char *options_section(const struct command *c, const struct opt_group *g)
{
    return g->section ? g->section : c->name;
}

void options_env_name(char *out, size_t cap, const struct command *c, const struct opt_group *g, const struct opt *o)
{
    const char *section = options_section(c, g);
    snprintf(out, cap, "QUERN_%s%s%s", section, *section ? "_" : "", o->name);
    for (char *p = out; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

const struct command *command_find(const char *name)
{
    for (const struct command *const *c = commands; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    return NULL;
}

const struct command *command_implied(void)
{
    for (const struct command *const *c = commands; *c; c++)
        if ((*c)->implied) return *c;
    return NULL;
}

/* ---- values ---- */

static bool parse_u64(const char *s, uint64_t *out, char **end)
{
    if (!isdigit((unsigned char)*s)) return false;
    errno = 0;
    unsigned long long v = strtoull(s, end, s[0] == '0' && (s[1] | 32) == 'x' ? 16 : 10);
    if (errno) return false;
    *out = v;
    return true;
}

/* Reads the digits after a point, at s: *out gets their value in units of 2^-32, rounded down. Returns the end of
 * the digits. */
static const char *parse_fraction(const char *s, uint64_t *out)
{
    const char *end = s + strspn(s, "0123456789");
    *out = 0;
    for (const char *d = end; d-- > s;) *out = (*out + ((uint64_t)(*d - '0') << 32)) / 10;
    return end;
}

/* A number of bytes with an optional binary unit: 4096, 500M, 6G, 5.5G, 6GB, 6GiB. */
static bool parse_size(const char *s, uint64_t *out)
{
    char *end;
    uint64_t v, part = 0;
    int shift = 0;
    if (!parse_u64(s, &v, &end)) return false;
    const char *unit = end;
    if (*end == '.' && ((s[1] | 32) == 'x' || (unit = parse_fraction(end + 1, &part)) == end + 1)) return false;
    switch (toupper((unsigned char)*unit)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case 'T': shift = 40; break;
    }
    if (shift && strcasecmp(unit + 1, "") && strcasecmp(unit + 1, "B") && strcasecmp(unit + 1, "iB")) return false;
    if ((!shift && *end) || v > UINT64_MAX >> shift) return false; /* a fraction needs a unit */
    *out = (v << shift) + (shift < 32 ? part >> (32 - shift) : part << (shift - 32));
    return *out != 0;
}

/* The index of a word in "a|b|c"; -1: it is not there. */
static int choice_of(const char *choices, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0;; i++) {
        size_t len = strcspn(choices, "|");
        if (len == n && !memcmp(choices, word, n)) return i;
        if (!choices[len]) return -1;
        choices += len + 1;
    }
}

static void add_string(struct cli_strings *s, const char *text)
{
    const char **v = cli_alloc(s->n + 1, sizeof *v);
    if (s->n) memcpy(v, s->v, s->n * sizeof *v);
    cli_free(s->v);
    s->v = v;
    s->v[s->n++] = text;
}

struct problem {
    char text[400];
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct problem *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, ap);
    va_end(ap);
    return false;
}

/* Stores a value, or says in p what is wrong with it. */
static bool set_value(const struct opt *o, void *out, const char *arg, struct problem *p)
{
    char *end = NULL;
    switch (o->kind) {
    case OPT_FLAG: *(bool *)out = true; return true;
    case OPT_STRING: *(const char **)out = arg; return true;
    case OPT_STRINGS: add_string(out, arg); return true;
    case OPT_INT: {
        errno = 0;
        long v = strtol(arg, &end, 10);
        if (end == arg || *end || errno || v < o->lo || v > o->hi)
            return wrong(p, "'%s' is not a whole number in %ld..%ld", arg, o->lo, o->hi);
        *(int *)out = (int)v;
        return true;
    }
    case OPT_U64:
        if (!strcmp(arg, "random"))
            *(uint64_t *)out = rng_seed_from_os() >> 1; /* JSON has room for 63 bits */
        else if (!parse_u64(arg, out, &end) || *end)
            return wrong(p, "'%s' is not a whole number or random", arg);
        return true;
    case OPT_SIZE:
        if (!parse_size(arg, out)) return wrong(p, "'%s' is not a size such as 6G, 5.5G or 500M", arg);
        return true;
    case OPT_FLOAT: {
        float v = strtof(arg, &end);
        if (end == arg || *end || !isfinite(v)) return wrong(p, "'%s' is not a number", arg);
        if (o->lo < o->hi && !(v >= (float)o->lo && v <= (float)o->hi))
            return wrong(p, "'%s' is not a number in %ld..%ld", arg, o->lo, o->hi);
        *(float *)out = v;
        return true;
    }
    case OPT_CHOICE: {
        int i = choice_of(o->choices, arg);
        if (i < 0) return wrong(p, "'%s' is not one of %s", arg, o->choices);
        *(int *)out = i;
        return true;
    }
    }
    return wrong(p, "no kind of option");
}

void *options_value(const struct invocation *v, const struct opt_group *g, const struct opt *o)
{
    return (char *)v->options + g->at + o->at;
}

/* ---- reading ---- */

struct options_reader {
    struct invocation *v;
    struct option *longs; /* [n + 4]: the options, --help, --help-all, --config, and the end */
    char *shorts;         /* [2 * n + 4] */
    const struct opt **opt;
    const struct opt_group **group; /* [n], both */
    int n;
    const char *config; /* the value of --config; NULL: not given */
};

static int list_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct options_reader *r = arg;
    (void)c;
    r->longs[i] = (struct option){o->name, o->arg ? required_argument : no_argument, NULL, CODE_OPTION + i};
    r->opt[i] = o;
    r->group[i] = g;
    if (o->letter) {
        char letter[3] = {o->letter, o->arg ? ':' : 0, 0};
        strcat(r->shorts, letter);
    }
    return 0;
}

/* Makes what getopt_long() needs from the table of the command. */
static void reader_init(struct options_reader *r, struct invocation *v)
{
    int n = options_count(v->command);
    size_t room = (size_t)n + 4;
    *r = (struct options_reader){.v = v, .n = n};
    r->longs = cli_alloc(room, sizeof *r->longs);
    r->shorts = cli_alloc(2 * room, 1);
    r->opt = cli_alloc(room, sizeof *r->opt);
    r->group = cli_alloc(room, sizeof *r->group);
    strcpy(r->shorts, v->command->wraps ? "+:h" : ":h");
    options_walk(v->command, list_one, r);
    r->longs[n] = (struct option){"help", no_argument, NULL, 'h'};
    r->longs[n + 1] = (struct option){"help-all", no_argument, NULL, CODE_HELP_ALL};
    r->longs[n + 2] = (struct option){"config", required_argument, NULL, CODE_CONFIG};
}

static void reader_deinit(struct options_reader *r)
{
    cli_free(r->longs);
    cli_free(r->shorts);
    cli_free(r->opt);
    cli_free(r->group);
}

/* Refuses a long option that is not known, or one that was given a value and has none. */
static int refuse_flag(const struct options_reader *r, const char *command, const char *flag, bool is_known)
{
    struct nearest near = {0};
    char word[NEAREST_MAX + 1], hint[NEAREST_MAX + 32] = "";
    size_t n = strcspn(flag + 2, "=");
    if (is_known) return cli_usage("%s: no value goes with option '%s' (see quern %s --help)", command, flag, command);
    snprintf(word, sizeof word, "%.*s", (int)(n < NEAREST_MAX ? n : NEAREST_MAX), flag + 2);
    near.word = word;
    for (const struct option *o = r->longs; o->name; o++) nearest_offer(&near, o->name);
    if (near.best) snprintf(hint, sizeof hint, "did you mean '--%s'? ", near.best);
    return cli_usage("%s: unknown option '%s' (%ssee quern %s --help)", command, flag, hint, command);
}

/* Reads the options of the command line. They may be anywhere: argv is permuted so that the operands come last. */
static int read_flags(struct options_reader *r, int argc, char **argv, enum help_size *help)
{
    optind = 0; /* getopt starts again, with its hidden state */
    for (int c; (c = getopt_long(argc, argv, r->shorts, r->longs, NULL)) != -1;) {
        struct problem p;
        int i = c - CODE_OPTION;
        if (c == 'h' || c == CODE_HELP_ALL) {
            *help = c == 'h' ? HELP_SHORT : HELP_LONG;
            return 0;
        }
        if (c == CODE_CONFIG) {
            r->config = optarg;
            continue;
        }
        if (c == ':')
            return cli_usage("%s: option '%s' needs a value (see quern %s --help)", argv[0], argv[optind - 1], argv[0]);
        if (c == '?' && optopt > 0 && optopt < 256 && optopt != 'h') /* a letter, possibly among others */
            return cli_usage("%s: unknown option '-%c' (see quern %s --help)", argv[0], optopt, argv[0]);
        if (c == '?') /* 'h': of --help=VALUE, because -h is always known */
            return refuse_flag(r, argv[0], argv[optind - 1], optopt);
        for (int k = 0; c < 256 && k < r->n; k++)
            if (r->opt[k]->letter == c) i = k;
        if (!set_value(r->opt[i], options_value(r->v, r->group[i], r->opt[i]), optarg, &p))
            return c == r->opt[i]->letter ? cli_usage("-%c, --%s: %s", c, r->opt[i]->name, p.text)
                                          : cli_usage("--%s: %s", r->opt[i]->name, p.text);
        r->v->origin[i] = ORIGIN_FLAG;
    }
    return 0;
}

void options_keep(struct invocation *v, char *text)
{
    char **more = cli_alloc((size_t)v->n_owned + 1, sizeof *more);
    if (v->n_owned) memcpy(more, v->owned, (size_t)v->n_owned * sizeof *more);
    cli_free(v->owned);
    v->owned = more;
    v->owned[v->n_owned++] = text;
}

/* Reads the value of an environment variable. A flag is "1", "true", "0" or "false"; a list has colons between its
 * texts. */
static int read_variable(struct options_reader *r, int i, const char *name, char *value)
{
    const struct opt *o = r->opt[i];
    void *out = options_value(r->v, r->group[i], o);
    struct problem p;
    if (o->kind == OPT_FLAG) {
        int k = choice_of("0|false|1|true", value);
        if (k < 0) return cli_usage("%s: '%s' is not 1, true, 0 or false", name, value);
        *(bool *)out = k >= 2;
    } else if (o->kind == OPT_STRINGS) {
        char *text = cli_alloc(strlen(value) + 1, 1), *rest = strcpy(text, value), *piece;
        options_keep(r->v, text);
        while ((piece = strsep(&rest, ":")))
            if (*piece) add_string(out, piece);
    } else if (!set_value(o, out, value, &p)) {
        return cli_usage("%s: %s", name, p.text);
    }
    r->v->origin[i] = ORIGIN_ENV;
    return 0;
}

static int read_environment(struct options_reader *r)
{
    for (int i = 0; i < r->n; i++) {
        char name[96], *value;
        int rc;
        options_env_name(name, sizeof name, r->v->command, r->group[i], r->opt[i]);
        if (r->v->origin[i] != ORIGIN_DEFAULT || !(value = getenv(name))) continue;
        if ((rc = read_variable(r, i, name, value))) return rc;
    }
    return 0;
}

/* Replaces "~/" in a path of the configuration, as a shell would do. */
static const char *path_of(struct invocation *v, const struct opt *o, const char *text)
{
    const char *home = getenv("HOME");
    bool is_path = o->words == WORDS_FILE || o->words == WORDS_FOLDER || o->words == WORDS_MODEL;
    if (!is_path || strncmp(text, "~/", 2) || !home) return text;
    size_t n = strlen(home) + strlen(text);
    char *path = cli_alloc(n, 1);
    snprintf(path, n, "%s%s", home, text + 1);
    options_keep(v, path);
    return path;
}

/* The text of a value of the configuration; NULL: it is not of the option's kind. `room` is for numbers. */
static const char *text_of(struct invocation *v, const struct opt *o, const struct toml_value *x, char room[64])
{
    bool whole = o->kind == OPT_INT || o->kind == OPT_U64 || o->kind == OPT_SIZE || o->kind == OPT_FLOAT;
    bool text = o->kind != OPT_FLAG && o->kind != OPT_INT && o->kind != OPT_FLOAT;
    if (x->type == TOML_STRING && text) return path_of(v, o, x->string);
    if (x->type == TOML_INT && whole) {
        snprintf(room, 64, "%" PRId64, x->integer);
        return room;
    }
    if (x->type != TOML_FLOAT || o->kind != OPT_FLOAT) return NULL;
    for (int digits = 1; digits <= 17; digits++) { /* the fewest digits that mean this number */
        snprintf(room, 64, "%.*g", digits, x->real);
        if (strtod(room, NULL) == x->real) break;
    }
    return room;
}

static int fail_type(const struct options_reader *r, const struct opt *o, const struct toml_entry *x,
                     const struct toml_value *is)
{
    static const char *const wanted[] = {[OPT_FLAG] = "true or false",
                                         [OPT_INT] = "a whole number",
                                         [OPT_U64] = "a whole number or \"random\"",
                                         [OPT_FLOAT] = "a number",
                                         [OPT_SIZE] = "a size such as \"6G\"",
                                         [OPT_STRING] = "a string",
                                         [OPT_STRINGS] = "an array of strings",
                                         [OPT_CHOICE] = "a string"};
    return config_file_fail(r->v->config, x, "this is %s, not %s", wanted[o->kind], toml_type_name(is->type));
}

static int read_entry(struct options_reader *r, int i, const struct toml_entry *x)
{
    const struct opt *o = r->opt[i];
    const struct toml_value *item = &x->value;
    void *out = options_value(r->v, r->group[i], o);
    bool is_list = o->kind == OPT_STRINGS;
    struct problem p;
    char room[64];
    if (is_list != (item->type == TOML_ARRAY) || (o->kind == OPT_FLAG && item->type != TOML_BOOL))
        return fail_type(r, o, x, item);
    if (o->kind == OPT_FLAG) *(bool *)out = item->truth;
    size_t n = is_list ? item->array.n : o->kind != OPT_FLAG;
    for (size_t k = 0; k < n; k++) {
        const struct toml_value *one = is_list ? &item->array.v[k] : item;
        const char *text = text_of(r->v, o, one, room);
        if (!text)
            return is_list ? config_file_fail(r->v->config, x, "%s is among the strings", toml_type_name(one->type))
                           : fail_type(r, o, x, one);
        if (!set_value(o, out, text, &p)) return config_file_fail(r->v->config, x, "%s", p.text);
    }
    r->v->origin[i] = ORIGIN_CONFIG;
    r->v->line[i] = x->line;
    return 0;
}

/* The requested persona, from any origin; NULL: none, or the command has no personas. */
static const char *persona_of(const struct options_reader *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->opt[i]->words == WORDS_PERSONA) return *(const char **)options_value(r->v, r->group[i], r->opt[i]);
    return NULL;
}

/* Pass 0 reads the persona, pass 1 all other options. */
static int read_configuration(struct options_reader *r)
{
    const struct config_file *c = r->v->config;
    int rc = config_file_open(r->v->config, r->config);
    for (int pass = 0; pass < 2 && !rc; pass++) {
        const char *persona = pass ? persona_of(r) : NULL;
        for (int i = 0; i < r->n && !rc; i++) {
            const struct toml_entry *x = NULL;
            if (r->v->origin[i] != ORIGIN_DEFAULT || (pass == 0 && r->opt[i]->words != WORDS_PERSONA)) continue;
            if (persona) x = config_file_find_persona(c, persona, r->opt[i]->name);
            if (!x) x = config_file_find(c, options_section(r->v->command, r->group[i]), r->opt[i]->name);
            if (x) rc = read_entry(r, i, x);
        }
    }
    return rc;
}

static int check_operands(const struct invocation *v)
{
    const struct command *c = v->command;
    if (v->n < c->min || (c->max >= 0 && v->n > c->max))
        return cli_usage("%s: %d operand%s given; usage: quern %s %s (see quern %s --help)", c->name, v->n,
                         v->n == 1 ? "" : "s", c->name, c->operands, c->name);
    return 0;
}

int options_read(struct invocation *v, const struct command *c, int argc, char **argv, enum help_size *help)
{
    struct options_reader r;
    *help = HELP_NONE;
    *v = (struct invocation){.command = c, .options = cli_alloc(1, c->size)};
    v->config = cli_alloc(1, sizeof *v->config);
    reader_init(&r, v);
    if (c->init) c->init(v->options);
    v->origin = cli_alloc((size_t)r.n + 1, 1);
    v->line = cli_alloc((size_t)r.n + 1, sizeof *v->line);
    int rc = read_flags(&r, argc, argv, help);
    if (!rc && !*help) {
        v->operand = argv + optind;
        v->n = argc - optind;
        rc = check_operands(v);
        if (!rc) rc = read_environment(&r);
        if (!rc) rc = read_configuration(&r);
    }
    reader_deinit(&r);
    return rc;
}

static int free_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    const struct invocation *v = arg;
    (void)c, (void)i;
    if (o->kind == OPT_STRINGS) cli_free(((struct cli_strings *)options_value(v, g, o))->v);
    return 0;
}

void options_free(struct invocation *v)
{
    if (v->options) options_walk(v->command, free_one, v);
    for (int i = 0; i < v->n_owned; i++) cli_free(v->owned[i]);
    cli_free(v->owned);
    cli_free(v->options);
    cli_free(v->origin);
    cli_free(v->line);
    if (v->config) config_file_close(v->config);
    cli_free(v->config);
}
