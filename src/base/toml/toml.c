/* SPDX-License-Identifier: MIT
 *
 * toml.c: reads a subset of TOML 1.0 (toml.io/en/v1.0.0) into tables, keys and values.
 *
 * It makes one pass over the text, with one function for each rule of the grammar, and never looks back. Two facts make
 * it short. Characters that TOML forbids everywhere (controls, bytes that are not UTF-8) are looked for before, so a
 * NUL byte can only be the end of the text. And no string becomes longer by being read, so all strings fit a block as
 * large as the document.
 *
 * Names are compared one by one. TOML_MAX_NAMES bounds what that costs.
 */
#include "base/toml/toml.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/inline/digits.h"
#include "base/mem.h"
#include "base/toml/toml_number.h"
#include "base/utf8.h"

#define SHOWN 60 /* bytes of a word in a message */

struct toml_parser {
    struct toml *t;
    const char *name;     /* of the file */
    const char *at, *end; /* what is still to be read */
    char *text;           /* where the next string is written */
    int line;             /* of `at` */
    int table;            /* whose keys come now */
    const char *key;      /* whose value is being read, or NULL */
    int n_arrays;         /* around `at` */
    struct qn_error *e;
};

static int parse_value(struct toml_parser *p, struct toml_value *v);

/* ---- errors ---- */

struct shown {
    char s[SHOWN + 8];
};

static struct shown shorten(const char *s, size_t n)
{
    struct shown w;
    bool cut = n > SHOWN;

    if (cut)
        for (n = SHOWN; ((uint8_t)s[n] & 0xC0) == 0x80;) n--;
    snprintf(w.s, sizeof w.s, "'%.*s%s'", (int)n, s, cut ? "..." : "");
    return w;
}

static struct shown shorten_key(const char *key) { return shorten(key, strlen(key)); }

/* What stands at `at`, as far as it seems to be one word. */
static struct shown here(const struct toml_parser *p)
{
    size_t n = 0, left = (size_t)(p->end - p->at);

    while (n < left && !strchr(" \t\r\n,[]{}#=", p->at[n])) n++;
    if (n == 0 && left > 0 && !strchr("\r\n", *p->at)) n = 1;
    return n ? shorten(p->at, n) : (struct shown){"the line's end"};
}

__attribute__((format(printf, 3, 4))) static int refuse(struct toml_parser *p, int code, const char *fmt, ...)
{
    char what[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (!p->key) return error_set(p->e, code, "%s:%d: %s", p->name, p->line, what);
    return error_set(p->e, code, "%s:%d: key %s: %s", p->name, p->line, shorten_key(p->key).s, what);
}

/* ---- characters ---- */

static char peek(const struct toml_parser *p) { return p->at < p->end ? *p->at : '\0'; }

static bool starts(const struct toml_parser *p, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, s, n) == 0;
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; } /* an LF follows every CR */

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static void skip_spaces(struct toml_parser *p)
{
    while (peek(p) == ' ' || peek(p) == '\t') p->at++;
}

static void skip_newline(struct toml_parser *p)
{
    p->at += *p->at == '\r' ? 2 : 1;
    p->line++;
}

static void skip_spaces_and_comment(struct toml_parser *p)
{
    skip_spaces(p);
    if (peek(p) != '#') return;
    while (p->at < p->end && !is_newline(*p->at)) p->at++;
}

static void skip_lines(struct toml_parser *p)
{
    for (skip_spaces_and_comment(p); is_newline(peek(p)); skip_spaces_and_comment(p)) skip_newline(p);
}

/* Looks for forbidden characters in the whole text. Counts lines for its message; reading counts them again. */
static int check_characters(struct toml_parser *p)
{
    const uint8_t *s = (const uint8_t *)p->at, *end = (const uint8_t *)p->end;
    uint32_t c;

    if (starts(p, "\xEF\xBB\xBF"))
        return refuse(p, QN_EDATA, "begins with a byte order mark, which TOML does not have");
    for (unsigned n; s < end; s += n) {
        if ((n = utf8_get(s, (size_t)(end - s), &c)) == 0) return refuse(p, QN_EDATA, "byte 0x%02X is not UTF-8", *s);
        bool ends_line = c == '\n' || (c == '\r' && end - s > 1 && s[1] == '\n');
        if (c == '\r' && !ends_line) return refuse(p, QN_EDATA, "a carriage return without a line feed");
        if ((c < ' ' && c != '\t' && !ends_line) || c == 0x7F)
            return refuse(p, QN_EDATA, "control character 0x%02X", (unsigned)c);
        p->line += c == '\n';
    }
    p->line = 1;
    return 0;
}

/* ---- strings ---- */

/* There is room: see the top. */
static void put(struct toml_parser *p, const void *s, size_t n)
{
    memcpy(p->text, s, n);
    p->text += n;
}

/* The value of n hexadecimal digits at s; -1 when there are fewer. */
static int64_t hex_value(const char *s, const char *end, int n)
{
    int64_t v = 0;

    for (int i = 0; i < n; i++, s++) {
        int digit = s == end ? -1 : hex_digit(*s);
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* \uXXXX or \UXXXXXXXX, with `at` on the letter. */
static int parse_code_point(struct toml_parser *p)
{
    int n = *p->at == 'u' ? 4 : 8;
    int64_t c = hex_value(p->at + 1, p->end, n);
    uint8_t u[4];

    if (c < 0) return refuse(p, QN_EDATA, "\\%c is followed by %d hexadecimal digits", *p->at, n);
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return refuse(p, QN_EDATA, "\\%.*s is no character of Unicode", n + 1, p->at);
    if (c == 0) return refuse(p, QN_EUNSUP, "a NUL in a string is not supported");
    p->at += 1 + n;
    put(p, u, utf8_put(u, (uint32_t)c));
    return 0;
}

/* Skips a backslash at the end of a line, with the line's end and all white space that follows. `at` is after it. */
static int parse_line_join(struct toml_parser *p)
{
    skip_spaces(p);
    if (!is_newline(peek(p))) return refuse(p, QN_EDATA, "a backslash before a space");
    for (; is_newline(peek(p)); skip_spaces(p)) skip_newline(p);
    return 0;
}

/* With `at` on the backslash. */
static int parse_escape(struct toml_parser *p, bool multi)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";

    p->at++;
    char c = peek(p);
    if (c == 'u' || c == 'U') return parse_code_point(p);
    if (multi && (c == ' ' || c == '\t' || is_newline(c))) return parse_line_join(p);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return refuse(p, QN_EDATA, "no escape of TOML begins so: \\%.*s", (int)(c > ' '), p->at);
    put(p, &to[found - from], 1);
    p->at++;
    return 0;
}

/* Reads a string up to its closing quotes, and these. One or three opening quotes are before `at`. */
static int parse_string_rest(struct toml_parser *p, char quote, bool multi)
{
    const char three[] = {quote, quote, quote, '\0'};
    int first = p->line, rc;

    if (multi && is_newline(peek(p))) skip_newline(p);
    for (;;) {
        char c = peek(p);
        if (c == '\0' || (!multi && is_newline(c))) {
            p->line = first;
            return refuse(p, QN_EDATA, "the string has no %s that closes it", multi ? three : three + 2);
        }
        if (c == quote && (!multi || starts(p, three))) break;
        if (c == '\\' && quote == '"') {
            if ((rc = parse_escape(p, multi))) return rc;
        } else if (is_newline(c)) {
            put(p, "\n", 1); /* whichever way the file ends its lines */
            skip_newline(p);
        } else {
            put(p, p->at++, 1);
        }
    }
    p->at += multi ? 3 : 1;
    for (int i = 0; multi && i < 2 && peek(p) == quote; i++) put(p, p->at++, 1); /* two more belong to the string */
    put(p, "", 1);
    return 0;
}

/* With `at` on a quote. */
static int parse_string(struct toml_parser *p, const char **out)
{
    char quote = *p->at;
    bool multi = starts(p, quote == '"' ? "\"\"\"" : "'''");
    const char *s = p->text;

    p->at += multi ? 3 : 1;
    int rc = parse_string_rest(p, quote, multi);
    if (rc == 0) *out = s;
    return rc;
}

/* ---- values ---- */

static bool looks_like_date(const char *s)
{
    int n = 0;
    while (is_digit(s[n])) n++;
    return (n == 4 && s[n] == '-') || (n == 2 && s[n] == ':');
}

/* s: a word that begins as a number does. */
static int parse_number(struct toml_parser *p, const char *s, struct toml_value *v)
{
    if (looks_like_date(s)) return refuse(p, QN_EUNSUP, "dates and times are not supported; put '%s' in quotes", s);
    int rc = toml_number(s, v);
    if (rc == QN_EUNSUP) return refuse(p, rc, "%s does not fit 64 bits", s);
    return rc ? refuse(p, rc, "'%s' is not a number", s) : 0;
}

/* true, false, inf, nan, numbers. */
static int parse_word(struct toml_parser *p, struct toml_value *v)
{
    char word[TOML_MAX_NUMBER + 1];
    size_t n = 0, left = (size_t)(p->end - p->at);
    int rc = 0;

    while (n < left && (is_bare(p->at[n]) || strchr("+.:", p->at[n]))) n++;
    if (n == 0) return refuse(p, QN_EDATA, "a value is missing before %s", here(p).s);
    bool is_number = is_digit(*p->at) || (n > 1 && strchr("+-", *p->at) && is_digit(p->at[1]));
    if (is_number && n > TOML_MAX_NUMBER)
        return refuse(p, QN_EUNSUP, "numbers of more than %d characters are not supported", TOML_MAX_NUMBER);
    snprintf(word, sizeof word, "%.*s", (int)n, p->at);
    if (is_number) {
        rc = parse_number(p, word, v);
    } else if (!strcmp(word, "true") || !strcmp(word, "false")) {
        *v = (struct toml_value){.type = TOML_BOOL, .truth = *word == 't'};
    } else if (!strcmp(word, "inf") || !strcmp(word, "+inf") || !strcmp(word, "-inf")) {
        *v = (struct toml_value){.type = TOML_FLOAT, .real = *word == '-' ? (double)-INFINITY : (double)INFINITY};
    } else if (!strcmp(word, "nan") || !strcmp(word, "+nan") || !strcmp(word, "-nan")) {
        *v = (struct toml_value){.type = TOML_FLOAT, .real = (double)NAN};
    } else {
        rc = refuse(p, QN_EDATA, "%s is not a value; text stands in quotes", shorten(p->at, n).s);
    }
    if (rc == 0) p->at += n;
    return rc;
}

static void free_value(struct toml_value *v)
{
    if (v->type != TOML_ARRAY) return;
    for (size_t i = 0; i < v->array.n; i++) free_value(&v->array.v[i]);
    mem_free(v->array.v);
}

static int append(struct toml_parser *p, struct toml_value *array, size_t *cap)
{
    struct toml_value item, *more;
    int rc;

    if (array->array.n == *cap) {
        size_t n = *cap ? 2 * *cap : 4;
        if (!(more = mem_realloc(array->array.v, n * sizeof *more)))
            return error_nomem(p->e, "an array", n * sizeof *more);
        array->array.v = more;
        *cap = n;
    }
    if ((rc = parse_value(p, &item))) return rc;
    array->array.v[array->array.n++] = item;
    return 0;
}

/* With `at` on the bracket. */
static int parse_array(struct toml_parser *p, struct toml_value *v)
{
    struct toml_value array = {.type = TOML_ARRAY};
    size_t cap = 0;
    int rc = 0;

    if (p->n_arrays == TOML_MAX_ARRAYS)
        return refuse(p, QN_EUNSUP, "more than %d arrays inside of each other are not supported", TOML_MAX_ARRAYS);
    p->n_arrays++;
    p->at++;
    for (skip_lines(p); rc == 0 && peek(p) != ']';) {
        if ((rc = append(p, &array, &cap))) break;
        skip_lines(p);
        if (peek(p) == ',') {
            p->at++;
            skip_lines(p);
        } else if (peek(p) != ']') {
            rc = refuse(p, QN_EDATA, "an array goes on with ',' or ends with ']', but here is %s", here(p).s);
        }
    }
    if (rc) {
        free_value(&array);
        return rc;
    }
    p->at++;
    p->n_arrays--;
    *v = array;
    return 0;
}

/* Sets *v only when it succeeds. */
static int parse_value(struct toml_parser *p, struct toml_value *v)
{
    const char *s;
    int rc;

    switch (peek(p)) {
    case '[': return parse_array(p, v);
    case '{': return refuse(p, QN_EUNSUP, "inline tables { } are not supported; a [table] says the same");
    case '"':
    case '\'':
        if ((rc = parse_string(p, &s))) return rc;
        *v = (struct toml_value){.type = TOML_STRING, .string = s};
        return 0;
    default: return parse_word(p, v);
    }
}

/* ---- names, tables, keys ---- */

static int parse_name(struct toml_parser *p, const char **out)
{
    size_t n = 0, left = (size_t)(p->end - p->at);

    if (starts(p, "\"\"\"") || starts(p, "'''")) return refuse(p, QN_EDATA, "a name is in single quotes, not three");
    if (peek(p) == '"' || peek(p) == '\'') return parse_string(p, out);
    while (n < left && is_bare(p->at[n])) n++;
    if (n == 0) return refuse(p, QN_EDATA, "a name is missing before %s", here(p).s);
    *out = p->text;
    put(p, p->at, n);
    put(p, "", 1);
    p->at += n;
    return 0;
}

/* Makes room for one more of either. */
static int reserve(struct toml_parser *p)
{
    struct toml *t = p->t;

    if (t->n_tables + t->n_entries >= TOML_MAX_NAMES)
        return refuse(p, QN_EUNSUP, "more than %d tables and keys are not supported", TOML_MAX_NAMES);
    if ((t->n_tables & (t->n_tables - 1)) == 0) { /* full: room for a power of two */
        size_t bytes = 2 * (size_t)(t->n_tables ? t->n_tables : 1) * sizeof *t->table;
        struct toml_table *more = mem_realloc(t->table, bytes);
        if (!more) return error_nomem(p->e, "tables", bytes);
        t->table = more;
    }
    if ((t->n_entries & (t->n_entries - 1)) == 0) {
        size_t bytes = 2 * (size_t)(t->n_entries ? t->n_entries : 1) * sizeof *t->entry;
        struct toml_entry *more = mem_realloc(t->entry, bytes);
        if (!more) return error_nomem(p->e, "keys", bytes);
        t->entry = more;
    }
    return 0;
}

/* Goes from *table into the table of this name, and makes it if it does not exist. */
static int enter(struct toml_parser *p, int *table, const char *name)
{
    struct toml *t = p->t;
    const struct toml_entry *entry = toml_find(t, *table, name);
    int child = toml_child(t, *table, name), rc;

    if (entry)
        return refuse(p, QN_EDATA, "%s cannot be a table, for it is a key of line %d", shorten_key(name).s,
                      entry->line);
    if (child < 0) {
        if ((rc = reserve(p))) return rc;
        child = t->n_tables++;
        t->table[child] = (struct toml_table){.name = name, .parent = *table, .line = p->line};
    }
    *table = child;
    return 0;
}

/* With `at` on the bracket. */
static int parse_header(struct toml_parser *p)
{
    const char *name;
    int table = 0, rc;

    if (starts(p, "[[")) return refuse(p, QN_EUNSUP, "arrays of tables, [[...]], are not supported");
    do {
        p->at++;
        skip_spaces(p);
        if ((rc = parse_name(p, &name)) || (rc = enter(p, &table, name))) return rc;
        skip_spaces(p);
    } while (peek(p) == '.');
    if (peek(p) != ']') return refuse(p, QN_EDATA, "a table's name ends with ']', but here is %s", here(p).s);
    p->at++;
    if (p->t->table[table].has_header) {
        char whole[SHOWN];
        toml_table_name(p->t, table, whole, sizeof whole);
        return refuse(p, QN_EDATA, "table [%s] stands in line %d already", whole, p->t->table[table].line);
    }
    p->t->table[table].has_header = true;
    p->t->table[table].line = p->line;
    p->table = table;
    return 0;
}

static int parse_entry(struct toml_parser *p)
{
    struct toml *t = p->t;
    struct toml_entry entry = {.table = p->table, .line = p->line};
    const struct toml_entry *same;
    int table, rc;

    if ((rc = parse_name(p, &entry.key))) return rc;
    skip_spaces(p);
    p->key = entry.key;
    if (peek(p) == '.') return refuse(p, QN_EUNSUP, "dotted keys are not supported; a [table] says the same");
    if (peek(p) != '=') return refuse(p, QN_EDATA, "'=' is missing before %s", here(p).s);
    if ((same = toml_find(t, p->table, entry.key))) return refuse(p, QN_EDATA, "stands in line %d already", same->line);
    if ((table = toml_child(t, p->table, entry.key)) >= 0)
        return refuse(p, QN_EDATA, "is the name of a table, in line %d", t->table[table].line);
    p->at++;
    skip_spaces(p);
    if ((rc = reserve(p)) || (rc = parse_value(p, &entry.value))) return rc;
    t->entry[t->n_entries++] = entry;
    return 0;
}

static int parse_document(struct toml_parser *p)
{
    int rc;

    for (skip_lines(p); p->at < p->end; skip_lines(p)) {
        if ((rc = *p->at == '[' ? parse_header(p) : parse_entry(p))) return rc;
        skip_spaces_and_comment(p);
        if (p->at < p->end && !is_newline(*p->at)) return refuse(p, QN_EDATA, "%s follows on the same line", here(p).s);
        p->key = NULL;
    }
    return 0;
}

int toml_parse(struct toml *out, const char *name, const char *text, size_t n, struct qn_error *e)
{
    struct toml t = {0};
    struct toml_parser p = {.t = &t, .name = name, .at = text, .end = text + n, .line = 1, .e = e};
    int rc;

    if (n > TOML_MAX_BYTES) return refuse(&p, QN_EUNSUP, "%zu bytes; at most %zu are supported", n, TOML_MAX_BYTES);
    if ((rc = check_characters(&p))) return rc;
    t.text = p.text = mem_alloc(n + 1);
    if (!t.text) return error_nomem(e, "a configuration", n + 1);
    if ((rc = reserve(&p))) goto fail;
    t.table[t.n_tables++] = (struct toml_table){.name = "", .parent = -1, .has_header = true};
    if ((rc = parse_document(&p))) goto fail;
    assert(p.text <= t.text + n);
    *out = t;
    return 0;
fail:
    toml_deinit(&t);
    return rc;
}

void toml_deinit(struct toml *t)
{
    for (int i = 0; i < t->n_entries; i++) free_value(&t->entry[i].value);
    mem_free(t->entry);
    mem_free(t->table);
    mem_free(t->text);
    *t = (struct toml){0};
}

/* ---- what was read ---- */

int toml_child(const struct toml *t, int table, const char *name)
{
    for (int i = 1; table >= 0 && i < t->n_tables; i++)
        if (t->table[i].parent == table && !strcmp(t->table[i].name, name)) return i;
    return -1;
}

const struct toml_entry *toml_find(const struct toml *t, int table, const char *key)
{
    for (int i = 0; i < t->n_entries; i++)
        if (t->entry[i].table == table && !strcmp(t->entry[i].key, key)) return &t->entry[i];
    return NULL;
}

const char *toml_type_name(enum toml_type type)
{
    static const char *const names[] = {[TOML_STRING] = "a string",
                                        [TOML_INT] = "a whole number",
                                        [TOML_FLOAT] = "a number",
                                        [TOML_BOOL] = "true or false",
                                        [TOML_ARRAY] = "an array"};
    return names[type];
}

bool toml_is_bare(const char *key)
{
    const char *s = key;
    while (is_bare(*s)) s++;
    return *s == '\0' && s > key;
}

size_t toml_table_name(const struct toml *t, int table, char *dst, size_t cap)
{
    size_t n = 0;

    dst[0] = '\0';
    if (table <= 0) return 0;
    n = toml_table_name(t, t->table[table].parent, dst, cap);
    const char *quote = toml_is_bare(t->table[table].name) ? "" : "\"";
    int more = snprintf(dst + n, cap - n, "%s%s%s%s", n ? "." : "", quote, t->table[table].name, quote);
    return n + (size_t)more < cap ? n + (size_t)more : cap - 1;
}
