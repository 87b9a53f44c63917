/* SPDX-License-Identifier: MIT
 *
 * jinja_lex.c: template text to tokens, as Jinja2's lexer with trim_blocks and lstrip_blocks does it.
 *
 * Everything outside of tags is data. A block tag or comment removes the blanks before it if nothing else stands before
 * it on its line (lstrip_blocks), and one newline after it (trim_blocks). A `-` at the edge of a tag removes all white
 * space on that side, a `+` removes none. Line ends become \n, and the last one of the template is dropped.
 *
 * The rules follow jinja2/lexer.py (3.1). Two of them are easily missed: `}}` inside of open brackets does not end a
 * tag, and a line counts as beginning where the previous tag removed the newline.
 *
 * Differences from Jinja2: integers have 64 bits; characters by name (\N{...}) are not supported; a `raw` without its
 * end is an error.
 */
#include "text/jinja/jinja_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/inline/digits.h"
#include "text/jinja/jinja_str.h"
#include "text/token/unicode.h"

#define MAX_BRACKETS 500
#define MAX_NUMBER   400 /* bytes of a number without its underscores, with a NUL */

struct lexer {
    struct jenv *j;
    const char *p;
    size_t n, at;
    bool line_starting;
    char open[MAX_BRACKETS]; /* brackets of the current tag, as the closing ones they need */
    int n_open;
    struct jtokens out;
};

static struct jtoken *add(struct lexer *x, enum jtok kind)
{
    struct jtokens *o = &x->out;
    o->v = jenv_grow(x->j, o->v, o->n, &o->cap, sizeof *o->v);
    struct jtoken *t = &o->v[o->n++];
    *t = (struct jtoken){.kind = kind, .line = x->j->line};
    return t;
}

static bool looking_at(const struct lexer *x, size_t at, const char *s)
{
    size_t n = strlen(s);
    return x->n - at >= n && memcmp(x->p + at, s, n) == 0;
}

/* The length of the white space character at `at`; 0 when there is none. */
static size_t space_at(const struct lexer *x, size_t at)
{
    uint32_t cp;
    bool cut;
    if (at >= x->n) return 0;
    unsigned n = unicode_next((const uint8_t *)x->p + at, x->n - at, &cp, &cut);
    return jchar_is_space(cp) ? n : 0;
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    for (size_t n; (n = space_at(x, at));) at += n;
    return at;
}

static size_t strip_end(const struct lexer *x, size_t from, size_t to)
{
    while (to > from) {
        size_t at = to - 1;
        while (at > from && ((uint8_t)x->p[at] & 0xC0) == 0x80) at--;
        if (!space_at(x, at)) break;
        to = at;
    }
    return to;
}

static void move_to(struct lexer *x, size_t to)
{
    for (; x->at < to; x->at++) x->j->line += x->p[x->at] == '\n';
}

/* Adds the data up to a tag at `to`. sign: the sign at the tag's beginning: '-', '+' or 0. strip_line: remove the
 * blanks before the tag if it begins its line. */
static void add_data(struct lexer *x, size_t to, char sign, bool strip_line)
{
    size_t from = x->at, end = to;
    if (sign == '-') {
        end = strip_end(x, from, to);
    } else if (sign != '+' && strip_line) {
        const char *nl = memrchr(x->p + from, '\n', to - from);
        size_t line = nl ? (size_t)(nl - x->p) + 1 : from;
        if ((nl || x->line_starting) && line < to && strip_end(x, line, to) == line) end = line;
    }
    if (end > from) add(x, JT_DATA)->val = jval_str(x->j, x->p + from, end - from, 0);
    move_to(x, to);
}

/* Whether a comment, block or raw block ends at `at` with an optional sign and the mark `close`. *after: where the text
 * goes on. */
static bool ends_at(const struct lexer *x, size_t at, const char *close, size_t *after)
{
    char sign = at < x->n ? x->p[at] : 0;
    size_t p = at + (sign == '-' || sign == '+');
    if (!looking_at(x, p, close)) return false;
    p += strlen(close);
    if (sign == '-')
        p = skip_space(x, p);
    else if (sign != '+' && p < x->n && x->p[p] == '\n')
        p++;
    *after = p;
    return true;
}

static void finish_tag(struct lexer *x, size_t after)
{
    x->line_starting = after > x->at && x->p[after - 1] == '\n';
    move_to(x, after);
}

static void comment(struct lexer *x, size_t body)
{
    size_t after;
    for (size_t at = body; at < x->n; at++) {
        if (x->p[at] != '#' && x->p[at] != '-' && x->p[at] != '+') continue;
        if (!ends_at(x, at, "#}", &after)) continue;
        finish_tag(x, after);
        return;
    }
    jenv_fail(x->j, QN_EDATA, "missing end of comment tag");
}

/* Whether only this word stands in a block tag whose inside begins at `at`. Returns where the tag's closing mark must
 * follow; 0 when another word stands there. */
static size_t lone_word(const struct lexer *x, size_t at, const char *word)
{
    at = skip_space(x, at);
    if (!looking_at(x, at, word)) return 0;
    return skip_space(x, at + strlen(word));
}

static char sign_at(const struct lexer *x, size_t at)
{
    return at < x->n && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
}

/* Adds the data between {% raw %} and {% endraw %}, if the tag whose inside begins at `inside` is a raw tag. False: it
 * is another one. */
static bool raw(struct lexer *x, size_t inside)
{
    size_t end = lone_word(x, inside, "raw");
    if (!end) return false;
    if (looking_at(x, end, "-%}"))
        end = skip_space(x, end + 3);
    else if (looking_at(x, end, "%}"))
        end += 2;
    else
        return false;
    finish_tag(x, end);
    for (size_t at = end; at < x->n; at++) {
        if (!looking_at(x, at, "{%")) continue;
        char sign = sign_at(x, at + 2);
        size_t close = lone_word(x, at + 2 + (sign != 0), "endraw"), after;
        if (!close || !ends_at(x, close, "%}", &after)) continue;
        add_data(x, at, sign, true);
        finish_tag(x, after);
        return true;
    }
    jenv_fail(x->j, QN_EDATA, "missing end of raw directive");
}

/* ---- inside of tags ---- */

/* The code point that n hexadecimal digits at `at` name. */
static uint32_t hex(struct lexer *x, size_t at, size_t n)
{
    uint32_t cp = 0;
    for (size_t i = 0; i < n; i++) {
        char c = at + i < x->n ? x->p[at + i] : 0;
        int digit = hex_digit(c);
        if (digit < 0) jenv_fail(x->j, QN_EDATA, "escape of less than %zu hexadecimal digits", n);
        cp = cp * 16 + (uint32_t)digit;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) jenv_fail(x->j, QN_EDATA, "escape of no character: %x", cp);
    return cp;
}

/* How many hexadecimal digits follow \x, \u and \U; 0 for any other letter. */
static size_t n_hex_digits(char letter)
{
    switch (letter) {
    case 'x': return 2;
    case 'u': return 4;
    case 'U': return 8;
    default: return 0;
    }
}

/* One to three octal digits after the backslash at `at`; returns the length of all. */
static size_t octal_escape(const struct lexer *x, size_t at, struct jtext *t)
{
    uint32_t cp = 0;
    size_t n = 1;
    for (; n < 4 && at + n < x->n && x->p[at + n] >= '0' && x->p[at + n] <= '7'; n++)
        cp = cp * 8 + (uint32_t)(x->p[at + n] - '0');
    jtext_char(t, cp, 0);
    return n;
}

/* Writes the character that the escape at `at` stands for; returns the length of the escape, its backslash included.
 * A backslash at the end of a line stands for nothing. */
static size_t escape(struct lexer *x, size_t at, struct jtext *t)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = x->p[at + 1];
    const char *known = strchr(from, c);
    size_t n = n_hex_digits(c);
    if (c == '\n') return 2;
    if (c && known) {
        jtext_bytes(t, &to[known - from], 1, 0);
        return 2;
    }
    if (n) {
        jtext_char(t, hex(x, at + 2, n), 0);
        return 2 + n;
    }
    if (c >= '0' && c <= '7') return octal_escape(x, at, t);
    if (c == 'N') jenv_fail(x->j, QN_EUNSUP, "characters by name (\\N{...}) are not supported");
    jtext_bytes(t, "\\", 1, 0); /* an unknown escape stays as it is */
    return 1;
}

static void string(struct lexer *x)
{
    char quote = x->p[x->at];
    struct jtext t = {.j = x->j};
    struct jtoken *tok = add(x, JT_STR);
    size_t from = x->at + 1, at = from;
    while (at < x->n && x->p[at] != quote) {
        if (x->p[at] != '\\' || at + 1 >= x->n) {
            at++;
            continue;
        }
        jtext_bytes(&t, x->p + from, at - from, 0);
        from = at += escape(x, at, &t);
    }
    if (at >= x->n) jenv_fail(x->j, QN_EDATA, "unterminated string");
    jtext_bytes(&t, x->p + from, at - from, 0);
    tok->val = jtext_done(&t, 0);
    move_to(x, at + 1);
}

static size_t digits(const struct lexer *x, size_t at)
{
    while (at < x->n && (is_digit(x->p[at]) || (x->p[at] == '_' && at + 1 < x->n && is_digit(x->p[at + 1])))) at++;
    return at;
}

/* Copies the text from..to without its underscores to s, a buffer of `cap` bytes. */
static void compact(struct lexer *x, size_t from, size_t to, char *s, size_t cap)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        if (x->p[i] == '_') continue;
        if (n + 1 >= cap) jenv_fail(x->j, QN_EDATA, "a number of more than %zu digits", cap - 1);
        s[n++] = x->p[i];
    }
    s[n] = 0;
}

static void add_integer(struct lexer *x, const char *s, int base)
{
    char *stop;
    errno = 0;
    long long v = strtoll(s, &stop, base);
    if (errno == ERANGE) jenv_fail(x->j, QN_EDATA, "integer %.40s does not fit 64 bits", s);
    if (*stop || stop == s) jenv_fail(x->j, QN_EDATA, "malformed number '%.40s'", s);
    add(x, JT_INT)->val = jval_int(v);
}

/* The base that the prefix 0x, 0o or 0b at `at` names; 10 when there is none. */
static int base_at(const struct lexer *x, size_t at)
{
    if (x->p[at] != '0' || at + 1 >= x->n) return 10;
    switch (x->p[at + 1] | 32) {
    case 'x': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 10;
    }
}

/* A number with a prefix: strtoll() finds digits that its base does not have. */
static void prefixed_number(struct lexer *x, int base)
{
    char s[MAX_NUMBER];
    size_t from = x->at + 2, to = from;
    while (to < x->n && (is_digit(x->p[to]) || x->p[to] == '_' || (base == 16 && hex_digit(x->p[to]) >= 0))) to++;
    compact(x, from, to, s, sizeof s);
    add_integer(x, s, base);
    move_to(x, to);
}

/* The end of the fraction and the exponent that begin at `at`; `at` when there is neither. */
static size_t fraction_end(const struct lexer *x, size_t at)
{
    size_t end = at;
    if (end + 1 < x->n && x->p[end] == '.' && is_digit(x->p[end + 1])) end = digits(x, end + 1);
    size_t e = end + 1 + (sign_at(x, end + 1) != 0);
    if (e < x->n && (x->p[end] | 32) == 'e' && is_digit(x->p[e])) end = digits(x, e);
    return end;
}

/* Whether the token before is a dot: in `a.0.1` the digits after it are indexes, not a fraction. */
static bool is_after_dot(const struct lexer *x)
{
    const struct jtoken *before = x->out.n ? &x->out.v[x->out.n - 1] : NULL;
    return before && before->kind == JT_OP && before->op[0] == '.';
}

static void decimal_number(struct lexer *x)
{
    char s[MAX_NUMBER], *stop;
    size_t to = digits(x, x->at), end = is_after_dot(x) ? to : fraction_end(x, to);
    compact(x, x->at, end, s, sizeof s);
    if (end == to) {
        add_integer(x, s, 10);
    } else {
        add(x, JT_FLOAT)->val = jval_float(strtod(s, &stop));
        if (*stop) jenv_fail(x->j, QN_EDATA, "malformed number '%.40s'", s);
    }
    move_to(x, end);
}

static void number(struct lexer *x)
{
    int base = base_at(x, x->at);
    if (base == 10)
        decimal_number(x);
    else
        prefixed_number(x, base);
}

/* The end of the name at `at`; `at` itself when there is none. */
static size_t name_end(const struct lexer *x, size_t at)
{
    for (size_t start = at; at < x->n;) {
        uint32_t cp;
        bool cut;
        unsigned n = unicode_next((const uint8_t *)x->p + at, x->n - at, &cp, &cut);
        bool ok = cp == '_' || (cp < 0x80 && (cp | 32) >= 'a' && (cp | 32) <= 'z') ||
                  (at > start && cp < 0x80 && is_digit((char)cp));
        if (cp >= 0x80) {
            utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
            ok = (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || c == UTF8PROC_CATEGORY_NL ||
                 (at > start && (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ND));
        }
        if (!ok) break;
        at += n;
    }
    return at;
}

static void operator(struct lexer *x)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    static const char opening[] = "([{", closing[] = ")]}";
    char c = x->p[x->at];
    if ((!c || !strchr("+-/*%~[](){}><=.:|,;", c)) && !looking_at(x, x->at, "!="))
        jenv_fail(x->j, QN_EDATA, "unexpected character '%.*s'", (int)(x->n - x->at < 4 ? x->n - x->at : 4),
                  x->p + x->at);
    struct jtoken *t = add(x, JT_OP);
    t->op[0] = c;
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (looking_at(x, x->at, two[i])) t->op[1] = two[i][1];
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open) {
        if (x->n_open == MAX_BRACKETS)
            jenv_fail(x->j, QN_EDATA, "brackets nested deeper than the limit of %d", MAX_BRACKETS);
        x->open[x->n_open++] = closing[open - opening];
    } else if (close) {
        if (x->n_open == 0) jenv_fail(x->j, QN_EDATA, "unexpected '%c'", c);
        if (x->open[--x->n_open] != c)
            jenv_fail(x->j, QN_EDATA, "unexpected '%c', expected '%c'", c, x->open[x->n_open]);
    }
    move_to(x, x->at + 1 + (t->op[1] != 0));
}

/* The tokens up to the end of the tag. */
static void tag(struct lexer *x, enum jtok begin)
{
    size_t after;
    x->n_open = 0;
    for (;;) {
        move_to(x, skip_space(x, x->at));
        if (x->at >= x->n) return; /* the parser reports what is missing */
        if (x->n_open == 0 && begin == JT_BLOCK_BEGIN && ends_at(x, x->at, "%}", &after)) {
            add(x, JT_BLOCK_END);
            break;
        }
        if (x->n_open == 0 && begin == JT_VAR_BEGIN && (looking_at(x, x->at, "}}") || looking_at(x, x->at, "-}}"))) {
            add(x, JT_VAR_END);
            after = looking_at(x, x->at, "}}") ? x->at + 2 : skip_space(x, x->at + 3);
            break;
        }
        char c = x->p[x->at];
        size_t end;
        if (c == '"' || c == '\'') {
            string(x);
        } else if (is_digit(c)) {
            number(x);
        } else if ((end = name_end(x, x->at)) > x->at) {
            add(x, JT_NAME)->val = jval_str(x->j, x->p + x->at, end - x->at, 0);
            move_to(x, end);
        } else {
            operator(x);
        }
    }
    finish_tag(x, after);
}

/* Copies the text with \n for every line end, and without the last line end. */
static void normalise(struct lexer *x, const char *src, size_t n)
{
    char *p = jenv_get(x->j, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (src[i] == '\r') {
            i += i + 1 < n && src[i + 1] == '\n';
            p[k++] = '\n';
        } else {
            p[k++] = src[i];
        }
    }
    if (k && p[k - 1] == '\n') k--;
    x->p = p;
    x->n = k;
}

struct jtokens jinja_lex(struct jenv *j, const char *src, size_t n)
{
    struct lexer *x = jenv_get(j, sizeof *x);
    *x = (struct lexer){.j = j, .line_starting = true};
    normalise(x, src, n);
    j->line = 1;
    while (x->at < x->n) {
        size_t to = x->at;
        while (to < x->n && !(x->p[to] == '{' && to + 1 < x->n && strchr("{%#", x->p[to + 1]) && x->p[to + 1])) to++;
        char kind = to < x->n ? x->p[to + 1] : 0, sign = kind ? sign_at(x, to + 2) : 0;
        add_data(x, to, sign, kind == '%' || kind == '#');
        if (!kind) break;
        size_t inside = to + 2 + (sign != 0);
        if (kind == '#') {
            comment(x, inside);
        } else if (kind == '{' || !raw(x, inside)) {
            enum jtok begin = kind == '{' ? JT_VAR_BEGIN : JT_BLOCK_BEGIN;
            add(x, begin);
            move_to(x, inside);
            tag(x, begin);
        }
    }
    add(x, JT_END);
    for (size_t i = 0; i < x->out.n; i++) /* count now, because later threads share the tree */
        if (x->out.v[i].val.kind == JSTR) jstr_chars(j, x->out.v[i].val);
    return x->out;
}
