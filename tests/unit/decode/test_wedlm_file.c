/* SPDX-License-Identifier: MIT
 *
 * test_wedlm_file.c: which token is the mask, which parameters a file has, and every value that is refused.
 *
 * The model, its vocabulary and its file are played: they are only a list of metadata.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "decode/wedlm_file.h"
#include "format/file/meta_build.h"

static struct meta_list list;
static qn_token role; /* the mask of the vocabulary */

qn_token vocab_role(const struct vocab *v, enum vocab_role of)
{
    assert_true(!v && of == VOCAB_MASK);
    return role;
}
const struct meta *weights_meta(const struct weights *w, const char *key)
{
    uint32_t i;
    (void)w;
    return names_find(&list.keys, (struct str){key, strlen(key)}, &i) ? &list.meta[i] : NULL;
}

static int read_file(struct meta_build *b, int n_vocab, struct wedlm_file *f, struct qn_error *e)
{
    struct model m = {0};
    m.hp.n_vocab = n_vocab;
    assert_int_equal(meta_build_finish(b, &list, e), 0);
    int rc = wedlm_file_read(f, &m, e);
    meta_list_deinit(&list);
    meta_build_deinit(b);
    return rc;
}

static void test_defaults(void **state)
{
    (void)state;
    struct meta_build b = {0};
    struct qn_error e = {0};
    struct wedlm_file f;
    role = -1;
    assert_int_equal(read_file(&b, 200000, &f, &e), 0);
    assert_true(f.mask == -1 && f.params.window == 16 && f.params.entropy_threshold == 0.4f);
    role = 11; /* by its text */
    b = (struct meta_build){0};
    assert_int_equal(read_file(&b, 200000, &f, &e), 0);
    assert_int_equal(f.mask, 11);
}

/* A key goes before a text of the vocabulary; a folder of the type `wedlm` has a default. */
static void test_mask(void **state)
{
    (void)state;
    struct meta_build b = {0};
    struct qn_error e = {0};
    struct wedlm_file f;
    role = 11;
    assert_int_equal(meta_build_u32(&b, "tokenizer.ggml.mask_token_id", 99, &e), 0);
    assert_int_equal(read_file(&b, 100, &f, &e), 0);
    assert_int_equal(f.mask, 99);
    for (int n = WEDLM_MASK; n <= WEDLM_MASK + 1; n++) {
        b = (struct meta_build){0};
        role = -1;
        assert_int_equal(meta_build_bool(&b, "quern.wedlm", true, &e), 0);
        assert_int_equal(read_file(&b, n, &f, &e), 0);
        assert_int_equal(f.mask, n > WEDLM_MASK ? WEDLM_MASK : -1);
    }
}

static void test_params(void **state)
{
    (void)state;
    struct meta_build b = {0};
    struct qn_error e = {0};
    struct wedlm_file f;
    assert_int_equal(meta_build_u32(&b, "wedlm.window_size", 6, &e), 0);
    assert_int_equal(meta_build_f32(&b, "wedlm.entropy_threshold", 0, &e), 0);
    assert_int_equal(meta_build_f32(&b, "wedlm.pos_penalty", 0.125f, &e), 0);
    assert_int_equal(read_file(&b, 100, &f, &e), 0);
    assert_true(f.params.window == 6 && f.params.entropy_threshold == 0 && f.params.pos_penalty == 0.125f);
}

static void bad_int(const char *key, int64_t v, const char *message)
{
    struct meta_build b = {0};
    struct qn_error e = {0};
    struct wedlm_file f;
    int rc = v < 0 ? meta_build_array(&b, key, MT_I32, &e) : meta_build_u32(&b, key, (uint32_t)v, &e);
    if (!rc && v < 0) rc = meta_build_add_i32(&b, (int32_t)v, &e);
    assert_int_equal(rc, 0);
    if (read_file(&b, 100, &f, &e) != QN_EDATA || !strstr(e.msg, message)) fail_msg("%s\nis not: %s", e.msg, message);
}

static void bad_float(const char *key, float v, const char *message)
{
    struct meta_build b = {0};
    struct qn_error e = {0};
    struct wedlm_file f;
    assert_int_equal(meta_build_f32(&b, key, v, &e), 0);
    if (read_file(&b, 100, &f, &e) != QN_EDATA || !strstr(e.msg, message)) fail_msg("%s\nis not: %s", e.msg, message);
}

static void test_refusals(void **state)
{
    (void)state;
    bad_int("tokenizer.ggml.mask_token_id", 100, "wedlm: tokenizer.ggml.mask_token_id is 100, not 0..99");
    bad_int("tokenizer.ggml.mask_token_id", 4294967295, "wedlm: tokenizer.ggml.mask_token_id is 4294967295, not 0..99");
    bad_int("tokenizer.ggml.mask_token_id", -1, "wedlm: tokenizer.ggml.mask_token_id is an array");
    bad_float("tokenizer.ggml.mask_token_id", 7, "tokenizer.ggml.mask_token_id");
    bad_int("wedlm.window_size", 0, "wedlm: wedlm.window_size is 0, not 1..16");
    bad_int("wedlm.window_size", 17, "wedlm: wedlm.window_size is 17, not 1..16");
    bad_float("wedlm.window_size", 4, "wedlm.window_size");
    bad_float("wedlm.entropy_threshold", -0.5f, "wedlm: wedlm.entropy_threshold is -0.5, not 0..100");
    bad_float("wedlm.entropy_threshold", NAN, "wedlm.entropy_threshold");
    bad_float("wedlm.pos_penalty", INFINITY, "wedlm.pos_penalty");
    bad_float("wedlm.pos_penalty", 1e30f, "wedlm: wedlm.pos_penalty is 1e+30, not 0..100");
    bad_int("wedlm.pos_penalty", -1, "wedlm.pos_penalty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
