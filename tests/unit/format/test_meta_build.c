/* SPDX-License-Identifier: MIT
 *
 * test_meta_build.c: metadata that was built reads back as what was put in; without memory nothing is lost or leaked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "format/file/meta.h"
#include "format/file/meta_build.h"

static int fill(struct meta_build *b, struct qn_error *e)
{
    int rc;
    if ((rc = meta_build_u32(b, "a.n", 4000000000u, e)) || (rc = meta_build_f32(b, "a.f", 0.1f, e)) ||
        (rc = meta_build_bool(b, "a.yes", true, e)) || (rc = meta_build_str(b, "a.text", "x\0y", 3, e)) ||
        (rc = meta_build_array(b, "a.words", MT_STRING, e)) || (rc = meta_build_add_str(b, "one", 3, e)) ||
        (rc = meta_build_add_str(b, "", 0, e)) || (rc = meta_build_array(b, "a.none", MT_F32, e)) ||
        (rc = meta_build_array(b, "a.ids", MT_I32, e)))
        return rc;
    for (int32_t i = 0; i < 1000; i++)
        if ((rc = meta_build_add_i32(b, -i, e))) return rc;
    if ((rc = meta_build_array(b, "a.flags", MT_BOOL, e)) || (rc = meta_build_add_bool(b, false, e)) ||
        (rc = meta_build_add_bool(b, true, e)) || (rc = meta_build_array(b, "a.scores", MT_F32, e)))
        return rc;
    return meta_build_add_f32(b, -2.5f, e);
}

static const struct meta *find(const struct meta_list *l, const char *key)
{
    uint32_t i;
    assert_true(names_find(&l->keys, (struct str){key, strlen(key)}, &i));
    return &l->meta[i];
}

static void test_round_trip(void **state)
{
    (void)state;
    struct meta_build b = {0};
    struct meta_list l;
    struct str s;
    uint64_t v, cursor = 0;
    int64_t n;
    double d;
    assert_int_equal(fill(&b, NULL), 0);
    assert_true(meta_build_has(&b, "a.text") && !meta_build_has(&b, "a.t"));
    assert_int_equal(meta_build_finish(&b, &l, NULL), 0);
    assert_null(b.bytes.data);
    assert_int_equal(l.n, 9);
    assert_int_equal(meta_get_u64(find(&l, "a.n"), 0, UINT64_MAX, &v, NULL), 0);
    assert_int_equal(v, 4000000000u);
    assert_int_equal(meta_elem_f64(find(&l, "a.f"), 0, &d, NULL), 0);
    assert_true((float)d == 0.1f);
    assert_int_equal(meta_elem_i64(find(&l, "a.yes"), 0, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(meta_next_str(find(&l, "a.text"), &cursor, &s));
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "x\0y", 3);
    const struct meta *words = find(&l, "a.words");
    cursor = 0;
    assert_int_equal(words->n, 2);
    assert_true(meta_next_str(words, &cursor, &s) && s.n == 3 && !memcmp(s.p, "one", 3));
    assert_true(meta_next_str(words, &cursor, &s) && s.n == 0);
    assert_false(meta_next_str(words, &cursor, &s));
    assert_int_equal(find(&l, "a.none")->n, 0);
    assert_int_equal(find(&l, "a.ids")->bytes, 4000);
    assert_int_equal(meta_elem_i64(find(&l, "a.ids"), 999, &n, NULL), 0);
    assert_int_equal(n, -999);
    assert_int_equal(meta_elem_i64(find(&l, "a.flags"), 1, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(meta_elem_f64(find(&l, "a.scores"), 0, &d, NULL), 0);
    assert_true(d == -2.5);
    meta_list_deinit(&l);
}

static void test_empty(void **state)
{
    (void)state;
    struct meta_build b = {0};
    struct meta_list l;
    assert_false(meta_build_has(&b, "a"));
    assert_int_equal(meta_build_finish(&b, &l, NULL), 0);
    assert_int_equal(l.n, 0);
    meta_list_deinit(&l);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (uint64_t i = 1;; i++) {
        struct meta_build b = {0};
        struct meta_list l = {0};
        struct qn_error e;
        mem_fault_set(i);
        int rc = fill(&b, &e);
        if (!rc) rc = meta_build_finish(&b, &l, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(rc, hit ? QN_ENOMEM : 0);
        meta_build_deinit(&b);
        meta_list_deinit(&l);
        if (!hit) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
