/* SPDX-License-Identifier: MIT
 *
 * jinja_env.c: memory, limits and errors of the template interpreter.
 *
 * A bump pointer in a chain of chunks, each twice as large as the one before up to a bound. Limits are checked where
 * the thing they bound is taken, so no caller can forget to.
 *
 * Does not give single pieces back.
 */
#include "text/jinja_env.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define CHUNK_MIN ((size_t)4096)
#define CHUNK_MAX ((size_t)1 << 20)
#define ALIGN     ((size_t)16)

struct jchunk {
    struct jchunk *older;
    size_t bytes; /* without this header */
    _Alignas(16) uint8_t data[];
};

void jenv_deinit(struct jenv *j)
{
    while (j->chunks) {
        struct jchunk *c = j->chunks;
        j->chunks = c->older;
        mem_free(c);
    }
    j->next = NULL;
    j->left = 0;
}

void *jenv_get(struct jenv *j, size_t bytes)
{
    if (bytes > j->max_bytes - j->used_bytes)
        jenv_fail(j, QN_EDATA, "values need more memory than the limit of %zu bytes", j->max_bytes);
    bytes = (bytes + ALIGN - 1) & ~(ALIGN - 1);
    if (bytes > j->left) {
        size_t want = j->chunks ? j->chunks->bytes * 2 : CHUNK_MIN;
        if (want > CHUNK_MAX) want = CHUNK_MAX;
        if (want < bytes) want = bytes;
        struct jchunk *c = mem_alloc(sizeof *c + want);
        if (!c) jenv_fail(j, QN_ENOMEM, "no memory for %zu bytes of values", want);
        c->older = j->chunks;
        c->bytes = want;
        j->chunks = c;
        j->next = c->data;
        j->left = want;
    }
    void *p = j->next;
    j->next += bytes;
    j->left -= bytes;
    j->used_bytes = bytes > j->max_bytes - j->used_bytes ? j->max_bytes : j->used_bytes + bytes;
    return p;
}

void *jenv_get_n(struct jenv *j, size_t n, size_t size)
{
    return jenv_get(j, n > SIZE_MAX / 2 / size ? SIZE_MAX / 2 : n * size);
}

void *jenv_grow(struct jenv *j, void *p, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return p;
    *cap = n < 4 ? 8 : n * 2;
    void *q = jenv_get_n(j, *cap, size);
    if (n) memcpy(q, p, n * size);
    return q;
}

_Noreturn void jenv_fail(struct jenv *j, int code, const char *fmt, ...)
{
    char msg[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (j->line)
        j->code = error_set(j->e, code, "template line %d: %s", j->line, msg);
    else
        j->code = error_set(j->e, code, "template: %s", msg);
    longjmp(j->out, 1);
}

_Noreturn void jenv_raise(struct jenv *j, const char *msg)
{
    j->code = error_set(j->e, QN_EUSAGE, "%s", msg);
    longjmp(j->out, 1);
}

void jenv_step(struct jenv *j, size_t n)
{
    if (n > j->max_steps - j->n_steps)
        jenv_fail(j, QN_EDATA, "more steps than the limit of %llu", (unsigned long long)j->max_steps);
    j->n_steps += n;
}

void jenv_enter(struct jenv *j)
{
    if (j->depth >= j->max_depth) jenv_fail(j, QN_EDATA, "nested deeper than the limit of %d", j->max_depth);
    j->depth++;
}
