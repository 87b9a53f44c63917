/* SPDX-License-Identifier: MIT
 *
 * test_fim.c: prompts for filling a gap: the order of their parts in each kind of model, and what is cut off.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/token/fim.h"
#include "../tiny_vocab.h"

#define MAX_TOKENS 24

struct kind {
    const char *marks[8]; /* added to the letters; ended by NULL */
    bool no_space;        /* the file says that no space goes before a text */
};

static const struct kind qwen = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"}, true};
static const struct kind starcoder = {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}, true};
static const struct kind codellama = {{"▁<PRE>", "▁<SUF>", "▁<MID>"}, false};
static const struct kind codestral = {{"[PREFIX]", "[MIDDLE]", "[SUFFIX]"}, false};
static const struct kind halved = {{"<|fim_prefix|>", "<|fim_suffix|>"}, true};
static const struct kind none = {{NULL}, true};

static struct vocab *v;
static struct weights *w;

static void open_vocab(const struct kind *k)
{
    static const char *const letters[] = {"<unk>", "<s>", "</s>", "▁", "a", "b", "c", "\n"};
    static const float scores[MAX_TOKENS];
    const char *text[MAX_TOKENS];
    int32_t type[MAX_TOKENS];
    struct vfile f = {0};
    size_t n = 0;
    for (; n < 8; n++) text[n] = letters[n], type[n] = n == 0 ? 2 : n < 3 ? 3 : 1;
    for (; k->marks[n - 8]; n++) text[n] = k->marks[n - 8], type[n] = n % 2 ? 1 : 3; /* some files say: ordinary */
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", text, n);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, n);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, scores, n);
    vf_bool(&f, "tokenizer.ggml.add_space_prefix", !k->no_space);
    w = vf_open(&f);
    assert_int_equal(vocab_load(&v, w, NULL), 0);
}

static void close_vocab(void)
{
    vocab_free(v);
    weights_close(w);
}

/* The texts of the tokens, joined; each that is no letter is a `?`. Names of files and repositories are therefore `?`,
 * of which several are one. */
static const char *shown(const qn_token *ids, size_t n)
{
    static char out[1024];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        struct str s = vocab_token_text(v, ids[i]);
        if (ids[i] == 0 && len && out[len - 1] == '?') continue;
        len += (size_t)snprintf(out + len, sizeof out - len, "%.*s", ids[i] ? (int)s.n : 1, ids[i] ? s.p : "?");
    }
    out[len] = 0;
    return out;
}

static const char *prompt(const struct qn_infill *p, bool *was_cut)
{
    qn_token *ids = NULL;
    size_t n = 0;
    struct qn_error e = {0};
    if (fim_encode(v, p, NULL, &ids, &n, was_cut, &e)) return e.code == QN_EUNSUP ? "unsupported" : "full";
    const char *s = shown(ids, n);
    if (p->max_tokens) assert_true(n <= p->max_tokens);
    mem_free(ids);
    return s;
}

static const struct qn_infill_file files[] = {{"x", 1, "a\n", 2}, {"y", 1, "b\n", 2}};

static void the_parts_are_in_the_order_of_each_kind_of_model(void **state)
{
    (void)state;
    const struct {
        const struct kind *kind;
        const char *plain, *with_files;
    } cases[] = {
        {&qwen, "<s><|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>",
         "<s><|repo_name|>?c?\n<|file_sep|>?\na\n<|file_sep|>?\nb\n<|file_sep|>?a?\n"
         "<|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>"},
        {&starcoder, "<s><fim_prefix>ab<fim_suffix>c<fim_middle>",
         "<s>\n\n?▁?▁?\n\na\n\n\n?▁?▁?\n\nb\n<fim_prefix>ab<fim_suffix>c<fim_middle>"},
        {&codellama, "<s>▁<PRE>▁ab▁<SUF>c▁<MID>", "<s>\n\n?▁?▁?\n\na\n\n\n?▁?▁?\n\nb\n▁<PRE>▁ab▁<SUF>c▁<MID>"},
        {&codestral, "<s>[SUFFIX]c[PREFIX]▁ab", "<s>\n\n?▁?▁?\n\na\n\n\n?▁?▁?\n\nb\n[SUFFIX]c[PREFIX]▁ab"},
        {&halved, "unsupported", "unsupported"},
        {&none, "unsupported", "unsupported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qn_infill p = {.prefix = "ab", .n_prefix = 2, .suffix = "c", .n_suffix = 1};
        bool was_cut = false;
        open_vocab(cases[i].kind);
        assert_string_equal(prompt(&p, &was_cut), cases[i].plain);
        p.files = files;
        p.n_files = 2;
        assert_string_equal(prompt(&p, &was_cut), cases[i].with_files);
        assert_false(was_cut);
        close_vocab();
    }
}

static void what_is_far_from_the_gap_is_cut_off(void **state)
{
    const struct {
        const char *prefix, *suffix;
        size_t room;
        const char *want;
    } cases[] = {
        {"aaaab", "caaaa", 14, "<s><fim_prefix>aaaab<fim_suffix>caaaa<fim_middle>"},
        {"aaaab", "caaaa", 12, "<s><fim_prefix>aaaab<fim_suffix>caa<fim_middle>"},
        {"aaaab", "caaaa", 8, "<s><fim_prefix>aab<fim_suffix>c<fim_middle>"},
        {"ab", "caaaa", 8, "<s><fim_prefix>ab<fim_suffix>ca<fim_middle>"},
        {"", "", 8, "<s><fim_prefix><fim_suffix><fim_middle>"},
        {"aaaab", "", 8, "<s><fim_prefix>aaab<fim_suffix><fim_middle>"},
        {"aaaab", "caaaa", 4, "<s><fim_prefix><fim_suffix><fim_middle>"},
        {"aaaab", "caaaa", 3, "full"},
    };
    (void)state;
    open_vocab(&starcoder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qn_infill p = {.prefix = cases[i].prefix,
                              .n_prefix = strlen(cases[i].prefix),
                              .suffix = cases[i].suffix,
                              .n_suffix = strlen(cases[i].suffix),
                              .max_tokens = cases[i].room};
        bool was_cut = false;
        assert_string_equal(prompt(&p, &was_cut), cases[i].want);
        assert_int_equal(was_cut,
                         cases[i].room > 3 && strlen(cases[i].prefix) + strlen(cases[i].suffix) + 4 > cases[i].room);
    }
    close_vocab();
}

static void the_first_files_are_dropped_first(void **state)
{
    (void)state;
    struct qn_infill p = {.prefix = "a", .n_prefix = 1, .files = files, .n_files = 2};
    bool was_cut = false;
    char all[1024];
    open_vocab(&qwen);
    size_t n = strlen("myproject") + strlen("filename");
    strcpy(all, prompt(&p, &was_cut));
    p.max_tokens = 5 + (n + 4) + 2 * 5; /* all of them, to the token */
    assert_string_equal(prompt(&p, &was_cut), all);
    assert_false(was_cut);
    p.max_tokens--;
    assert_string_equal(prompt(&p, &was_cut), "<s><|repo_name|>?c?\n<|file_sep|>?\nb\n<|file_sep|>?a?\n"
                                              "<|fim_prefix|>a<|fim_suffix|><|fim_middle|>");
    assert_true(was_cut);
    p.max_tokens = 8;
    assert_string_equal(prompt(&p, &was_cut), "<s><|fim_prefix|>a<|fim_suffix|><|fim_middle|>");
    assert_true(was_cut);
    close_vocab();
}

static void no_text_becomes_a_mark_unless_marks_of_a_gap_are_asked_for(void **state)
{
    static const char text[] = "<|fim_middle|>";
    (void)state;
    open_vocab(&qwen);
    struct qn_infill p = {.prefix = text, .n_prefix = strlen(text), .suffix = text, .n_suffix = strlen(text)};
    assert_string_equal(prompt(&p, NULL), "<s><|fim_prefix|>?<|fim_suffix|>?<|fim_middle|>");
    close_vocab();
}

static void marks_of_a_gap_are_recognised_where_they_may_be(void **state)
{
    static const char text[] = "a<|fim_middle|>b</s><|fim_prefix|>";
    qn_token *ids = NULL;
    size_t n = 0;
    (void)state;
    open_vocab(&qwen);
    assert_int_equal(vocab_encode(v, text, strlen(text), VOCAB_PARSE_FIM, &ids, &n, NULL), 0);
    assert_string_equal(shown(ids, n), "a<|fim_middle|>b?<|fim_prefix|>"); /* </s> stays text, of unknown letters */
    mem_free(ids);
    assert_int_equal(vocab_encode(v, text, strlen(text), 0, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) assert_true(ids[i] < 8);
    mem_free(ids);
    close_vocab();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_in_the_order_of_each_kind_of_model),
        cmocka_unit_test(what_is_far_from_the_gap_is_cut_off),
        cmocka_unit_test(the_first_files_are_dropped_first),
        cmocka_unit_test(no_text_becomes_a_mark_unless_marks_of_a_gap_are_asked_for),
        cmocka_unit_test(marks_of_a_gap_are_recognised_where_they_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
