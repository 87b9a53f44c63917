/* SPDX-License-Identifier: MIT
 *
 * test_spm.c: SentencePiece BPE: order of merges, byte fallback, and what text may not become.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/token/spm.h"
#include "../tiny_vocab.h"

struct model {
    struct weights *w;
    struct lexicon lex;
};

struct entry {
    const char *text;
    float score;
    int32_t type;
};

static void open_model(struct model *m, const struct entry *t, size_t n)
{
    const char *text[600];
    float score[600];
    int32_t type[600];
    struct vfile f = {0};
    for (size_t i = 0; i < n; i++) text[i] = t[i].text, score[i] = t[i].score, type[i] = t[i].type;
    vf_strs(&f, "tokenizer.ggml.tokens", text, n);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, n);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, n);
    m->w = vf_open(&f);
    assert_int_equal(lexicon_init(&m->lex, m->w, NULL), 0);
}

static void close_model(struct model *m)
{
    lexicon_deinit(&m->lex);
    weights_close(m->w);
}

static struct ids encode(const struct model *m, bool add_space, const char *text, size_t n)
{
    struct merge scratch = {0};
    struct ids ids = {0};
    assert_int_equal(spm_encode(&m->lex, -1, add_space, text, n, &scratch, &ids, NULL), 0);
    merge_deinit(&scratch);
    return ids;
}

static void check(const struct model *m, bool add_space, const char *text, size_t n_want, const qn_token *want)
{
    struct ids ids = encode(m, add_space, text, strlen(text));
    assert_int_equal(ids.n, n_want);
    for (size_t i = 0; i < n_want; i++) assert_int_equal(ids.id[i], want[i]);
    mem_free(ids.id);
}

static const struct entry basic[] = {
    {"<unk>", 0, TOKEN_UNKNOWN}, {"</s>", 9, TOKEN_CONTROL}, {"<0x41>", 0, TOKEN_BYTE},  {"<0xC3>", 0, TOKEN_BYTE},
    {"<0xA9>", 0, TOKEN_BYTE},   {"▁", -1, TOKEN_NORMAL},    {"a", -1, TOKEN_NORMAL},    {"b", -1, TOKEN_NORMAL},
    {"ab", -5, TOKEN_NORMAL},    {"ba", -4, TOKEN_NORMAL},   {"▁a", -3, TOKEN_NORMAL},   {"aa", -5, TOKEN_NORMAL},
    {"<", 0, TOKEN_NORMAL},      {"/", 0, TOKEN_NORMAL},     {"s", 0, TOKEN_NORMAL},     {">", 0, TOKEN_NORMAL},
    {"</", -1, TOKEN_NORMAL},    {"s>", -1, TOKEN_NORMAL},   {"0", 0, TOKEN_NORMAL},     {"x", 0, TOKEN_NORMAL},
    {"4", 0, TOKEN_NORMAL},      {"1", 0, TOKEN_NORMAL},     {"<0x4", -1, TOKEN_NORMAL}, {"1>", -1, TOKEN_NORMAL},
    {"0x", -0.0F, TOKEN_NORMAL}, {"<0x", 0, TOKEN_NORMAL},
};

static void the_best_score_goes_first(void **state)
{
    (void)state;
    struct model m;
    open_model(&m, basic, sizeof basic / sizeof basic[0]);
    check(&m, false, "aba", 2, (qn_token[]){6, 9}); /* ba before ab */
    check(&m, false, "ab", 1, (qn_token[]){8});
    check(&m, true, "ab", 2, (qn_token[]){10, 7}); /* _a before ab */
    check(&m, false, " a", 1, (qn_token[]){10});
    check(&m, true, " a", 2, (qn_token[]){5, 10});
    check(&m, false, "aaa", 2, (qn_token[]){11, 6}); /* equal scores: leftmost */
    close_model(&m);
}

static void characters_without_a_token_become_bytes(void **state)
{
    (void)state;
    struct model m;
    struct merge scratch = {0};
    struct ids ids = {0};
    struct qn_error e;
    open_model(&m, basic, sizeof basic / sizeof basic[0]);
    check(&m, false, "aé", 3, (qn_token[]){6, 3, 4});
    check(&m, false, "\xC3", 1, (qn_token[]){3}); /* not UTF-8 */
    check(&m, false, "A", 1, (qn_token[]){2});
    assert_int_equal(spm_encode(&m.lex, -1, false, "az", 2, &scratch, &ids, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "0x7A"));
    ids.n = 0;
    assert_int_equal(spm_encode(&m.lex, 0, false, "az", 2, &scratch, &ids, &e), 0);
    assert_int_equal(ids.id[1], 0);
    mem_free(ids.id);
    merge_deinit(&scratch);
    close_model(&m);
}

static void text_never_spells_control_or_byte_tokens(void **state)
{
    (void)state;
    struct model m;
    open_model(&m, basic, sizeof basic / sizeof basic[0]);
    check(&m, false, "</s>", 2, (qn_token[]){16, 17});
    check(&m, false, "<0x41>", 2, (qn_token[]){22, 23});
    close_model(&m);
}

/* The definition, on text of single-byte characters that all are tokens. */
static size_t merge_naively(const struct lexicon *lex, const char *text, size_t n, qn_token *ids)
{
    for (size_t i = 0; i < n; i++) ids[i] = lexicon_find(lex, text + i, 1);
    for (;;) {
        float best = -1e30F;
        qn_token joined = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[64];
            struct str l = lexicon_text(lex, ids[i]), r = lexicon_text(lex, ids[i + 1]);
            int len = snprintf(pair, sizeof pair, "%.*s%.*s", (int)l.n, l.p, (int)r.n, r.p);
            qn_token id = lexicon_find(lex, pair, (size_t)len);
            if (id >= 0 && lexicon_score(lex, id) > best) best = lexicon_score(lex, id), joined = id, at = i;
        }
        if (joined < 0) return n;
        ids[at] = joined;
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
    }
}

static void random_text_merges_as_defined(void **state)
{
    (void)state;
    static char word[80][12];
    struct entry t[80];
    size_t n = 0;
    for (; n < 3; n++) {
        word[n][0] = "abc"[n];
        t[n] = (struct entry){word[n], 0, TOKEN_NORMAL};
    }
    for (uint64_t i = 0; n < 80; i++) {
        uint64_t len = 2 + rng_u64(3, i, 0) % 4;
        char s[12] = "";
        for (uint64_t k = 0; k < len; k++) s[k] = "abc"[rng_u64(4, i, k) % 3];
        bool known = false;
        for (size_t k = 0; k < n; k++) known = known || strcmp(word[k], s) == 0;
        if (known) continue;
        strcpy(word[n], s);
        t[n] = (struct entry){word[n], (float)(rng_u64(5, i, 0) % 20) - 10.0F, TOKEN_NORMAL}; /* many ties */
        n++;
    }
    struct model m;
    open_model(&m, t, n);
    for (uint64_t round = 0; round < 2000; round++) {
        char text[64];
        qn_token want[64];
        size_t len = 1 + rng_u64(6, round, 0) % 60;
        for (size_t i = 0; i < len; i++) text[i] = "abc"[rng_u64(7, round, i) % 3];
        size_t n_want = merge_naively(&m.lex, text, len, want);
        struct ids ids = encode(&m, false, text, len);
        assert_int_equal(ids.n, n_want);
        assert_memory_equal(ids.id, want, n_want * sizeof *want);
        mem_free(ids.id);
    }
    close_model(&m);
}

static void a_megabyte_of_anything_is_quick(void **state)
{
    (void)state;
    static const char *const unit[] = {"a", "ab", " ", "ba ", "A", "é", "</s"};
    struct model m;
    size_t n = 1 << 20;
    char *text = malloc(n);
    open_model(&m, basic, sizeof basic / sizeof basic[0]);
    for (size_t k = 0; k < sizeof unit / sizeof unit[0]; k++) {
        size_t len = strlen(unit[k]), bytes = n - n % len;
        for (size_t i = 0; i < bytes; i++) text[i] = unit[k][i % len];
        double start = cpu_seconds();
        struct ids ids = encode(&m, true, text, bytes);
        assert_true(cpu_seconds() - start < 1.0 * TIME_SCALE);
        mem_free(ids.id);
    }
    free(text);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_score_goes_first),
        cmocka_unit_test(characters_without_a_token_become_bytes),
        cmocka_unit_test(text_never_spells_control_or_byte_tokens),
        cmocka_unit_test(random_text_merges_as_defined),
        cmocka_unit_test(a_megabyte_of_anything_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
