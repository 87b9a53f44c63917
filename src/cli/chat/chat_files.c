/* SPDX-License-Identifier: MIT
 *
 * chat_files.c: files that go with the next message of `quern chat`, read and written as the filter does it.
 */
#include "cli/ask/input.h"
#include "cli/ask/message.h"
#include "cli/chat/chat_run.h"

#define BLOCK     ((size_t)1 << 16)
#define MOST_FILE ((size_t)15 << 20) /* bytes; a request has at most 16 MiB */

static int read_file(struct input *in, struct buf *text, struct qn_error *e)
{
    size_t n = 1;
    int rc = input_open(in, NULL, e);
    while (!rc && n) {
        if ((rc = buf_reserve(text, BLOCK, e)) || (rc = input_read(in, (char *)text->data + text->len, BLOCK, &n, e)))
            break;
        text->len += n;
        text->data[text->len] = 0;
        if (text->len > MOST_FILE) rc = error_set(e, QN_EFULL, "%s has more than %zu bytes", in->name, MOST_FILE);
    }
    input_close(in);
    return rc;
}

int chat_add_file(struct chat_run *c, const char *path, size_t *n_bytes, struct qn_error *e)
{
    struct input in;
    struct buf text = {0}, all = {0};
    input_init(&in, path);
    int rc = read_file(&in, &text, e);
    struct message_text t = {.name = in.name, .cut = {.head = (char *)text.data, .n_head = text.len}};
    if (!rc && c->n_files) rc = buf_str(&all, "\n", e);
    if (!rc) rc = message_compose(&all, &t, 1, "", e);
    if (!rc) rc = buf_add(&c->files, all.data, all.len, e);
    if (!rc) c->n_files++;
    *n_bytes = text.len;
    buf_deinit(&text);
    buf_deinit(&all);
    return rc;
}

int chat_compose(struct chat_run *c, const char *text, size_t n, struct buf *out, struct qn_error *e)
{
    int rc = c->files.len ? buf_add(out, c->files.data, c->files.len, e) : 0;
    if (!rc && c->files.len) rc = buf_str(out, "\n", e);
    if (!rc) rc = buf_add(out, text, n, e);
    if (rc) return rc;
    buf_clear(&c->files);
    c->n_files = 0;
    return 0;
}
