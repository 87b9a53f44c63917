/* SPDX-License-Identifier: MIT
 *
 * excerpt.c: keeps the head of a text, and its tail in a ring. See excerpt.h.
 */
#include "cli/ask/excerpt.h"

#include <string.h>

/* The farthest distance from a cut at which the end of a line is looked for. */
#define LINE_REACH 1024

void excerpt_init(struct excerpt *x, enum excerpt_ends ends, size_t cap_bytes)
{
    *x = (struct excerpt){.ends = ends, .cap = cap_bytes};
}

void excerpt_deinit(struct excerpt *x)
{
    buf_deinit(&x->head);
    buf_deinit(&x->tail);
}

static int add_to_ring(struct excerpt *x, const char *text, size_t n, struct qn_error *e)
{
    size_t room = x->cap - x->tail.len, first = n < room ? n : room;
    int rc = buf_add(&x->tail, text, first, e);
    if (rc || first == n) return rc;
    text += first;
    n -= first;
    if (n >= x->cap) {
        text += n - x->cap;
        n = x->cap;
        x->at = 0;
    }
    first = x->cap - x->at < n ? x->cap - x->at : n;
    memcpy(x->tail.data + x->at, text, first);
    memcpy(x->tail.data, text + first, n - first);
    x->at = (x->at + n) % x->cap;
    return 0;
}

int excerpt_add(struct excerpt *x, const char *text, size_t n, struct qn_error *e)
{
    x->total += n;
    if (x->ends != EXCERPT_TAIL) {
        size_t room = x->cap - x->head.len, first = n < room ? n : room;
        int rc = buf_add(&x->head, text, first, e);
        if (rc) return rc;
        text += first;
        n -= first;
    }
    return x->ends == EXCERPT_HEAD ? 0 : add_to_ring(x, text, n, e);
}

bool excerpt_is_full(const struct excerpt *x) { return x->ends == EXCERPT_HEAD && x->total > x->cap; }

static void reverse(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        uint8_t t = p[i];
        p[i] = p[n - 1 - i];
        p[n - 1 - i] = t;
    }
}

int excerpt_end(struct excerpt *x, bool more, struct qn_error *e)
{
    struct buf *tail = &x->tail;
    x->open_end = more;
    if (x->at) { /* turns the ring so that the oldest byte is first */
        reverse(tail->data, x->at);
        reverse(tail->data + x->at, tail->len - x->at);
        reverse(tail->data, tail->len);
        x->at = 0;
    }
    if (x->ends == EXCERPT_BOTH && x->head.len + tail->len == x->total &&
        tail->len) { /* all of the text is there: keep it as one piece */
        int rc = buf_add(&x->head, tail->data, tail->len, e);
        if (rc) return rc;
        buf_deinit(tail);
    }
    return 0;
}

static bool is_inner(const char *p) { return ((unsigned char)*p & 0xc0) == 0x80; }

/* The bytes of the n without an incomplete character at the end. */
static size_t whole_chars(const char *text, size_t n)
{
    size_t lead = n;
    while (lead && n - lead < 4 && is_inner(text + lead - 1)) lead--;
    if (!lead) return n;
    unsigned char c = (unsigned char)text[lead - 1];
    size_t len = 1 + (c >= 0x80) + (c >= 0xe0) + (c >= 0xf0);
    return lead - 1 + len > n ? lead - 1 : n;
}

/* The largest position for a cut that is not above k. */
static size_t cut_down(const char *text, size_t n, size_t k)
{
    if (k >= n) return whole_chars(text, n);
    size_t reach = k < LINE_REACH ? k : LINE_REACH;
    const char *end = memrchr(text + k - reach, '\n', reach);
    if (end) return (size_t)(end - text) + 1;
    while (k && is_inner(text + k)) k--;
    return k;
}

/* The smallest position for a cut that is not below k. */
static size_t cut_up(const char *text, size_t n, size_t k)
{
    if (k >= n) return n;
    if (k && text[k - 1] == '\n') return k;
    size_t reach = n - k < LINE_REACH ? n - k : LINE_REACH;
    if (k == 0) reach = 0;
    const char *end = memchr(text + k, '\n', reach);
    if (end && end + 1 < text + n) return (size_t)(end - text) + 1;
    while (k < n && is_inner(text + k)) k++;
    return k;
}

/* The buffer that has all of the text; NULL: something is missing already. */
static const struct buf *whole(const struct excerpt *x)
{
    const struct buf *b = x->ends == EXCERPT_TAIL ? &x->tail : &x->head;
    return b->len == x->total && !x->open_end ? b : NULL;
}

size_t excerpt_most(const struct excerpt *x)
{
    const struct buf *all = whole(x);
    return all ? all->len : x->head.len + x->tail.len;
}

void excerpt_cut(const struct excerpt *x, size_t k, struct excerpt_cut *c)
{
    const struct buf *all = whole(x), *head = all ? all : &x->head, *tail = all ? all : &x->tail;
    const char *front = head->data ? (const char *)head->data : "", *back = tail->data ? (const char *)tail->data : "";
    *c = (struct excerpt_cut){.head = front, .tail = back + tail->len};
    if (all && k >= all->len) {
        c->n_head = all->len;
        return;
    }
    if (x->ends != EXCERPT_TAIL) c->n_head = cut_down(front, head->len, x->ends == EXCERPT_BOTH ? k - k / 2 : k);
    if (x->ends != EXCERPT_HEAD) {
        size_t part = x->ends == EXCERPT_BOTH ? k / 2 : k;
        size_t from = cut_up(back, tail->len, part < tail->len ? tail->len - part : 0);
        c->tail = back + from;
        c->n_tail = tail->len - from;
    }
    c->left_out = x->open_end ? UINT64_MAX : x->total - c->n_head - c->n_tail;
}
