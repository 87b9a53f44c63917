/* SPDX-License-Identifier: MIT
 *
 * options.c: reads command lines and environment by the tables of commands. See options.h.
 */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>

#include "cli/cli.h"

#define MAX_OPTS 80

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

void options_env_name(char *out, size_t cap, const struct command *c, const struct opt_group *g, const struct opt *o)
{
    const char *section = g->section ? g->section : c->name;
    snprintf(out, cap, "QUERN_%s%s%s", section, *section ? "_" : "", o->name);
    for (char *p = out; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

const struct command *command_find(const char *name)
{
    for (const struct command *const *c = commands; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
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

/* Digits after a point, at s: their value in units of 2^-32 into *out, rounded down. Returns where they end. */
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
    if ((!shift && *end) || v > UINT64_MAX >> shift) return false; /* no half bytes */
    *out = (v << shift) + (shift < 32 ? part >> (32 - shift) : part << (shift - 32));
    return *out != 0;
}

/* The place of a word among "a|b|c"; -1 when it is none of them. */
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

/* Stores a value; `who` is what is to blame for it: "--ctx", or the name of a variable. */
static int set_value(const struct opt *o, void *out, const char *who, const char *arg)
{
    char *end = NULL;
    switch (o->kind) {
    case OPT_FLAG: *(bool *)out = true; return 0;
    case OPT_STRING: *(const char **)out = arg; return 0;
    case OPT_STRINGS: add_string(out, arg); return 0;
    case OPT_INT: {
        errno = 0;
        long v = strtol(arg, &end, 10);
        if (end == arg || *end || errno || v < o->lo || v > o->hi)
            return cli_usage("%s: '%s' is not a whole number in %ld..%ld", who, arg, o->lo, o->hi);
        *(int *)out = (int)v;
        return 0;
    }
    case OPT_U64:
        if (!parse_u64(arg, out, &end) || *end) return cli_usage("%s: '%s' is not a whole number", who, arg);
        return 0;
    case OPT_SIZE:
        if (!parse_size(arg, out)) return cli_usage("%s: '%s' is not a size such as 6G, 5.5G or 500M", who, arg);
        return 0;
    case OPT_FLOAT: {
        float v = strtof(arg, &end);
        if (end == arg || *end || !isfinite(v)) return cli_usage("%s: '%s' is not a number", who, arg);
        *(float *)out = v;
        return 0;
    }
    case OPT_CHOICE: {
        int i = choice_of(o->choices, arg);
        if (i < 0) return cli_usage("%s: '%s' is not one of %s", who, arg, o->choices);
        *(int *)out = i;
        return 0;
    }
    }
    return EX_SOFTWARE;
}

static void *place_of(const struct invocation *v, const struct opt_group *g, const struct opt *o)
{
    return (char *)v->options + g->at + o->at;
}

/* ---- help ---- */

static int print_option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    char left[64];
    (void)arg, (void)c, (void)g, (void)i;
    if (o->letter)
        snprintf(left, sizeof left, "-%c, --%s%s%s", o->letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    else
        snprintf(left, sizeof left, "    --%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    printf("  %-32s %s\n", left, o->help);
    return 0;
}

static void print_help(const struct command *c)
{
    printf("usage: quern %s %s\n\n", c->name, c->operands);
    if (c->about) printf("%s\n\n", c->about);
    options_walk(c, print_option, NULL);
    printf("  %-32s %s\n", "-h, --help", "print this and exit");
}

/* ---- reading ---- */

struct reading {
    struct invocation *v;
    struct option longs[MAX_OPTS + 2];
    char shorts[2 * MAX_OPTS + 4];
    const struct opt *opt[MAX_OPTS];
    const struct opt_group *group[MAX_OPTS];
    int n;
};

static int list_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct reading *r = arg;
    (void)c;
    r->longs[i] = (struct option){o->name, o->arg ? required_argument : no_argument, NULL, 256 + i};
    r->opt[i] = o;
    r->group[i] = g;
    r->n = i + 1;
    if (o->letter) {
        char letter[3] = {o->letter, o->arg ? ':' : 0, 0};
        strcat(r->shorts, letter);
    }
    return 0;
}

/* Options may stand anywhere; argv is permuted so that the operands come last. */
static int read_flags(struct reading *r, int argc, char **argv, bool *help)
{
    optind = 0; /* starts afresh, the state inside getopt included */
    for (int c; (c = getopt_long(argc, argv, r->shorts, r->longs, NULL)) != -1;) {
        char who[64];
        int i = c - 256;
        if (c == 'h') {
            *help = true;
            return 0;
        }
        if (c == ':')
            return cli_usage("%s: option '%s' needs a value (see quern %s --help)", argv[0], argv[optind - 1], argv[0]);
        if (c == '?' && optopt > 0 && optopt < 256) /* a letter, which may stand among others */
            return cli_usage("%s: unknown option '-%c' (see quern %s --help)", argv[0], optopt, argv[0]);
        if (c == '?')
            return cli_usage("%s: %s option '%s' (see quern %s --help)", argv[0],
                             optopt ? "no value goes with" : "unknown", argv[optind - 1], argv[0]);
        for (int k = 0; c < 256 && k < r->n; k++)
            if (r->opt[k]->letter == c) i = k;
        snprintf(who, sizeof who, "--%s", r->opt[i]->name);
        int rc = set_value(r->opt[i], place_of(r->v, r->group[i], r->opt[i]), who, optarg);
        if (rc) return rc;
        r->v->origin[i] = ORIGIN_FLAG;
    }
    return 0;
}

/* Text that values point into. */
static void keep(struct invocation *v, char *text)
{
    char **more = cli_alloc((size_t)v->n_owned + 1, sizeof *more);
    if (v->n_owned) memcpy(more, v->owned, (size_t)v->n_owned * sizeof *more);
    cli_free(v->owned);
    v->owned = more;
    v->owned[v->n_owned++] = text;
}

/* A flag is "1" or "true", or else "0" or "false"; a list has colons between its texts. */
static int read_variable(struct reading *r, int i, const char *name, char *value)
{
    const struct opt *o = r->opt[i];
    void *out = place_of(r->v, r->group[i], o);
    int rc = 0;
    if (o->kind == OPT_FLAG) {
        int k = choice_of("0|false|1|true", value);
        if (k < 0) return cli_usage("%s: '%s' is not 1, true, 0 or false", name, value);
        *(bool *)out = k >= 2;
    } else if (o->kind == OPT_STRINGS) {
        char *text = cli_alloc(strlen(value) + 1, 1), *rest = strcpy(text, value), *piece;
        keep(r->v, text);
        while ((piece = strsep(&rest, ":")))
            if (*piece) add_string(out, piece);
    } else {
        rc = set_value(o, out, name, value);
    }
    r->v->origin[i] = ORIGIN_ENV;
    return rc;
}

static int read_environment(struct reading *r)
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

static int check_operands(const struct invocation *v)
{
    const struct command *c = v->command;
    if (v->n < c->min || (c->max >= 0 && v->n > c->max))
        return cli_usage("%s: %d operand%s given; usage: quern %s %s (see quern %s --help)", c->name, v->n,
                         v->n == 1 ? "" : "s", c->name, c->operands, c->name);
    return 0;
}

int options_read(struct invocation *v, const struct command *c, int argc, char **argv, bool *ready)
{
    struct reading r = {.v = v, .shorts = ":h"};
    bool help = false;
    int rc;
    *ready = false;
    *v = (struct invocation){.command = c, .options = cli_alloc(1, c->size)};
    if (c->init) c->init(v->options);
    options_walk(c, list_one, &r);
    r.longs[r.n] = (struct option){"help", no_argument, NULL, 'h'};
    v->origin = cli_alloc((size_t)r.n + 1, 1);
    if ((rc = read_flags(&r, argc, argv, &help))) return rc;
    if (help) {
        print_help(c);
        return EX_OK;
    }
    v->operand = argv + optind;
    v->n = argc - optind;
    if ((rc = check_operands(v)) || (rc = read_environment(&r))) return rc;
    *ready = true;
    return 0;
}

static int free_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    const struct invocation *v = arg;
    (void)c, (void)i;
    if (o->kind == OPT_STRINGS) cli_free(((struct cli_strings *)place_of(v, g, o))->v);
    return 0;
}

void options_free(struct invocation *v)
{
    if (v->options) options_walk(v->command, free_one, v);
    for (int i = 0; i < v->n_owned; i++) cli_free(v->owned[i]);
    cli_free(v->owned);
    cli_free(v->options);
    cli_free(v->origin);
}
