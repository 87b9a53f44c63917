/* SPDX-License-Identifier: MIT
 *
 * test_iq_grid.c: the codebooks are the format's, by the CRC32 of their bytes, and the sign masks
 * follow their rule. The checksums come with the published listing of the codebooks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/iq_grid.h"

/* zlib's CRC32 (reflected, polynomial 0xedb88320) of n entries of `width` bytes, lowest byte first. */
static uint32_t crc_of(const void *entries, int n, int width)
{
    uint32_t crc = 0xffffffffu;
    for (int i = 0; i < n; i++) {
        uint64_t e = width == 8 ? ((const uint64_t *)entries)[i] : ((const uint32_t *)entries)[i];
        for (int j = 0; j < width; j++) {
            crc ^= (uint32_t)(e >> (8 * j) & 0xff);
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

static void test_crc(void **state)
{
    (void)state;
    assert_int_equal(crc_of(iq2xxs_grid, 256, 8), 0x9924ff02);
    assert_int_equal(crc_of(iq2xs_grid, 512, 8), 0xfa1e1bfd);
    assert_int_equal(crc_of(iq2s_grid, 1024, 8), 0x25ae5bf1);
    assert_int_equal(crc_of(iq3xxs_grid, 256, 4), 0x07ba9ed0);
    assert_int_equal(crc_of(iq3s_grid, 512, 4), 0xf576e4f3);
    assert_int_equal(crc_of(iq1s_grid, 2048, 8), 0xb85e6ccf);
}

static void test_signs(void **state)
{
    (void)state;
    assert_int_equal(iq_signs(0), 0);
    assert_int_equal(iq_signs(1), 0x81);
    assert_int_equal(iq_signs(3), 3);
    assert_int_equal(iq_signs(127), 0xff);
    for (uint32_t i = 0; i < 128; i++) {
        int n = 0;
        for (int j = 0; j < 8; j++) n += iq_signs(i) >> j & 1;
        assert_int_equal(n % 2, 0);
        assert_int_equal(iq_signs(i) & 127, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crc), cmocka_unit_test(test_signs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
