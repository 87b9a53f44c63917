/* SPDX-License-Identifier: MIT
 *
 * test_gguf.c: the format layer on hand-made files: what is read, and every refusal.
 *
 * Files are built in memory by the small writer below and handed to gguf_parse() in a heap
 * block of exactly their size, so that a sanitizer sees a read beyond the end. What needs
 * several files (split models) or the public getters goes through files in a fresh folder.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/out_file.h"
#include "base/rng.h"
#include "format/file/finite.h"
#include "format/gguf/gguf.h"
#include "format/gguf/gguf_holes.h"
#include "format/weights.h"

/* ---- a writer ---- */

struct out {
    uint8_t b[8192];
    size_t n;
};

static void put(struct out *o, const void *p, size_t n)
{
    assert_true(o->n + n <= sizeof o->b);
    memcpy(o->b + o->n, p, n);
    o->n += n;
}
static void put_u32(struct out *o, uint32_t v) { put(o, &v, 4); }
static void put_u64(struct out *o, uint64_t v) { put(o, &v, 8); }
static void put_strn(struct out *o, const char *s, size_t n)
{
    put_u64(o, n);
    put(o, s, n);
}
static void put_str(struct out *o, const char *s) { put_strn(o, s, strlen(s)); }
static void put_head(struct out *o, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    o->n = 0;
    put(o, "GGUF", 4);
    put_u32(o, version);
    put_u64(o, n_tensors);
    put_u64(o, n_keys);
}
static void put_key(struct out *o, const char *key, uint32_t type, const void *value, size_t n)
{
    put_str(o, key);
    put_u32(o, type);
    put(o, value, n);
}
static void put_key_u32(struct out *o, const char *key, uint32_t v) { put_key(o, key, MT_U32, &v, 4); }
static void put_key_str(struct out *o, const char *key, const char *v)
{
    put_str(o, key);
    put_u32(o, MT_STRING);
    put_str(o, v);
}
static void put_array(struct out *o, const char *key, uint32_t elem, uint64_t n)
{
    put_str(o, key);
    put_u32(o, MT_ARRAY);
    put_u32(o, elem);
    put_u64(o, n);
}
static void put_tensor(struct out *o, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset)
{
    put_str(o, name);
    put_u32(o, 2);
    put_u64(o, ne0);
    put_u64(o, ne1);
    put_u32(o, type);
    put_u64(o, offset);
}
static void put_pad(struct out *o, size_t align)
{
    while (o->n % align) put(o, "", 1);
}
static void put_zeros(struct out *o, size_t n)
{
    for (size_t i = 0; i < n; i++) put(o, "", 1);
}

/* Parses a copy that ends where its heap block ends. The copy goes to *image when that is wanted, for what
 * was parsed points into it. */
static int parse(struct gguf *g, const struct out *o, uint8_t **image, struct qn_error *e)
{
    uint8_t *copy = malloc(o->n ? o->n : 1);
    assert_non_null(copy);
    memcpy(copy, o->b, o->n);
    *e = (struct qn_error){0};
    int rc = gguf_parse(g, copy, o->n, e);
    if (image && !rc)
        *image = copy;
    else
        free(copy);
    return rc;
}

static void refused_as(const struct out *o, int code, const char *message)
{
    struct gguf g;
    struct qn_error e;
    int rc = parse(&g, o, NULL, &e);
    if (rc != code || strcmp(e.msg, message)) fail_msg("got %d '%s', expected %d '%s'", rc, e.msg, code, message);
}
static void refused(const struct out *o, const char *message) { refused_as(o, QN_EDATA, message); }

/* Two small tensors and a key of each kind: the base of the tests that damage a file. */
static void put_sample(struct out *o)
{
    put_head(o, 3, 2, 4);
    put_key_str(o, "general.architecture", "llama");
    put_key_u32(o, "llama.block_count", 1);
    put_array(o, "names", MT_STRING, 3);
    put_str(o, "a");
    put_str(o, "");
    put_str(o, "ccc");
    put_array(o, "numbers", MT_I16, 3);
    put(o, "\1\0\xff\xff\3\0", 6);
    put_tensor(o, "first", DT_F32, 4, 2, 0);
    put_tensor(o, "second", DT_Q8_0, 32, 2, 32);
    put_pad(o, 32);
    put_zeros(o, 32 + 68);
}

/* ---- gguf.c: what is accepted ---- */

static void test_sample(void **state)
{
    (void)state;
    struct out o;
    struct gguf g;
    struct qn_error e;
    uint8_t *image = NULL;
    for (uint32_t version = 2; version <= 3; version++) {
        put_sample(&o);
        memcpy(o.b + 4, &version, 4);
        assert_int_equal(parse(&g, &o, &image, &e), 0);
        assert_int_equal(g.version, version);
        assert_int_equal(g.alignment, 32);
        assert_int_equal(g.n_meta, 4);
        assert_int_equal(g.n_tensors, 2);
        assert_null(gguf_meta(&g, "llama"));
        const struct meta *names = gguf_meta(&g, "names");
        assert_non_null(names);
        assert_int_equal(names->n, 3);
        assert_int_equal(names->bytes, 3 * 8 + 4);

        const struct tensor *t = &g.tensors[1];
        assert_string_equal(t->name, "second");
        assert_int_equal(t->type, DT_Q8_0);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->ne[0], 32);
        assert_int_equal(t->ne[1], 2);
        assert_int_equal(t->ne[2], 1);
        assert_int_equal(t->row_bytes, 34);
        assert_int_equal(t->bytes, 68);
        assert_ptr_equal(t->data, image + g.data_start + 32);
        assert_ptr_equal(t->data + t->bytes, image + o.n);
        gguf_deinit(&g);
        free(image);
    }
}

static void test_no_tensors(void **state)
{
    (void)state;
    struct out o;
    struct gguf g;
    struct qn_error e;
    put_head(&o, 3, 0, 0);
    assert_int_equal(parse(&g, &o, NULL, &e), 0);
    assert_int_equal(g.n_tensors, 0);
    assert_null(gguf_meta(&g, "x"));
    gguf_deinit(&g);
}

static void test_gap_and_alignment(void **state)
{
    (void)state;
    struct out o;
    struct gguf g;
    struct qn_error e;
    put_head(&o, 3, 2, 1);
    put_key_u32(&o, "general.alignment", 8);
    put_tensor(&o, "a", DT_I8, 3, 1, 0);
    put_tensor(&o, "b", DT_I8, 3, 1, 24); /* 8 would do */
    put_pad(&o, 8);
    put_zeros(&o, 27);
    assert_int_equal(parse(&g, &o, NULL, &e), 0);
    assert_int_equal(g.alignment, 8);
    assert_int_equal(g.tensors[1].bytes, 3);
    gguf_deinit(&g);
}

static void test_every_tensor_type(void **state)
{
    (void)state;
    int n_types = 0;
    for (uint32_t type = 0; type < DT_N + 5; type++) {
        struct out o;
        struct gguf g;
        struct qn_error e;
        const struct dtype_info *info = type < DT_GGUF_N ? dtype_get(type) : NULL;
        if (!info) {
            char message[100];
            put_head(&o, 3, 1, 0);
            put_tensor(&o, "t", type, 256, 1, 0);
            put_zeros(&o, 3000);
            snprintf(message, sizeof message, "gguf: tensor 't' has type %u, which is unknown or was removed", type);
            refused(&o, message);
            continue;
        }
        n_types++;
        put_head(&o, 3, 1, 0);
        put_tensor(&o, "t", type, info->block, 3, 0);
        put_pad(&o, 32);
        put_zeros(&o, 3u * info->bytes + info->tail);
        assert_int_equal(parse(&g, &o, NULL, &e), 0);
        assert_int_equal(g.tensors[0].bytes, 3 * info->bytes);
        gguf_deinit(&g);
        o.n--; /* the last byte of the last row is missing */
        assert_int_equal(parse(&g, &o, NULL, &e), QN_EDATA);
    }
    assert_int_equal(n_types, 36);
}

/* ---- gguf.c: what is refused ---- */

static void test_bad_head(void **state)
{
    (void)state;
    struct out o = {.n = 0};
    refused(&o, "gguf: not a GGUF file: it begins with '' (0 bytes in all)");
    put(&o, "GG\x1bU", 4);
    refused(&o, "gguf: not a GGUF file: it begins with 'GG\\x1BU' (4 bytes in all)");
    put_head(&o, 3, 0, 0);
    o.n = 11;
    refused(&o, "gguf: header: number of tensors at byte 8 takes 8 bytes, the file has 3 more");
    put_head(&o, 1, 0, 0);
    refused_as(&o, QN_EUNSUP, "gguf: version 1 is not supported, 2 and 3 are");
    put_head(&o, 0, 0, 0);
    refused_as(&o, QN_EUNSUP, "gguf: version 0 is not supported, 2 and 3 are");
    put_head(&o, 3u << 24, 0, 0);
    refused_as(&o, QN_EUNSUP, "gguf: version reads 50331648: a big-endian file, only little-endian ones are supported");
    put_head(&o, 3, UINT64_MAX, 0);
    refused(&o, "gguf: header claims -1 tensors, accepted are 0 to 32768");
    put_head(&o, 3, 0, UINT64_C(1) << 61);
    refused(&o, "gguf: header claims 2305843009213693952 keys, accepted are 0 to 4096");
    put_head(&o, 3, 1, 4);
    put_zeros(&o, 4 * 14 + 32);
    refused(&o, "gguf: header claims 4 keys and 1 tensors, which take at least 89 bytes; the file has 88 more");
}

static void key_refused(uint32_t type, const void *value, size_t n, const char *message)
{
    struct out o;
    put_head(&o, 3, 0, 1);
    put_key(&o, "k", type, value, n);
    refused(&o, message);
}

static void test_bad_keys(void **state)
{
    (void)state;
    struct out o;
    uint64_t huge = UINT64_MAX;
    key_refused(13, "\0", 1, "gguf: key 'k' has value type 13, known are 0 to 12");
    key_refused(UINT32_MAX, "\0", 1, "gguf: key 'k' has value type -1, known are 0 to 12");
    key_refused(MT_U64, "1234567", 7, "gguf: key 'k' is cut off: value at byte 37 takes 8 bytes, the file has 7 more");
    key_refused(MT_STRING, &huge, 8,
                "gguf: key 'k' has a string of 18446744073709551615 bytes, the most accepted is 67108864");
    key_refused(MT_STRING, "\4\0\0\0\0\0\0\0abc", 11,
                "gguf: key 'k' is cut off: string at byte 45 takes 4 bytes, the file has 3 more");

    put_head(&o, 3, 0, 1);
    put_u64(&o, 65536);
    put_zeros(&o, 100);
    refused(&o, "gguf: key number 1 has a name of 65536 bytes, the most accepted is 65535");
    put_head(&o, 3, 0, 1);
    put_key_u32(&o, "", 1);
    put_zeros(&o, 1);
    refused(&o, "gguf: key number 1 has an empty name");
    put_head(&o, 3, 0, 1);
    put_strn(&o, "a\0b", 3);
    put_u32(&o, MT_U8);
    put(&o, "", 1);
    refused(&o, "gguf: key number 1 has a NUL byte in its name 'a'");
    put_head(&o, 3, 0, 3);
    put_key_u32(&o, "same", 1);
    put_key_u32(&o, "other", 1);
    put_key_u32(&o, "same", 2);
    refused(&o, "gguf: key 'same' appears twice");
}

static void array_refused(uint32_t elem, uint64_t n, size_t n_zeros, const char *message)
{
    struct out o;
    put_head(&o, 3, 0, 1);
    put_array(&o, "k", elem, n);
    put_zeros(&o, n_zeros);
    refused(&o, message);
}

static void test_bad_arrays(void **state)
{
    (void)state;
    struct out o;
    array_refused(99, 1, 8, "gguf: key 'k' has array element type 99, known are 0 to 12");
    array_refused(UINT32_MAX, 1, 8, "gguf: key 'k' has array element type -1, known are 0 to 12");
    array_refused(MT_ARRAY, 1, 8, "gguf: key 'k' is an array of arrays, which is not accepted");
    array_refused(MT_U32, UINT64_C(1) << 62, 8,
                  "gguf: key 'k' is an array of 4611686018427387904 values of 4 bytes, the file has 8 bytes more");
    array_refused(MT_F64, 2, 15, "gguf: key 'k' is an array of 2 values of 8 bytes, the file has 15 bytes more");
    array_refused(MT_STRING, UINT64_C(1) << 61, 8,
                  "gguf: key 'k' is an array of 2305843009213693952 strings, the most accepted is 1048576");
    array_refused(MT_STRING, 1 << 20, 8,
                  "gguf: key 'k' is cut off: array of strings at byte 49 takes 8388608 bytes, the file has 8 more");
    put_head(&o, 3, 0, 1);
    put_array(&o, "k", MT_STRING, 2);
    put_str(&o, "abc");
    put_u64(&o, 65537);
    refused(&o, "gguf: key 'k' has a string of 65537 bytes, the most accepted is 65536");
}

static void test_bad_alignment(void **state)
{
    (void)state;
    struct out o;
    static const struct {
        uint32_t v;
        const char *message;
    } cases[] = {
        {0, "gguf: key 'general.alignment' is 0, it must be 8 to 2147483648"},
        {4, "gguf: key 'general.alignment' is 4, it must be 8 to 2147483648"},
        {48, "gguf: key 'general.alignment' is 48, not a power of two"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_head(&o, 3, 0, 1);
        put_key_u32(&o, "general.alignment", cases[i].v);
        refused(&o, cases[i].message);
    }
    put_head(&o, 3, 0, 1);
    put_key_str(&o, "general.alignment", "32");
    refused(&o, "gguf: key 'general.alignment' is of type string, an integer is expected");
    put_head(&o, 3, 1, 1); /* the data would begin beyond the end */
    put_key_u32(&o, "general.alignment", 1u << 31);
    put_tensor(&o, "t", DT_I8, 1, 1, 0);
    put_zeros(&o, 100);
    refused(&o, "gguf: tensor 't' of 1 bytes at 2147483648 ends beyond file size 198");
}

/* One tensor with dims as given, 1 KiB of data. */
static void shape_refused(uint32_t n_dims, const uint64_t *dims, uint32_t type, const char *message)
{
    struct out o;
    put_head(&o, 3, 1, 0);
    put_str(&o, "t");
    put_u32(&o, n_dims);
    for (uint32_t d = 0; d < n_dims && d < 6; d++) put_u64(&o, dims[d]);
    put_u32(&o, type);
    put_u64(&o, 0);
    put_zeros(&o, 1024);
    refused(&o, message);
}

static void test_bad_shapes(void **state)
{
    (void)state;
    const uint64_t P32 = UINT64_C(1) << 32, P42 = UINT64_C(1) << 42;
    const uint64_t ones[6] = {1, 1, 1, 1, 1, 1};
    shape_refused(0, ones, DT_F32, "gguf: tensor 't' has 0 dimensions, accepted are 1 to 4");
    shape_refused(5, ones, DT_F32, "gguf: tensor 't' has 5 dimensions, accepted are 1 to 4");
    shape_refused(UINT32_MAX, ones, DT_F32, "gguf: tensor 't' has 4294967295 dimensions, accepted are 1 to 4");
    shape_refused(2, (uint64_t[]){4, 0}, DT_F32, "gguf: tensor 't' has dimension 1 = 0, it must be at least 1");
    shape_refused(1, (uint64_t[]){UINT64_MAX}, DT_F32, "gguf: tensor 't' has dimension 0 = -1, it must be at least 1");
    shape_refused(2, (uint64_t[]){P32, P32}, DT_F32,
                  "gguf: tensor 't' has more than 2^63 elements at dimension 1 = 4294967296");
    shape_refused(2, (uint64_t[]){P42 + 1, P42 >> 20}, DT_F32,
                  "gguf: tensor 't' has more than 2^63 elements at dimension 1 = 4194304");
    shape_refused(1, (uint64_t[]){INT64_MAX}, DT_F64,
                  "gguf: tensor 't' of 9223372036854775807 elements of F64 takes more than 2^64 bytes");
    shape_refused(4, (uint64_t[]){1, P32, P32 >> 2, 1}, DT_F32,
                  "gguf: tensor 't' of 4611686018427387904 elements of F32 takes more than 2^64 bytes");
    shape_refused(1, (uint64_t[]){33}, DT_Q4_0,
                  "gguf: tensor 't' has rows of 33 elements, not a multiple of 32, the block of Q4_0");
    shape_refused(1, (uint64_t[]){4}, UINT32_MAX, "gguf: tensor 't' has type -1, which is unknown or was removed");
}

static void test_bad_places(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, second;
        const char *message;
    } cases[] = {
        {0, 16, "gguf: tensor 'b' has offset 16, not a multiple of the alignment 32"},
        {0, 0, "gguf: tensor 'b' has offset 0 before the end of tensor 'a' at 64: they overlap or are out of order"},
        {64, 0, "gguf: tensor 'b' has offset 0 before the end of tensor 'a' at 128: they overlap or are out of order"},
        {0, UINT64_MAX - 31, "gguf: tensor 'b' has offset 18446744073709551584 beyond file size 256"},
        {0, 96, "gguf: tensor 'b' of 64 bytes at 224 ends beyond file size 256"},
        {0, 160, "gguf: tensor 'b' of 64 bytes at 288 ends beyond file size 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct out o;
        put_head(&o, 3, 2, 0);
        put_tensor(&o, "a", DT_F32, 8, 2, cases[i].first);
        put_tensor(&o, "b", DT_F32, 8, 2, cases[i].second);
        put_pad(&o, 32);
        assert_int_equal(o.n, 128);
        put_zeros(&o, 128);
        refused(&o, cases[i].message);
    }
}

static void test_bad_names(void **state)
{
    (void)state;
    struct out o;
    char name[65] = {0};
    memset(name, 'n', 64);
    put_head(&o, 3, 1, 0);
    put_tensor(&o, name, DT_I8, 1, 1, 0);
    refused(&o, "gguf: tensor number 1 has a name of 64 bytes, the most accepted is 63");
    put_head(&o, 3, 1, 0);
    put_tensor(&o, "", DT_I8, 1, 1, 0);
    put_zeros(&o, 64);
    refused(&o, "gguf: tensor number 1 has an empty name");
    put_head(&o, 3, 1, 0);
    put_strn(&o, "t\0", 2);
    put_zeros(&o, 64);
    refused(&o, "gguf: tensor number 1 has a NUL byte in its name 't'");
    put_head(&o, 3, 1, 0); /* what a terminal would act on does not get through */
    put_tensor(&o, "\x1b[2J\xff", 99, 1, 1, 0);
    refused(&o, "gguf: tensor '\\x1B[2J\\xFF' has type 99, which is unknown or was removed");
}

/* Every file that ends early is refused, in one line. */
static void test_every_truncation(void **state)
{
    (void)state;
    struct out o;
    struct gguf g;
    struct qn_error e;
    put_sample(&o);
    for (size_t full = o.n; o.n-- > 0;) {
        assert_int_equal(parse(&g, &o, NULL, &e), QN_EDATA);
        assert_true(e.msg[0] && !strchr(e.msg, '\n'));
        assert_true(o.n < full);
    }
}

/* Reads all that an accepted file offers, for the sanitizer to watch. */
static void touch_all(const struct gguf *g)
{
    struct qn_error e;
    for (size_t i = 0; i < g->n_meta; i++) {
        struct str s;
        int64_t n;
        double v;
        uint64_t cursor = 0, sum = 0;
        while (meta_next_str(&g->meta[i], &cursor, &s))
            for (size_t j = 0; j < s.n; j++) sum += (uint8_t)s.p[j];
        for (uint64_t j = 0; j < g->meta[i].n && j < 100; j++) {
            meta_elem_i64(&g->meta[i], j, &n, &e);
            meta_elem_f64(&g->meta[i], j, &v, &e);
        }
        assert_true(sum <= 255u * sizeof(struct out));
    }
    for (size_t i = 0; i < g->n_tensors; i++) finite_check(&g->tensors[i], &e);
}

static void test_random_damage(void **state)
{
    (void)state;
    int n_accepted = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        struct out o;
        struct gguf g;
        struct qn_error e;
        uint8_t *image = NULL;
        put_sample(&o);
        for (uint64_t j = 0, n = 1 + rng_u64(1, i, 0) % 4; j < n; j++) {
            uint64_t r = rng_u64(1, i, 1 + j);
            uint8_t *p = &o.b[r % o.n];
            *p = r >> 62 == 0 ? 0 : r >> 62 == 1 ? 0xff : (uint8_t)(*p ^ (1u << (r >> 32) % 8));
        }
        if (parse(&g, &o, &image, &e)) {
            assert_true(e.msg[0] && !strchr(e.msg, '\n'));
            continue;
        }
        n_accepted++;
        touch_all(&g);
        gguf_deinit(&g);
        free(image);
    }
    assert_in_range(n_accepted, 1000, 19000); /* else the damage is not where it tests anything */
}

/* ---- finite.c ---- */

static void test_finite(void **state)
{
    (void)state;
    /* where a scale of each type lies in its block, and bytes there that make it infinite or NaN */
    static const struct {
        enum dtype type;
        int at, n;
        const char *bytes;
    } cases[] = {
        {DT_F32, 0, 4, "\0\0\x80\x7f"},
        {DT_F32, 0, 4, "\1\0\x80\xff"},
        {DT_F16, 0, 2, "\0\x7c"},
        {DT_F16, 0, 2, "\1\xfc"},
        {DT_BF16, 0, 2, "\x80\x7f"},
        {DT_BF16, 0, 2, "\xc0\xff"},
        {DT_F64, 0, 8, "\0\0\0\0\0\0\xf0\x7f"},
        {DT_Q4_0, 0, 2, "\0\x7c"},
        {DT_Q4_1, 0, 2, "\0\x7c"},
        {DT_Q4_1, 2, 2, "\0\x7c"},
        {DT_Q5_0, 0, 2, "\0\x7c"},
        {DT_Q5_1, 0, 2, "\0\x7c"},
        {DT_Q5_1, 2, 2, "\0\x7c"},
        {DT_Q8_0, 0, 2, "\0\x7c"},
        {DT_Q8_1, 0, 2, "\0\x7c"},
        {DT_Q8_1, 2, 2, "\0\x7c"},
        {DT_Q1_0, 0, 2, "\0\x7c"},
        {DT_Q2_0, 0, 2, "\0\x7c"},
        {DT_Q2_K, 80, 2, "\0\x7c"},
        {DT_Q2_K, 82, 2, "\0\x7c"},
        {DT_Q3_K, 108, 2, "\0\x7c"},
        {DT_Q4_K, 0, 2, "\0\x7c"},
        {DT_Q4_K, 2, 2, "\0\x7c"},
        {DT_Q5_K, 0, 2, "\0\x7c"},
        {DT_Q5_K, 2, 2, "\0\x7c"},
        {DT_Q6_K, 208, 2, "\0\x7c"},
        {DT_Q8_K, 0, 4, "\0\0\x80\x7f"},
        {DT_IQ1_S, 0, 2, "\0\x7c"},
        {DT_IQ2_XXS, 0, 2, "\0\x7c"},
        {DT_IQ2_XS, 0, 2, "\0\x7c"},
        {DT_IQ2_S, 0, 2, "\0\x7c"},
        {DT_IQ3_XXS, 0, 2, "\0\x7c"},
        {DT_IQ3_S, 0, 2, "\0\x7c"},
        {DT_IQ4_NL, 0, 2, "\0\x7c"},
        {DT_IQ4_XS, 0, 2, "\0\x7c"},
        {DT_TQ1_0, 52, 2, "\0\x7c"},
        {DT_TQ2_0, 64, 2, "\0\x7c"},
        {DT_MXFP4, 0, 1, "\xff"},
        {DT_IQ1_M, 48, 8, "\0\0\0\0\0\xc0\0\x70"}, /* 0x7c00 spread over the top nibbles of four u16 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t data[3 * 292] = {0};
        const struct dtype_info *info = dtype_get(cases[i].type);
        struct qn_error e;
        char message[100];
        struct tensor t = {.name = "t", .type = cases[i].type, .data = data, .bytes = 3u * info->bytes};
        /* All other bits of the block may be set. */
        for (int v = 0; v < 2; v++) {
            memset(data, v ? 0xff : 0, sizeof data);
            if (v)
                for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
                    if (cases[j].type == t.type)
                        for (int b = 0; b < 3; b++) memset(data + b * info->bytes + cases[j].at, 0, (size_t)cases[j].n);
            assert_int_equal(finite_check(&t, &e), 0);
            memcpy(data + info->bytes + cases[i].at, cases[i].bytes, (size_t)cases[i].n);
            assert_int_equal(finite_check(&t, &e), QN_EDATA);
            snprintf(message, sizeof message, "gguf: tensor 't' (%s): a %s is not finite at element %d", info->name,
                     info->block == 1 ? "value" : "block scale", info->block);
            assert_string_equal(e.msg, message);
        }
    }
}

static void test_finite_largest(void **state)
{
    (void)state;
    uint8_t data[56] = {0};
    struct qn_error e;
    struct tensor t = {.name = "t", .type = DT_F16, .data = data, .bytes = 2};
    memcpy(data, "\xff\x7b", 2); /* 65504, the largest f16 */
    assert_int_equal(finite_check(&t, &e), 0);
    t.type = DT_MXFP4, t.bytes = 17;
    data[0] = 0xfe;
    assert_int_equal(finite_check(&t, &e), 0);
    t.type = DT_IQ1_M, t.bytes = 56;
    memset(data, 0xff, sizeof data);
    data[53] = 0xbf; /* one exponent bit less */
    assert_int_equal(finite_check(&t, &e), 0);
    t.type = DT_I32, t.bytes = 56;
    assert_int_equal(finite_check(&t, &e), 0);
}

/* ---- weights.c ---- */

static char folder[64];

static const char *file(const char *name)
{
    static char path[2][200];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/quern-test-gguf-XXXXXX");
    return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* One write through out_file, as a command does it. */
static int write_file(const char *path, const void *p, size_t n, struct qn_error *e)
{
    struct out_file f = {0};
    int rc = out_file_open(&f, path, e);
    if (!rc) rc = out_file_write(&f, p, n, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

static void save(const struct out *o, const char *name)
{
    struct qn_error e;
    if (write_file(file(name), o->b, o->n, &e)) fail_msg("%s", e.msg);
}

static struct weights *open_ok(const char *name)
{
    struct weights *w = NULL;
    struct qn_error e;
    if (weights_open(&w, file(name), &e)) fail_msg("%s", e.msg);
    return w;
}

/* `end` is how the message must end. */
static void open_refused(const char *name, int code, const char *end)
{
    struct weights *w = NULL;
    struct qn_error e;
    assert_int_equal(weights_open(&w, file(name), &e), code);
    assert_null(w);
    size_t n = strlen(e.msg);
    if (n < strlen(end) || strcmp(e.msg + n - strlen(end), end)) fail_msg("got '%s', expected '...%s'", e.msg, end);
    assert_non_null(strstr(e.msg, folder));
}

static void test_getters(void **state)
{
    (void)state;
    struct out o;
    const float pi = 3.25f, inf = 1.0f / 0.0f;
    const double tenth = 0.1, large = 1e300;
    const uint64_t top = UINT64_MAX;
    const int64_t low = INT64_MIN;
    put_head(&o, 3, 0, 17);
    put_key(&o, "u8", MT_U8, "\xff", 1);
    put_key(&o, "i8", MT_I8, "\xff", 1);
    put_key(&o, "u16", MT_U16, "\xff\xff", 2);
    put_key(&o, "i16", MT_I16, "\1\x80", 2);
    put_key_u32(&o, "u32", UINT32_MAX);
    put_key(&o, "i32", MT_I32, "\5\0\0\0", 4);
    put_key(&o, "u64", MT_U64, &top, 8);
    put_key(&o, "i64", MT_I64, &low, 8);
    put_key(&o, "f32", MT_F32, &pi, 4);
    put_key(&o, "inf", MT_F32, &inf, 4);
    put_key(&o, "f64", MT_F64, &tenth, 8);
    put_key(&o, "large", MT_F64, &large, 8);
    put_key(&o, "bool", MT_BOOL, "\2", 1);
    put_key_str(&o, "str", "text");
    put_array(&o, "bools", MT_BOOL, 2);
    put(&o, "\0\1", 2);
    put_array(&o, "strs", MT_STRING, 2);
    put_str(&o, "");
    put_strn(&o, "a\0b", 3);
    put_array(&o, "none", MT_STRING, 0);
    save(&o, "getters.gguf");

    struct weights *w = open_ok("getters.gguf");
    struct qn_error e;
    uint64_t u = 7, cursor = 0;
    int64_t i;
    float f;
    double d;
    bool b;
    struct str s;
    assert_int_equal(weights_n_meta(w), 17);
    assert_int_equal(weights_n_tensors(w), 0);
    assert_int_equal(weights_file_bytes(w), o.n);
    assert_int_equal(weights_version(w), 3);
    assert_int_equal(weights_n_parts(w), 1);
    assert_string_equal(weights_path(w), file("getters.gguf"));

    assert_int_equal(meta_u64(w, "absent", 0, 9, &u, &e), 0);
    assert_int_equal(u, 7);
    assert_int_equal(meta_u64(w, "u8", 0, 255, &u, &e), 1);
    assert_int_equal(u, 255);
    assert_int_equal(meta_u64(w, "u16", 0, 65535, &u, &e), 1);
    assert_int_equal(meta_u64(w, "u32", 0, UINT32_MAX, &u, &e), 1);
    assert_int_equal(meta_u64(w, "i32", 5, 5, &u, &e), 1);
    assert_int_equal(u, 5);
    assert_int_equal(meta_u64(w, "u64", 0, UINT64_MAX, &u, &e), 1);
    assert_true(u == UINT64_MAX);
    assert_int_equal(meta_u64(w, "i32", 6, 9, &u, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'i32' is 5, it must be 6 to 9");
    assert_int_equal(meta_u64(w, "i16", 0, UINT64_MAX, &u, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'i16' is -32767, it must be 0 to 18446744073709551615");
    assert_int_equal(meta_u64(w, "i64", 0, 1, &u, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'i64' is -9223372036854775808, it must be 0 to 1");
    assert_int_equal(meta_u64(w, "f32", 0, 9, &u, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'f32' is of type f32, an integer is expected");
    assert_int_equal(meta_u64(w, "bools", 0, 9, &u, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'bools' is an array of bool, an integer is expected");

    assert_int_equal(meta_f32(w, "f32", &f, &e), 1);
    assert_true(f == 3.25f);
    assert_int_equal(meta_f32(w, "f64", &f, &e), 1);
    assert_true(f == 0.1f);
    assert_int_equal(meta_f32(w, "inf", &f, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'inf' is inf, it must be a finite f32");
    assert_int_equal(meta_f32(w, "large", &f, &e), QN_EDATA);
    assert_int_equal(meta_f32(w, "u8", &f, &e), QN_EDATA);
    assert_int_equal(meta_bool(w, "bool", &b, &e), 1);
    assert_true(b);
    assert_int_equal(meta_bool(w, "u8", &b, &e), QN_EDATA);
    assert_int_equal(meta_str(w, "str", &s, &e), 1);
    assert_int_equal(s.n, 4);
    assert_memory_equal(s.p, "text", 4);
    assert_int_equal(meta_str(w, "strs", &s, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'strs' is an array of string, a string is expected");

    assert_int_equal(meta_elem_i64(weights_meta(w, "i8"), 1000, &i, &e), 0); /* a scalar is every element */
    assert_int_equal(i, -1);
    assert_int_equal(meta_elem_i64(weights_meta(w, "bools"), 1, &i, &e), 0);
    assert_int_equal(i, 1);
    assert_int_equal(meta_elem_i64(weights_meta(w, "bools"), 2, &i, &e), QN_EDATA);
    assert_string_equal(e.msg, "gguf: key 'bools' has 2 values, number 3 is missing");
    assert_int_equal(meta_elem_i64(weights_meta(w, "u64"), 0, &i, &e), QN_EDATA);
    assert_int_equal(meta_elem_i64(weights_meta(w, "i64"), 0, &i, &e), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(meta_elem_i64(weights_meta(w, "strs"), 0, &i, &e), QN_EDATA);
    assert_int_equal(meta_elem_f64(weights_meta(w, "f64"), 0, &d, &e), 0);
    assert_true(d == 0.1);
    assert_int_equal(meta_elem_f64(weights_meta(w, "strs"), 0, &d, &e), QN_EDATA);

    assert_true(meta_next_str(weights_meta(w, "strs"), &cursor, &s));
    assert_int_equal(s.n, 0);
    assert_true(meta_next_str(weights_meta(w, "strs"), &cursor, &s));
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "a\0b", 3);
    assert_false(meta_next_str(weights_meta(w, "strs"), &cursor, &s));
    cursor = 0;
    assert_false(meta_next_str(weights_meta(w, "none"), &cursor, &s));
    assert_false(meta_next_str(weights_meta(w, "bools"), &cursor, &s));
    weights_close(w);
}

static void test_open(void **state)
{
    (void)state;
    struct out o;
    struct qn_error e;
    size_t part;
    put_sample(&o);
    save(&o, "sample.gguf");
    struct weights *w = open_ok("sample.gguf");
    assert_int_equal(weights_n_tensors(w), 2);
    assert_int_equal(weights_tensor_bytes(w), 32 + 68);
    assert_ptr_equal(weights_tensor(w, "second"), weights_tensor_at(w, 1));
    assert_null(weights_tensor(w, "third"));
    assert_int_equal(weights_tensor_place(w, 1, &part), o.n - 68);
    assert_int_equal(part, 0);
    assert_int_equal(weights_check_finite(w, NULL, NULL, &e), 0);
    weights_close(w);
    weights_close(NULL);

    o.b[o.n - 67] = 0x7c;
    save(&o, "nan.gguf");
    w = open_ok("nan.gguf");
    assert_int_equal(weights_check_finite(w, NULL, NULL, &e), QN_EDATA);
    weights_close(w);

    open_refused("absent.gguf", QN_ENOINPUT, "No such file or directory");
    o.n = 0;
    save(&o, "empty.gguf");
    open_refused("empty.gguf", QN_EDATA, "empty.gguf: gguf: not a GGUF file: it begins with '' (0 bytes in all)");
    put_head(&o, 3, 0, 1);
    put_key_str(&o, "general.type", "mmproj");
    save(&o, "type.gguf");
    open_refused("type.gguf", QN_EUNSUP, "gguf: key 'general.type' is 'mmproj', only 'model' can be loaded");
    put_head(&o, 3, 2, 0);
    put_tensor(&o, "t", DT_I8, 1, 1, 0);
    put_tensor(&o, "t", DT_I8, 1, 1, 32);
    put_pad(&o, 32);
    put_zeros(&o, 33);
    save(&o, "twice.gguf");
    open_refused("twice.gguf", QN_EDATA, "gguf: tensor 't' appears twice");
}

/* Part `no` of n with one tensor of its own, under the given name. */
static void save_part(const char *name, uint32_t no, uint32_t n, uint32_t n_total, const char *tensor)
{
    struct out o;
    put_head(&o, 3, 1, 3);
    put_key(&o, "split.no", MT_U16, &no, 2);
    put_key(&o, "split.count", MT_U16, &n, 2);
    put_key(&o, "split.tensors.count", MT_I32, &n_total, 4);
    put_tensor(&o, tensor, DT_I8, 4 + no, 1, 0);
    put_pad(&o, 32);
    put_zeros(&o, 4 + no);
    save(&o, name);
}

static void test_split(void **state)
{
    (void)state;
    size_t part;
    save_part("m-00001-of-00003.gguf", 0, 3, 3, "a");
    save_part("m-00002-of-00003.gguf", 1, 3, 0, "b");
    open_refused("m-00001-of-00003.gguf", QN_ENOINPUT, "m-00003-of-00003.gguf': No such file or directory");
    save_part("m-00003-of-00003.gguf", 2, 3, 0, "c");
    struct weights *w = open_ok("m-00001-of-00003.gguf");
    assert_int_equal(weights_n_parts(w), 3);
    assert_int_equal(weights_n_tensors(w), 3);
    assert_int_equal(weights_tensor_bytes(w), 4 + 5 + 6);
    assert_int_equal(weights_tensor(w, "c")->bytes, 6);
    weights_tensor_place(w, 2, &part);
    assert_int_equal(part, 2);
    weights_close(w);

    char message[300];
    snprintf(message, sizeof message, "gguf: this is part 2 of 3 of a model, open part 1: %s",
             file("m-00001-of-00003.gguf"));
    open_refused("m-00002-of-00003.gguf", QN_EDATA, message);
}

static void test_split_refused(void **state)
{
    (void)state;
    save_part("renamed.gguf", 0, 2, 2, "a");
    open_refused("renamed.gguf", QN_EDATA,
                 "gguf: part 1 of 2 must be named PREFIX-00001-of-00002.gguf, for the others are found by their names");
    save_part("d-00001-of-00002.gguf", 0, 2, 2, "a");
    save_part("d-00002-of-00002.gguf", 1, 2, 2, "a");
    open_refused("d-00001-of-00002.gguf", QN_EDATA, "gguf: tensor 'a' appears twice");
    save_part("d-00002-of-00002.gguf", 0, 2, 2, "b");
    open_refused("d-00001-of-00002.gguf", QN_EDATA,
                 "gguf: says in split.no and split.count that it is part 1 of 2, by its name it is part 2 of 2");
    save_part("d-00002-of-00002.gguf", 1, 2, 2, "b");
    save_part("d-00001-of-00002.gguf", 0, 2, 9, "a");
    open_refused("d-00001-of-00002.gguf", QN_EDATA, "gguf: key 'split.tensors.count' is 9, the 2 parts hold 2");
    save_part("n-00001-of-00002.gguf", 2, 2, 2, "a");
    open_refused("n-00001-of-00002.gguf", QN_EDATA, "gguf: key 'split.no' is 2 of 2 parts");
    save_part("n-00001-of-65535.gguf", 0, 65535, 2, "a");
    open_refused("n-00001-of-65535.gguf", QN_EDATA, "gguf: key 'split.count' is 65535, the most accepted is 1000");
}

static bool is_b(const void *arg, const char *tensor) { return (void)arg, !strcmp(tensor, "b"); }
static bool stops(void *arg) { return (void)arg, false; }

/* Copies a part with the weights of some layers only: of "b", which is in the second one. */
static void save_layers(const char *to, const char *from, uint32_t first, uint32_t last)
{
    struct gguf_holes h = {.first = first, .last = last, .is_kept = is_b};
    struct qn_error e = {0};
    int fd = open(file(to), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (gguf_copy_with_holes(fd, to, file(from), &h, &e)) fail_msg("%s", e.msg);
    close(fd);
}

/* The second part does not fit the first one. */
static void layers_refused(const char *key)
{
    char whole[300];
    snprintf(whole, sizeof whole, "%s: gguf: has the weights of other layers than part 1: key '%s' differs",
             file("l-00002-of-00002.gguf"), key);
    open_refused("l-00001-of-00002.gguf", QN_EDATA, whole);
}

/* A part with all weights and one with holes would be a model of which nobody notices that some are missing. */
static void test_split_with_layers(void **state)
{
    (void)state;
    struct gguf_holes h = {.is_kept = is_b, .goes_on = stops};
    struct qn_error e;
    save_part("w-00001-of-00002.gguf", 0, 2, 2, "a");
    save_part("w-00002-of-00002.gguf", 1, 2, 2, "b");
    save_layers("l-00001-of-00002.gguf", "w-00001-of-00002.gguf", 3, 5);
    save_layers("l-00002-of-00002.gguf", "w-00002-of-00002.gguf", 3, 5);
    struct weights *w = open_ok("l-00001-of-00002.gguf");
    uint64_t last;
    assert_int_equal(meta_u64(w, GGUF_LAST_LAYER, 0, 9, &last, NULL), 1);
    assert_int_equal(last, 5);
    assert_int_equal(weights_n_tensors(w), 2);
    weights_close(w);
    save_layers("l-00002-of-00002.gguf", "w-00002-of-00002.gguf", 3, 4);
    layers_refused(GGUF_LAST_LAYER);
    save_part("l-00002-of-00002.gguf", 1, 2, 2, "b");
    layers_refused(GGUF_FIRST_LAYER);
    save_part("l-00001-of-00002.gguf", 0, 2, 2, "a");
    save_layers("l-00002-of-00002.gguf", "w-00002-of-00002.gguf", 0, 0);
    layers_refused(GGUF_FIRST_LAYER);

    int fd = open(file("stopped.gguf"), O_RDWR | O_CREAT, 0600);
    assert_int_equal(gguf_copy_with_holes(fd, "stopped", file("w-00001-of-00002.gguf"), &h, &e), QN_ECANCEL);
    close(fd);
    fd = open("/dev/full", O_RDWR);
    h.goes_on = NULL;
    assert_int_equal(gguf_copy_with_holes(fd, "full", file("w-00001-of-00002.gguf"), &h, &e), QN_EIO);
    close(fd);
}

/* Whichever allocation fails, the answer is QN_ENOMEM; the sanitizer's leak check sees the rest. */
static void test_faults(void **state)
{
    (void)state;
    save_part("f-00001-of-00002.gguf", 0, 2, 2, "a");
    save_part("f-00002-of-00002.gguf", 1, 2, 2, "b");
    for (uint64_t n = 1;; n++) {
        struct weights *w = NULL;
        struct qn_error e = {0};
        mem_fault_set(n);
        int rc = weights_open(&w, file("f-00001-of-00002.gguf"), &e);
        int hit = mem_fault_hit();
        mem_fault_set(0);
        if (!hit) {
            assert_int_equal(rc, 0);
            weights_close(w);
            assert_true(n > 8);
            return;
        }
        assert_int_equal(rc, QN_ENOMEM);
        assert_null(w);
        assert_int_equal(e.code, QN_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_gap_and_alignment),
        cmocka_unit_test(test_every_tensor_type),
        cmocka_unit_test(test_bad_head),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_bad_arrays),
        cmocka_unit_test(test_bad_alignment),
        cmocka_unit_test(test_bad_shapes),
        cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_finite),
        cmocka_unit_test(test_finite_largest),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_refused),
        cmocka_unit_test(test_split_with_layers),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
