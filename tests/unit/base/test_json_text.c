/* SPDX-License-Identifier: MIT
 *
 * test_json_text.c: the text of a document, with every allocation failing in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/json/json_text.h"

static void text_is_added_after_what_is_there(void **state)
{
    (void)state;
    struct buf b = {0};
    json_t *j = json_pack("{s:[i,b], s:s}", "a", 1, 1, "b", "\"\xC3\xA4");
    assert_int_equal(buf_str(&b, "data: ", NULL), 0);
    assert_int_equal(json_text_add(&b, j, JSON_COMPACT, "a test", NULL), 0);
    assert_string_equal((char *)b.data, "data: {\"a\":[1,true],\"b\":\"\\\"\xC3\xA4\"}");
    json_decref(j);
    buf_deinit(&b);
}

static void a_value_alone_is_a_document(void **state)
{
    (void)state;
    struct buf b = {0};
    json_t *j = json_string("x");
    assert_int_equal(json_text_add(&b, j, JSON_COMPACT, "a test", NULL), 0);
    assert_string_equal((char *)b.data, "\"x\"");
    json_decref(j);
    buf_deinit(&b);
}

static void no_document_is_no_memory(void **state)
{
    (void)state;
    struct buf b = {0};
    struct qn_error e = {0};
    assert_int_equal(json_text_add(&b, NULL, 0, "a request", &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "a request"));
    assert_true(!b.data && !b.len);
}

/* Keys longer than the buffer's spare room: writing one of them has to allocate. */
static json_t *document_of_long_keys(void)
{
    char key[600];
    json_t *j = json_object();
    for (int i = 0; i < 20; i++) {
        memset(key, 'a' + i, sizeof key - 1);
        key[sizeof key - 1] = '\0';
        assert_int_equal(json_object_set_new(j, key, json_integer(i)), 0);
    }
    return j;
}

static void every_failing_allocation_is_told_and_leaves_the_buffer(void **state)
{
    (void)state;
    json_t *j = document_of_long_keys();
    uint64_t n = 1;
    for (;; n++) {
        struct buf b = {0};
        struct qn_error e = {0};
        assert_int_equal(buf_str(&b, "before", NULL), 0);
        mem_fault_set(n);
        int rc = json_text_add(&b, j, JSON_COMPACT, "a test", &e);
        int was_hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(rc, was_hit ? QN_ENOMEM : 0);
        if (was_hit) assert_string_equal((char *)b.data, "before");
        buf_deinit(&b);
        if (!was_hit) break;
    }
    assert_true(n > 5);
    json_decref(j);
}

int main(void)
{
    json_set_alloc_funcs(mem_alloc, mem_free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_added_after_what_is_there),
        cmocka_unit_test(a_value_alone_is_a_document),
        cmocka_unit_test(no_document_is_no_memory),
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
