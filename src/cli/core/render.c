/* SPDX-License-Identifier: MIT
 *
 * render.c: the states of a reply on a terminal, and the characters that are not shown. See render.h.
 */
#include "cli/core/render.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "cli/core/term.h"
#include "text/token/unicode.h"

#define DIM     "\033[2m"
#define NORMAL  "\033[0m"
#define MARK    "| "       /* before each line of thoughts if nothing can be dimmed */
#define REWRITE "\r\033[K" /* the line */
#define WAITING "thinking..."

void render_init(struct render *r, int fd)
{
    *r = (struct render){.fd = fd, .terminal = isatty(fd), .colour = term_colour(fd), .line_begins = true};
}

void render_deinit(struct render *r)
{
    markup_deinit(&r->markup);
    buf_deinit(&r->shown);
    buf_deinit(&r->out);
}

/* Whether a terminal would act on the character, or show it in another place. */
static bool is_unsafe(uint32_t cp)
{
    return (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7F && cp < 0xA0) || /* C0, DEL, C1 */
           (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069) ||     /* overrides, isolates */
           cp == 0x2028 || cp == 0x2029;                                           /* separators of lines */
}

/* Appends one character of len bytes, as it may be shown. The buffer has room. */
static void put_shown(struct buf *out, const uint8_t *p, unsigned len, uint32_t cp)
{
    static const char hex[] = "0123456789ABCDEF";
    bool shown = cp != UNICODE_BAD && !is_unsafe(cp);
    for (unsigned i = 0; i < len; i++) {
        if (shown) {
            out->data[out->len++] = p[i];
            continue;
        }
        memcpy(out->data + out->len, (char[]){'\\', 'x', hex[p[i] >> 4], hex[p[i] & 15]}, 4);
        out->len += 4;
    }
    out->data[out->len] = 0;
}

int render_clean(struct buf *out, const char *text, size_t n, struct qn_error *e)
{
    const uint8_t *p = (const uint8_t *)text;
    if (buf_reserve(out, 4 * n, e)) return QN_ENOMEM;
    while (n > 0) {
        uint32_t cp;
        bool cut;
        unsigned len = unicode_next(p, n, &cp, &cut);
        put_shown(out, p, len, cp);
        p += len;
        n -= len;
    }
    return 0;
}

static int flush(struct render *r, struct qn_error *e)
{
    const uint8_t *p = r->out.data;
    size_t n = r->out.len;
    while (n > 0) {
        ssize_t done = write(r->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            int why = errno;
            buf_clear(&r->out);
            error_set(e, QN_EIO, "cannot write the reply: %s", strerror(why));
            errno = why;
            return QN_EIO;
        }
        p += done;
        n -= (size_t)done;
    }
    buf_clear(&r->out);
    return 0;
}

/* Appends one character of len bytes in its part. Line breaks wait, so that none are at the end of a part. */
static int put(struct render *r, const uint8_t *p, unsigned len, uint32_t cp, struct qn_error *e)
{
    const char *mark = r->part == RENDER_THOUGHT && !r->colour ? MARK : "";
    if (cp == '\n') {
        if (r->part == RENDER_ANSWER && markup_end_line(&r->markup, &r->out, e)) return QN_ENOMEM;
        if (!r->line_begins || r->n_blank) r->n_blank++; /* none at the beginning of a part */
        return 0;
    }
    if (buf_reserve(&r->out, (r->n_blank + 1) * (1 + strlen(mark)) + 4 * len, e)) return QN_ENOMEM;
    for (; r->n_blank; r->n_blank--) {
        r->out.data[r->out.len++] = '\n';
        if (r->n_blank > 1 && buf_str(&r->out, mark, e)) return QN_ENOMEM;
        r->line_begins = true;
    }
    if (r->line_begins && buf_str(&r->out, mark, e)) return QN_ENOMEM;
    r->line_begins = false;
    if (r->part != RENDER_ANSWER) {
        put_shown(&r->out, p, len, cp);
        return 0;
    }
    buf_clear(&r->shown);
    if (buf_reserve(&r->shown, 4 * len, e)) return QN_ENOMEM;
    put_shown(&r->shown, p, len, cp);
    return markup_add(&r->markup, &r->out, (char *)r->shown.data, r->shown.len, e);
}

/* Appends a piece of a part. The piece may begin and end inside a character. */
static int put_all(struct render *r, const char *text, size_t n, struct qn_error *e)
{
    const uint8_t *p = (const uint8_t *)text;
    int rc = 0;
    while (n > 0 && !rc) {
        uint32_t cp;
        bool cut;
        if (r->n_held) { /* byte by byte until they are a character or cannot become one */
            r->held[r->n_held++] = *p++;
            n--;
            unsigned len = unicode_next(r->held, r->n_held, &cp, &cut);
            if (cut) continue;
            rc = put(r, r->held, len, cp, e);
            if (len < r->n_held) { /* the last byte begins another character */
                p--;
                n++;
            }
            r->n_held = 0;
            continue;
        }
        unsigned len = unicode_next(p, n, &cp, &cut);
        if (cut) {
            memcpy(r->held, p, len);
            r->n_held = len;
        } else {
            rc = put(r, p, len, cp, e);
        }
        p += len;
        n -= len;
    }
    return rc;
}

/* Writes how long the folded thoughts took, over the line that said "thinking...". */
static int put_duration(struct render *r, struct qn_error *e)
{
    double s = (double)(clock_ns() - r->thinking_ns) / 1e9;
    return buf_printf(&r->out, e, r->colour ? REWRITE DIM "thought for %.1f s" NORMAL : "\nthought for %.1f s", s);
}

/* Ends one part of the reply and begins another. */
static int turn_to(struct render *r, enum render_part part, struct qn_error *e)
{
    int rc = 0;
    enum render_part from = r->part;
    if (r->noted) rc = buf_str(&r->out, REWRITE, e);
    r->noted = false;
    if (rc || from == part) return rc;
    if (r->n_held) rc = put(r, r->held, r->n_held, UNICODE_BAD, e);
    r->n_held = 0;
    if (!rc && from == RENDER_ANSWER) rc = markup_end_line(&r->markup, &r->out, e);
    r->n_blank = 0;
    if (!rc && from == RENDER_THOUGHT && r->fold)
        rc = put_duration(r, e);
    else if (!rc && from == RENDER_THOUGHT && r->colour)
        rc = buf_str(&r->out, NORMAL, e);
    if (!rc && from != RENDER_NOTHING)
        rc = buf_str(&r->out, from == RENDER_THOUGHT && part == RENDER_ANSWER ? "\n\n" : "\n", e);
    r->part = part;
    r->line_begins = true;
    r->markup.styled = r->colour;
    r->markup.wrap.width = term_width(r->fd);
    if (part == RENDER_ANSWER && from == RENDER_NOTHING) markup_reset(&r->markup);
    if (rc || part != RENDER_THOUGHT) return rc;
    r->thinking_ns = clock_ns();
    if (r->colour && (rc = buf_str(&r->out, DIM, e))) return rc;
    return r->fold ? buf_str(&r->out, r->colour ? WAITING NORMAL : WAITING, e) : 0;
}

/* Writes the answer alone: the output is not a terminal. */
static int put_plain(struct render *r, const char *p, size_t n, struct qn_error *e)
{
    r->part = RENDER_ANSWER;
    r->line_begins = p[n - 1] == '\n';
    return buf_add(&r->out, p, n, e);
}

int render_thought(struct render *r, const char *p, size_t n, struct qn_error *e)
{
    if (!r->terminal || n == 0) return 0;
    int rc = turn_to(r, RENDER_THOUGHT, e);
    if (!rc && !r->fold) rc = put_all(r, p, n, e);
    return rc ? rc : flush(r, e);
}

int render_answer(struct render *r, const char *p, size_t n, struct qn_error *e)
{
    if (n == 0) return 0;
    int rc = r->terminal ? turn_to(r, RENDER_ANSWER, e) : put_plain(r, p, n, e);
    if (r->terminal) r->markup.wrap.width = term_width(r->fd); /* the window may have changed */
    if (!rc && r->terminal) rc = put_all(r, p, n, e);
    return rc ? rc : flush(r, e);
}

int render_note(struct render *r, const char *p, size_t n, struct qn_error *e)
{
    if (!r->colour || r->part != RENDER_NOTHING) return 0;
    int rc = buf_str(&r->out, REWRITE DIM, e);
    if (!rc) rc = render_clean(&r->out, p, n, e);
    if (!rc) rc = buf_str(&r->out, NORMAL, e);
    r->noted = !rc;
    return rc ? rc : flush(r, e);
}

int render_end(struct render *r, struct qn_error *e)
{
    int rc = 0;
    if (r->terminal)
        rc = turn_to(r, RENDER_NOTHING, e);
    else if (r->part == RENDER_ANSWER && !r->line_begins)
        rc = buf_str(&r->out, "\n", e);
    r->part = RENDER_NOTHING;
    r->line_begins = true;
    return rc ? rc : flush(r, e);
}
