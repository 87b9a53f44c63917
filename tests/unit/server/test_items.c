/* SPDX-License-Identifier: MIT
 *
 * test_items.c: which responses the store keeps, for whom, in how much memory, and which of them leave first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "server/api/item_store.h"

enum { ME = 1, YOU = 2 };

static struct item_store *new_store(struct ledger *l, size_t most)
{
    struct item_store *s = NULL;
    assert_int_equal(item_store_new(&s, l, most, NULL), 0);
    return s;
}

static struct item_record *begin(struct item_store *s, uint64_t who, const char *id, struct item_record *previous)
{
    struct buf input = {0};
    assert_int_equal(buf_str(&input, "{\"data\":[]}", NULL), 0);
    return item_store_begin(s, who, id, previous, &input);
}

/* Keeps a response of n bytes that continues another, which may be NULL. */
static bool keep(struct item_store *s, uint64_t who, const char *id, const char *previous, size_t n)
{
    char text[4096];
    assert_true(n <= sizeof text);
    memset(text, 'x', n);
    struct item_record *before = previous ? item_store_find(s, who, previous) : NULL;
    struct item_record *r = begin(s, who, id, before);
    item_store_release(s, before);
    bool kept = r && item_store_keep(s, r, text, n);
    item_store_release(s, r);
    return kept;
}

static bool has(struct item_store *s, uint64_t who, const char *id)
{
    struct item_record *r = item_store_find(s, who, id);
    item_store_release(s, r);
    return r != NULL;
}

static void test_a_response_is_found_by_its_owner_once_it_is_complete(void **state)
{
    struct ledger l;
    (void)state;
    ledger_init(&l, 1 << 20);
    struct item_store *s = new_store(&l, 1 << 16);
    struct item_record *r = begin(s, ME, "resp_1", NULL);
    assert_non_null(r);
    assert_false(has(s, ME, "resp_1"));
    assert_true(item_store_keep(s, r, "{}", 2));
    item_store_release(s, r);
    assert_true(has(s, ME, "resp_1"));
    assert_false(has(s, YOU, "resp_1"));
    assert_false(item_store_drop(s, YOU, "resp_1"));
    r = item_store_find(s, ME, "resp_1");
    assert_string_equal(r->input.data, "{\"data\":[]}");
    assert_memory_equal(r->response, "{}", 3);
    assert_int_equal(ledger_used(&l), item_store_used(s));
    assert_true(item_store_used(s) >= sizeof *r + r->input.cap + 3);
    item_store_release(s, r);
    assert_true(item_store_drop(s, ME, "resp_1"));
    assert_false(has(s, ME, "resp_1"));
    assert_false(item_store_drop(s, ME, "resp_1"));
    assert_int_equal(item_store_used(s), 0);
    assert_int_equal(ledger_used(&l), 0);
    item_store_free(s);
}

static void test_the_response_that_was_used_longest_ago_leaves_first(void **state)
{
    (void)state;
    struct item_store *s = new_store(NULL, 8192);
    assert_true(keep(s, ME, "a", NULL, 2000) && keep(s, ME, "b", NULL, 2000) && keep(s, ME, "c", NULL, 2000));
    assert_true(has(s, ME, "a")); /* and so it is used */
    assert_true(keep(s, ME, "d", NULL, 2000));
    assert_true(has(s, ME, "a") && !has(s, ME, "b") && has(s, ME, "c") && has(s, ME, "d"));
    assert_true(item_store_used(s) <= 8192);
    item_store_free(s);
}

static void test_who_keeps_most_loses_first(void **state)
{
    char id[8];
    (void)state;
    struct item_store *s = new_store(NULL, 8192);
    assert_true(keep(s, YOU, "a", NULL, 2000));
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "%d", i);
        assert_true(keep(s, ME, id, NULL, 1000));
    }
    assert_true(has(s, YOU, "a") && has(s, ME, "19") && !has(s, ME, "0"));
    assert_true(keep(s, YOU, "b", NULL, 4000)); /* the larger part is now theirs */
    assert_true(!has(s, YOU, "a") && has(s, YOU, "b") && has(s, ME, "19"));
    item_store_free(s);
}

static void test_what_is_too_large_is_not_kept_and_drives_nothing_out(void **state)
{
    struct ledger l;
    (void)state;
    ledger_init(&l, 3000);
    struct item_store *s = new_store(&l, 2500);
    assert_true(keep(s, ME, "a", NULL, 10));
    assert_false(keep(s, ME, "large", NULL, 2600));
    assert_false(has(s, ME, "large"));
    assert_true(has(s, ME, "a"));
    assert_int_equal(ledger_take(&l, 1500, "a request", NULL), 0); /* the share is not free any more */
    assert_false(keep(s, ME, "large", NULL, 1500));
    assert_true(has(s, ME, "a"));
    ledger_give(&l, 1500);
    assert_true(keep(s, ME, "large", NULL, 1500));
    item_store_free(s);
    assert_int_equal(ledger_used(&l), 0);
}

static void test_a_conversation_loses_its_last_turns_first(void **state)
{
    char name[8], before[8] = "";
    (void)state;
    struct item_store *s = new_store(NULL, 6800);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_true(keep(s, ME, name, i ? before : NULL, 1000));
        memcpy(before, name, sizeof name);
    }
    assert_true(keep(s, ME, "another", NULL, 3000));
    assert_true(!has(s, ME, "t3") && !has(s, ME, "t2") && has(s, ME, "t1") && has(s, ME, "t0") &&
                has(s, ME, "another"));
    item_store_free(s);
}

static void test_a_dropped_turn_stays_for_those_that_continue_it(void **state)
{
    (void)state;
    struct item_store *s = new_store(NULL, 1 << 16);
    assert_true(keep(s, ME, "first", NULL, 10) && keep(s, ME, "second", "first", 10));
    assert_true(item_store_drop(s, ME, "first"));
    struct item_record *r = item_store_find(s, ME, "second");
    assert_string_equal(r->previous->id, "first");
    assert_false(has(s, ME, "first"));
    assert_true(item_store_drop(s, ME, "second")); /* while it is held */
    assert_true(item_store_used(s) > 0);
    item_store_release(s, r);
    assert_int_equal(item_store_used(s), 0);
    item_store_free(s);
}

static void test_no_store_keeps_nothing(void **state)
{
    (void)state;
    assert_null(begin(NULL, ME, "a", NULL));
    assert_null(item_store_find(NULL, ME, "a"));
    assert_false(item_store_drop(NULL, ME, "a"));
    item_store_release(NULL, NULL);
    item_store_free(NULL);
}

static void test_without_memory_nothing_is_lost(void **state)
{
    struct ledger l;
    (void)state;
    ledger_init(&l, 1 << 20);
    for (uint64_t n = 1, hit = 1; hit; n++) {
        struct item_store *s = new_store(&l, 1 << 16);
        struct buf input = {0};
        assert_int_equal(buf_str(&input, "{}", NULL), 0);
        mem_fault_set(n);
        struct item_record *r = item_store_begin(s, ME, "a", NULL, &input);
        bool kept = r && item_store_keep(s, r, "{}", 2);
        hit = (uint64_t)mem_fault_hit();
        mem_fault_set(0);
        item_store_release(s, r);
        assert_true(kept == has(s, ME, "a") && kept == !hit);
        item_store_free(s);
        assert_int_equal(ledger_used(&l), 0);
    }
}

/* ---- several threads ---- */

static struct item_store *common;

static void *use(void *arg)
{
    uint64_t who = *(uint64_t *)arg;
    char id[8], before[8] = "0";
    for (int i = 0; i < 2000; i++) {
        snprintf(id, sizeof id, "%d", i % 50);
        if (i % 7 == 0) item_store_drop(common, who, id);
        keep(common, who, id, i % 5 ? before : NULL, (size_t)(i % 300));
        memcpy(before, id, sizeof id);
    }
    return NULL;
}

static void test_threads_may_use_it_together(void **state)
{
    pthread_t thread[4];
    uint64_t who[4] = {ME, ME, YOU, YOU};
    (void)state;
    common = new_store(NULL, 20000);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], NULL, use, &who[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    assert_true(item_store_used(common) <= 20000);
    item_store_free(common); /* it asserts that every byte was given back */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_response_is_found_by_its_owner_once_it_is_complete),
        cmocka_unit_test(test_the_response_that_was_used_longest_ago_leaves_first),
        cmocka_unit_test(test_who_keeps_most_loses_first),
        cmocka_unit_test(test_what_is_too_large_is_not_kept_and_drives_nothing_out),
        cmocka_unit_test(test_a_conversation_loses_its_last_turns_first),
        cmocka_unit_test(test_a_dropped_turn_stays_for_those_that_continue_it),
        cmocka_unit_test(test_no_store_keeps_nothing),
        cmocka_unit_test(test_without_memory_nothing_is_lost),
        cmocka_unit_test(test_threads_may_use_it_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
