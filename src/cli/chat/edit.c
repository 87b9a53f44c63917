/* SPDX-License-Identifier: MIT
 *
 * edit.c: reads a text through libedit. See edit.h.
 *
 * libedit keeps the line, draws it and knows the keys. It reads through get_char(), which also waits for signals. So a
 * signal is handled between two characters and never inside libedit. The keys that send signals are ordinary bytes
 * meanwhile, because a paste may have them. An action that changes the drawing (a new window size, the return from the
 * shell) is a key of its own, WAKE, which no keyboard sends while signals have their keys. A paste is a key that reads
 * by itself until the closing bracket.
 */
#include "cli/chat/edit.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/chat/ahead.h"
#include "cli/chat/editlib.h"
#include "cli/chat/history.h"
#include "cli/core/columns.h"
#include "cli/core/home.h"
#include "cli/chat/paste.h"
#include "cli/chat/signals.h"
#include "text/token/unicode.h"

#define LEAST_ROWS    4 /* the smallest window for libedit, found by trying random keys */
#define LEAST_COLUMNS 20

#define MOST_OFFERED 60 /* completions that are shown */

#define WAKE L'\x1D'

struct edit {
    const struct editlib *lib;
    EditLine *el;
    HistoryW *entries;
    struct history history;
    struct edit_setup setup;
    wchar_t *prompt, *more;
    struct paste_list pastes;
    struct signals signals;
    struct termios before; /* the terminal's modes before; libedit sets others for programs too */
    int ended_by;          /* the signal that ended reading; 0: none */
    int n_interrupts;      /* number of consecutive Ctrl-C on an empty line */
    bool going_on;         /* the line continues a text */
    bool brackets;         /* the terminal can be asked to bracket pastes */
    unsigned char input[1 << 14];
    size_t at, n; /* input[at .. n) was read and not used yet */
    struct ahead ahead;
    size_t ahead_at; /* ahead.typed was read before input, and is used up to here */
    bool from_ahead; /* the last byte came from there */
    int columns;     /* of the window when the line was drawn */
    bool mute;       /* the terminal does not say where the cursor is */
    bool reflows;    /* it joins and breaks lines when its width changes */
    bool moved;      /* something else was written below the line */
    struct {
        cc_t key;
        int number;
    } signal_keys[3]; /* the signals of the terminal's keys; key 0: none */
};

/* ---- characters ---- */

/* Converts UTF-8 to a string for libedit, for mem_free(). Bytes that are not UTF-8 become U+FFFD. NULL: no memory. */
static wchar_t *to_wide(const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text;
    wchar_t *out = mem_calloc(n + 1, sizeof *out), *w = out;
    while (out && n > 0) {
        uint32_t cp;
        bool cut;
        unsigned len = unicode_next(p, n, &cp, &cut);
        *w++ = cp == UNICODE_BAD ? 0xFFFD : (wchar_t)cp;
        p += len;
        n -= len;
    }
    return out;
}

static int from_wide(const wchar_t *w, size_t n, struct buf *out, struct qn_error *e)
{
    if (buf_reserve(out, 4 * n, e)) return QN_ENOMEM;
    for (; n > 0; w++, n--) {
        uint32_t cp = (uint32_t)*w;
        if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) cp = 0xFFFD;
        out->len += utf8_put(out->data + out->len, cp);
    }
    out->data[out->len] = 0;
    return 0;
}

/* ---- reading ---- */

enum { INPUT_END = -1, INPUT_WAKE = -2 };
#define HANGUP_MS 1000 /* that SIGHUP may come after the terminal has gone */

static void say(const char *s)
{
    if (write(STDOUT_FILENO, s, strlen(s)) < 0) { /* the terminal is gone, and reading will notice */
    }
}

static void brackets(const struct edit *ed, bool on)
{
    if (ed->brackets) say(on ? PASTE_ON : PASTE_OFF);
}

/* Handles a signal. Returns INPUT_END, INPUT_WAKE, or 0 to wait further. */
static int on_signal(struct edit *ed, int number)
{
    switch (number) {
    case SIGWINCH: return INPUT_WAKE;
    case SIGTSTP: { /* the shell gets its terminal back; SIGCONT follows */
        struct sigaction stop = {.sa_handler = SIG_DFL}, mine;
        brackets(ed, false);
        ed->lib->set(ed->el, EL_PREP_TERM, 0);
        sigaction(SIGTSTP, &stop, &mine);
        kill(0, SIGTSTP); /* as the key does: all processes of the foreground */
        sigaction(SIGTSTP, &mine, NULL);
        return 0;
    }
    case SIGCONT:
        ed->lib->set(ed->el, EL_PREP_TERM, 0); /* libedit may be wrong about the terminal's mode */
        ed->lib->set(ed->el, EL_PREP_TERM, 1);
        brackets(ed, true);
        ed->moved = true;
        return INPUT_WAKE;
    case SIGINT:
        ed->at = ed->n = 0; /* discards what was typed ahead */
        ed->ahead_at = ed->ahead.typed.len;
        __attribute__((fallthrough));
    default: ed->ended_by = number; return INPUT_END;
    }
}

/* Handles the signals that are there, or come within so many milliseconds, until one ends the reading. */
static void take_signals(struct edit *ed, int wait_ms)
{
    struct pollfd fd = {.fd = ed->signals.fd, .events = POLLIN};
    while (!ed->ended_by && poll(&fd, 1, wait_ms) > 0) {
        int number = signals_take(&ed->signals);
        if (!number) return;
        if (number != SIGCONT) on_signal(ed, number); /* comes together with SIGHUP, and sometimes before it */
    }
}

/* Waits for the next byte. Returns it, or INPUT_*. */
static int next_byte(struct edit *ed)
{
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = ed->signals.fd, .events = POLLIN}};
    ed->from_ahead = ed->ahead_at < ed->ahead.typed.len;
    if (ed->from_ahead) return ed->ahead.typed.data[ed->ahead_at++];
    while (ed->at == ed->n) {
        if (ed->ended_by) return INPUT_END;
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return INPUT_END;
        int number = signals_take(&ed->signals), what = number ? on_signal(ed, number) : 0;
        if (what) return what;
        if (number || !fds[0].revents) continue;
        ssize_t got = read(STDIN_FILENO, ed->input, sizeof ed->input);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0 && fds[0].revents & POLLHUP) take_signals(ed, HANGUP_MS); /* SIGHUP follows */
        if (got <= 0) return INPUT_END;
        ed->at = 0;
        ed->n = (size_t)got;
    }
    return ed->input[ed->at++];
}

/* Takes the last byte back. */
static void unread(struct edit *ed)
{
    if (ed->from_ahead)
        ed->ahead_at--;
    else
        ed->at--;
}

static struct edit *of(EditLine *el)
{
    struct edit *ed = NULL;
    struct editlib *lib = (struct editlib *)editlib_load(NULL);
    lib->get(el, EL_CLIENTDATA, &ed);
    return ed;
}

/* The signal of a byte that was typed, not pasted; 0: none. */
static int signal_of(const struct edit *ed, int byte)
{
    for (size_t i = 0; i < 3; i++)
        if (byte && ed->signal_keys[i].key == byte) return ed->signal_keys[i].number;
    return 0;
}

/* The reader for libedit: one character. */
static int get_char(EditLine *el, wchar_t *out)
{
    struct edit *ed = of(el);
    uint8_t bytes[4];
    size_t n = 0;
    uint32_t cp;
    bool cut = true;
    while (cut) {
        int c = next_byte(ed);
        int number = n == 0 ? signal_of(ed, c) : 0;
        if (number) c = on_signal(ed, number);
        if (c == INPUT_END) return ed->ended_by ? -1 : 0;
        if (number && c == 0) continue;
        if (c == INPUT_WAKE && n == 0) {
            *out = WAKE;
            return 1;
        }
        if (c == INPUT_WAKE) continue;
        bytes[n++] = (uint8_t)c;
        unsigned len = unicode_next(bytes, n, &cp, &cut);
        if (len < n) unread(ed); /* the last byte begins another character */
    }
    *out = cp == UNICODE_BAD ? 0xFFFD : (wchar_t)cp;
    return 1;
}

static struct winsize window(void)
{
    struct winsize w = {0};
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &w)) return (struct winsize){0};
    return w; /* 0: not known */
}

/* Whether the window is too small for libedit: with a few columns it writes outside its memory, or loops forever. */
static bool is_tiny(void)
{
    struct winsize w = window();
    return (w.ws_row && w.ws_row < LEAST_ROWS) || (w.ws_col && w.ws_col < LEAST_COLUMNS);
}

/* ---- another width ---- */

#define ASK_COLUMN "\033[6n" /* the answer is ESC [ row ; column R */
#define ASK_MS     300

/* Takes the terminal's answer out of the input. Returns the column, from 1; 0: it is not there. */
static int take_column(struct edit *ed)
{
    for (size_t i = ed->at; i < ed->n; i++) {
        char text[24] = "";
        int row, column, len = 0;
        memcpy(text, ed->input + i, ed->n - i < sizeof text - 1 ? ed->n - i : sizeof text - 1);
        if (sscanf(text, "\033[%5d;%5dR%n", &row, &column, &len) != 2 || !len) continue;
        memmove(ed->input + i, ed->input + i + len, ed->n - i - (size_t)len);
        ed->n -= (size_t)len;
        return column;
    }
    return 0;
}

/* The column of the cursor, from 1; 0: the terminal does not say. Keys that come meanwhile stay in the input. */
static int ask_column(struct edit *ed)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!ed->brackets || ed->mute) return 0;
    memmove(ed->input, ed->input + ed->at, ed->n - ed->at);
    ed->n -= ed->at;
    ed->at = 0;
    say(ASK_COLUMN);
    while (ed->n < sizeof ed->input && poll(&fd, 1, ASK_MS) > 0) {
        ssize_t got = read(STDIN_FILENO, ed->input + ed->n, sizeof ed->input - ed->n);
        if (got <= 0) break;
        ed->n += (size_t)got;
        int column = take_column(ed);
        if (column) return column;
    }
    ed->mute = true;
    return 0;
}

struct cell {
    int row, column;
};

/* Moves on by a text, as a terminal of so many columns shows it. */
static void advance(struct cell *at, const wchar_t *text, const wchar_t *end, int columns)
{
    for (uint32_t before = 0; text < end; before = (uint32_t)*text++) {
        uint32_t cp = (uint32_t)*text;
        int cells = cp < 0x20 || cp == 0x7F ? 2 : (int)columns_of(cp, before); /* ^X */
        if (cp == '\t') cells = 8 - at->column % 8;
        if (cp == '\n' || at->column + cells > columns) *at = (struct cell){at->row + 1, 0};
        if (cp != '\n') at->column += cells;
        if (at->column >= columns) *at = (struct cell){at->row + 1, 0};
    }
}

static struct cell cursor_at(struct edit *ed, int columns)
{
    const LineInfoW *line = ed->lib->line(ed->el);
    const wchar_t *before = ed->going_on ? ed->more : ed->prompt;
    struct cell at = {0};
    advance(&at, before, before + wcslen(before), columns);
    advance(&at, line->buffer, line->cursor, columns);
    return at;
}

/* How many rows the cursor is below the first one of the line, after the window has got another width. Some terminals
 * cut lines, others break and join them: the cursor's column tells which. */
static int rows_above(struct edit *ed, struct winsize now)
{
    int columns = now.ws_col ? now.ws_col : 80, before = ed->columns ? ed->columns : columns;
    struct cell cut = cursor_at(ed, before), reflown = cursor_at(ed, columns);
    if (columns == before || cut.row == reflown.row) return cut.row;
    int column = ask_column(ed) - 1, cut_column = cut.column < columns ? cut.column : columns - 1;
    if (column < 0) return cut.row;
    if (cut_column != reflown.column) ed->reflows = abs(column - reflown.column) < abs(column - cut_column);
    return ed->reflows ? reflown.row : cut.row;
}

/* Draws the line again where it begins. */
static unsigned char key_wake(EditLine *el, wint_t c)
{
    struct edit *ed = of(el);
    struct winsize now = window();
    char go[32] = "";
    (void)c;
    if (is_tiny()) return CC_NORM;
    int rows = ed->moved ? 0 : rows_above(ed, now);
    if (now.ws_row && rows >= now.ws_row) rows = now.ws_row - 1;
    if (rows) snprintf(go, sizeof go, "\033[%dA", rows);
    ed->columns = now.ws_col;
    ed->moved = false;
    if (!ed->brackets) { /* the terminal can do nothing of this */
        ed->lib->resize(el);
        return CC_REDISPLAY;
    }
    say("\r");
    say(go);
    say("\033[J");
    ed->lib->resize(el);
    ed->lib->set(el, EL_REFRESH);
    return CC_NORM;
}

static unsigned char key_newline(EditLine *el, wint_t c)
{
    (void)c;
    return of(el)->lib->insert(el, L"\n") ? CC_ERROR : CC_REFRESH;
}

/* Puts a paste into the line: its text, or its mark. */
static unsigned char key_paste(EditLine *el, wint_t c)
{
    struct edit *ed = of(el);
    struct buf raw = {0};
    struct qn_error e = {0};
    unsigned char result = CC_ERROR;
    wchar_t *wide = NULL;
    int rc = 0;
    (void)c;
    while (rc == 0) {
        int byte = next_byte(ed);
        if (byte == INPUT_END) goto done; /* get_char() sees it again */
        if (byte != INPUT_WAKE) rc = paste_byte(&raw, (unsigned char)byte, &e);
    }
    paste_lines(&raw);
    if (rc > 0 && !unicode_is_utf8(raw.data, raw.len))
        rc = error_set(&e, QN_EDATA, "the pasted text, %zu bytes, is not UTF-8 and is left out", raw.len);
    const char *shown = rc > 0 ? paste_shown(&ed->pastes, &raw, &e) : NULL;
    if (shown && !(wide = to_wide(shown, strlen(shown)))) error_nomem(&e, "a pasted text", raw.len);
    if (wide) result = !*wide || ed->lib->insert(el, wide) == 0 ? CC_REFRESH : CC_ERROR;
    if (!wide) {
        say("\r\nquern: ");
        say(e.msg);
        say("\r\n");
        result = CC_REDISPLAY;
    }
done:
    mem_free(wide);
    buf_deinit(&raw);
    return result;
}

/* Appends the line before the cursor as UTF-8. */
static int before_cursor(struct edit *ed, struct buf *out)
{
    const LineInfoW *line = ed->lib->line(ed->el);
    return from_wide(line->buffer, (size_t)(line->cursor - line->buffer), out, NULL);
}

/* Backspace. It removes the mark of a paste as one character. */
static unsigned char key_rub(EditLine *el, wint_t c)
{
    struct edit *ed = of(el);
    const LineInfoW *line = ed->lib->line(el);
    struct buf text = {0};
    size_t n_mark = 0;
    (void)c;
    if (line->cursor == line->buffer) return CC_ERROR;
    if (ed->pastes.n && !before_cursor(ed, &text)) n_mark = paste_mark_before(&ed->pastes, (char *)text.data, text.len);
    buf_deinit(&text);
    ed->lib->erase(el, n_mark ? (int)n_mark : 1); /* marks are ASCII */
    return CC_REFRESH;
}

/* The number of leading bytes that all completions share; *n gets the number of completions. */
static size_t common(const struct edit *ed, const struct buf *line, size_t *n)
{
    const char *first = ed->setup.complete(ed->setup.arg, (char *)line->data, line->len, 0), *next;
    size_t same = first ? strlen(first) : 0;
    for (*n = first != NULL; first && (next = ed->setup.complete(ed->setup.arg, (char *)line->data, line->len, *n));
         ++*n)
        for (size_t i = 0; i < same; i++)
            if (first[i] != next[i]) same = i;
    return same;
}

static unsigned char key_complete(EditLine *el, wint_t c)
{
    struct edit *ed = of(el);
    struct buf line = {0};
    size_t n = 0, same = 0;
    unsigned char result = CC_ERROR;
    (void)c;
    if (before_cursor(ed, &line)) return CC_ERROR;
    if (ed->setup.complete && !ed->going_on) same = common(ed, &line, &n);
    const char *first = n ? ed->setup.complete(ed->setup.arg, (char *)line.data, line.len, 0) : NULL;
    if (same > line.len) {
        wchar_t *rest = to_wide(first + line.len, same - line.len);
        if (rest && ed->lib->insert(el, rest) == 0) result = CC_REFRESH;
        mem_free(rest);
    } else if (n > 1) {
        size_t known = memchr(line.data, ' ', line.len) ? line.len : 0; /* of an argument its last part is shown */
        while (known && line.data[known - 1] != '/' && line.data[known - 1] != ' ') known--;
        for (size_t i = 0; i < n && i < MOST_OFFERED; i++) {
            say(i ? "  " : "\r\n");
            say(ed->setup.complete(ed->setup.arg, (char *)line.data, line.len, i) + known);
        }
        if (n > MOST_OFFERED) say("  ...");
        say("\r\n");
        result = CC_REDISPLAY;
    } else if (!line.len || line.data[0] != '/') {
        result = ed->lib->insert(el, L"\t") ? CC_ERROR : CC_REFRESH;
    }
    buf_deinit(&line);
    return result;
}

static wchar_t *prompt(EditLine *el)
{
    struct edit *ed = of(el);
    return ed->going_on ? ed->more : ed->prompt;
}

/* ---- a text ---- */

/* Fills the history with the entries of earlier runs. */
static void fill_entries(struct edit *ed)
{
    HistEventW event;
    const char *s = (const char *)ed->history.text.data, *end = s ? s + ed->history.text.len : NULL;
    ed->lib->history(ed->entries, &event, H_SETSIZE, HISTORY_ENTRIES);
    ed->lib->history(ed->entries, &event, H_SETUNIQUE, 1);
    for (; s < end; s += strlen(s) + 1) {
        wchar_t *wide = to_wide(s, strlen(s));
        if (wide) ed->lib->history(ed->entries, &event, H_ENTER, wide);
        mem_free(wide);
    }
    buf_deinit(&ed->history.text);
}

static void remember(struct edit *ed, const char *text, size_t n)
{
    HistEventW event;
    if (n == 0 || n > HISTORY_ENTRY_BYTES || memchr(text, 0, n)) return;
    wchar_t *wide = to_wide(text, n);
    if (wide) ed->lib->history(ed->entries, &event, H_ENTER, wide);
    mem_free(wide);
    history_add(&ed->history, text, n);
}

/* Handles the case that no line was read. EDIT_TEXT: start again. */
static int no_line(struct edit *ed, bool empty)
{
    take_signals(ed, 0); /* libedit gives up as soon as the terminal is gone */
    if (ed->ended_by != SIGINT) {
        if (!ed->ended_by) say("\n");
        return EDIT_END;
    }
    ed->ended_by = 0;
    say("^C\n");
    if (!empty)
        ed->n_interrupts = 0;
    else if (ed->n_interrupts++)
        return EDIT_END;
    else
        say("(Ctrl-C again, or Ctrl-D, ends)\n");
    return EDIT_TEXT;
}

enum { LINE, NO_LINE };

/* Reads a line with libedit. Returns LINE, and the line is appended; NO_LINE; or an error. */
static int edited_line(struct edit *ed, struct buf *raw, bool *empty, struct qn_error *e)
{
    int n = 0, rc;
    const wchar_t *line = ed->lib->gets(ed->el, &n);
    if (!line || n <= 0) {
        const LineInfoW *left = ed->lib->line(ed->el);
        *empty = left->lastchar == left->buffer;
        return NO_LINE;
    }
    rc = from_wide(line, (size_t)(line[n - 1] == L'\n' ? n - 1 : n), raw, e);
    return rc ? rc : LINE;
}

/* Reads the rest of a paste that was made before the window was so small, if the line ends with its beginning. */
static int plain_paste(struct edit *ed, struct buf *line, struct qn_error *e)
{
    const size_t n = sizeof PASTE_BEGIN - 1;
    int rc = 0, c;
    if (line->len < n || memcmp(line->data + line->len - n, PASTE_BEGIN, n)) return 0;
    line->len -= n;
    while (!rc && (c = next_byte(ed)) != INPUT_END)
        if (c != INPUT_WAKE) rc = paste_byte(line, (unsigned char)c, e);
    if (rc > 0) paste_lines(line);
    return rc < 0 ? rc : 0;
}

/* The same with the terminal's own editing. */
static int plain_line(struct edit *ed, struct buf *raw, bool *empty, struct qn_error *e)
{
    struct buf line = {0};
    wchar_t *wide = NULL;
    int rc = 0, c;
    ed->lib->set(ed->el, EL_PREP_TERM, 0);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &ed->before);
    say(ed->going_on ? ed->setup.more : ed->setup.prompt);
    while (!rc && (c = next_byte(ed)) != INPUT_END && c != '\n') {
        uint8_t byte = (uint8_t)c;
        if (c != INPUT_WAKE) rc = buf_add(&line, &byte, 1, e);
        if (!rc && byte == '~') rc = plain_paste(ed, &line, e);
    }
    *empty = line.len == 0;
    if (!rc && c == INPUT_END) rc = NO_LINE;
    if (!rc && !(wide = to_wide((char *)line.data, line.len))) rc = error_nomem(e, "a line", line.len);
    if (!rc) rc = from_wide(wide, wcslen(wide), raw, e);
    mem_free(wide);
    buf_deinit(&line);
    return rc;
}

/* Reads lines until one does not continue. raw gets the text with the marks of pastes. */
static int read_lines(struct edit *ed, struct buf *raw, struct qn_error *e)
{
    ed->going_on = false;
    for (;;) {
        bool empty = true;
        ed->lib->set(ed->el, EL_PREP_TERM, 1); /* before the prompt: what is typed after it is for the editor */
        int rc = is_tiny() ? plain_line(ed, raw, &empty, e) : edited_line(ed, raw, &empty, e);
        if (rc < 0) return rc;
        if (rc == NO_LINE) {
            rc = no_line(ed, empty && !ed->going_on);
            if (rc) return rc;
            ed->going_on = false;
            buf_clear(raw);
            paste_clear(&ed->pastes);
            continue;
        }
        ed->n_interrupts = 0;
        ed->going_on = raw->len && raw->data[raw->len - 1] == '\\';
        if (!ed->going_on) return EDIT_TEXT;
        raw->data[raw->len - 1] = '\n';
    }
}

/* Puts the bytes that were read and not used before those that came later. */
static int join_ahead(struct edit *ed, struct qn_error *e)
{
    struct buf all = {0};
    int rc = buf_add(&all, ed->input + ed->at, ed->n - ed->at, e);
    const struct buf *typed = &ed->ahead.typed;
    if (!rc && typed->len) rc = buf_add(&all, typed->data + ed->ahead_at, typed->len - ed->ahead_at, e);
    if (rc) {
        buf_deinit(&all);
        return rc;
    }
    buf_deinit(&ed->ahead.typed);
    ed->ahead.typed = all;
    ed->ahead_at = ed->at = ed->n = 0;
    return 0;
}

int edit_read(struct edit *ed, struct buf *text, struct qn_error *e)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT, 0};
    static const struct {
        int index, number; /* of c_cc, of the signal */
    } keys[3] = {{VINTR, SIGINT}, {VQUIT, SIGQUIT}, {VSUSP, SIGTSTP}};
    struct buf raw = {0};
    size_t start = text->len;
    ahead_stop(&ed->ahead);
    int rc = signals_catch(&ed->signals, caught, e);
    if (rc) return rc;
    fflush(stdout);
    rc = join_ahead(ed, e);
    if (rc) {
        signals_release(&ed->signals);
        return rc;
    }
    ed->ended_by = 0;
    for (size_t i = 0; i < 3; i++) {
        ed->signal_keys[i].key = ed->before.c_cc[keys[i].index];
        ed->signal_keys[i].number = keys[i].number;
    }
    if (!is_tiny()) ed->lib->resize(ed->el); /* the window may have changed in between */
    ed->columns = window().ws_col;
    ed->moved = false;
    ed->lib->set(ed->el, EL_PREP_TERM, 1); /* before anything is shown: what is typed after it is for the editor */
    brackets(ed, !is_tiny());
    rc = read_lines(ed, &raw, e);
    signals_release(&ed->signals);
    if (rc != EDIT_TEXT || ahead_start(&ed->ahead, &ed->before, ed->brackets && !is_tiny(), NULL)) {
        brackets(ed, false);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &ed->before);
    }
    if (ed->ended_by) raise(ed->ended_by);
    if (rc == EDIT_TEXT) rc = paste_expand(&ed->pastes, (char *)raw.data, raw.len, text, e);
    if (rc == EDIT_TEXT) remember(ed, (char *)text->data + start, text->len - start);
    paste_clear(&ed->pastes);
    buf_deinit(&raw);
    return rc;
}

/* ---- open and close ---- */

/* Binds the keys that people know from other line editors and that libedit does not bind, and our own keys. */
static void bind_keys(struct edit *ed)
{
    static const struct {
        const wchar_t *name;
        unsigned char (*run)(EditLine *, wint_t);
    } own[] = {
        {L"quern-wake", key_wake}, {L"quern-newline", key_newline},   {L"quern-paste", key_paste},
        {L"quern-rub", key_rub},   {L"quern-complete", key_complete},
    };
    static const struct {
        const wchar_t *key, *name;
    } keys[] = {
        {L"^]", L"quern-wake"},         {L"\\e[200~", L"quern-paste"},   {L"^?", L"quern-rub"},
        {L"^H", L"quern-rub"},          {L"^I", L"quern-complete"},      {L"\\e\\r", L"quern-newline"},
        {L"^R", L"em-inc-search-prev"}, {L"^W", L"ed-delete-prev-word"}, {L"\\e[3~", L"ed-delete-next-char"},
        {L"\\e[H", L"ed-move-to-beg"},  {L"\\eOH", L"ed-move-to-beg"},   {L"\\e[1~", L"ed-move-to-beg"},
        {L"\\e[F", L"ed-move-to-end"},  {L"\\eOF", L"ed-move-to-end"},   {L"\\e[4~", L"ed-move-to-end"},
        {L"\\e[1;5C", L"em-next-word"}, {L"\\e[1;5D", L"ed-prev-word"},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        ed->lib->set(ed->el, EL_ADDFN, own[i].name, own[i].name, own[i].run);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ed->lib->set(ed->el, EL_BIND, keys[i].key, keys[i].name, (wchar_t *)NULL);
}

static void open_history(struct edit *ed, struct qn_error *notice)
{
    const char *path = ed->setup.history;
    char *usual = NULL;
    int rc = path ? 0 : home_path(&usual, HOME_STATE, "history", notice);
    if (!rc) rc = history_open(&ed->history, path ? path : usual, notice);
    if (!rc) notice->code = 0;
    mem_free(usual);
}

int edit_open(struct edit **out, const struct edit_setup *setup, struct qn_error *notice, struct qn_error *e)
{
    static const wchar_t *const modes[] = {L"-isig", L"-ixon", L"-icrnl", L"-inlcr"};
    const char *term = getenv("TERM");
    const struct editlib *lib = editlib_load(e);
    if (!lib) return QN_EUNSUP;
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8")) setlocale(LC_CTYPE, "C.UTF-8");
    struct edit *ed = mem_calloc(1, sizeof *ed);
    if (!ed) return error_nomem(e, "the line editor", sizeof *ed);
    ed->lib = lib;
    ed->setup = *setup;
    ed->history.fd = -1;
    if (tcgetattr(STDIN_FILENO, &ed->before)) {
        mem_free(ed);
        return error_set(e, QN_EIO, "standard input is not a terminal");
    }
    /* What is supposed until a column tells. */
    ed->reflows = term && strcmp(term, "linux") && strncmp(term, "screen", 6) && !getenv("XTERM_VERSION");
    ed->brackets = term && *term && strcmp(term, "dumb");
    ed->prompt = to_wide(setup->prompt, strlen(setup->prompt));
    ed->more = to_wide(setup->more, strlen(setup->more));
    ed->entries = lib->history_init();
    ed->el = lib->init("quern", stdin, stdout, stderr);
    if (!ed->prompt || !ed->more || !ed->entries || !ed->el) {
        edit_close(ed);
        return error_set(e, QN_ENOMEM, "the line editor does not start");
    }
    lib->set(ed->el, EL_CLIENTDATA, ed);
    lib->set(ed->el, EL_SIGNAL, 0);
    lib->set(ed->el, EL_PROMPT, prompt);
    lib->set(ed->el, EL_EDITOR, L"emacs");
    lib->set(ed->el, EL_HIST, lib->history, ed->entries);
    lib->source(ed->el, NULL);
    /* Every byte of a paste must arrive: none may send a signal, stop the output or become another byte. */
    for (size_t i = 0; i < 4; i++) lib->set(ed->el, EL_SETTY, L"-d", modes[i], (wchar_t *)NULL);
    bind_keys(ed);
    lib->set(ed->el, EL_GETCFN, get_char);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &ed->before);
    open_history(ed, notice);
    fill_entries(ed);
    *out = ed;
    return 0;
}

void edit_close(struct edit *ed)
{
    if (!ed) return;
    if (ed->ahead.runs) {
        ahead_stop(&ed->ahead);
        brackets(ed, false);
    }
    buf_deinit(&ed->ahead.typed);
    if (ed->el) ed->lib->end(ed->el);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &ed->before);
    if (ed->entries) ed->lib->history_end(ed->entries);
    history_close(&ed->history);
    paste_clear(&ed->pastes);
    mem_free(ed->prompt);
    mem_free(ed->more);
    mem_free(ed);
}
