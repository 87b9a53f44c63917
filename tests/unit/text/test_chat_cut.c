/* SPDX-License-Identifier: MIT
 *
 * test_chat_cut.c: boundaries of messages, where the user's text helps to spell a control token.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text/chat/chat_cut.h"
#include "text/token/origin.h"
#include "../tiny_vocab.h"

enum { TURN = 3, WORD, N_TOKENS };

static size_t cuts_of(const char *text, const struct text_span *user, size_t n_user, const qn_token *tokens,
                      size_t n_tokens, int cut[CHAT_CUTS])
{
    static const char *const texts[N_TOKENS] = {"<unk>", "<s>", "</s>", "<|t|>", "x"};
    static const int32_t types[N_TOKENS] = {2, 3, 3, 3, 1};
    const float scores[N_TOKENS] = {0};
    const struct text_origin origin = {.user = user, .n_user = n_user};
    struct vfile f = {0};
    struct vocab *v = NULL;
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", texts, N_TOKENS);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, types, N_TOKENS);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, scores, N_TOKENS);
    struct weights *w = vf_open(&f);
    assert_int_equal(vocab_load(&v, w, NULL), 0);
    size_t n = chat_cuts(v, text, strlen(text), &origin, tokens, n_tokens, cut);
    vocab_free(v);
    weights_close(w);
    return n;
}

static void a_message_ends_before_the_next_turn(void **state)
{
    (void)state;
    static const struct text_span user[] = {{5, 3}};
    static const qn_token tokens[] = {TURN, WORD, WORD, WORD, TURN};
    int cut[CHAT_CUTS];
    assert_int_equal(cuts_of("<|t|>xxx<|t|>", user, 1, tokens, 5, cut), 1);
    assert_int_equal(cut[0], 4);
}

/* The user writes all of a control token, its end or its beginning: none of these is the template's. */
static void what_the_user_spells_is_no_turn(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct text_span user;
    } cases[] = {{"<|t|><|t|><|t|>", {5, 5}}, {"<|t|><|t|>xx<|t|>", {8, 4}}, {"<|t|>xx<|t|><|t|>", {5, 4}}};
    static const qn_token tokens[] = {TURN, WORD, WORD, WORD, TURN};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int cut[CHAT_CUTS];
        assert_int_equal(cuts_of(cases[i].text, &cases[i].user, 1, tokens, 5, cut), 1);
        assert_int_equal(cut[0], 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_ends_before_the_next_turn),
        cmocka_unit_test(what_the_user_spells_is_no_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
