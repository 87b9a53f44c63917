/* SPDX-License-Identifier: MIT
 *
 * test_vocab.c: loading a vocabulary (strictly), tokens with a role, and special tokens in text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "base/pool.h"
#include "text/token/detok.h"
#include "text/token/lexicon.h"
#include "../tiny_vocab.h"

#define N_BASE 10
/* A `llama` vocabulary; tests append to it. */
static const char *const base_text[N_BASE] = {"<unk>", "<s>", "</s>",         "▁",       "a",
                                              "b",     "ab",  "<|im_start|>", "<think>", "<|im_end|>"};
static const int32_t base_type[N_BASE] = {2, 3, 3, 1, 1, 1, 1, 3, 4, 1};

struct options {
    const char *model; /* NULL: llama */
    const char *const *extra;
    const int32_t *extra_type;
    size_t n_extra;
    void (*more)(struct vfile *f); /* adds keys */
};

static struct weights *make(const struct options *o)
{
    const char *text[64];
    int32_t type[64];
    float score[64] = {0};
    size_t n = N_BASE + o->n_extra;
    struct vfile f = {0};
    memcpy(text, base_text, sizeof base_text);
    memcpy(type, base_type, sizeof base_type);
    for (size_t i = 0; i < o->n_extra; i++)
        text[N_BASE + i] = o->extra[i], type[N_BASE + i] = o->extra_type ? o->extra_type[i] : 1;
    vf_str(&f, "tokenizer.ggml.model", o->model ? o->model : "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", text, n);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, n);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, n);
    if (o->more) o->more(&f);
    return vf_open(&f);
}

static struct vocab *load(const struct options *o, struct weights **w)
{
    struct vocab *v = NULL;
    struct qn_error e;
    *w = make(o);
    int rc = vocab_load(&v, *w, &e);
    if (rc) print_error("%s\n", e.msg);
    assert_int_equal(rc, 0);
    return v;
}

static void close_both(struct vocab *v, struct weights *w)
{
    vocab_free(v);
    weights_close(w);
}

static void check(const struct vocab *v, unsigned flags, const char *text, size_t n_want, const qn_token *want)
{
    qn_token *ids;
    size_t n;
    assert_int_equal(vocab_encode(v, text, strlen(text), flags, &ids, &n, NULL), 0);
    assert_int_equal(n, n_want);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], want[i]);
    mem_free(ids);
}

/* ---- roles and flags ---- */

static void defaults_of_llama(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){0}, &w);
    assert_int_equal(vocab_n_tokens(v), N_BASE);
    assert_int_equal(vocab_bos(v), 1);
    assert_int_equal(vocab_eos(v), 2);
    assert_int_equal(vocab_role(v, VOCAB_UNK), 0);
    assert_int_equal(vocab_role(v, VOCAB_EOT), 9); /* by its text, though the file calls it normal */
    assert_int_equal(vocab_mask(v), -1);
    assert_true(vocab_add_bos(v) && !vocab_add_eos(v) && vocab_adds_space(v, true));
    assert_true(vocab_is_eog(v, 2) && vocab_is_eog(v, 9));
    assert_false(vocab_is_eog(v, 7) || vocab_is_eog(v, -1) || vocab_is_eog(v, 99));
    assert_true(vocab_is_control(v, 9) && vocab_is_control(v, 0));
    assert_false(vocab_is_control(v, 8) || vocab_is_control(v, -1) || vocab_is_control(v, N_BASE));
    assert_true(vocab_is_special(v, 8));
    assert_false(vocab_is_valid(v, N_BASE) || vocab_is_valid(v, -1));
    assert_int_equal(vocab_find(v, "ab", 2), 6);
    assert_int_equal(vocab_find(v, "", 0), -1);
    close_both(v, w);
}

static void ids_and_flags(struct vfile *f)
{
    vf_u32(f, "tokenizer.ggml.bos_token_id", 7);
    vf_u32(f, "tokenizer.ggml.eos_token_id", N_BASE);       /* outside */
    vf_u32(f, "tokenizer.ggml.mask_token_id", 0xFFFFFFFFu); /* outside */
    vf_bool(f, "tokenizer.ggml.add_bos_token", true);
    vf_bool(f, "tokenizer.ggml.add_eos_token", true);
    vf_bool(f, "tokenizer.ggml.add_space_prefix", false);
}

static void ids_outside_the_vocabulary_are_switched_off(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){.more = ids_and_flags}, &w);
    assert_int_equal(vocab_bos(v), 7);
    assert_int_equal(vocab_eos(v), -1);
    assert_int_equal(vocab_mask(v), -1);
    assert_true(vocab_add_bos(v) && vocab_add_eos(v) && !vocab_adds_space(v, true));
    check(v, VOCAB_ADD_SPECIAL, "a", 2, (qn_token[]){7, 4}); /* no EOS to add */
    check(v, VOCAB_ADD_SPECIAL, "", 1, (qn_token[]){7});
    check(v, 0, "", 0, NULL);
    close_both(v, w);
}

static void gpt_oss_markup_is_shown_but_not_spelt(void **state)
{
    (void)state;
    static const char *const extra[] = {"<|return|>", "<|call|>", "<|end|>", "<|channel|>"};
    static const int32_t type[] = {3, 3, 3, 3};
    struct weights *w;
    struct vocab *v = load(&(struct options){.extra = extra, .extra_type = type, .n_extra = 4}, &w);
    struct buf out = {0};
    assert_true(vocab_is_eog(v, 10) && vocab_is_eog(v, 11));
    assert_false(vocab_is_eog(v, 12) || vocab_is_eog(v, 13));
    assert_int_equal(vocab_token_bytes(v, 12, false, &out, NULL), 0);
    assert_int_equal(vocab_token_bytes(v, 10, false, &out, NULL), 0);
    assert_string_equal((char *)out.data, "<|end|>");
    qn_token *ids;
    size_t n;
    assert_int_equal(vocab_encode(v, "<|end|>", 7, 0, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) assert_int_not_equal(ids[i], 12);
    mem_free(ids);
    buf_deinit(&out);
    close_both(v, w);
}

static void eos_at_b(struct vfile *f)
{
    static const char *const merges[] = {"a b"};
    vf_strs(f, "tokenizer.ggml.merges", merges, 1);
    vf_u32(f, "tokenizer.ggml.eos_token_id", 5);
    vf_u32(f, "tokenizer.ggml.eot_token_id", 6);
}

static void a_role_does_not_take_a_letter_out_of_text(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){.model = "gpt2", .more = eos_at_b}, &w);
    assert_true(vocab_is_eog(v, 5) && vocab_is_eog(v, 6) && vocab_is_eog(v, 9));
    assert_false(vocab_is_control(v, 5) || vocab_is_control(v, 6));
    assert_true(vocab_is_control(v, 9)); /* nothing spells it */
    check(v, 0, "abb", 2, (qn_token[]){6, 5});
    close_both(v, w);
}

/* ---- special tokens in text ---- */

static void control_tokens_only_when_asked(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){.more = ids_and_flags}, &w);
    check(v, VOCAB_PARSE_SPECIAL, "a<|im_start|>b<think>ab", 5, (qn_token[]){4, 7, 5, 8, 6});
    qn_token *ids;
    size_t n;
    static const char text[] = "a<|im_start|>b<think>ab</s><|im_end|><unk>";
    assert_int_equal(vocab_encode(v, text, sizeof text - 1, 0, &ids, &n, NULL), 0);
    int n_think = 0, n_unk = 0;
    for (size_t i = 0; i < n; i++) {
        n_think += ids[i] == 8; /* user-defined: always */
        n_unk += ids[i] == 0;   /* characters this vocabulary lacks */
        assert_false(ids[i] == 7 || ids[i] == 2 || ids[i] == 9);
    }
    assert_int_equal(n_think, 1);
    assert_true(n_unk > 0);
    mem_free(ids);
    close_both(v, w);
}

static void a_space_goes_before_text_and_behind_special_tokens(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){0}, &w);
    check(v, VOCAB_PARSE_SPECIAL, "ab", 2, (qn_token[]){3, 6});
    check(v, VOCAB_PARSE_SPECIAL, "a<s>b", 5, (qn_token[]){3, 4, 1, 3, 5});
    check(v, VOCAB_PARSE_SPECIAL, "<s>", 1, (qn_token[]){1});
    close_both(v, w);
}

static void the_longest_of_the_leftmost_wins(void **state)
{
    (void)state;
    static const char *const extra[] = {"[x", "[xy]", "[xyz", "]a", "[xyz]", "[xyz]"};
    static const int32_t type[] = {4, 4, 4, 4, 3, 3};
    struct weights *w;
    struct vocab *v =
        load(&(struct options){.extra = extra, .extra_type = type, .n_extra = 6, .more = ids_and_flags}, &w);
    check(v, VOCAB_PARSE_SPECIAL, "[x[xy][xyz]a[xyz", 5, (qn_token[]){10, 11, 15, 4, 12});
    check(v, 0, "[xyz]a", 2, (qn_token[]){12, 13}); /* the control token is not seen */
    check(v, VOCAB_PARSE_SPECIAL, "[xy]a", 2, (qn_token[]){11, 4});
    close_both(v, w);
}

static void name_phi3(struct vfile *f) { vf_str(f, "general.name", "My Phi-3 mini"); }

static void phi3_strips_behind_special_tokens(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){.more = name_phi3}, &w);
    check(v, VOCAB_PARSE_SPECIAL, "<|im_start|> \n\ta", 3, (qn_token[]){7, 3, 4});
    check(v, VOCAB_PARSE_SPECIAL, "<s> a", 4, (qn_token[]){1, 3, 3, 4});
    close_both(v, w);
}

static void beginnings_of_special_tokens_are_quick(void **state)
{
    (void)state;
    struct weights *w;
    struct vocab *v = load(&(struct options){0}, &w);
    size_t n = 1 << 20, n_ids;
    char *text = malloc(n);
    qn_token *ids;
    for (size_t i = 0; i < n; i++) text[i] = "<|im_sta"[i % 8];
    double start = cpu_seconds();
    assert_int_equal(vocab_encode(v, text, n, VOCAB_PARSE_SPECIAL, &ids, &n_ids, NULL), 0);
    assert_true(cpu_seconds() - start < 1.0 * TIME_SCALE);
    mem_free(ids);
    free(text);
    close_both(v, w);
}

#define N_THREADS 4

static void encode_often(void *arg, int ith, int nth)
{
    const struct vocab *v = arg;
    (void)ith;
    (void)nth;
    for (int i = 0; i < 50; i++) check(v, VOCAB_PARSE_SPECIAL, "abb<think>ab a", 6, (qn_token[]){6, 5, 8, 6, 10, 4});
}

static void put_gpt2(struct vfile *f)
{
    static const char *const merges[] = {"a b"};
    vf_strs(f, "tokenizer.ggml.merges", merges, 1);
    vf_str(f, "tokenizer.ggml.pre", "qwen2");
}

static void threads_share_a_vocabulary(void **state)
{
    (void)state;
    static const char *const extra[] = {"Ġ"};
    struct weights *w;
    struct vocab *v = load(&(struct options){.model = "gpt2", .extra = extra, .n_extra = 1, .more = put_gpt2}, &w);
    struct pool *p;
    assert_int_equal(pool_new(&p, N_THREADS, 0, NULL), 0);
    pool_run(p, encode_often, v);
    pool_free(p);
    close_both(v, w);
}

/* ---- bad files ---- */

static void refused(struct vfile *f, int code, const char *message)
{
    struct vocab *v = NULL;
    struct qn_error e = {0};
    struct weights *w = vf_open(f);
    assert_int_equal(vocab_load(&v, w, &e), code);
    assert_null(v);
    if (!strstr(e.msg, message)) print_error("%s\n", e.msg);
    assert_non_null(strstr(e.msg, message));
    weights_close(w);
}

static void put_tokens(struct vfile *f, const char *model)
{
    static const char *const t[] = {"<unk>", "a", "b"};
    if (model) vf_str(f, "tokenizer.ggml.model", model);
    vf_strs(f, "tokenizer.ggml.tokens", t, 3);
}

static void malformed_vocabularies_are_refused(void **state)
{
    (void)state;
    struct vfile f = {0};
    float score[4] = {0, NAN, 0, 0};
    int32_t type[3] = {1, 7, 1};
    const char *long_token[1];

    vf_u32(&f, "x", 1);
    refused(&f, QN_EDATA, "no tokenizer.ggml.model");
    vf_u32(&f, "tokenizer.ggml.model", 1);
    refused(&f, QN_EDATA, "tokenizer.ggml.model");
    put_tokens(&f, "nosuch");
    refused(&f, QN_EUNSUP, "'nosuch'");
    vf_str(&f, "tokenizer.ggml.model", "llama");
    refused(&f, QN_EDATA, "no tokenizer.ggml.tokens");
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_array4(&f, "tokenizer.ggml.tokens", MT_U32, type, 3);
    refused(&f, QN_EDATA, "tokenizer.ggml.tokens");
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", NULL, 0);
    refused(&f, QN_EDATA, "0 entries");
    put_tokens(&f, "llama");
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, 1);
    refused(&f, QN_EDATA, "scores has 1 entries for 3");
    put_tokens(&f, "llama");
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, 3);
    refused(&f, QN_EDATA, "token 1 has score NaN");
    put_tokens(&f, "llama");
    vf_array4(&f, "tokenizer.ggml.scores", MT_U32, score, 3);
    refused(&f, QN_EDATA, "tokenizer.ggml.scores");
    put_tokens(&f, "llama");
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, 3);
    refused(&f, QN_EDATA, "token 1 has type 7");
    put_tokens(&f, "llama");
    vf_array4(&f, "tokenizer.ggml.token_type", MT_F32, type, 3);
    refused(&f, QN_EDATA, "token_type");
    put_tokens(&f, "llama");
    vf_str(&f, "tokenizer.ggml.bos_token_id", "1");
    refused(&f, QN_EDATA, "bos_token_id");
    put_tokens(&f, "gpt2");
    refused(&f, QN_EDATA, "no tokenizer.ggml.merges");
    put_tokens(&f, "gpt2");
    vf_array4(&f, "tokenizer.ggml.merges", MT_U32, type, 3);
    refused(&f, QN_EDATA, "merges");

    char *big = malloc(1001);
    memset(big, 'x', 1000);
    big[1000] = 0;
    long_token[0] = big;
    type[0] = 3;
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", long_token, 1);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, 1);
    refused(&f, QN_EDATA, "special token 0 has 1000 bytes");
    free(big);
}

/* A vocabulary whose tokens tell the patterns apart: "12" is one where they leave digits together. */
static struct weights *digits(const char *pre)
{
    static const char *const t[] = {"<unk>", "1", "2", "12"}, *const merges[] = {"1 2"};
    struct vfile f = {0};
    vf_str(&f, "tokenizer.ggml.model", "gpt2");
    vf_strs(&f, "tokenizer.ggml.tokens", t, 4);
    vf_strs(&f, "tokenizer.ggml.merges", merges, 1);
    if (pre) vf_str(&f, "tokenizer.ggml.pre", pre);
    return vf_open(&f);
}

static void check_digits(const char *pre, const char *fallback, bool is_together)
{
    struct vocab *v;
    struct weights *w = digits(pre);
    assert_int_equal(vocab_load_with(&v, w, fallback, NULL), 0);
    check(v, 0, "12", is_together ? 1 : 2, is_together ? (qn_token[]){3} : (qn_token[]){1, 2});
    close_both(v, w);
}

static void a_pre_tokeniser_that_is_not_known_is_refused(void **state)
{
    (void)state;
    struct vocab *v = NULL;
    struct qn_error e;
    struct weights *w = digits("qwen2-next");
    assert_int_equal(vocab_load(&v, w, &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "'qwen2-next' is not known"));
    assert_int_equal(vocab_load_with(&v, w, "nosuch", &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "'nosuch' is not known"));
    assert_null(v);
    weights_close(w);
    check_digits("qwen2-next", "llama-bpe", true);
    check_digits("qwen2-next", "qwen2", false);
    check_digits("qwen2", "llama-bpe", false); /* the file says so */
    check_digits("llama-bpe", NULL, true);
    check_digits(NULL, NULL, true); /* `default` */
    check_digits(NULL, "qwen2", false);
    check_digits("default", "qwen2", false);
}

/* Names whose merges join characters: spaces are U+2581, and no byte is mapped. */
static void names_may_mean_characters(void **state)
{
    (void)state;
    static const char *const names[] = {"sarvam-moe", "granite-embed-multi-311m"};
    static const char *const t[] = {"<unk>", "<s>", "\u2581", "é", "\u2581é"}, *const merges[] = {"\u2581 é"};
    for (size_t i = 0; i < 2; i++) {
        struct vfile f = {0};
        struct vocab *v;
        struct buf out = {0};
        vf_str(&f, "tokenizer.ggml.model", "gpt2");
        vf_strs(&f, "tokenizer.ggml.tokens", t, 5);
        vf_strs(&f, "tokenizer.ggml.merges", merges, 1);
        vf_str(&f, "tokenizer.ggml.pre", names[i]);
        vf_u32(&f, "tokenizer.ggml.bos_token_id", 1);
        struct weights *w = vf_open(&f);
        assert_int_equal(vocab_load(&v, w, NULL), 0);
        check(v, 0, " éé", 2, (qn_token[]){4, 3});
        assert_int_equal(vocab_token_bytes(v, 4, false, &out, NULL), 0);
        assert_string_equal((char *)out.data, " é");
        assert_int_equal(vocab_add_bos(v), i == 1); /* as gemma4, whatever the file says */
        buf_deinit(&out);
        close_both(v, w);
    }
}

static void odd_tokens_are_survived(void **state)
{
    (void)state;
    static const char *const extra[] = {"", "", "c", "c", "\xFF\xFE\xC0", "<0x-1>", "<0x41>", "<0x4", "<0x00>"};
    static const int32_t type[] = {1, 3, 1, 1, 1, 6, 6, 6, 6};
    struct weights *w;
    struct buf out = {0};
    struct vocab *v =
        load(&(struct options){.extra = extra, .extra_type = type, .n_extra = 9, .more = ids_and_flags}, &w);
    assert_int_equal(vocab_find(v, "c", 1), 13); /* the last one */
    check(v, VOCAB_PARSE_SPECIAL, "cA", 2, (qn_token[]){13, 16});
    for (qn_token id = 0; id < vocab_n_tokens(v); id++) assert_int_equal(vocab_token_bytes(v, id, true, &out, NULL), 0);
    assert_non_null(memmem(out.data, out.len, "<0x-1>A<0x4\0", 12));
    buf_deinit(&out);
    close_both(v, w);
}

/* Whichever allocation fails, nothing leaks (the sanitizers look) and nothing is handed out. */
static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    static const char *const merges[] = {"a b"};
    struct vfile f = {0};
    struct vocab *v;
    struct qn_error e;
    put_tokens(&f, "gpt2");
    vf_strs(&f, "tokenizer.ggml.merges", merges, 1);
    vf_str(&f, "tokenizer.ggml.pre", "qwen2");
    struct weights *w = vf_open(&f);
    for (uint64_t n = 1;; n++) {
        v = NULL;
        mem_fault_set(n);
        int rc = vocab_load(&v, w, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        if (rc == 0) { /* PCRE2 may do without (the JIT's memory, for one) */
            vocab_free(v);
            if (!hit) break;
            continue;
        }
        assert_true(hit && rc == QN_ENOMEM && v == NULL);
    }
    assert_int_equal(vocab_load(&v, w, &e), 0);
    for (uint64_t n = 1;; n++) {
        qn_token *ids = NULL;
        size_t n_ids;
        mem_fault_set(n);
        int rc = vocab_encode(v, "aabab", 5, 0, &ids, &n_ids, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        mem_free(ids);
        if (!hit) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc == QN_ENOMEM && ids == NULL);
    }
    close_both(v, w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_of_llama),
        cmocka_unit_test(ids_outside_the_vocabulary_are_switched_off),
        cmocka_unit_test(gpt_oss_markup_is_shown_but_not_spelt),
        cmocka_unit_test(a_role_does_not_take_a_letter_out_of_text),
        cmocka_unit_test(control_tokens_only_when_asked),
        cmocka_unit_test(a_space_goes_before_text_and_behind_special_tokens),
        cmocka_unit_test(the_longest_of_the_leftmost_wins),
        cmocka_unit_test(phi3_strips_behind_special_tokens),
        cmocka_unit_test(beginnings_of_special_tokens_are_quick),
        cmocka_unit_test(threads_share_a_vocabulary),
        cmocka_unit_test(malformed_vocabularies_are_refused),
        cmocka_unit_test(a_pre_tokeniser_that_is_not_known_is_refused),
        cmocka_unit_test(names_may_mean_characters),
        cmocka_unit_test(odd_tokens_are_survived),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
