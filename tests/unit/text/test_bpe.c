/* SPDX-License-Identifier: MIT
 *
 * test_bpe.c: merging by rank against the definition, and what odd merge lists do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/token/bpe.h"
#include "text/token/unicode.h"
#include "../tiny_vocab.h"

#define MAX_TOKENS 400

/* A byte-level vocabulary: 256 bytes (id = byte), then `extra` tokens. */
struct model {
    struct weights *w;
    struct lexicon lex;
    struct bpe bpe;
};

static void open_model(struct model *m, const char *pre, const char *const *extra, size_t n_extra,
                       const char *const *merges, size_t n_merges)
{
    static char bytes[256][8];
    const char *tokens[MAX_TOKENS];
    struct vfile f = {0};
    for (int i = 0; i < 256; i++) {
        uint8_t u[4];
        unsigned n = utf8_put(u, unicode_from_byte((uint8_t)i));
        memcpy(bytes[i], u, n);
        bytes[i][n] = 0;
        tokens[i] = bytes[i];
    }
    for (size_t i = 0; i < n_extra; i++) tokens[256 + i] = extra[i];
    vf_strs(&f, "tokenizer.ggml.tokens", tokens, 256 + n_extra);
    vf_strs(&f, "tokenizer.ggml.merges", merges, n_merges);
    vf_str(&f, "tokenizer.ggml.pre", pre);
    m->w = vf_open(&f);
    assert_int_equal(lexicon_init(&m->lex, m->w, NULL), 0);
    assert_int_equal(bpe_init(&m->bpe, &m->lex, m->w, false, NULL, NULL), 0);
}

static void close_model(struct model *m)
{
    bpe_deinit(&m->bpe);
    lexicon_deinit(&m->lex);
    weights_close(m->w);
}

static struct ids encode(const struct model *m, const char *text, size_t n)
{
    struct merge scratch = {0};
    struct ids ids = {0};
    assert_int_equal(bpe_encode(&m->bpe, -1, true, text, n, &scratch, &ids, NULL), 0);
    merge_deinit(&scratch);
    return ids;
}

static void check(const struct model *m, const char *text, size_t n_want, const qn_token *want)
{
    struct ids ids = encode(m, text, strlen(text));
    assert_int_equal(ids.n, n_want);
    for (size_t i = 0; i < n_want; i++) assert_int_equal(ids.id[i], want[i]);
    mem_free(ids.id);
}

static void rank_goes_before_place_and_left_before_right(void **state)
{
    (void)state;
    static const char *const extra[] = {"bc", "ab", "aa", "abc", "Ġa"};
    static const char *const merges[] = {"b c", "a b", "a a", "ab c", "Ġ a"};
    struct model m;
    open_model(&m, "gpt-2", extra, 5, merges, 5);
    check(&m, "abc", 2, (qn_token[]){'a', 256}); /* bc has the better rank: abc is never reached */
    check(&m, "ab", 1, (qn_token[]){257});
    check(&m, "aaa", 2, (qn_token[]){258, 'a'}); /* leftmost */
    check(&m, "aaaa", 2, (qn_token[]){258, 258});
    check(&m, " a a", 2, (qn_token[]){260, 260});
    check(&m, "\xFFzz", 3, (qn_token[]){0xFF, 'z', 'z'}); /* bytes that are not UTF-8 keep their value */
    close_model(&m);
}

static void a_whole_piece_may_skip_the_merges(void **state)
{
    (void)state;
    static const char *const extra[] = {"bc", "abc"};
    static const char *const merges[] = {"b c"};
    struct model m;
    open_model(&m, "gpt-2", extra, 2, merges, 1);
    check(&m, "abc", 2, (qn_token[]){'a', 256});
    close_model(&m);
    open_model(&m, "llama-bpe", extra, 2, merges, 1);
    check(&m, "abc", 1, (qn_token[]){257});
    check(&m, "abcabc", 4, (qn_token[]){'a', 256, 'a', 256});
    close_model(&m);
}

static void odd_merges_are_left_out(void **state)
{
    (void)state;
    static const char *const extra[] = {"ab", "cd"};
    static const char *const merges[] = {"ab", "", " ", "  ", "a ", " b", "zz qq", "a c", "a b", "a b", "c d e", "c d"};
    struct model m;
    open_model(&m, "gpt-2", extra, 2, merges, sizeof merges / sizeof merges[0]);
    assert_int_equal(m.bpe.n_merges, 2);
    check(&m, "abcd", 2, (qn_token[]){256, 257});
    assert_true(bpe_spells(&m.bpe, 256) && bpe_spells(&m.bpe, 'a'));
    close_model(&m);
}

static void a_byte_without_a_token_is_an_error(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
    struct vfile f = {0};
    struct model m;
    struct merge scratch = {0};
    struct ids ids = {0};
    struct qn_error e;
    vf_strs(&f, "tokenizer.ggml.tokens", tokens, 3);
    vf_strs(&f, "tokenizer.ggml.merges", merges, 1);
    m.w = vf_open(&f);
    assert_int_equal(lexicon_init(&m.lex, m.w, NULL), 0);
    assert_int_equal(bpe_init(&m.bpe, &m.lex, m.w, false, NULL, NULL), 0);
    assert_int_equal(bpe_encode(&m.bpe, -1, true, "abz", 3, &scratch, &ids, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "0x7A"));
    ids.n = 0;
    assert_int_equal(bpe_encode(&m.bpe, 1, true, "abz", 3, &scratch, &ids, &e), 0); /* with an unknown token */
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 2);
    assert_int_equal(ids.id[1], 1);
    mem_free(ids.id);
    merge_deinit(&scratch);
    close_model(&m);
}

/* The definition: look for the pair of the lowest rank, leftmost first, until there is none. */
static size_t merge_naively(const struct bpe *b, const char *const *merges, size_t n_merges, const char *text, size_t n,
                            qn_token *ids)
{
    for (size_t i = 0; i < n; i++) ids[i] = (uint8_t)text[i];
    for (;;) {
        size_t best = n_merges, at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[64];
            struct str l = lexicon_text(b->lex, ids[i]), r = lexicon_text(b->lex, ids[i + 1]);
            snprintf(pair, sizeof pair, "%.*s %.*s", (int)l.n, l.p, (int)r.n, r.p);
            for (size_t k = 0; k < best; k++)
                if (strcmp(merges[k], pair) == 0) best = k, at = i;
        }
        if (best == n_merges) return n;
        const char *sp = strchr(merges[best], ' ');
        char joined[64];
        snprintf(joined, sizeof joined, "%.*s%s", (int)(sp - merges[best]), merges[best], sp + 1);
        ids[at] = lexicon_find(b->lex, joined, strlen(joined));
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
    }
}

static void random_text_merges_as_defined(void **state)
{
    (void)state;
    static char token[100][48], merge[100][100];
    const char *extra[100], *merges[100];
    size_t n = 0;
    for (uint64_t i = 0; n < 60; i++) { /* random words over three letters, each made of two earlier ones */
        const char *half[2];
        for (uint64_t k = 0; k < 2; k++) {
            uint64_t pick = rng_u64(7, i, k) % (n + 3);
            half[k] = pick < 3 ? &"a\0b\0c"[2 * pick] : token[pick - 3];
        }
        if (strlen(half[0]) + strlen(half[1]) > 20) continue;
        char word[48];
        snprintf(word, sizeof word, "%s%s", half[0], half[1]);
        bool known = false;
        for (size_t k = 0; k < n; k++) known = known || strcmp(token[k], word) == 0;
        if (known) continue;
        strcpy(token[n], word);
        snprintf(merge[n], sizeof merge[n], "%s %s", half[0], half[1]);
        extra[n] = token[n];
        merges[n] = merge[n];
        n++;
    }
    struct model m;
    open_model(&m, "gpt-2", extra, n, merges, n);
    for (uint64_t round = 0; round < 2000; round++) {
        char text[64];
        qn_token want[64];
        size_t len = 1 + rng_u64(8, round, 0) % 60;
        for (size_t i = 0; i < len; i++) text[i] = "abc"[rng_u64(9, round, i) % 3];
        size_t n_want = merge_naively(&m.bpe, merges, n, text, len, want);
        struct ids ids = encode(&m, text, len);
        assert_int_equal(ids.n, n_want);
        assert_memory_equal(ids.id, want, n_want * sizeof *want);
        mem_free(ids.id);
    }
    close_model(&m);
}

static void a_megabyte_in_one_piece_is_quick(void **state)
{
    (void)state;
    static const char *const extra[] = {"aa", "aaaa", "aaaaaaaa", "ab", "abab"};
    static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa", "a b", "ab ab"};
    struct model m;
    size_t n = 1 << 20;
    char *text = malloc(n);
    open_model(&m, "gpt-2", extra, 5, merges, 5);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < n; i++)
            text[i] = kind == 0 ? 'a' : kind == 1 ? "ab"[i % 2] : (char)('a' + i * i % 7 % 3);
        double start = cpu_seconds();
        struct ids ids = encode(&m, text, n);
        assert_true(cpu_seconds() - start < 1.0 * TIME_SCALE);
        mem_free(ids.id);
    }
    free(text);
    close_model(&m);
}

static void repeated_pieces_are_copied_right(void **state)
{
    (void)state;
    static const char *const extra[] = {"ab", "Ġab", "Ġa"};
    static const char *const merges[] = {"a b", "Ġ ab", "Ġ a"};
    struct model m;
    char text[9000];
    open_model(&m, "gpt-2", extra, 3, merges, 3);
    for (int i = 0; i < 3000; i++) memcpy(text + 3 * i, i % 5 ? " ab" : " ac", 3);
    struct ids ids = encode(&m, text, sizeof text);
    for (size_t i = 0, k = 0; k < 3000; k++) {
        if (k % 5) {
            assert_int_equal(ids.id[i++], 257);
        } else {
            assert_int_equal(ids.id[i++], 258);
            assert_int_equal(ids.id[i++], 'c');
        }
    }
    assert_int_equal(ids.n, 3600);
    mem_free(ids.id);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_goes_before_place_and_left_before_right),
        cmocka_unit_test(a_whole_piece_may_skip_the_merges),
        cmocka_unit_test(odd_merges_are_left_out),
        cmocka_unit_test(a_byte_without_a_token_is_an_error),
        cmocka_unit_test(random_text_merges_as_defined),
        cmocka_unit_test(a_megabyte_in_one_piece_is_quick),
        cmocka_unit_test(repeated_pieces_are_copied_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
