/* SPDX-License-Identifier: MIT
 *
 * tiny_vocab.h: makes a GGUF file that holds nothing but a small vocabulary, and opens it; for the tests of the
 * text layer. Also measures time the way their bounds mean it.
 */
#ifndef QUERN_TESTS_TINY_VOCAB_H
#define QUERN_TESTS_TINY_VOCAB_H

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "format/weights.h"

/* CPU time, so that a busy machine does not fail the tests. */
static inline double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define TIME_SCALE 15.0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define TIME_SCALE 15.0
#endif
#endif
#ifndef TIME_SCALE
#define TIME_SCALE 1.0
#endif

struct vfile {
    struct buf b; /* the keys */
    uint64_t n_keys;
    const char *tensor; /* the name of one of one float; NULL: none */
    char path[64];
};

static inline void vf_raw(struct vfile *f, const void *p, size_t n) { assert(buf_add(&f->b, p, n, NULL) == 0); }
static inline void vf_u32_raw(struct vfile *f, uint32_t x) { vf_raw(f, &x, 4); }

static inline void vf_str_raw(struct vfile *f, const char *s, size_t n)
{
    uint64_t len = n;
    vf_raw(f, &len, 8);
    vf_raw(f, s, n);
}

static inline void vf_key(struct vfile *f, const char *key, uint32_t type)
{
    vf_str_raw(f, key, strlen(key));
    vf_u32_raw(f, type);
    f->n_keys++;
}

static inline void vf_str(struct vfile *f, const char *key, const char *s)
{
    vf_key(f, key, MT_STRING);
    vf_str_raw(f, s, strlen(s));
}

static inline void vf_u32(struct vfile *f, const char *key, uint32_t x)
{
    vf_key(f, key, MT_U32);
    vf_u32_raw(f, x);
}

static inline void vf_bool(struct vfile *f, const char *key, bool x)
{
    uint8_t byte = x;
    vf_key(f, key, MT_BOOL);
    vf_raw(f, &byte, 1);
}

/* elem: 4-byte values at p, n of them. */
static inline void vf_array4(struct vfile *f, const char *key, uint32_t elem, const void *p, uint64_t n)
{
    vf_key(f, key, MT_ARRAY);
    vf_u32_raw(f, elem);
    vf_raw(f, &n, 8);
    vf_raw(f, p, (size_t)n * 4);
}

static inline void vf_strs(struct vfile *f, const char *key, const char *const *s, uint64_t n)
{
    vf_key(f, key, MT_ARRAY);
    vf_u32_raw(f, MT_STRING);
    vf_raw(f, &n, 8);
    for (uint64_t i = 0; i < n; i++) vf_str_raw(f, s[i], strlen(s[i]));
}

/* Writes the file, opens it and removes its name. */
static inline struct weights *vf_open(struct vfile *f)
{
    struct weights *w = NULL;
    struct qn_error e;
    uint32_t head[2] = {0x46554747, 3};
    uint64_t counts[2] = {f->tensor != NULL, f->n_keys};
    static const uint8_t zeros[32];
    if (f->tensor) {
        const uint64_t one = 1, offset = 0;
        vf_str_raw(f, f->tensor, strlen(f->tensor));
        vf_u32_raw(f, 1);
        vf_raw(f, &one, 8);
        vf_u32_raw(f, 0); /* f32 */
        vf_raw(f, &offset, 8);
    }
    strcpy(f->path, "/tmp/quern-vocab-XXXXXX");
    int fd = mkstemp(f->path);
    assert(fd >= 0);
    FILE *out = fdopen(fd, "wb");
    fwrite(head, 1, sizeof head, out);
    fwrite(counts, 1, sizeof counts, out);
    fwrite(f->b.data, 1, f->b.len, out);
    fwrite(zeros, 1, 32 - (24 + f->b.len) % 32, out);
    if (f->tensor) fwrite(zeros, 1, 32, out);
    assert(fclose(out) == 0);
    int rc = weights_open(&w, f->path, &e);
    unlink(f->path);
    if (rc) fprintf(stderr, "%s\n", e.msg);
    assert(rc == 0);
    buf_deinit(&f->b);
    *f = (struct vfile){0};
    return w;
}

#endif
