/* SPDX-License-Identifier: MIT
 *
 * test_mem.c: allocation and its fault hook, the ledger under concurrency, the arena.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

static void allocates(void **state)
{
    (void)state;
    uint64_t before = mem_n_calls();
    uint8_t *a = mem_alloc(100), *z = mem_alloc(0), *c = mem_calloc(10, 10), *c0 = mem_calloc(0, 8);
    assert_true(a && z && c && c0);
    for (int i = 0; i < 100; i++) assert_int_equal(c[i], 0);
    memset(a, 7, 100);
    a = mem_realloc(a, 200);
    assert_non_null(a);
    assert_int_equal(a[99], 7);
    char *d = mem_dup("ab\0c", 4);
    assert_memory_equal(d, "ab\0c", 5);
    char *d0 = mem_dup(NULL, 0);
    assert_string_equal(d0, "");
    assert_int_equal(mem_n_calls() - before, 7);
    mem_free(a), mem_free(z), mem_free(c), mem_free(c0), mem_free(d), mem_free(d0);
    mem_free(NULL);
}

static void aligns(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 5000};
    for (size_t align = 16; align <= 4096; align *= 4)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t *p = mem_aligned(align, sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            memset(p, 1, sizes[i]);
            mem_free(p);
        }
}

static void refuses_overflow(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX; /* hides the silly size from the compiler */
    assert_null(mem_calloc(huge / 2, 3));
    assert_null(mem_calloc(3, huge / 2));
    assert_null(mem_aligned(64, huge - 10));
    assert_null(mem_dup("", huge));
}

static void fails_the_nth_call_once(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 5; n++) {
        mem_fault_set(n);
        for (uint64_t i = 1; i <= 7; i++) {
            assert_int_equal(mem_fault_hit(), i > n);
            void *p = i % 2 ? mem_alloc(8) : mem_aligned(64, 8);
            assert_int_equal(p == NULL, i == n);
            mem_free(p);
        }
    }
    mem_fault_set(2);
    mem_fault_set(0);
    for (int i = 0; i < 3; i++) {
        void *p = mem_alloc(1);
        assert_non_null(p);
        mem_free(p);
    }
    assert_int_equal(mem_fault_hit(), 0);
}

static void failed_realloc_keeps_the_block(void **state)
{
    (void)state;
    char *p = mem_dup("kept", 4);
    mem_fault_set(1);
    assert_null(mem_realloc(p, 1000));
    assert_string_equal(p, "kept");
    mem_free(p);
}

static void ledger_refuses_with_numbers(void **state)
{
    (void)state;
    struct ledger l;
    struct qn_error e = {0};
    ledger_init(&l, 1000);
    assert_int_equal(ledger_take(&l, 600, "weights", &e), 0);
    assert_int_equal(ledger_take(&l, 401, "KV pages", &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "KV pages needs 401 bytes, 400 of 1000"));
    assert_int_equal(ledger_used(&l), 600);
    assert_int_equal(ledger_take(&l, SIZE_MAX, "everything", &e), QN_ENOMEM);
    assert_int_equal(ledger_take(&l, 400, "KV pages", &e), 0);
    assert_int_equal(ledger_take(&l, 0, "nothing", &e), 0);
    ledger_give(&l, 1000);
    assert_int_equal(ledger_used(&l), 0);
}

static void a_part_of_a_ledger_has_its_own_budget(void **state)
{
    (void)state;
    struct ledger whole, part;
    struct qn_error e = {0};
    ledger_init(&whole, 1000);
    ledger_init_part(&part, &whole, 600);
    assert_int_equal(ledger_take(&part, 601, "grammars", &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "600 of 600"));
    assert_int_equal(ledger_take(&part, 300, "grammars", &e), 0);
    assert_int_equal(ledger_used(&whole), 300);
    assert_int_equal(ledger_take(&whole, 500, "others", &e), 0);
    assert_int_equal(ledger_take(&part, 201, "grammars", &e), QN_ENOMEM); /* the whole has too little */
    assert_non_null(strstr(e.msg, "200 of 1000"));
    assert_true(ledger_used(&part) == 300 && ledger_used(&whole) == 800);
    ledger_give(&part, 300);
    assert_true(ledger_used(&part) == 0 && ledger_used(&whole) == 500);
}

static void *taker(void *arg)
{
    struct ledger *l = arg;
    intptr_t held = 0, worst = 0;
    for (int i = 0; i < 20000; i++) {
        if (ledger_take(l, 3, "x", NULL) == 0) held += 3;
        if (ledger_used(l) > l->budget) worst = 1;
        if (held && i % 3 == 0) {
            ledger_give(l, 3);
            held -= 3;
        }
    }
    ledger_give(l, (size_t)held);
    return (void *)worst;
}

static void ledger_is_exact_between_threads(void **state)
{
    (void)state;
    struct ledger l;
    pthread_t t[4];
    ledger_init(&l, 1000);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, taker, &l), 0);
    for (int i = 0; i < 4; i++) {
        void *worst;
        pthread_join(t[i], &worst);
        assert_null(worst);
    }
    assert_int_equal(ledger_used(&l), 0);
}

static void arena_bumps_and_resets(void **state)
{
    (void)state;
    struct arena a = {0};
    struct qn_error e;
    assert_int_equal(arena_init(&a, 300, &e), 0);
    assert_int_equal(a.size, 320);
    uint64_t before = mem_n_calls();
    uint8_t *p = arena_get(&a, 1), *q = arena_get(&a, 65), *r = arena_get(&a, 128);
    assert_ptr_equal(p + 64, q);
    assert_ptr_equal(q + 128, r);
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(a.used, 320);
    assert_non_null(arena_get(&a, 0));
    arena_reset(&a);
    assert_ptr_equal(arena_get(&a, 10), p);
    assert_int_equal(a.high, 320);
    assert_int_equal(mem_n_calls(), before);
    arena_deinit(&a);
    assert_null(a.base);

    mem_fault_set(1);
    assert_int_equal(arena_init(&a, 77, &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "77"));
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocates),
        cmocka_unit_test(aligns),
        cmocka_unit_test(refuses_overflow),
        cmocka_unit_test(fails_the_nth_call_once),
        cmocka_unit_test(failed_realloc_keeps_the_block),
        cmocka_unit_test(ledger_refuses_with_numbers),
        cmocka_unit_test(a_part_of_a_ledger_has_its_own_budget),
        cmocka_unit_test(ledger_is_exact_between_threads),
        cmocka_unit_test(arena_bumps_and_resets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
