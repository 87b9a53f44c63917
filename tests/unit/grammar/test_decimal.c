/* SPDX-License-Identifier: MIT
 *
 * test_decimal.c: numbers compared and divided digit by digit, against integer arithmetic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/regex/decimal.h"

/* A number of thousandths, in one of several spellings. */
static void spell(char out[32], long thousandths, unsigned n_digits)
{
    long v = labs(thousandths);
    int n = snprintf(out, 32, "%s%ld.%03ld", thousandths < 0 ? "-" : "", v / 1000, v % 1000);
    while (n_digits < 3 && out[n - 1] == '0') {
        out[--n] = '\0';
        n_digits++;
    }
    if (out[n - 1] == '.') out[n - 1] = '\0';
}

static struct decimal decimal(long thousandths)
{
    struct decimal d;
    json_t *x = json_real((double)thousandths / 1000);
    assert_true(decimal_of(&d, x));
    json_decref(x);
    return d;
}

static bool compares(const struct decimal *x, const char *text, enum decimal_order order)
{
    struct decimal_place at = {0};
    for (const char *p = text; *p; p++) assert_true(decimal_read(x, &at, (uint8_t)*p));
    return decimal_ends(x, &at, order);
}

static const long some[] = {0,    1,     -1,    10,    100,    1000,  -1000,  999,    1001,    1500,   -1500, 2000,
                            9999, 10000, 10001, 12345, -12345, 99999, 100000, 120000, -120000, 123456, 500,   -500};

static void comparisons_are_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        for (size_t k = 0; k < sizeof some / sizeof some[0]; k++)
            for (unsigned digits = 0; digits <= 3; digits++) {
                char text[32];
                struct decimal x = decimal(some[i]);
                spell(text, some[k], digits);
                assert_int_equal(compares(&x, text, DECIMAL_LESS), some[k] < some[i]);
                assert_int_equal(compares(&x, text, DECIMAL_AT_MOST), some[k] <= some[i]);
                assert_int_equal(compares(&x, text, DECIMAL_MORE), some[k] > some[i]);
                assert_int_equal(compares(&x, text, DECIMAL_AT_LEAST), some[k] >= some[i]);
            }
}

static void multiples_are_exact(void **state)
{
    (void)state;
    static const long divisors[] = {1, 7, 10, 250, 500, 1000, 1500, 3000, 7000};
    for (size_t i = 0; i < sizeof divisors / sizeof divisors[0]; i++)
        for (long v = -20000; v <= 20000; v += 37) {
            char text[32];
            struct decimal x = decimal(divisors[i]);
            struct decimal_rest at = {0};
            bool possible = true;
            spell(text, v, 0);
            for (const char *p = text; *p && possible; p++) possible = decimal_divide(&x, &at, (uint8_t)*p);
            assert_int_equal(possible && at.rest == 0, v % divisors[i] == 0);
        }
}

static void values_have_their_shortest_text(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
    } cases[] = {{"0.1", "0.1"},
                 {"-0.0", "0"},
                 {"1e3", "1000"},
                 {"1.50", "1.5"},
                 {"123456789012345678", "123456789012345678"},
                 {"1e-7", "0.0000001"},
                 {"-2.5e1", "-25"},
                 {"1e22", "10000000000000000000000"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[DECIMAL_DIGITS + 3];
        struct decimal d;
        json_t *x = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        assert_true(decimal_of(&d, x));
        json_decref(x);
        assert_int_equal(decimal_write(&d, text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
    }
    struct decimal d;
    json_t *x = json_string("1");
    assert_false(decimal_of(&d, x));
    json_decref(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons_are_exact),
        cmocka_unit_test(multiples_are_exact),
        cmocka_unit_test(values_have_their_shortest_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
