/* SPDX-License-Identifier: MIT
 *
 * test_rng.c: Philox4x32-10 against the known answers of Random123, and the shape of what is made of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

/* "philox4x32 10" of Random123's kat_vectors: counter, key, result; words in order. */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } t[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        uint64_t seed = t[i].key[0] | (uint64_t)t[i].key[1] << 32;
        uint64_t position = t[i].ctr[0] | (uint64_t)t[i].ctr[1] << 32;
        uint64_t stream = t[i].ctr[2] | (uint64_t)t[i].ctr[3] << 32;
        uint32_t out[4];
        rng_block(seed, stream, position, out);
        assert_memory_equal(out, t[i].out, sizeof out);
        assert_int_equal(rng_u64(seed, stream, position), t[i].out[0] | (uint64_t)t[i].out[1] << 32);
    }
}

static void every_argument_matters(void **state)
{
    (void)state;
    uint64_t x = rng_u64(1, 2, 3);
    assert_int_equal(x, rng_u64(1, 2, 3));
    for (int bit = 0; bit < 64; bit++) {
        uint64_t m = 1ull << bit;
        assert_int_not_equal(x, rng_u64(1 ^ m, 2, 3));
        assert_int_not_equal(x, rng_u64(1, 2 ^ m, 3));
        assert_int_not_equal(x, rng_u64(1, 2, 3 ^ m));
    }
}

/* Mean 1/2 and variance 1/12 within five standard errors of 1e5 draws, and never 1. */
static void uniform(void **state)
{
    (void)state;
    const int n = 100000;
    double sum = 0, sq = 0;
    for (int i = 0; i < n; i++) {
        double u = rng_uniform(7, 0, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        sq += (u - 0.5) * (u - 0.5);
    }
    assert_true(sum / n > 0.5 - 0.0046 && sum / n < 0.5 + 0.0046);
    assert_true(sq / n > 1 / 12.0 - 0.0012 && sq / n < 1 / 12.0 + 0.0012);
}

static void seeds_differ(void **state)
{
    (void)state;
    assert_int_not_equal(rng_seed_from_os(), rng_seed_from_os());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(every_argument_matters),
        cmocka_unit_test(uniform),
        cmocka_unit_test(seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
