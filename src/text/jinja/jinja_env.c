/* SPDX-License-Identifier: MIT
 *
 * jinja_env.c: memory, limits and errors of the template interpreter.
 *
 * Small pieces come from a chain of chunks by a bump pointer. Each chunk is twice as large as the one before, up to a
 * bound. A large piece has an allocation of its own, so that a text that grows leaves nothing where it was. Limits are
 * checked where something is taken, so no caller can forget to. The bytes that count are those that the system gave,
 * not those that were asked for. Single pieces are never given back.
 */
#include "text/jinja/jinja_env.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "text/jinja/jinja.h"

#define CHUNK_MIN ((size_t)4096)
#define CHUNK_MAX ((size_t)256 << 10)
#define BLOCK_MIN ((size_t)32 << 10) /* a piece of so many bytes has an allocation of its own */
#define ALIGN     ((size_t)16)
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || defined(JENV_SPOIL_RELEASED)
#define JENV_SPOIL /* overwrite what is given back, so that a pointer to it is noticed */
#endif
#define LOOK_EVERY 10000 /* steps: about half a millisecond */

struct jchunk {
    struct jchunk *older;
    size_t bytes; /* without this header */
    _Alignas(16) uint8_t data[];
};

struct jblock {
    struct jblock *newer, *older;
    size_t bytes;    /* without this header */
    uint64_t number; /* larger for a newer block */
    _Alignas(16) uint8_t data[];
};

void jenv_deinit(struct jenv *j)
{
    while (j->chunks) {
        struct jchunk *c = j->chunks;
        j->chunks = c->older;
        mem_free(c);
    }
    while (j->blocks) {
        struct jblock *b = j->blocks;
        j->blocks = b->older;
        mem_free(b);
    }
    j->next = NULL;
    j->left = 0;
}

void jenv_check_room(struct jenv *j, size_t bytes)
{
    if (bytes > j->max_bytes - j->used_bytes)
        jenv_fail(j, QN_EDATA, "values need more memory than the limit of %zu bytes", j->max_bytes);
    if (j->peak_bytes < j->used_bytes + bytes) j->peak_bytes = j->used_bytes + bytes;
}

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) & ~(ALIGN - 1); }

static void link_block(struct jenv *j, struct jblock *b, size_t bytes)
{
    *b = (struct jblock){.older = j->blocks, .bytes = bytes, .number = ++j->n_blocks};
    if (b->older) b->older->newer = b;
    j->blocks = b;
}

static void *get_block(struct jenv *j, size_t bytes)
{
    size_t all = sizeof(struct jblock) + bytes;
    jenv_check_room(j, all);
    struct jblock *b = mem_alloc(all);
    if (!b) jenv_fail(j, QN_ENOMEM, "no memory for %zu bytes of values", all);
    j->used_bytes += all;
    link_block(j, b, bytes);
    return b->data;
}

static void add_chunk(struct jenv *j, size_t bytes)
{
    size_t want = j->chunks ? j->chunks->bytes * 2 : CHUNK_MIN, room = j->max_bytes - j->used_bytes;
    if (want > CHUNK_MAX) want = CHUNK_MAX;
    if (want < bytes) want = bytes;
    if (want + sizeof(struct jchunk) > room) want = bytes; /* near the limit: no more than is needed */
    jenv_check_room(j, want + sizeof(struct jchunk));
    struct jchunk *c = mem_alloc(sizeof *c + want);
    if (!c) jenv_fail(j, QN_ENOMEM, "no memory for %zu bytes of values", want);
    *c = (struct jchunk){.older = j->chunks, .bytes = want};
    j->used_bytes += want + sizeof *c;
    j->chunks = c;
    j->next = c->data;
    j->left = want;
}

void *jenv_get(struct jenv *j, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) bytes = SIZE_MAX / 2; /* no limit allows so much */
    bytes = round_up(bytes);
    if (bytes >= BLOCK_MIN) return get_block(j, bytes);
    if (bytes > j->left) add_chunk(j, bytes);
    void *p = j->next;
    j->next += bytes;
    j->left -= bytes;
    return p;
}

void *jenv_get_n(struct jenv *j, size_t n, size_t size)
{
    return jenv_get(j, n > SIZE_MAX / 2 / size ? SIZE_MAX / 2 : n * size);
}

/* The allocator moves the block; it moves no bytes of a large one. For the limit, both blocks count for a moment. */
static void *resize_block(struct jenv *j, struct jblock *b, size_t bytes)
{
    jenv_check_room(j, sizeof *b + bytes);
    struct jblock *newer = b->newer, *older = b->older;
    struct jblock *moved = mem_realloc(b, sizeof *b + bytes);
    if (!moved) jenv_fail(j, QN_ENOMEM, "no memory for %zu bytes of values", bytes);
    *(newer ? &newer->older : &j->blocks) = moved;
    if (older) older->newer = moved;
    j->used_bytes += bytes - moved->bytes;
    moved->bytes = bytes;
    return moved->data;
}

void *jenv_resize(struct jenv *j, void *p, size_t old, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) bytes = SIZE_MAX / 2;
    old = round_up(old);
    if (old >= BLOCK_MIN)
        return resize_block(j, (struct jblock *)(void *)((uint8_t *)p - offsetof(struct jblock, data)),
                            round_up(bytes));
    void *q = jenv_get(j, bytes);
    if (old) memcpy(q, p, old < bytes ? old : bytes);
    return q;
}

struct jmark jenv_mark(struct jenv *j)
{
    struct jmark m = {j->chunks, j->n_blocks, j->next, j->left, ++j->n_marks, j->oldest};
    j->oldest = UINT64_MAX;
    return m;
}

static void free_chunk(struct jenv *j)
{
    struct jchunk *c = j->chunks;
    j->chunks = c->older;
    j->used_bytes -= sizeof *c + c->bytes;
    mem_free(c);
}

static void free_block(struct jenv *j)
{
    struct jblock *b = j->blocks;
    j->blocks = b->older;
    if (b->older) b->older->newer = NULL;
    j->used_bytes -= sizeof *b + b->bytes;
    mem_free(b);
}

void jenv_release(struct jenv *j, const struct jmark *m)
{
    bool free = j->oldest >= m->number;
    if (m->oldest < j->oldest) j->oldest = m->oldest; /* for the marks around this one */
    if (!free) return;
    while (j->blocks && j->blocks->number > m->n_blocks) free_block(j);
    while (j->chunks != m->chunk) free_chunk(j);
    j->next = m->next;
    j->left = m->left;
#ifdef JENV_SPOIL
    if (j->left) memset(j->next, 0xA5, j->left);
#endif
}

void *jenv_grow(struct jenv *j, void *p, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return p;
    size_t old = *cap * size;
    *cap = n < 2 ? 4 : n * 2;
    return jenv_resize(j, p, old, *cap > SIZE_MAX / 2 / size ? SIZE_MAX / 2 : *cap * size);
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

static uint64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void jenv_start(struct jenv *j) { j->cpu_begin_ns = thread_cpu_ns(); }

uint64_t jenv_cpu_ns(const struct jenv *j) { return thread_cpu_ns() - j->cpu_begin_ns; }

/* Leaves if the rendering was cancelled, or has taken too much time. */
static void look(struct jenv *j)
{
    const struct qn_cancel *c = j->in ? j->in->cancel : NULL;
    if (c && c->is_cancelled(c->arg)) jenv_fail(j, QN_ECANCEL, "the rendering was cancelled");
    if (!j->max_cpu_ns) return;
    if (jenv_cpu_ns(j) > j->max_cpu_ns)
        jenv_fail(j, QN_EDATA, "more time than the limit of %llu ms", (unsigned long long)(j->max_cpu_ns / 1000000));
}

void jenv_step_and_look(struct jenv *j, size_t n)
{
    if (n > j->max_steps - j->n_steps)
        jenv_fail(j, QN_EDATA, "more steps than the limit of %llu", (unsigned long long)j->max_steps);
    j->n_steps += n;
    look(j);
    uint64_t left = j->max_steps - j->n_steps;
    j->look_at = j->n_steps + (left < LOOK_EVERY ? left : LOOK_EVERY);
}

void jenv_enter(struct jenv *j)
{
    if (j->depth >= j->max_depth) jenv_fail(j, QN_EDATA, "nested deeper than the limit of %d", j->max_depth);
    j->depth++;
}
