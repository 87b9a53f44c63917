/* SPDX-License-Identifier: MIT
 *
 * test_emulation.c: the emulated instructions against the real ones, on machines that have them, bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/cpu.h"
#include "products.h"

enum { N_ROUNDS = 300, TILE = 16 * 64 };

static uint64_t n_drawn;

static uint64_t draw(void) { return rng_u64(5, 1, n_drawn++); }

static int draw_between(int low, int high) { return low + (int)(draw() % (uint64_t)(high - low + 1)); }

/* Any bytes, or only those that give the largest sums. */
static void fill_bytes(uint8_t *p, size_t n)
{
    static const uint8_t extremes[] = {0, 127, 128, 255};
    const bool is_extreme = draw() % 4 == 0;
    for (size_t i = 0; i < n; i++) p[i] = is_extreme ? extremes[draw() % 4] : (uint8_t)draw();
}

/* bf16: integers of at most 8 bits, as the kernels use, or any normal numbers around 1. */
static void fill_bf16(uint8_t *p, size_t n)
{
    const bool is_integer = draw() % 2;
    for (size_t i = 0; i < n; i += 2) {
        float x = (float)draw_between(-255, 255);
        uint32_t bits;
        if (!is_integer) x = (float)draw_between(-1000000, 1000000) / 777777.0F;
        memcpy(&bits, &x, sizeof bits);
        memcpy(p + i, (uint8_t *)&bits + 2, 2);
    }
}

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t n_rows[16];
};

/* Tiles of any shapes that match: sums n_rows x n_columns, n_k dwords in a row of a. */
static struct config random_config(void)
{
    struct config c = {.palette = 1};
    const int n_rows = draw() % 2 ? 16 : draw_between(1, 16), n_columns = draw() % 2 ? 16 : draw_between(1, 16);
    const int n_k = draw() % 2 ? 16 : draw_between(1, 16);
    c.n_rows[0] = c.n_rows[1] = (uint8_t)n_rows;
    c.row_bytes[0] = c.row_bytes[2] = (uint16_t)(4 * n_columns);
    c.row_bytes[1] = (uint16_t)(4 * n_k);
    c.n_rows[2] = (uint8_t)n_k;
    return c;
}

static void tile_products(void **state)
{
    (void)state;
    if (!cpu_has(CPU_AMX)) skip();
    for (int i = 0; i < N_ROUNDS; i++)
        for (int kind = 0; kind < TILE_PRODUCT_N; kind++) {
            _Alignas(64) uint8_t a[TILE], b[TILE], want[TILE], got[TILE];
            const struct config c = random_config();
            void (*const fill)(uint8_t * p, size_t n) = kind == TILE_BF16 ? fill_bf16 : fill_bytes;
            fill(a, sizeof a);
            fill(b, sizeof b);
            for (size_t j = 0; j < sizeof want; j += 4) {
                const int32_t integer = (int32_t)draw();
                const float real = (float)draw_between(-100000, 100000);
                memcpy(want + j, kind == TILE_BF16 ? (const void *)&real : (const void *)&integer, 4);
            }
            memcpy(got, want, sizeof got);
            tile_product_real((enum tile_product)kind, &c, a, b, want);
            tile_product_emulated((enum tile_product)kind, &c, a, b, got);
            assert_memory_equal(got, want, sizeof want);
        }
}

static void dword_products(void **state)
{
    (void)state;
    if (!cpu_has(CPU_AVXVNNI)) skip();
    for (int i = 0; i < N_ROUNDS; i++)
        for (int kind = 0; kind < DWORD_PRODUCT_N; kind++) {
            uint8_t a[32], b[32];
            int32_t want[8], got[8];
            fill_bytes(a, sizeof a);
            fill_bytes(b, sizeof b);
            for (int j = 0; j < 8; j++) want[j] = (int32_t)draw();
            memcpy(got, want, sizeof got);
            dword_product_real((enum dword_product)kind, a, b, want);
            dword_product_emulated((enum dword_product)kind, a, b, got);
            assert_memory_equal(got, want, sizeof want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_products),
        cmocka_unit_test(dword_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
