/* SPDX-License-Identifier: MIT
 *
 * test_safetensors.c: headers of safetensors files: what is read, and every refusal.
 *
 * Each image is handed over in a heap block of exactly its size, so that a sanitizer sees a read beyond the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/hf/safetensors.h"

/* The image of a file: length, header, n_data bytes. */
static uint8_t *image(const char *header, size_t n_data, size_t *size)
{
    uint64_t n = strlen(header);
    uint8_t *p = malloc(8 + n + n_data);
    memcpy(p, &n, 8);
    memcpy(p + 8, header, n);
    for (size_t i = 0; i < n_data; i++) p[8 + n + i] = (uint8_t)i;
    *size = 8 + n + n_data;
    return p;
}

static void refused(const char *header, size_t n_data, const char *message)
{
    struct safetensors s = {0};
    struct qn_error e = {0};
    size_t size;
    uint8_t *p = image(header, n_data, &size);
    int rc = safetensors_parse(&s, p, size, &e);
    free(p);
    assert_int_equal(rc, QN_EDATA);
    if (!strstr(e.msg, message)) fail_msg("%s\nis not: %s", e.msg, message);
    assert_null(s.header);
}

#define TWO_BY_THREE "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"

static void test_read(void **state)
{
    (void)state;
    struct safetensors s;
    size_t size;
    uint8_t *p = image("{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"late\":{\"dtype\":\"BF16\",\"shape\":[1,2,1],\"data_offsets\":[32,36]},"
                       "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[24,24]},"
                       "\"one\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[36,37]},"
                       "\"six\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[37,38]},"
                       "\"words\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[40,44]}," TWO_BY_THREE "}   ",
                       44, &size);
    assert_int_equal(safetensors_parse(&s, p, size, NULL), 0);
    assert_int_equal(s.n, 6);
    const struct st_tensor *t = &s.tensor[0];
    assert_string_equal(t->name, "a");
    assert_int_equal(t->type, DT_F32);
    assert_int_equal(t->n_dims, 2);
    assert_true(t->dim[0] == 2 && t->dim[1] == 3 && t->bytes == 24 && t->data == p + size - 44);
    assert_string_equal(s.tensor[1].name, "none");
    assert_int_equal(s.tensor[1].bytes, 0);
    assert_string_equal(s.tensor[2].name, "late");
    assert_int_equal(s.tensor[2].type, DT_BF16);
    assert_true(s.tensor[2].data[0] == 32);
    assert_true(s.tensor[3].type == -1 && s.tensor[3].n_dims == 0 && s.tensor[3].bytes == 1);
    assert_true(s.tensor[4].bytes == 1 && !strcmp(s.tensor[4].type_name, "F4"));
    assert_true(s.tensor[5].is_u32 && !s.tensor[4].is_u32);
    safetensors_deinit(&s);
    safetensors_deinit(&s);
    free(p);
    p = image("{}", 0, &size);
    assert_int_equal(safetensors_parse(&s, p, size, NULL), 0);
    assert_int_equal(s.n, 0);
    safetensors_deinit(&s);
    free(p);
}

static void test_lengths(void **state)
{
    (void)state;
    struct safetensors s;
    struct qn_error e;
    static const struct {
        uint64_t length;
        size_t size;
        const char *message;
    } cases[] = {
        {0, 0, "the file has 0 bytes, no header"},
        {0, 7, "the file has 7 bytes, no header"},
        {1, 8, "header of 1 bytes, the file has 0 more"},
        {3, 10, "header of 3 bytes, the file has 2 more"},
        {(uint64_t)1 << 30, 16, "header of 1073741824 bytes, the most accepted is 104857600"},
        {UINT64_MAX, 16, "header of 18446744073709551615 bytes, the most accepted"},
        {UINT64_MAX - 7, 16, "the most accepted"},
        {0, 8, "line 1: "}, /* no JSON */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *p = calloc(1, cases[i].size + !cases[i].size);
        memcpy(p, &cases[i].length, cases[i].size < 8 ? cases[i].size : 8);
        assert_int_equal(safetensors_parse(&s, p, cases[i].size, &e), QN_EDATA);
        if (!strstr(e.msg, cases[i].message)) fail_msg("%s\nis not: %s", e.msg, cases[i].message);
        free(p);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    refused("[]", 0, "not a JSON object");
    refused("{\"a\":", 0, "line 1: ");
    refused("{" TWO_BY_THREE "," TWO_BY_THREE "}", 24, "duplicate object key");
    refused("{" TWO_BY_THREE "} x", 24, "line 1: ");
    refused("{\"\":{}}", 0, "a tensor has an empty name");
    refused("{\"a\":7}", 0, "tensor 'a' is not described by an object");
    refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 'a' has no dtype");
    refused("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 'a' has no dtype");
    refused("{\"a\":{\"dtype\":\"Q4_K\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "has dtype 'Q4_K', which is unknown");
    refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor 'a' has no shape");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
            "dimension 0 is not a number from 0");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1.0],\"data_offsets\":[0,4]}}", 4, "dimension 1 is not a number");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "has 9 dimensions");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
            "more than 2^63 elements at dimension 1");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "too many bytes");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0, "dimension 0");
    refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "ends inside a byte");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "has no data_offsets of two numbers");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "has no data_offsets");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4, "has no data_offsets");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "lies from 4 to 0");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "lies from -4 to 0");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}", 4,
            "ends at byte 5 of the data, there are 4");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
            "has 4 bytes, its shape and type make 8");
    refused("{" TWO_BY_THREE ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[23,27]}}", 32,
            "'a' and 'b' overlap");
    refused("{" TWO_BY_THREE ",\"b\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}", 32, "overlap");
    refused("{\"\\u202e\\n\":{}}", 0, "tensor '\\x"); /* nothing that turns a terminal around */
}

/* A header of commas would take 100 times its size as a tree. */
static void test_values(void **state)
{
    (void)state;
    size_t n = ST_MAX_VALUES + 10;
    char *text = malloc(n + 1);
    memset(text, ',', n);
    text[n] = 0;
    refused(text, 0, "values, the most accepted is");
    memset(text, '[', 3000); /* deep */
    text[3000] = 0;
    refused(text, 0, "line 1: maximum parsing depth reached");
    free(text);
}

static void test_no_memory(void **state)
{
    (void)state;
    size_t size;
    uint8_t *p = image("{" TWO_BY_THREE "}", 24, &size);
    struct safetensors s;
    mem_fault_set(1);
    assert_int_equal(safetensors_parse(&s, p, size, NULL), QN_ENOMEM);
    mem_fault_set(0);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),   cmocka_unit_test(test_lengths),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_values), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
