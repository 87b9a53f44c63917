/* SPDX-License-Identifier: MIT
 *
 * test_dtype.c: the table of tensor types, written down a second time by id, and what is not a type.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/dtype.h"

static const struct {
    int id;
    const char *name;
    int block, bytes;
} types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {36, "I2_S", 256, 64},
    {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
    {43, "MLX2", 32, 8},      {44, "MLX3", 32, 12},     {45, "MLX4", 32, 16},     {46, "MLX5", 32, 20},
    {47, "MLX6", 32, 24},     {48, "MLX8", 32, 32},
};
#define N_TYPES (sizeof types / sizeof *types)

static void all_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        const struct dtype_info *d = dtype_get(types[i].id);
        assert_non_null(d);
        assert_string_equal(d->name, types[i].name);
        assert_int_equal(d->block, types[i].block);
        assert_int_equal(d->bytes, types[i].bytes);
    }
}

static void nothing_else(void **state)
{
    (void)state;
    size_t n = 0;
    for (int64_t id = -1000; id < 1000; id++) n += dtype_get(id) != NULL;
    assert_int_equal(n, N_TYPES);
    assert_null(dtype_get(INT64_MIN));
    assert_null(dtype_get(INT64_MAX));
    assert_null(dtype_get((int64_t)1 << 32)); /* 0 in its low half */
}

static void rows(void **state)
{
    (void)state;
    assert_int_equal(dtype_row_bytes(DT_F32, 0), 0);
    assert_int_equal(dtype_row_bytes(DT_F32, 3), 12);
    assert_int_equal(dtype_row_bytes(DT_Q8_0, 288), 306);
    assert_int_equal(dtype_row_bytes(DT_Q6_K, 4096), 3360);
    assert_int_equal(dtype_row_bytes(DT_Q1_0, (int64_t)1 << 40), ((size_t)1 << 33) * 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_types),
        cmocka_unit_test(nothing_else),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
