/* SPDX-License-Identifier: MIT
 *
 * wrap.c: words to lines. See wrap.h.
 */
#include "cli/core/wrap.h"

#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/core/columns.h"
#include "cli/core/term.h"

#define JOINER     0x200D  /* the next character is drawn over the one before */
#define SKIN_FIRST 0x1F3FB /* colours of the emoji before */
#define SKIN_LAST  0x1F3FF

static int put_spaces(struct buf *out, int n, struct qn_error *e)
{
    int rc = 0;
    for (; n > 0 && !rc; n--) rc = buf_str(out, " ", e);
    return rc;
}

/* Appends the space before the word, or a line break if there is no room for the word. */
static int put_gap(struct wrap *w, struct buf *out, struct qn_error *e)
{
    bool breaks = !w->fixed && w->column > w->hang && w->column + w->gap + w->word_cells > w->width;
    int rc = breaks ? buf_str(out, "\n", e) : 0;
    if (breaks) w->column = 0;
    int n = breaks ? w->hang : w->gap;
    w->column += n;
    return rc ? rc : put_spaces(out, n, e);
}

static int put_word(struct wrap *w, struct buf *out, struct qn_error *e)
{
    if (!w->word.len) return 0;
    int rc = w->word_cells ? put_gap(w, out, e) : 0;
    if (!rc) rc = buf_add(out, w->word.data, w->word.len, e);
    w->column += w->word_cells;
    if (w->width > 0 && w->column > w->width) w->column %= w->width; /* the terminal has broken the word */
    if (w->word_cells) w->gap = 0;
    w->word_cells = 0;
    w->after_wide = false;
    buf_clear(&w->word);
    return rc;
}

/* Whether a line must not end before the character. */
static bool is_joined(const struct wrap *w, uint32_t cp, int cells)
{
    return !cells || cp == 0xFE0F || w->before == JOINER || (cp >= SKIN_FIRST && cp <= SKIN_LAST);
}

static int add_space(struct wrap *w, struct buf *out, bool is_tab, struct qn_error *e)
{
    int rc = put_word(w, out, e);
    w->before = 0;
    if (rc || !is_tab) {
        w->gap += !is_tab;
        return rc;
    }
    if ((rc = put_spaces(out, w->gap, e))) return rc;
    w->column = (w->column + w->gap) / 8 * 8 + 8;
    w->gap = 0;
    return buf_str(out, "\t", e);
}

int wrap_add(struct wrap *w, struct buf *out, const char *text, size_t n, struct qn_error *e)
{
    uint32_t cp = '?';
    int rc = 0;
    if (*text == ' ' || *text == '\t') return add_space(w, out, *text == '\t', e);
    utf8_get((const uint8_t *)text, n, &cp);
    int cells = (int)columns_of(cp, w->before);
    bool is_wide = cells > 1;
    if ((is_wide || w->after_wide) && !is_joined(w, cp, cells)) rc = put_word(w, out, e);
    if (!rc) rc = buf_add(&w->word, text, n, e);
    if (rc) return rc;
    w->word_cells += cells;
    w->after_wide |= is_wide;
    w->before = cp;
    return 0;
}

int wrap_style(struct wrap *w, const char *escape, struct qn_error *e) { return buf_str(&w->word, escape, e); }

int wrap_end_line(struct wrap *w, struct buf *out, struct qn_error *e)
{
    int rc = put_word(w, out, e);
    wrap_reset(w);
    return rc;
}

void wrap_reset(struct wrap *w)
{
    buf_clear(&w->word);
    w->column = w->gap = w->hang = w->word_cells = 0;
    w->fixed = w->after_wide = false;
    w->before = 0;
}

void wrap_deinit(struct wrap *w) { buf_deinit(&w->word); }

void wrap_print(FILE *f, const char *line, int hang)
{
    struct wrap w = {.width = term_width(fileno(f)), .hang = hang, .fixed = !isatty(fileno(f))};
    struct buf out = {0};
    int rc = 0;
    for (size_t n = strlen(line); n && !rc;) {
        uint32_t cp;
        unsigned len = utf8_get((const uint8_t *)line, n, &cp);
        if (!len) len = 1;
        rc = wrap_add(&w, &out, line, len, NULL);
        line += len;
        n -= len;
    }
    if (!rc) rc = wrap_end_line(&w, &out, NULL);
    fprintf(f, "%s\n", !rc && out.len ? (char *)out.data : "");
    buf_deinit(&out);
    wrap_deinit(&w);
}
