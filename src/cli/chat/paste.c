/* SPDX-License-Identifier: MIT
 *
 * paste.c: finds the end of a paste, and keeps long ones aside. See paste.h.
 */
#include "cli/chat/paste.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

int paste_byte(struct buf *raw, unsigned char byte, struct qn_error *e)
{
    static const size_t n_end = sizeof PASTE_END - 1;
    int rc = buf_add(raw, &byte, 1, e);
    if (rc || byte != '~' || raw->len < n_end || memcmp(raw->data + raw->len - n_end, PASTE_END, n_end)) return rc;
    raw->len -= n_end;
    raw->data[raw->len] = 0;
    return 1;
}

void paste_lines(struct buf *raw)
{
    size_t n = 0;
    for (size_t i = 0; i < raw->len; i++) {
        if (raw->data[i] == '\r' && i + 1 < raw->len && raw->data[i + 1] == '\n') continue;
        raw->data[n++] = raw->data[i] == '\r' ? '\n' : raw->data[i];
    }
    raw->len = n;
    if (raw->data) raw->data[n] = 0;
}

static bool fits_line(const struct buf *raw)
{
    if (raw->len > PASTE_INLINE) return false;
    for (size_t i = 0; i < raw->len; i++)
        if (raw->data[i] < 0x20 || raw->data[i] == 0x7F) return false;
    return true;
}

const char *paste_shown(struct paste_list *l, const struct buf *raw, struct qn_error *e)
{
    if (fits_line(raw)) return raw->data ? (const char *)raw->data : "";
    struct paste *v = mem_realloc(l->v, (l->n + 1) * sizeof *v);
    if (v) l->v = v;
    char *text = v ? mem_dup(raw->data, raw->len) : NULL;
    if (!text) {
        error_nomem(e, "a pasted text", raw->len);
        return NULL;
    }
    size_t n_lines = raw->data[raw->len - 1] != '\n';
    for (size_t i = 0; i < raw->len; i++) n_lines += raw->data[i] == '\n';
    struct paste *p = &v[l->n++];
    *p = (struct paste){.text = text, .n = raw->len};
    snprintf(p->mark, sizeof p->mark, "[paste %zu: %zu byte%s, %zu line%s]", l->n, raw->len, raw->len == 1 ? "" : "s",
             n_lines, n_lines == 1 ? "" : "s");
    return p->mark;
}

size_t paste_mark_before(const struct paste_list *l, const char *line, size_t n)
{
    for (size_t i = 0; i < l->n; i++) {
        size_t len = strlen(l->v[i].mark);
        if (len <= n && !memcmp(line + n - len, l->v[i].mark, len)) return len;
    }
    return 0;
}

static const struct paste *mark_at(const struct paste_list *l, const char *line, size_t n)
{
    for (size_t i = 0; i < l->n; i++) {
        size_t len = strlen(l->v[i].mark);
        if (len <= n && !memcmp(line, l->v[i].mark, len)) return &l->v[i];
    }
    return NULL;
}

int paste_expand(const struct paste_list *l, const char *line, size_t n, struct buf *out, struct qn_error *e)
{
    size_t done = 0;
    int rc = 0;
    for (size_t at = 0; at < n && !rc;) {
        const struct paste *p = line[at] == '[' ? mark_at(l, line + at, n - at) : NULL;
        if (!p) {
            at++;
            continue;
        }
        rc = buf_add(out, line + done, at - done, e);
        if (!rc) rc = buf_add(out, p->text, p->n, e);
        at += strlen(p->mark);
        done = at;
    }
    return rc ? rc : buf_add(out, line + done, n - done, e);
}

void paste_clear(struct paste_list *l)
{
    for (size_t i = 0; i < l->n; i++) mem_free(l->v[i].text);
    mem_free(l->v);
    *l = (struct paste_list){0};
}
