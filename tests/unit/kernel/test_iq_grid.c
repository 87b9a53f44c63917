/* SPDX-License-Identifier: MIT
 *
 * test_iq_grid.c: the codebooks are the format's, by the CRC32 of their bytes, and the sign masks
 * follow their rule. The checksums come with the published listing of the codebooks. The planes of the AVX-512 VBMI
 * level say the same as the codebooks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

#ifdef __x86_64__
#include "kernel/avx512/words.h"
#include "kernel/avx512vbmi/planes.h"

static void the_words_hold_the_entries_of_the_codebooks(void **state)
{
    static const struct {
        const uint64_t *grid;
        const uint16_t *words;
        int n;
    } octets[] = {{iq2xxs_grid, iq2xxs_words, 256}, {iq2xs_grid, iq2xs_words, 512}, {iq2s_grid, iq2s_words, 1024}};
    static const int magnitude[4] = {8, 25, 43, -1}, xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < octets[t].n; i++)
            for (int e = 0; e < 8; e++)
                assert_int_equal(magnitude[octets[t].words[i] >> (2 * e) & 3], octets[t].grid[i] >> (8 * e) & 0xff);
    for (int i = 0; i < 2048; i++)
        for (int e = 0; e < 8; e++) assert_int_equal(iq1s_words[i] >> (2 * e) & 3, iq1s_grid[i] >> (8 * e) & 3);
    for (int i = 0; i < 512; i++)
        for (int e = 0; e < 4; e++) {
            if (i < 256) assert_int_equal(xxs[iq3xxs_words[i] >> (4 * e) & 15], iq3xxs_grid[i] >> (8 * e) & 0xff);
            assert_int_equal(2 * (iq3s_words[i] >> (4 * e) & 15) + 1, iq3s_grid[i] >> (8 * e) & 0xff);
        }
}

static uint32_t byte_of(const uint64_t *words, int i) { return (uint32_t)(words[i / 8] >> (i % 8 * 8) & 0xff); }

/* What the pair codes make of a plane's digit, with no sign. */
static int element_of(const uint64_t *codes, uint32_t plane, int e)
{
    uint32_t two = plane >> (e % 4 / 2 * 4) & 15;
    return (int)byte_of(codes, 64 * (e % 2) + (int)two);
}

/* Plane 1 of IQ1 as its steps say it. */
static uint32_t stepped(int i)
{
    uint32_t from = byte_of(iq1s_steps, 256 + i / 16);
    return byte_of(iq1s_steps, i / 16 + ((uint32_t)i % 16 >= from ? 128 : 0));
}

static void octets_agree(const uint64_t *grid, const uint64_t *planes, int n)
{
    for (int i = 0; i < n; i++)
        for (int e = 0; e < 8; e++) {
            int value = (int8_t)(grid[i] >> (8 * e)), p = n * (e / 4) + i;
            if (grid == iq1s_grid)
                assert_int_equal(element_of(iq1_pair_codes, e < 4 ? byte_of(planes, i) : stepped(i), e),
                                 17 + 8 * value);
            else
                assert_int_equal(element_of(iq2_pair_codes, byte_of(planes, p), e), 64 + value);
        }
}

static void the_planes_hold_the_entries_of_the_codebooks(void **state)
{
    (void)state;
    octets_agree(iq2xxs_grid, iq2xxs_planes, 256);
    octets_agree(iq2xs_grid, iq2xs_planes, 512);
    octets_agree(iq2s_grid, iq2s_planes, 1024);
    octets_agree(iq1s_grid, iq1s_planes, 2048);
    for (int i = 0; i < 512; i++)
        for (int e = 0; e < 4; e++) {
            if (i < 256) assert_int_equal(byte_of(iq3xxs_planes, 256 * e + i), iq3xxs_grid[i] >> (8 * e) & 0xff);
            uint32_t pair = byte_of(iq3s_planes, 512 * (e / 2) + i);
            assert_int_equal(pair >> (e % 2 * 4) & 15, iq3s_grid[i] >> (8 * e) & 0xff);
        }
}

static void the_pair_codes_obey_their_signs(void **state)
{
    (void)state;
    for (int i = 0; i < 128; i++) {
        int digit = i >> (i / 64 * 2) & 3, plain = i & ~0x30;
        if (digit == 3) continue;
        bool minus = i >> (4 + i / 64) & 1;
        int iq2 = (int)byte_of(iq2_pair_codes, plain) - 64;
        assert_int_equal(byte_of(iq2_pair_codes, i), 64 + (minus ? -iq2 : iq2));
        assert_int_equal(byte_of(iq1_pair_codes, i), 8 * digit + 8 + (i & 16 ? -1 : 1));
        assert_int_equal(byte_of(iq_sign_bytes, i), iq_signs((uint32_t)i));
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_signs),
#ifdef __x86_64__
        cmocka_unit_test(the_words_hold_the_entries_of_the_codebooks),
        cmocka_unit_test(the_planes_hold_the_entries_of_the_codebooks),
        cmocka_unit_test(the_pair_codes_obey_their_signs),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
