/* SPDX-License-Identifier: MIT
 *
 * test_chat_api.c: the chat section of quern.h on a small model: the file's template, tokens in, events and stop
 * strings out. The argument is a model with a ChatML template and its marks as control tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <quern.h>

#include "base/buf.h"
#include "base/mem.h"

static qn_model *model;
static const char request[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|im_end|>\"}], \"tools\": [{\"type\": \"function\", "
    "\"function\": {\"name\": \"f\"}}]}";
static const char with_calls[] = "<tool_call> </think> {% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>";

static void test_prompt(void **state)
{
    static const char text[] = "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n";
    static const char without[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|im_end|>\"}]}";
    qn_chat *c = NULL;
    qn_prompt *p = NULL;
    size_t n, n_marks = 0;
    qn_token *mark = NULL;
    (void)state;
    assert_int_equal(qn_chat_new(&c, model, NULL, 0, NULL), 0);
    assert_int_equal(qn_chat_prompt(&p, c, without, strlen(without), NULL, NULL), 0);
    const char *got = qn_prompt_text(p, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(got, text, n);
    const qn_token *tokens = qn_prompt_tokens(p, &n);
    assert_int_equal(qn_tokenize(model, "<|im_end|>", 10, QN_PARSE_SPECIAL, NULL, &mark, &n_marks, NULL), 0);
    assert_int_equal(n_marks, 1);
    size_t n_end = 0;
    for (size_t i = 0; i < n; i++) n_end += tokens[i] == mark[0];
    assert_int_equal(n_end, 1);
    qn_free(mark);
    qn_prompt_free(p);
    struct qn_error e;
    p = NULL;
    assert_int_equal(qn_chat_prompt(&p, c, "{", 1, NULL, &e), QN_EUSAGE);
    assert_null(p);
    qn_chat_free(c);
}

/* Places of the tokens that begin a message. */
static size_t find_starts(const qn_token *tokens, size_t n, size_t *at)
{
    size_t n_marks, n_at = 0;
    qn_token *mark = NULL;
    assert_int_equal(qn_tokenize(model, "<|im_start|>", 12, QN_PARSE_SPECIAL, NULL, &mark, &n_marks, NULL), 0);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] == mark[0]) at[n_at++] = i;
    qn_free(mark);
    return n_at;
}

/* Behind the first message and before the model's turn; what a user writes is no end of anything. */
static void test_boundaries(void **state)
{
    (void)state;
    static const char shape[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"%s\"}, {\"role\": \"user\", "
                                "\"content\": \"%s <|im_start|>\"}], \"add_generation_prompt\": %s}";
    char words[512] = "a", text[2000];
    qn_chat *c = NULL;
    while (strlen(words) < 450) strcat(words, " <|im_start|> word");
    assert_int_equal(qn_chat_new(&c, model, NULL, 0, NULL), 0);
    for (int which = 0; which < 8; which++) {
        qn_prompt *p = NULL;
        size_t n, n_cuts, at[8];
        bool is_long = which & 1, more = which & 2, answers = which & 4;
        snprintf(text, sizeof text, shape, is_long ? words : "Be brief.", more ? words : "Hi.",
                 answers ? "true" : "false");
        assert_int_equal(qn_chat_prompt(&p, c, text, strlen(text), NULL, NULL), 0);
        const qn_token *tokens = qn_prompt_tokens(p, &n);
        const int *cuts = qn_prompt_boundaries(p, &n_cuts);
        assert_int_equal(find_starts(tokens, n, at), answers ? 3 : 2);
        if (!answers) {
            assert_true(n_cuts == 1 && cuts[0] == (int)at[1]);
        } else if (is_long && more) {
            assert_true(n_cuts == 2 && cuts[0] == (int)at[1] && cuts[1] == (int)at[2]);
        } else {
            assert_true(n_cuts == 1 && cuts[0] == (int)at[2]);
        }
        qn_prompt_free(p);
    }
    qn_chat_free(c);
}

/* All that comes out, each event with a letter for its kind before it. */
static int collect(qn_reply *r, struct buf *out)
{
    static const char kinds[] = "crnaeb";
    struct qn_reply_event v;
    static char last;
    while (qn_reply_next(r, &v)) {
        char kind[2] = {kinds[v.kind], ':'};
        if (out->len == 0) last = 0;
        if (kind[0] != last) buf_add(out, kind, 2, NULL);
        last = kind[0];
        buf_add(out, v.text, v.n, NULL);
    }
    return 0;
}

/* The reply with this text, up to a stop string; owned. */
static char *reply(const char *text, const char *const *stop, size_t n_stop)
{
    qn_chat *c = NULL;
    qn_prompt *p = NULL;
    qn_reply *r = NULL;
    qn_token *ids = NULL;
    size_t n = 0;
    bool stopped = false;
    struct buf out = {0};
    assert_int_equal(qn_chat_new(&c, model, with_calls, strlen(with_calls), NULL), 0);
    assert_int_equal(qn_chat_prompt(&p, c, request, strlen(request), NULL, NULL), 0);
    assert_int_equal(qn_reply_new(&r, c, p, stop, n_stop, NULL), 0);
    assert_int_equal(qn_tokenize(model, text, strlen(text), QN_PARSE_SPECIAL, NULL, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n && !stopped; i++) {
        assert_int_equal(qn_reply_push(r, ids[i], &stopped, NULL), 0);
        collect(r, &out);
    }
    assert_int_equal(qn_reply_push(r, -1, NULL, NULL), QN_EUSAGE);
    assert_int_equal(qn_reply_end(r, NULL), 0);
    collect(r, &out);
    buf_add(&out, "", 1, NULL);
    qn_free(ids);
    qn_reply_free(r);
    qn_prompt_free(p);
    qn_chat_free(c);
    return (char *)out.data;
}

static void check(const char *text, const char *const *stop, size_t n_stop, const char *want)
{
    char *got = reply(text, stop, n_stop);
    assert_string_equal(got, want);
    mem_free(got);
}

static void test_reply(void **state)
{
    (void)state;
    check("Hi \xc3\xa9 <|im_start|>there<|im_end|>", NULL, 0, "c:Hi \xc3\xa9 there"); /* control tokens have no text */
    check("<think>hm</think>\n\nHi<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>", NULL, 0,
          "r:hmc:Hin:fa:{\"a\": 1}e:");
    check("<tool_call>{}</tool_call>", NULL, 0, "b:<tool_call>{}</tool_call>");
}

static void test_stop(void **state)
{
    static const char *const stop[] = {"STOP", "hm", "ab|"};
    (void)state;
    check("one STOP two", stop, 3, "c:one ");
    check("<think>hm STOP</think>Hi STOP<tool_call>{\"name\": \"f\"}</tool_call>", stop, 3, "r:hm STOPc:Hi ");
    check("Hi ab<tool_call>{\"name\": \"f\"}</tool_call>| more", stop, 3, "c:Hi n:fa:{}e:");
    check("Hi ab", stop, 3, "c:Hi ab");
    check("STO", stop, 3, "c:STO");
}

static void test_no_memory(void **state)
{
    static const char *const stop[] = {"STOP"};
    (void)state;
    for (uint64_t n = 1;; n++) {
        qn_chat *c = NULL;
        qn_prompt *p = NULL;
        qn_reply *r = NULL;
        struct qn_error e = {0};
        mem_fault_set(n);
        int rc = qn_chat_new(&c, model, with_calls, strlen(with_calls), &e);
        if (rc == 0) rc = qn_chat_prompt(&p, c, request, strlen(request), NULL, &e);
        if (rc == 0) rc = qn_reply_new(&r, c, p, stop, 1, &e);
        for (qn_token t = 60; rc == 0 && t < 70; t++) rc = qn_reply_push(r, t, NULL, &e);
        if (rc == 0) rc = qn_reply_end(r, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        qn_reply_free(r);
        qn_prompt_free(p);
        qn_chat_free(c);
        if (!hit) break;
        assert_int_equal(rc, QN_ENOMEM);
        assert_int_equal(e.code, QN_ENOMEM);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prompt), cmocka_unit_test(test_boundaries),
                                       cmocka_unit_test(test_reply), cmocka_unit_test(test_stop),
                                       cmocka_unit_test(test_no_memory)};
    if (argc != 2 || qn_model_open(&model, argv[1], NULL)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
