/* SPDX-License-Identifier: MIT
 *
 * test_pretok.c: where each family of patterns cuts, that pieces always cover the text, and that no text is slow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pretok_cuts.h"
#include "text/token/pretok.h"
#include "../tiny_vocab.h"

static struct pretok *open_pretok(const char *name)
{
    struct pretok *p = NULL;
    assert_true(pretok_is_known(name, strlen(name)));
    assert_int_equal(pretok_new(&p, name, strlen(name), NULL), 0);
    return p;
}

/* want: the pieces with a mark between them that does not occur in the texts. */
static void check_marked(const char *name, const char *want, const char *mark)
{
    const size_t n_mark = strlen(mark);
    struct pretok *p = open_pretok(name);
    struct pretok_ends ends = {0};
    struct buf text = {0}, got = {0};
    for (const char *s = want; *s;) {
        bool is_mark = strncmp(s, mark, n_mark) == 0;
        if (!is_mark) assert_int_equal(buf_add(&text, s, 1, NULL), 0);
        s += is_mark ? n_mark : 1;
    }
    assert_int_equal(pretok_split(p, (char *)text.data, text.len, &ends, NULL), 0);
    for (size_t i = 0, at = 0; i < ends.n; at = ends.end[i++]) {
        if (i) assert_int_equal(buf_str(&got, mark, NULL), 0);
        assert_int_equal(buf_add(&got, text.data + at, ends.end[i] - at, NULL), 0);
    }
    assert_string_equal((char *)got.data, want);
    pretok_ends_deinit(&ends);
    buf_deinit(&text);
    buf_deinit(&got);
    pretok_free(p);
}

static void check(const char *name, const char *want) { check_marked(name, want, "|"); }

static void families_cut_where_they_should(void **state)
{
    (void)state;
    check("gpt-2", "I|'m| here|,| you|'|RE| | not|\n|x| 12|abc");
    check("llama-bpe", "you|'RE| |123|456|7|.\n\n|x|  \n| | y");
    check("llama-bpe", "e|\xCC\x81t| e"); /* a mark is no letter here */
    check("qwen2", "a|1|2| |3|(b| c|)\n");
    check("qwen35", "क्षण| e\xCC\x81te|1");
    check("smollm", "a|1|2| |3| bc");
    check("falcon", "a|,.`|123|45");
    check("default", "a|+|123|45");
    check("tekken", "camel|Case|Word| ÉCOLE| École|/\n|1|2");
    check("gpt-4o", "camel|Case's| IT'S|123|4");
    check("kimi-k2", "中文|English|混合| camel|Case");
    check("deepseek-v3", "中文|abc|123|4|.x|!!\n|ab");
    check("deepseek-coder", "\n|\n|x| y|1|2|한국");
    check("deepseek-llm", "a| b|12|\n| !?|  ");
    check("bloom", "a| b|,| c");
    check("gemma4", "a b c|\n\n|d");
    check("minicpm5", "123|45|ab| c");
    check("bailingmoe", "a|\n\n|b");
    check("seed-coder", "a|!!|\n|b");
}

static void pieces_are_those_of_another_engine(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) check_marked(cuts[i].name, cuts[i].pieces, "\u00A6");
}

/* Threes from the right, whatever the length: 1021 digits are one and 340 times three. */
static void digits_are_counted_from_their_right(void **state)
{
    (void)state;
    static const char *const names[] = {"afmoe", "tiny_aya", "superbpe"};
    struct pretok_ends ends = {0};
    char text[1021];
    memset(text, '7', sizeof text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct pretok *p = open_pretok(names[i]);
        for (size_t n = 1; n <= sizeof text; n += n < 20 ? 1 : 7) {
            assert_int_equal(pretok_split(p, text, n, &ends, NULL), 0);
            assert_int_equal(ends.n, (n + 2) / 3);
            for (size_t k = 0; k < ends.n; k++) assert_int_equal((n - ends.end[k]) % 3, 0);
        }
        pretok_free(p);
    }
    pretok_ends_deinit(&ends);
}

static void bytes_that_are_not_utf8_are_symbols(void **state)
{
    (void)state;
    check("llama-bpe", "a|\xFF\xFE|1| \xE4\xB8|2");
    check("deepseek-v3", "a|\xFF|1| \xE4\xB8.\n|2"); /* U+FFFD is \\p{S} */
}

static void names_are_known_or_said_not_to_be(void **state)
{
    (void)state;
    struct pretok *p = NULL;
    struct qn_error e;
    for (size_t i = 0; pretok_name(i); i++) {
        for (size_t k = 0; k < i; k++) assert_string_not_equal(pretok_name(k), pretok_name(i));
        pretok_free(open_pretok(pretok_name(i)));
    }
    assert_int_equal(pretok_new(&p, "llama-bpe-2", 11, &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "'llama-bpe-2' is not known (near it: llama-bpe, "));
    assert_non_null(strstr(e.msg, "--pre NAME"));
    assert_int_equal(pretok_new(&p, "", 0, &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "'' is not known;"));
    char longer[300];
    memset(longer, 'x', sizeof longer);
    assert_int_equal(pretok_new(&p, longer, sizeof longer, &e), QN_EUNSUP);
    assert_null(p);
}

/* The names of llama.cpp's list (src/llama-vocab.cpp, autumn 2026). */
static void every_name_that_files_carry_is_known(void **state)
{
    (void)state;
    static const char names[] =
        "default minicpm5 llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano deepseek-llm "
        "deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder gpt-2 phi-2 jina-es jina-de gigachat "
        "jina-v2-es "
        "jina-v2-de a.x-4.0 mellum modern-bert jais-2 gemma4 granite-embed-multi-311m sarvam-moe jina-v1-en "
        "jina-v2-code "
        "roberta-bpe refact command-r qwen2 deepseek-r1-qwen kormo f2llmv2 qwen35 stablelm2 olmo dbrx smaug-bpe "
        "poro-chat "
        "glm4 chatglm-bpe viking jais tekken smollm codeshell bloom gpt3-finnish exaone exaone4 exaone-moe chameleon "
        "minerva-7b megrez gpt-4o llama4 kanana2 talkie granite-embed-multi-97m tiny_aya cohere2moe superbpe trillion "
        "granite-docling bailingmoe bailingmoe2 llada-moe seed-coder hunyuan hunyuan-dense hy_v4 joyai-llm kimi-k2 "
        "ufakzeka grok-2 afmoe laguna minimax-m2 solar-open mellum2 ";
    for (const char *s = names; *s; s = strchr(s, ' ') + 1) {
        size_t n = strcspn(s, " ");
        if (!pretok_is_known(s, n)) print_error("%.*s\n", (int)n, s);
        assert_true(pretok_is_known(s, n));
    }
    assert_false(pretok_is_known("whitespace", 10)); /* of an encoder that is not supported either */
}

static void pieces_cover_any_text(void **state)
{
    (void)state;
    static const char *const parts[] = {"a",  "B",    "é",        "É",    "\xCC\x81", "中",       "한",
                                        "1",  "٣",    " ",        "  ",   "\n",       "\r\n",     "\t",
                                        "'s", "'LL",  ".",        "/",    "$",        "\xC2\xA0", "\xE2\x80\x83",
                                        "😀",  "\xFF", "\xE4\xB8", "\x01", "ǅ",        "ʰ",        "ा"};
    struct pretok_ends ends = {0};
    for (size_t i = 0; pretok_name(i); i++) {
        struct pretok *p = open_pretok(pretok_name(i));
        for (uint64_t round = 0; round < 200; round++) {
            char text[400];
            size_t n = 0;
            uint64_t n_parts = rng_u64(1, i, round) % 40;
            for (uint64_t k = 0; k < n_parts; k++) {
                const char *s = parts[rng_u64(2, round, k) % (sizeof parts / sizeof parts[0])];
                memcpy(text + n, s, strlen(s));
                n += strlen(s);
            }
            assert_int_equal(pretok_split(p, text, n, &ends, NULL), 0);
            for (size_t k = 0, at = 0; k < ends.n; at = ends.end[k++]) assert_true(ends.end[k] > at);
            assert_int_equal(ends.n ? ends.end[ends.n - 1] : 0, n);
        }
        pretok_free(p);
    }
    pretok_ends_deinit(&ends);
}

static void half_a_megabyte_of_anything_is_quick(void **state)
{
    (void)state;
    /* One name of each family. */
    static const char *const name[] = {
        "default",    "gpt-2",      "smollm", "falcon",   "llama-bpe", "qwen2",        "qwen35",         "minicpm5",
        "seed-coder", "bailingmoe", "tekken", "gpt-4o",   "kimi-k2",   "deepseek-llm", "deepseek-coder", "deepseek-v3",
        "bloom",      "gemma4",     "viking", "jais-2",   "spark2_5",  "youtu",        "ufakzeka",       "exaone-moe",
        "chameleon",  "laguna",     "afmoe",  "tiny_aya", "superbpe"};
    static const char *const unit[] = {"a",  "A",        "aA",  " ",    " \n", "\n",      "\r",   "\t ", "0",
                                       "😀",  "\xCC\x81", "A中", "中",   "'",   "!",       "\xFF", "x  ", "\xE3\x80\x80",
                                       "1a", "12\u00B2", "a ",  "\r\n", "क",   "<|im_sta"};
#ifdef FEW_CASES
    size_t n = 1 << 16; /* a sanitizer's build looks at accesses, not at the time */
#else
    size_t n = 1 << 19;
#endif
    char *text = malloc(n);
    struct pretok_ends ends = {0};
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        struct pretok *p = open_pretok(name[i]);
        for (size_t k = 0; k < sizeof unit / sizeof unit[0]; k++) {
            const char *u = unit[k];
            size_t len = strlen(u), bytes = n - n % len;
            for (size_t j = 0; j < bytes; j++) text[j] = u[j % len];
            if ((i + k) % 2) text[bytes - 1] = 'x'; /* a word after it all, in every other family */
            double start = cpu_seconds();
            assert_int_equal(pretok_split(p, text, bytes, &ends, NULL), 0);
            double took = cpu_seconds() - start;
            if (took > 1.0 * TIME_SCALE) print_error("%s: %.3f s for '%s'\n", name[i], took, u);
            assert_true(took < 1.0 * TIME_SCALE);
        }
        pretok_free(p);
    }
    pretok_ends_deinit(&ends);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_cut_where_they_should),       cmocka_unit_test(bytes_that_are_not_utf8_are_symbols),
        cmocka_unit_test(names_are_known_or_said_not_to_be),    cmocka_unit_test(pieces_cover_any_text),
        cmocka_unit_test(pieces_are_those_of_another_engine),   cmocka_unit_test(digits_are_counted_from_their_right),
        cmocka_unit_test(every_name_that_files_carry_is_known), cmocka_unit_test(half_a_megabyte_of_anything_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
