/* SPDX-License-Identifier: MIT
 *
 * test_share.c: the counters behind fair shares.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/core/share.h"

static void who_was_idle_does_not_catch_up(void **state)
{
    (void)state;
    struct shares s;
    assert_int_equal(shares_init(&s, 4, NULL), 0);
    struct share *a = share_enter(&s, 1), *b = share_enter(&s, 2);
    a->served += 100;
    b->served += 300;
    share_leave(a);
    b->served += 700;
    assert_ptr_equal(share_enter(&s, 1), a);
    assert_int_equal(share_key(a), 1000); /* not 100: 900 rows in a row would be its due */
    struct share *c = share_enter(&s, 3);
    assert_int_equal(share_key(c), 1000);
    shares_deinit(&s);
}

static void what_was_used_is_remembered(void **state)
{
    (void)state;
    struct shares s;
    assert_int_equal(shares_init(&s, 4, NULL), 0);
    struct share *a = share_enter(&s, 1), *b = share_enter(&s, 2);
    a->served += 500;
    b->expected = 50;
    share_leave(a);
    a = share_enter(&s, 1);
    assert_int_equal(share_key(a), 500);
    assert_int_equal(share_key(b), 50);
    shares_deinit(&s);
}

static void idle_ones_give_way(void **state)
{
    (void)state;
    struct shares s;
    assert_int_equal(shares_init(&s, 2, NULL), 0);
    struct share *a = share_enter(&s, 1);
    a->served = 7;
    for (uint64_t i = 2; i < 1000; i++) share_leave(share_enter(&s, i));
    assert_ptr_equal(share_enter(&s, 1), a);
    assert_int_equal(a->served, 7);
    assert_true(s.n == s.cap);
    shares_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_was_idle_does_not_catch_up),
                                       cmocka_unit_test(what_was_used_is_remembered),
                                       cmocka_unit_test(idle_ones_give_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
