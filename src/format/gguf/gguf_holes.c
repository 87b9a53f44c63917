/* SPDX-License-Identifier: MIT
 *
 * gguf_holes.c: copies a GGUF file with the weights of some layers. See gguf_holes.h.
 *
 * The new keys are the first ones, after the counts. The rest of the header moves as a whole, and so does the data:
 * offsets of tensors count from its beginning.
 */
#include "format/gguf/gguf_holes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/os.h"
#include "format/gguf/gguf.h"

#define COUNTS_END  24 /* "GGUF", version, number of tensors, number of keys */
#define N_KEYS_AT   16
#define PIECE_BYTES ((size_t)1 << 20)
#define TYPE_U32    4 /* of a value */

struct copy {
    const struct gguf_holes *h;
    const char *from_name, *to_name;
    int from, to;
    uint8_t *piece; /* [PIECE_BYTES] */
    struct qn_error *e;
};

static int failed(const struct copy *c, const char *doing, const char *name)
{
    return error_set(c->e, QN_EIO, "cannot %s '%s': %s", doing, name, strerror(errno));
}

static int write_all(const struct copy *c, const uint8_t *p, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t k = pwrite(c->to, p, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return failed(c, "write", c->to_name);
        p += k;
        n -= (size_t)k;
        at += (size_t)k;
    }
    return 0;
}

/* Copies n bytes from one place to the other. */
static int copy_bytes(const struct copy *c, uint64_t from, uint64_t to, uint64_t n)
{
    while (n > 0) {
        size_t want = n < PIECE_BYTES ? (size_t)n : PIECE_BYTES;
        ssize_t k = pread(c->from, c->piece, want, (off_t)from);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return failed(c, "read", c->from_name);
        if (k == 0)
            return error_set(c->e, QN_EIO, "'%s' became shorter while it was read: it ends at %" PRIu64, c->from_name,
                             from);
        int rc = write_all(c, c->piece, (size_t)k, to);
        if (rc) return rc;
        if (c->h->goes_on && !c->h->goes_on(c->h->watcher))
            return error_set(c->e, QN_ECANCEL, "stopped while '%s' was being copied", c->from_name);
        from += (size_t)k;
        to += (size_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static int add_key(struct buf *b, const char *key, uint32_t value, struct qn_error *e)
{
    uint64_t n = strlen(key);
    uint32_t type = TYPE_U32;
    int rc = buf_add(b, &n, sizeof n, e);
    if (!rc) rc = buf_add(b, key, n, e);
    if (!rc) rc = buf_add(b, &type, sizeof type, e);
    return rc ? rc : buf_add(b, &value, sizeof value, e);
}

/* The counts, and the new keys. */
static int make_head(struct buf *b, const struct copy *c, const uint8_t *old, const struct gguf *g)
{
    uint64_t n_keys = g->n_meta + 2;
    int rc = buf_add(b, old, COUNTS_END, c->e);
    if (rc) return rc;
    memcpy(b->data + N_KEYS_AT, &n_keys, sizeof n_keys);
    if (gguf_meta(g, GGUF_FIRST_LAYER) || gguf_meta(g, GGUF_LAST_LAYER))
        return error_set(c->e, QN_EDATA, "'%s' has the weights of some layers only", c->from_name);
    rc = add_key(b, GGUF_FIRST_LAYER, c->h->first, c->e);
    return rc ? rc : add_key(b, GGUF_LAST_LAYER, c->h->last, c->e);
}

static int copy_tensor(const struct copy *c, const struct tensor *t, uint64_t from, uint64_t to)
{
    uint64_t bytes = t->bytes + dtype_get(t->type)->tail;
    if (c->h->is_kept(c->h->arg, t->name) || bytes <= 2 * (uint64_t)c->h->edge) return copy_bytes(c, from, to, bytes);
    uint64_t last = t->bytes - c->h->edge;
    int rc = copy_bytes(c, from, to, c->h->edge);
    return rc ? rc : copy_bytes(c, from + last, to + last, bytes - last);
}

static int copy_all(const struct copy *c, const struct mapping *m, const struct gguf *g)
{
    struct buf head = {0};
    int rc = make_head(&head, c, m->data, g);
    uint64_t added = head.len - COUNTS_END, start = g->header_bytes + added;
    start = (start + g->alignment - 1) & ~(g->alignment - 1);
    uint64_t data = m->size - g->data_start;
    if (!rc) rc = write_all(c, head.data, head.len, 0);
    if (!rc) rc = copy_bytes(c, COUNTS_END, head.len, g->header_bytes - COUNTS_END);
    if (!rc && ftruncate(c->to, (off_t)(start + data))) rc = failed(c, "write", c->to_name);
    for (size_t i = 0; !rc && i < g->n_tensors; i++) {
        const struct tensor *t = &g->tensors[i];
        uint64_t at = (uint64_t)(t->data - m->data);
        rc = copy_tensor(c, t, at, at - g->data_start + start);
    }
    buf_deinit(&head);
    return rc;
}

int gguf_copy_with_holes(int fd, const char *to, const char *path, const struct gguf_holes *h, struct qn_error *e)
{
    struct mapping m = {0};
    struct gguf g = {0};
    struct copy c = {.h = h, .from_name = path, .to_name = to, .from = -1, .to = fd, .e = e};
    int rc = map_open(&m, path, e);
    if (!rc) rc = gguf_parse(&g, m.data, m.size, e);
    if (!rc && (c.from = open(path, O_RDONLY | O_CLOEXEC)) < 0) rc = failed(&c, "open", path);
    if (!rc && !(c.piece = mem_alloc(PIECE_BYTES))) rc = error_nomem(e, "a piece of a file", PIECE_BYTES);
    if (!rc) rc = copy_all(&c, &m, &g);
    mem_free(c.piece);
    if (c.from >= 0) close(c.from);
    gguf_deinit(&g);
    map_close(&m);
    return rc;
}
