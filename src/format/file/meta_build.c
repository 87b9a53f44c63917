/* SPDX-License-Identifier: MIT
 *
 * meta_build.c: builds metadata in the shape of a GGUF header.
 *
 * Keys and values are written one after the other into one growing buffer, as a GGUF header has them. An entry has
 * their offsets, because the buffer moves while it grows. At the end the offsets become pointers.
 */
#include "format/file/meta_build.h"

#include <assert.h>
#include <string.h>

struct meta_entry {
    size_t key, key_n; /* offset, bytes */
    size_t data;       /* offset; the value ends at the next entry's key */
    enum meta_type type, elem;
    uint64_t n;
};

static struct meta_entry *entries(const struct meta_build *b)
{
    return (struct meta_entry *)(void *)b->entries.data; /* allocated as bytes, aligned for anything */
}

static size_t n_entries(const struct meta_build *b) { return b->entries.len / sizeof(struct meta_entry); }

bool meta_build_has(const struct meta_build *b, const char *key)
{
    const struct meta_entry *m = entries(b);
    size_t n = strlen(key);
    for (size_t i = 0; i < n_entries(b); i++)
        if (m[i].key_n == n && !memcmp(b->bytes.data + m[i].key, key, n)) return true;
    return false;
}

void meta_build_deinit(struct meta_build *b)
{
    buf_deinit(&b->bytes);
    buf_deinit(&b->entries);
}

/* Adds a key, and room for its value, so that the caller can add these `bytes` without failing. */
static int begin(struct meta_build *b, const char *key, enum meta_type type, enum meta_type elem, size_t bytes,
                 struct qn_error *e)
{
    size_t n = strlen(key);
    assert(n && !meta_build_has(b, key));
    struct meta_entry m = {.key = b->bytes.len, .key_n = n, .data = b->bytes.len + n, .type = type, .elem = elem};
    m.n = type == MT_ARRAY ? 0 : 1;
    int rc = buf_reserve(&b->bytes, n + bytes, e);
    if (rc || (rc = buf_add(&b->entries, &m, sizeof m, e))) return rc;
    return buf_add(&b->bytes, key, n, e);
}

static int put(struct meta_build *b, const char *key, enum meta_type type, const void *v, size_t bytes,
               struct qn_error *e)
{
    int rc = begin(b, key, type, type, bytes, e);
    return rc ? rc : buf_add(&b->bytes, v, bytes, e);
}

int meta_build_u32(struct meta_build *b, const char *key, uint32_t v, struct qn_error *e)
{
    return put(b, key, MT_U32, &v, sizeof v, e);
}

int meta_build_f32(struct meta_build *b, const char *key, float v, struct qn_error *e)
{
    return put(b, key, MT_F32, &v, sizeof v, e);
}

int meta_build_bool(struct meta_build *b, const char *key, bool v, struct qn_error *e)
{
    uint8_t byte = v;
    return put(b, key, MT_BOOL, &byte, 1, e);
}

/* Adds the length and the bytes of a string. There must be room. */
static int add_text(struct meta_build *b, const char *p, size_t n, struct qn_error *e)
{
    uint64_t len = n;
    int rc = buf_add(&b->bytes, &len, sizeof len, e);
    return rc ? rc : buf_add(&b->bytes, p, n, e);
}

int meta_build_str(struct meta_build *b, const char *key, const char *p, size_t n, struct qn_error *e)
{
    int rc = begin(b, key, MT_STRING, MT_STRING, sizeof(uint64_t) + n, e);
    return rc ? rc : add_text(b, p, n, e);
}

int meta_build_array(struct meta_build *b, const char *key, enum meta_type elem, struct qn_error *e)
{
    assert(elem == MT_STRING || elem == MT_I32 || elem == MT_F32 || elem == MT_BOOL);
    return begin(b, key, MT_ARRAY, elem, 0, e);
}

/* The array that is being filled. */
static struct meta_entry *last(const struct meta_build *b, enum meta_type elem)
{
    assert(n_entries(b));
    struct meta_entry *m = &entries(b)[n_entries(b) - 1];
    assert(m->type == MT_ARRAY && m->elem == elem);
    return m;
}

static int add(struct meta_build *b, enum meta_type elem, const void *v, size_t bytes, struct qn_error *e)
{
    struct meta_entry *m = last(b, elem);
    int rc = buf_add(&b->bytes, v, bytes, e);
    if (!rc) m->n++;
    return rc;
}

int meta_build_add_str(struct meta_build *b, const char *p, size_t n, struct qn_error *e)
{
    struct meta_entry *m = last(b, MT_STRING);
    int rc = buf_reserve(&b->bytes, sizeof(uint64_t) + n, e);
    if (rc || (rc = add_text(b, p, n, e))) return rc;
    m->n++;
    return 0;
}

int meta_build_add_i32(struct meta_build *b, int32_t v, struct qn_error *e) { return add(b, MT_I32, &v, sizeof v, e); }

int meta_build_add_f32(struct meta_build *b, float v, struct qn_error *e) { return add(b, MT_F32, &v, sizeof v, e); }

int meta_build_add_bool(struct meta_build *b, bool v, struct qn_error *e)
{
    uint8_t byte = v;
    return add(b, MT_BOOL, &byte, 1, e);
}

int meta_build_finish(struct meta_build *b, struct meta_list *out, struct qn_error *e)
{
    size_t n = n_entries(b);
    struct meta_list l = {.n = n};
    int rc = buf_reserve(&b->bytes, 0, e); /* so that data is not NULL */
    if (rc || (rc = names_init(&l.keys, n, e))) return rc;
    l.meta = mem_calloc(n + 1, sizeof *l.meta);
    if (!l.meta) {
        names_deinit(&l.keys);
        return error_nomem(e, "metadata", n * sizeof *l.meta);
    }
    l.bytes = b->bytes.data;
    for (size_t i = 0; i < n; i++) {
        const struct meta_entry *m = &entries(b)[i];
        size_t end = i + 1 < n ? m[1].key : b->bytes.len;
        l.meta[i] = (struct meta){.key = {(const char *)l.bytes + m->key, m->key_n},
                                  .type = m->type,
                                  .elem = m->elem,
                                  .n = m->n,
                                  .data = l.bytes + m->data,
                                  .bytes = end - m->data};
        names_add(&l.keys, l.meta[i].key, (uint32_t)i);
    }
    *out = l;
    b->bytes = (struct buf){0}; /* *out owns them now */
    meta_build_deinit(b);
    return 0;
}

void meta_list_deinit(struct meta_list *l)
{
    names_deinit(&l->keys);
    mem_free(l->meta);
    mem_free(l->bytes);
    *l = (struct meta_list){0};
}
