/* SPDX-License-Identifier: MIT
 *
 * test_hash.c: the hash is XXH3-64: values that are on disk must not change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"

static void known_values(void **state)
{
    (void)state;
    assert_int_equal(hash_bytes("", 0, 0), 0x2D06800538D394C2ull); /* xxHash's published value of the empty input */
    assert_int_equal(hash_bytes(NULL, 0, 0), 0x2D06800538D394C2ull);
    assert_int_equal(hash_bytes("abc", 3, 0), 0x78AF5F94892F3950ull);
}

/* A sweep over the lengths at which XXH3 changes its method: every bit of input and seed counts. */
static void input_and_seed_matter(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t x[1000] = {0};
        uint64_t h = hash_bytes(x, sizes[i], 0);
        assert_int_not_equal(h, hash_bytes(x, sizes[i], 1));
        assert_int_not_equal(h, hash_bytes(x, sizes[i] - 1, 0));
        for (size_t k = 0; k < sizes[i]; k++) {
            x[k] ^= 0x10;
            assert_int_not_equal(h, hash_bytes(x, sizes[i], 0));
            x[k] ^= 0x10;
        }
        assert_int_equal(h, hash_bytes(x, sizes[i], 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(input_and_seed_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
