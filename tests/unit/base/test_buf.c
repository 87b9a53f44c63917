/* SPDX-License-Identifier: MIT
 *
 * test_buf.c: growing, formatting, and staying intact when memory is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static void grows_and_stays_a_string(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 10000; i++) {
        uint8_t c = (uint8_t)(i % 251);
        assert_int_equal(buf_add(&b, &c, 1, NULL), 0);
        assert_int_equal(b.len, i + 1);
        assert_int_equal(b.data[b.len], 0);
    }
    for (int i = 0; i < 10000; i++) assert_int_equal(b.data[i], i % 251);
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal((char *)b.data, "");
    buf_deinit(&b);
    assert_true(!b.data && !b.len && !b.cap);
    buf_clear(&b);
    buf_deinit(&b);
}

static void empty_additions(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_add(&b, NULL, 0, NULL), 0);
    assert_string_equal((char *)b.data, "");
    assert_int_equal(buf_str(&b, "", NULL), 0);
    assert_int_equal(buf_printf(&b, NULL, "%s", ""), 0);
    assert_int_equal(b.len, 0);
    buf_deinit(&b);
}

static void prints_any_length(void **state)
{
    (void)state;
    for (int w = 1; w < 300; w++) { /* across the first capacities */
        struct buf b = {0};
        assert_int_equal(buf_str(&b, "<", NULL), 0);
        assert_int_equal(buf_printf(&b, NULL, "%*d>", w, 7), 0);
        assert_int_equal(b.len, w + 2);
        assert_int_equal(b.data[w], '7');
        assert_int_equal(b.data[w + 1], '>');
        assert_int_equal(b.data[b.len], 0);
        buf_deinit(&b);
    }
}

static void reserve_makes_adding_safe(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_reserve(&b, 1000, NULL), 0);
    mem_fault_set(1);
    for (int i = 0; i < 1000; i++) assert_int_equal(buf_add(&b, "x", 1, NULL), 0);
    assert_int_equal(mem_fault_hit(), 0);
    mem_fault_set(0);
    buf_deinit(&b);
}

static void failure_changes_nothing(void **state)
{
    (void)state;
    char big[4096];
    struct buf b = {0};
    struct qn_error e;
    memset(big, 'y', sizeof big);
    assert_int_equal(buf_str(&b, "kept", NULL), 0);
    struct buf before = b;

    mem_fault_set(1);
    assert_int_equal(buf_add(&b, big, sizeof big, &e), QN_ENOMEM);
    mem_fault_set(1);
    assert_int_equal(buf_printf(&b, &e, "%4000d", 1), QN_ENOMEM);
    mem_fault_set(1);
    assert_int_equal(buf_reserve(&b, 5000, &e), QN_ENOMEM);
    mem_fault_set(0);
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 2, &e), QN_ENOMEM);

    assert_ptr_equal(b.data, before.data);
    assert_int_equal(b.cap, before.cap);
    assert_string_equal((char *)b.data, "kept");
    buf_deinit(&b);
}

static void memory_is_taken_from_a_ledger(void **state)
{
    (void)state;
    char text[2000];
    struct ledger l;
    struct buf b = {0};
    struct qn_error e;
    memset(text, 'z', sizeof text);
    ledger_init(&l, 3000);
    assert_int_equal(buf_add_from(&b, &l, text, 700, &e), 0);
    assert_int_equal(ledger_used(&l), b.cap);
    assert_int_equal(buf_add_from(&b, &l, text, 1, &e), 0);
    assert_int_equal(ledger_used(&l), b.cap);
    struct buf before = b;
    assert_int_equal(buf_add_from(&b, &l, text, 2000, &e), 0);
    assert_int_equal(buf_add_from(&b, &l, text, 2000, &e), QN_ENOMEM); /* beyond the ledger */
    assert_int_equal(b.len, before.len + 2000);
    assert_int_equal(ledger_used(&l), b.cap);
    buf_deinit_from(&b, &l);
    assert_int_equal(ledger_used(&l), 0);
    mem_fault_set(1);
    assert_int_equal(buf_reserve_from(&b, &l, 100, &e), QN_ENOMEM); /* the allocator's refusal */
    mem_fault_set(0);
    assert_int_equal(ledger_used(&l), 0);
    ledger_init(&l, 50); /* less than the smallest buffer: nothing is allocated */
    uint64_t calls = mem_n_calls();
    assert_int_equal(buf_add_from(&b, &l, "x", 1, &e), QN_ENOMEM);
    assert_int_equal(mem_n_calls(), calls);
    assert_null(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_a_string), cmocka_unit_test(empty_additions),
        cmocka_unit_test(prints_any_length),        cmocka_unit_test(reserve_makes_adding_safe),
        cmocka_unit_test(failure_changes_nothing),  cmocka_unit_test(memory_is_taken_from_a_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
