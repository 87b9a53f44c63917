/* SPDX-License-Identifier: MIT
 *
 * message.c: puts texts into fences and the instruction after them. See message.h.
 */
#include "cli/ask/message.h"

#include <inttypes.h>
#include <string.h>

static size_t longest_run(const char *p, size_t n)
{
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < n; i++) {
        run = p[i] == '`' ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    return longest;
}

static int end_line(struct buf *out, struct qn_error *e)
{
    return out->len && out->data[out->len - 1] != '\n' ? buf_str(out, "\n", e) : 0;
}

static int add_cut(struct buf *out, const struct excerpt_cut *c, struct qn_error *e)
{
    int rc = buf_add(out, c->head, c->n_head, e);
    if (rc || !c->left_out) return rc;
    if (c->n_head && (rc = end_line(out, e))) return rc;
    rc = c->left_out == UINT64_MAX ? buf_str(out, "[... the rest is left out ...]\n", e)
                                   : buf_printf(out, e, "[... %" PRIu64 " bytes left out ...]\n", c->left_out);
    return rc ? rc : buf_add(out, c->tail, c->n_tail, e);
}

static int add_fence(struct buf *out, size_t n, struct qn_error *e)
{
    for (size_t i = 0; i < n; i++) {
        int rc = buf_str(out, "`", e);
        if (rc) return rc;
    }
    return buf_str(out, "\n", e);
}

static int add_text(struct buf *out, const struct message_text *t, struct qn_error *e)
{
    size_t a = longest_run(t->cut.head, t->cut.n_head), b = longest_run(t->cut.tail, t->cut.n_tail);
    size_t fence = (a > b ? a : b) + 1;
    int rc;
    if (fence < 3) fence = 3;
    if (t->name && (rc = buf_printf(out, e, "%s:\n", t->name))) return rc;
    if ((rc = add_fence(out, fence, e)) || (rc = add_cut(out, &t->cut, e)) || (rc = end_line(out, e))) return rc;
    return add_fence(out, fence, e);
}

int message_compose(struct buf *out, const struct message_text *texts, size_t n, const char *instruction,
                    struct qn_error *e)
{
    int rc = 0;
    if (n == 1 && !*instruction && !texts->name) return add_cut(out, &texts->cut, e);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = add_text(out, &texts[i], e);
        if (!rc && (i + 1 < n || *instruction)) rc = buf_str(out, "\n", e);
    }
    return rc ? rc : buf_str(out, instruction, e);
}
