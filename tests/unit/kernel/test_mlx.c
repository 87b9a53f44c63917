/* SPDX-License-Identifier: MIT
 *
 * test_mlx.c: the values of packed rows, beside a reader of bits one by one.
 *
 * The products with them are compared with the reference's in tests/kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/kernel.h"

enum { K = 256 };

static uint64_t random64(void)
{
    static uint64_t s = 88172645463325252u; /* xorshift64 */
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

/* 1.5, -0.25, 3 ... as each of the types; exact in all of them. */
static void put_scale(enum dtype t, uint8_t *p, int i, float v)
{
    static const uint16_t half[] = {0x3e00, 0xb400, 0x4200, 0x3c00, 0x0000, 0xc500, 0x3555, 0x4900};
    uint32_t u;
    memcpy(&u, &v, 4);
    uint16_t bf = (uint16_t)(u >> 16);
    if (t == DT_F32) memcpy(p + 4 * i, &u, 4);
    if (t == DT_BF16) memcpy(p + 2 * i, &bf, 2);
    if (t == DT_F16) memcpy(p + 2 * i, &half[i], 2);
}

static void check(enum dtype type, int bits, enum dtype side_type, int group)
{
    static const float values[] = {1.5f, -0.25f, 3, 1, 0, -5, 0x1.554p-2f, 10};
    uint8_t row[K], scale[4 * 8], bias[4 * 8];
    float y[K];
    size_t bytes = dtype_row_bytes(type, K);
    assert_int_equal(bytes, K * bits / 8);
    for (size_t i = 0; i < bytes; i++) row[i] = (uint8_t)random64();
    for (int i = 0; i < 8; i++) put_scale(side_type, scale, i, side_type == DT_BF16 && i == 6 ? 1 : values[i]);
    for (int i = 0; i < 8; i++) put_scale(side_type, bias, i, side_type == DT_BF16 && i == 6 ? 1 : values[i]);
    const struct side side = {scale, bias, side_type, group};
    dequant_row(type, row, &side, K, y);
    for (int e = 0; e < K; e++) {
        int code = 0;
        for (int i = 0; i < bits; i++) code |= (row[(e * bits + i) / 8] >> (e * bits + i) % 8 & 1) << i;
        float v = side_type == DT_BF16 && e / group == 6 ? 1 : values[e / group];
        assert_true(y[e] == v * (float)code + v);
    }
}

static void test_rows(void **state)
{
    static const struct {
        enum dtype type;
        int bits;
    } types[] = {{DT_MLX2, 2}, {DT_MLX3, 3}, {DT_MLX4, 4}, {DT_MLX5, 5}, {DT_MLX6, 6}, {DT_MLX8, 8}};
    static const enum dtype sides[] = {DT_F32, DT_F16, DT_BF16};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (size_t j = 0; j < 3; j++)
            for (int group = 32; group <= 128; group *= 2) check(types[i].type, types[i].bits, sides[j], group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
