/* SPDX-License-Identifier: MIT
 *
 * markup.c: finds what a line is, and pairs of marks in it. See markup.h.
 */
#include "cli/core/markup.h"

#include <ctype.h>
#include <string.h>

#include "base/utf8.h"

#define BOLD    "\033[1m"
#define FAINT   "\033[2m"
#define REGULAR "\033[22m" /* neither bold nor faint */
#define CODE    "\033[36m"
#define PLAIN   "\033[39m"

/* A part of a line. More may follow it unless it is whole. */
struct span {
    const char *p;
    size_t n;
    bool whole;
};

/* The number of bytes c at p[i]. */
static size_t run_at(const struct span *s, size_t i, char c)
{
    size_t n = i;
    while (n < s->n && s->p[n] == c) n++;
    return n - i;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || !c; }

/* ---- the beginning of a line ---- */

static bool is_item(const char *word, size_t n)
{
    size_t digits = strspn(word, "0123456789");
    if (n == 1 && strchr("-*+", word[0])) return true;
    return digits && digits <= 3 && digits + 1 == n && (word[digits] == '.' || word[digits] == ')');
}

/* What a line of code is. */
static enum markup_line code_line(const struct markup *m, const struct span *s)
{
    size_t run = run_at(s, 0, m->fence), rest = run;
    while (rest < s->n && is_blank(s->p[rest])) rest++;
    if (rest < s->n) return LINE_FIXED;
    if (!s->whole) return LINE_BEGINS;
    return run >= m->n_fence ? LINE_FENCE : LINE_FIXED;
}

/* What a line is whose first word, of n bytes, begins with a mark. */
static enum markup_line marked_line(const struct span *s, size_t n, bool is_whole)
{
    char c = s->p[0];
    size_t run = run_at(s, 0, c), digits = strspn(s->p, "0123456789");
    bool is_run = run == n;
    if (c == '`' || c == '~') {
        if (!is_whole) return is_run || run >= 3 ? LINE_BEGINS : LINE_TEXT;
        return run >= 3 && (c == '~' || !memchr(s->p + run, '`', n - run)) ? LINE_FENCE : LINE_TEXT;
    }
    if (c == '#') {
        if (!is_run || run > 6) return LINE_TEXT;
        if (!is_whole) return LINE_BEGINS;
        return n < s->n ? LINE_HEADING : LINE_TEXT;
    }
    bool may_be_item = n == 1 || (digits && digits <= 3 && digits + 1 >= n);
    return is_whole || !may_be_item ? LINE_TEXT : LINE_BEGINS;
}

/* What the line is, from what is held of it; LINE_BEGINS: more is needed. */
static enum markup_line line_of(const struct markup *m, const struct span *s)
{
    size_t n = strcspn(s->p, " \t");
    if (m->fence) return code_line(m, s);
    if (s->p[0] == '|') return LINE_FIXED;
    return strchr("`~#-*+0123456789", s->p[0]) ? marked_line(s, n, n < s->n || s->whole) : LINE_TEXT;
}

/* Begins the line if it is known what it is. */
static int begin_line(struct markup *m, bool is_whole, struct qn_error *e)
{
    struct span s = {(char *)m->held.data, m->held.len, is_whole};
    struct wrap *w = &m->wrap;
    m->line = line_of(m, &s);
    if (m->line == LINE_BEGINS) return 0;
    bool is_code = m->fence;
    if (m->line == LINE_FENCE) {
        m->fence = is_code ? 0 : s.p[0];
        m->n_fence = run_at(&s, 0, s.p[0]);
    }
    size_t n = strcspn(s.p, " \t");
    w->fixed = m->line == LINE_FIXED || m->line == LINE_FENCE;
    w->hang = w->fixed ? 0 : m->indent + (n < s.n && is_item(s.p, n) ? (int)n + 1 : 0);
    if (w->hang > w->width / 2) w->hang = 0;
    if (!m->styled) return 0;
    if (m->line == LINE_HEADING) return wrap_style(w, BOLD, e);
    if (m->line == LINE_FENCE) return wrap_style(w, FAINT, e);
    return is_code ? wrap_style(w, CODE, e) : 0;
}

/* ---- pairs ---- */

enum { NO_PAIR = 0, NOT_YET = -1 };

/* The place after `from` of a run of exactly n backticks; NO_PAIR, NOT_YET. */
static long code_end(const struct span *s, size_t from, size_t n)
{
    for (size_t i = from; i < s->n; i++) {
        size_t run = run_at(s, i, '`');
        if (run == n && (i + run < s->n || s->whole)) return (long)i;
        if (run) i += run - 1;
    }
    return s->whole ? NO_PAIR : NOT_YET;
}

/* Whether ** between two bytes may begin or end bold text. */
static bool may_open(char before, char after)
{
    bool is_quoted = ispunct((unsigned char)before) && before == after;
    return !isalnum((unsigned char)before) && !is_blank(after) && after != '/' && !is_quoted;
}

static bool may_close(char before, char after) { return !is_blank(before) && !isalnum((unsigned char)after); }

/* The place of the ** that ends the bold text at the beginning of s; NO_PAIR, NOT_YET. If another pair may begin
 * before it, the first mark has none. */
static long bold_end(const struct span *s)
{
    for (size_t i = 2, run; i < s->n; i += run ? run : 1) {
        if ((run = run_at(s, i, '`'))) {
            long end = code_end(s, i + run, run);
            if (end == NOT_YET) return NOT_YET;
            if (end > 0) run = (size_t)end + run - i;
            continue;
        }
        run = run_at(s, i, '*');
        if (run && i + run == s->n && !s->whole) return NOT_YET;
        char after = i + run < s->n ? s->p[i + run] : 0;
        if (run != 2) continue;
        if (may_close(s->p[i - 1], after)) return (long)i;
        if (may_open(s->p[i - 1], after)) return NO_PAIR;
    }
    return s->whole ? NO_PAIR : NOT_YET;
}

/* The place of the mark that is the pair of the one, of `run` bytes, that s begins with; NO_PAIR, NOT_YET. */
static long pair_of(const struct markup *m, const struct span *s, size_t run, bool is_bold)
{
    char after = run < s->n ? s->p[run] : 0;
    if (run == s->n && !s->whole) return NOT_YET;
    if (s->p[0] == '`')
        return isalnum((unsigned char)m->before) || (run == 1 && is_blank(after)) ? NO_PAIR : code_end(s, run, run);
    if (run != 2 || is_bold || !may_open(m->before, after)) return NO_PAIR;
    return bold_end(s);
}

/* ---- characters ---- */

static int show(struct markup *m, struct buf *out, const char *p, size_t n, struct qn_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        uint32_t cp;
        unsigned len = utf8_get((const uint8_t *)p + i, n - i, &cp);
        if (!len) len = 1;
        rc = wrap_add(&m->wrap, out, p + i, len, e);
        i += len;
        m->before = p[i - 1];
    }
    return rc;
}

/* Appends text, with its pairs of marks as styles, as far as it is clear what they mean. *used gets its length. */
static int show_text(struct markup *m, struct buf *out, const struct span *s, bool is_bold, size_t *used,
                     struct qn_error *e)
{
    size_t i = 0;
    int rc = 0;
    while (i < s->n && !rc) {
        char c = s->p[i];
        size_t run = c == '`' || c == '*' ? run_at(s, i, c) : 0;
        struct span rest = {s->p + i, s->n - i, s->whole || s->n - i > MARKUP_WAIT};
        long end = run ? pair_of(m, &rest, run, is_bold) : NO_PAIR;
        if (end == NOT_YET) break;
        if (end == NO_PAIR) {
            size_t n = run ? run : strcspn(rest.p, "`*"); /* the next mark, or the NUL after what is held */
            if (n > rest.n) n = rest.n;
            rc = show(m, out, rest.p, n, e);
            i += n;
            continue;
        }
        struct span inner = {rest.p + run, (size_t)end - run, true};
        size_t n;
        rc = wrap_style(&m->wrap, c == '`' ? CODE : BOLD, e);
        if (!rc) rc = c == '`' ? show(m, out, inner.p, inner.n, e) : show_text(m, out, &inner, true, &n, e);
        if (!rc) rc = wrap_style(&m->wrap, c == '`' ? PLAIN : REGULAR, e);
        m->before = c;
        i += (size_t)end + run;
    }
    *used = i;
    return rc;
}

/* Appends what is held, as far as it is clear what it means. */
static int show_held(struct markup *m, struct buf *out, bool is_whole, struct qn_error *e)
{
    struct span s = {(char *)m->held.data, m->held.len, is_whole};
    size_t used = s.n;
    bool has_pairs = m->styled && (m->line == LINE_TEXT || m->line == LINE_HEADING);
    int rc = has_pairs ? show_text(m, out, &s, m->line == LINE_HEADING, &used, e) : show(m, out, s.p, s.n, e);
    memmove(m->held.data, m->held.data + used, m->held.len - used);
    m->held.len -= used;
    m->held.data[m->held.len] = 0;
    return rc;
}

int markup_add(struct markup *m, struct buf *out, const char *text, size_t n, struct qn_error *e)
{
    int rc;
    if (m->line == LINE_BEGINS && !m->held.len && *text == ' ') {
        m->indent++;
        return wrap_add(&m->wrap, out, text, n, e);
    }
    if ((rc = buf_add(&m->held, text, n, e))) return rc;
    if (m->line == LINE_BEGINS && (rc = begin_line(m, false, e))) return rc;
    return m->line == LINE_BEGINS ? 0 : show_held(m, out, false, e);
}

int markup_end_line(struct markup *m, struct buf *out, struct qn_error *e)
{
    int rc = m->line == LINE_BEGINS && m->held.len ? begin_line(m, true, e) : 0;
    bool is_bold = m->line == LINE_HEADING || m->line == LINE_FENCE, is_code = m->line == LINE_FIXED && m->fence;
    if (!rc && m->held.len) rc = show_held(m, out, true, e);
    if (!rc && m->styled && is_bold) rc = wrap_style(&m->wrap, REGULAR, e);
    if (!rc && m->styled && is_code) rc = wrap_style(&m->wrap, PLAIN, e);
    if (!rc) rc = wrap_end_line(&m->wrap, out, e);
    m->line = LINE_BEGINS;
    m->indent = 0;
    m->before = 0;
    return rc;
}

void markup_reset(struct markup *m)
{
    wrap_reset(&m->wrap);
    buf_clear(&m->held);
    m->line = LINE_BEGINS;
    m->indent = 0;
    m->before = m->fence = 0;
}

void markup_deinit(struct markup *m)
{
    wrap_deinit(&m->wrap);
    buf_deinit(&m->held);
}
