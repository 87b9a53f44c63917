/* SPDX-License-Identifier: MIT
 *
 * test_calls.c: tool calls as grammars: every form is what the reader of replies takes apart.
 *
 * A random walk takes any token that a mask allows. The reply that it makes is read, and has to have the calls that the
 * request asked for, with arguments that fit. The marks of the forms are special tokens, or texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tiny_vocab.h"
#include "base/mem.h"
#include "grammar/calls/calls.h"
#include "grammar/guide.h"

static const char *const marks[] = {
    "<tool_call>",   "</tool_call>", "<think>",       "</think>",  "[TOOL_CALLS]", "[ARGS]",         "[CALL_ID]",
    "<|channel|>",   "<|message|>",  "<|constrain|>", "<|start|>", "<|end|>",      "<|call|>",       "<tool_calls>",
    "</tool_calls>", "<TOOLCALL>",   "</TOOLCALL>",   "[/THINK]",  "[THINK]",      "<|python_tag|>", "<|return|>",
};

#define N_MARKS (sizeof marks / sizeof *marks)
#define N_FIRST 3 /* <unk>, <s>, </s> */
#define N_MORE  9
static const char *const more[N_MORE] = {"{\"", "\":", "\"}", "\",\"", "}}", "name", "</", "\n", "\"name\":\""};

/* A vocabulary of all bytes, with the marks as special tokens or without them. */
struct words {
    struct weights *w;
    struct vocab *v;
    struct grammar_shelf *shelf; /* which stays where it is */
    qn_token eog;
};

static struct words words_open(bool has_marks)
{
    struct vfile f = {0};
    struct words s = {0};
    struct qn_error e = {0};
    static char bytes[256][8];
    const char *text[N_FIRST + N_MORE + 256 + N_MARKS] = {"<unk>", "<s>", "</s>"};
    int32_t type[N_FIRST + N_MORE + 256 + N_MARKS] = {2, 3, 3};
    float score[N_FIRST + N_MORE + 256 + N_MARKS];
    int n = N_FIRST;
    for (int i = 0; i < N_MORE; i++, n++) text[n] = more[i], type[n] = 1;
    for (int i = 0; i < 256; i++, n++) {
        snprintf(bytes[i], 8, "<0x%02X>", (unsigned)i);
        text[n] = bytes[i];
        type[n] = 6;
    }
    for (size_t i = 0; i < N_MARKS && has_marks; i++, n++) text[n] = marks[i], type[n] = i % 2 ? 3 : 4;
    for (int i = 0; i < n; i++) score[i] = (float)-i;
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", text, (size_t)n);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, (size_t)n);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, (size_t)n);
    s.w = vf_open(&f);
    if (vocab_load(&s.v, s.w, &e)) fail_msg("%s", e.msg);
    s.eog = vocab_eog(s.v, &n)[0];
    s.shelf = malloc(sizeof *s.shelf);
    assert_non_null(s.shelf);
    shelf_init(s.shelf);
    return s;
}

static void words_close(struct words *s)
{
    shelf_deinit(s->shelf);
    free(s->shelf);
    vocab_free(s->v);
    weights_close(s->w);
}

/* ---- forms and tools ---- */

static const struct chat_form forms[] = {
    {CHAT_CALLS_TAG, "<think>", "</think>", 0},
    {CHAT_CALLS_TAG, "<think>", "</think>", CHAT_STYLE_FUNCTIONS},
    {CHAT_CALLS_TAG, NULL, NULL, CHAT_STYLE_FUNCTIONS | CHAT_STYLE_BARE},
    {CHAT_CALLS_LLAMA, NULL, NULL, 0},
    {CHAT_CALLS_MISTRAL, "[THINK]", "[/THINK]", 0},
    {CHAT_CALLS_MISTRAL, NULL, NULL, CHAT_STYLE_NAMED},
    {CHAT_CALLS_HARMONY, NULL, NULL, 0},
    {CHAT_CALLS_CALLS, NULL, NULL, 0},
    {CHAT_CALLS_CALLS, NULL, NULL, CHAT_STYLE_LINES},
    {CHAT_CALLS_UPPER, NULL, NULL, 0},
    {CHAT_CALLS_CODE, NULL, NULL, 0},
    {CHAT_CALLS_CODE, NULL, NULL, CHAT_STYLE_PYTHON},
    {CHAT_CALLS_PYTHON, "<think>", "</think>", 0},
    {CHAT_CALLS_PYTHON, "<think>", "</think>", CHAT_STYLE_START},
    {CHAT_CALLS_PYTHON, NULL, NULL, CHAT_STYLE_TAGS},
};
#define N_FORMS (sizeof forms / sizeof *forms)

#define FUNCTION(name, more) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"" more "}}"
#define WEATHER                                                                                                        \
    FUNCTION("weather",                                                                                                \
             ",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{"                                   \
             "\"city\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4},"                                         \
             "\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},"                                            \
             "\"more\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"maxItems\":2}},"          \
             "\"required\":[\"city\",\"days\"],\"additionalProperties\":false}")
#define NOTHING FUNCTION("no_thing", "")
#define BAD     FUNCTION("bad", ",\"strict\":false,\"parameters\":{\"properties\":{\"a\":{\"format\":\"dob\"}}}")

static json_t *list(const char *text)
{
    json_t *all = json_loads(text, 0, NULL);
    assert_non_null(all);
    return all;
}

static int shelved(struct shelved **out, struct words *s, const struct chat_form *form, const json_t *tools,
                   const struct qn_grammar_params *asked, const struct qn_grammar_params *answer, struct qn_error *e)
{
    struct qn_grammar_params p = *asked;
    struct buf text = {0};
    p.kind = QN_GRAMMAR_TOOL_CALLS;
    int rc = calls_describe(&text, &p, tools, form, CHAT_BEGIN_REPLY, answer, e);
    p.text = (char *)text.data;
    p.n = text.len;
    p.spaces = true;
    if (!rc) rc = shelf_get(out, s->shelf, s->v, &p, e);
    buf_deinit(&text);
    return rc;
}

/* ---- random walks ---- */

static uint32_t state_of_dice = 1;

static uint32_t dice(uint32_t n)
{
    state_of_dice = state_of_dice * 1664525u + 1013904223u;
    return (state_of_dice >> 8) % n;
}

/* A token of the mask: often the end, often a special one, so that walks are short. -1: there is none. */
static qn_token pick(const struct words *s, const uint64_t *mask)
{
    int n = vocab_n_tokens(s->v), n_allowed = 0, n_special = 0;
    qn_token any = -1, special = -1;
    if (mask[s->eog / 64] >> (s->eog % 64) & 1 && dice(3) == 0) return s->eog;
    for (qn_token t = 0; t < n; t++) {
        if (vocab_is_eog(s->v, t) || !(mask[t / 64] >> (t % 64) & 1)) continue;
        if (dice((uint32_t)++n_allowed) == 0) any = t;
        if (vocab_is_special(s->v, t) && dice((uint32_t)++n_special) == 0) special = t;
    }
    if (special >= 0 && dice(8) == 0) return special;
    return any >= 0 ? any : s->eog;
}

/* What a reply had. */
struct found {
    int n_calls, n_bad;
    bool ended;
    struct buf content, arguments[64], text;
    char name[64][16];
};

static void take_events(struct found *f, struct chat_reply *r)
{
    struct qn_reply_event v;
    while (chat_reply_next(r, &v)) {
        assert_true(f->n_calls < 64);
        if (v.kind == QN_REPLY_CALL) snprintf(f->name[f->n_calls], 16, "%.*s", (int)v.n, v.text);
        if (v.kind == QN_REPLY_ARGUMENTS) buf_add(&f->arguments[f->n_calls], v.text, v.n, NULL);
        if (v.kind == QN_REPLY_CONTENT) buf_add(&f->content, v.text, v.n, NULL);
        f->n_calls += v.kind == QN_REPLY_CALL_END;
        f->n_bad += v.kind == QN_REPLY_BAD_CALL;
    }
}

static void walk(struct found *f, struct words *s, struct shelved *g, const struct chat_form *form, const json_t *tools)
{
    struct guide_start start = {form, CHAT_BEGIN_REPLY, true, false, "", 0};
    struct guide *guide;
    struct chat_reply *reply;
    struct qn_error e;
    *f = (struct found){0};
    assert_int_equal(guide_new(&guide, g, s->v, vocab_n_tokens(s->v), &start, &e), 0);
    assert_int_equal(chat_reply_new(&reply, form, tools, CHAT_BEGIN_REPLY, &e), 0);
    for (int i = 0; i < 1500 && !f->ended; i++) {
        size_t before = f->text.len;
        guide_prepare(guide);
        if (guide_failed(guide, &e)) fail_msg("%s", e.msg);
        qn_token t = pick(s, guide_mask(guide));
        f->ended = t == s->eog;
        if (f->ended) break;
        guide_take(guide, t);
        assert_int_equal(vocab_token_bytes(s->v, t, true, &f->text, &e), 0);
        assert_int_equal(chat_reply_push(reply, (char *)f->text.data + before, f->text.len - before, &e), 0);
        take_events(f, reply);
    }
    assert_int_equal(chat_reply_end(reply, "", 0, &e), 0);
    take_events(f, reply);
    buf_add(&f->text, "", 1, NULL);
    buf_add(&f->content, "", 1, NULL);
    chat_reply_free(reply);
    guide_free(guide);
}

static void forget(struct found *f)
{
    buf_deinit(&f->content);
    buf_deinit(&f->text);
    for (int i = 0; i < 64; i++) buf_deinit(&f->arguments[i]);
}

/* Whether the arguments of `weather` are what its schema says. */
static bool fits_weather(const json_t *v)
{
    const json_t *city = json_object_get(v, "city"), *days = json_object_get(v, "days"),
                 *x = json_object_get(v, "more");
    bool ok = json_is_string(city) && json_string_length(city) > 0 && json_is_integer(days) &&
              json_integer_value(days) >= 1 && json_integer_value(days) <= 9;
    ok = ok && (!x || (json_is_array(x) && json_array_size(x) <= 2));
    return ok && json_object_size(v) == (x ? 3 : 2);
}

static void check_calls(const struct found *f)
{
    for (int i = 0; i < f->n_calls; i++) {
        const struct buf *b = &f->arguments[i];
        json_t *v = json_loadb((char *)b->data, b->len, JSON_ALLOW_NUL, NULL);
        bool ok = json_is_object(v);
        if (!strcmp(f->name[i], "weather")) ok = ok && fits_weather(v);
        if (!strcmp(f->name[i], "no_thing")) ok = ok && json_object_size(v) == 0;
        if (!ok) fail_msg("call %d of %s: %.*s\n%s", i, f->name[i], (int)b->len, b->data, f->text.data);
        json_decref(v);
    }
    if (f->n_bad) fail_msg("bad calls in %s", f->text.data);
}

/* How many bytes of a reply the grammar takes, one token each; with one more for its end. */
static size_t n_taken(struct words *s, const struct chat_form *form, const json_t *tools,
                      const struct qn_grammar_params *p, const char *text)
{
    struct guide_start start = {form, CHAT_BEGIN_REPLY, true, false, "", 0};
    struct shelved *g;
    struct guide *guide;
    struct qn_error e;
    size_t n = 0;
    bool fits = true;
    if (shelved(&g, s, form, tools, p, NULL, &e)) fail_msg("%s", e.msg);
    assert_int_equal(guide_new(&guide, g, s->v, vocab_n_tokens(s->v), &start, &e), 0);
    for (; fits && n <= strlen(text); n += fits) {
        qn_token t = text[n] ? N_FIRST + N_MORE + (uint8_t)text[n] : s->eog;
        guide_prepare(guide);
        if (guide_failed(guide, &e)) fail_msg("%s", e.msg);
        fits = guide_mask(guide)[t / 64] >> (t % 64) & 1;
        if (fits && text[n]) guide_take(guide, t);
    }
    guide_free(guide);
    shelf_put(g);
    return n;
}

#define WALKS 12

static void random_calls_of_every_form_are_read_and_fit(void **state)
{
    (void)state;
    json_t *tools = list("[" WEATHER "," NOTHING "," BAD "]");
    for (int k = 0; k < 2; k++) {
        struct words s = words_open(k == 0);
        for (size_t i = 0; i < N_FORMS; i++)
            for (int one = 0; one < 2; one++) {
                struct qn_grammar_params p = {.required = true, .one_call = one};
                struct shelved *g;
                struct found f;
                struct qn_error e;
                int n_ended = 0, most = 0;
                if (shelved(&g, &s, &forms[i], tools, &p, NULL, &e)) fail_msg("form %zu: %s", i, e.msg);
                for (int w = 0; w < WALKS; w++) {
                    walk(&f, &s, g, &forms[i], tools);
                    if (f.ended) check_calls(&f);
                    if (f.ended && (f.n_calls == 0 || (one && f.n_calls != 1)))
                        fail_msg("%d calls in %s", f.n_calls, f.text.data);
                    if (f.ended && f.content.data[0]) fail_msg("content in %s", f.text.data);
                    if (f.n_calls > most) most = f.n_calls;
                    n_ended += f.ended;
                    forget(&f);
                }
                if (n_ended == 0) fail_msg("form %zu: no walk came to an end", i);
                if (!one && most < 2 && forms[i].calls != CHAT_CALLS_HARMONY) fail_msg("form %zu: no second call", i);
                shelf_put(g);
            }
        words_close(&s);
    }
    json_decref(tools);
}

/* Of a schema that is not enforced, parameters come in its order, and those that the reader refuses do not come. */
static void loose_parameters_come_in_order(void **state)
{
    (void)state;
    json_t *tools = list("[" FUNCTION("f", ",\"strict\":false,\"parameters\":{\"properties\":{\"one\":{\"type\":"
                                           "\"boolean\"},\"a<b\":{},\"a\\tb\":{},\"two\":{\"type\":\"boolean\"},"
                                           "\"x\":{\"format\":\"dob\"}}}") "]");
    struct words s = words_open(true);
    int n_both = 0;
    for (size_t i = 0; i < N_FORMS; i++) {
        struct shelved *g;
        struct found f;
        struct qn_error e;
        if (forms[i].calls != CHAT_CALLS_TAG || !(forms[i].style & CHAT_STYLE_FUNCTIONS)) continue;
        if (shelved(&g, &s, &forms[i], tools, &(struct qn_grammar_params){.required = true, .one_call = true}, NULL,
                    &e))
            fail_msg("%s", e.msg);
        for (int w = 0; w < 10 * WALKS; w++) {
            walk(&f, &s, g, &forms[i], tools);
            const char *text = (char *)f.text.data;
            const char *one = strstr(text, "<parameter=one>"), *two = strstr(text, "<parameter=two>");
            if (strstr(text, "<parameter=a")) fail_msg("a name that cannot be read: %s", text);
            if (one && two && two < one) fail_msg("the wrong order: %s", text);
            n_both += one && two;
            forget(&f);
        }
        shelf_put(g);
    }
    if (!n_both) fail_msg("no call has two parameters");
    words_close(&s);
    json_decref(tools);
}

/* The same in the shape of Python: a name may have a space, and one that cannot be read does not come. */
static void loose_keywords_are_those_that_are_read(void **state)
{
    (void)state;
    json_t *tools =
        list("[" FUNCTION("f", ",\"strict\":false,\"parameters\":{\"properties\":{\"a b\":{},\" c\":{},\"d \":{},"
                               "\"e\\u0001\":{},\"e=\":{},\"\":{},\"x\":{\"format\":\"dob\"}}}") "]");
    struct words s = words_open(true);
    const struct qn_grammar_params p = {.required = true};
    for (size_t i = 0; i < N_FORMS; i++) {
        if (forms[i].calls != CHAT_CALLS_PYTHON || forms[i].style) continue;
        assert_int_equal(n_taken(&s, &forms[i], tools, &p, "[f(a b=1, x=2)]"), 16);
        assert_int_equal(n_taken(&s, &forms[i], tools, &p, "[f( c=1)]"), 3);
        assert_int_equal(n_taken(&s, &forms[i], tools, &p, "[f(d =1)]"), 3);
        assert_int_equal(n_taken(&s, &forms[i], tools, &p, "[f(e=1)]"), 3);
    }
    words_close(&s);
    json_decref(tools);
}

/* Parameters that the schema names by way of $ref and allOf have the same types for the writer and the reader. */
static void parameters_are_found_behind_references(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        FUNCTION("weather", ",\"parameters\":{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"object\","
                            "\"properties\":{\"city\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4},\"days\":{"
                            "\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"city\",\"days\"],"
                            "\"additionalProperties\":false}}}"),
        FUNCTION("weather", ",\"parameters\":{\"type\":\"object\",\"allOf\":[{\"properties\":{\"city\":{\"type\":"
                            "\"string\",\"minLength\":1,\"maxLength\":4}}},{\"$ref\":\"#/$defs/x\"},{\"$ref\":\"#\"}],"
                            "\"$defs\":{\"x\":{\"properties\":{\"days\":{\"type\":\"integer\",\"minimum\":1,"
                            "\"maximum\":9}}}},\"required\":[\"city\",\"days\"],\"unevaluatedProperties\":false}"),
    };
    struct words s = words_open(true);
    for (size_t i = 0; i < 2 * (sizeof schemas / sizeof *schemas); i++) {
        char text[1000];
        struct shelved *g;
        struct found f;
        struct qn_error e;
        snprintf(text, sizeof text, "[%s]", schemas[i / 2]);
        json_t *tools = list(text);
        const struct chat_form *form = &forms[i % 2]; /* JSON, and <function=NAME> */
        int rc =
            shelved(&g, &s, form, tools, &(struct qn_grammar_params){.required = true, .one_call = true}, NULL, &e);
        if (rc) fail_msg("%s: %s", schemas[i / 2], e.msg);
        int n_ended = 0;
        for (int w = 0; w < 2 * WALKS; w++) {
            walk(&f, &s, g, form, tools);
            if (f.ended) check_calls(&f);
            n_ended += f.ended;
            forget(&f);
        }
        if (!n_ended) fail_msg("no walk came to an end");
        shelf_put(g);
        json_decref(tools);
    }
    words_close(&s);
}

/* Numbers of an enumeration come as they are, also those that others would be too long for. */
static void long_numbers_of_an_enumeration_come(void **state)
{
    (void)state;
    static const char *const wanted[] = {"{\"n\":5}", "{\"n\":9223372036854775807}",
                                         "{\"n\":0.00000000000000000000125}"};
    json_t *tools = list("[" FUNCTION("f", ",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"enum\":[5,"
                                           "9223372036854775807,1.25e-21]}},\"required\":[\"n\"],"
                                           "\"additionalProperties\":false}") "]");
    struct words s = words_open(true);
    struct shelved *g;
    struct qn_error e;
    bool seen[3] = {false};
    if (shelved(&g, &s, &forms[0], tools, &(struct qn_grammar_params){.required = true, .one_call = true}, NULL, &e))
        fail_msg("%s", e.msg);
    for (int w = 0; w < 4 * WALKS; w++) {
        struct found f;
        walk(&f, &s, g, &forms[0], tools);
        check_calls(&f);
        for (int i = 0; i < 3 && f.n_calls; i++) {
            char text[64];
            size_t n = 0;
            for (size_t k = 0; k < f.arguments[0].len && n < sizeof text - 1; k++)
                if (f.arguments[0].data[k] != ' ') text[n++] = (char)f.arguments[0].data[k];
            text[n] = 0;
            seen[i] |= !strcmp(text, wanted[i]);
        }
        forget(&f);
    }
    for (int i = 0; i < 3; i++)
        if (!seen[i]) fail_msg("%s never came", wanted[i]);
    shelf_put(g);
    words_close(&s);
    json_decref(tools);
}

static void a_text_may_come_where_no_call_is_asked_for(void **state)
{
    (void)state;
    json_t *tools = list("[" WEATHER "," NOTHING "]");
    struct words s = words_open(true);
    int n_texts = 0, n_calls = 0;
    for (size_t i = 0; i < N_FORMS; i++) {
        struct shelved *g;
        struct found f;
        struct qn_error e;
        if (shelved(&g, &s, &forms[i], tools, &(struct qn_grammar_params){0}, NULL, &e)) fail_msg("%s", e.msg);
        for (int w = 0; w < WALKS; w++) {
            walk(&f, &s, g, &forms[i], tools);
            if (f.ended) check_calls(&f);
            n_texts += f.ended && f.n_calls == 0;
            n_calls += f.n_calls;
            forget(&f);
        }
        shelf_put(g);
    }
    if (n_texts < 10 || n_calls < 10) fail_msg("%d texts, %d calls", n_texts, n_calls);
    words_close(&s);
    json_decref(tools);
}

/* In the shape of Python a text may begin with a bracket, unless the reader would take it for a call. */
static void a_text_may_begin_with_a_bracket(void **state)
{
    (void)state;
    static const char *const texts[] = {"[1] See the paper. [2] is older.",
                                        "[note]",
                                        "[",
                                        " [[weather(days=1)]",
                                        "[link](weather)",
                                        "[1, 2]",
                                        "[weather] is a tool",
                                        "[weather(1)]",
                                        "[weather (a=1)]",
                                        "[other(a=1)]",
                                        "[weathers()]",
                                        "[no_thing() is]",
                                        "[no_thing()",
                                        "\n[x]",
                                        "I call [weather(days=1)]"};
    static const struct {
        const char *text;
        size_t n;
    } calls[] = {{"[weather(days=x", 14}, {"[no_thing()]x", 12}, {"\n [ weather( x=", 15}};
    static const char *const names[] = {"no_thing"};
    json_t *tools = list("[" WEATHER "," NOTHING "]");
    struct words s = words_open(true);
    for (size_t i = 0; i < N_FORMS; i++) {
        if (forms[i].calls != CHAT_CALLS_PYTHON) continue;
        const struct qn_grammar_params any = {0}, one = {.names = names, .n_names = 1};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            struct chat_reply *r;
            struct qn_reply_event v;
            size_t n = strlen(texts[k]);
            if (n_taken(&s, &forms[i], tools, &any, texts[k]) != n + 1) fail_msg("form %zu: %s", i, texts[k]);
            assert_int_equal(chat_reply_new(&r, &forms[i], tools, CHAT_BEGIN_REPLY, NULL), 0);
            assert_int_equal(chat_reply_end(r, texts[k], n, NULL), 0);
            assert_true(chat_reply_next(r, &v) && v.kind == QN_REPLY_CONTENT && v.n == n &&
                        !memcmp(v.text, texts[k], n));
            assert_false(chat_reply_next(r, &v));
            chat_reply_free(r);
        }
        bool has_marks = forms[i].style & (CHAT_STYLE_START | CHAT_STYLE_TAGS);
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            size_t n = n_taken(&s, &forms[i], tools, &any, calls[k].text);
            if (n > calls[k].n || (has_marks && calls[k].text[n] != '=' && calls[k].text[n] != ']'))
                fail_msg("form %zu: %zu bytes of %s", i, n, calls[k].text);
        }
        assert_int_equal(n_taken(&s, &forms[i], tools, &one, "[weather(days=1)]"), 13); /* it is read as a call */
    }
    words_close(&s);
    json_decref(tools);
}

static void the_text_in_place_of_calls_has_its_form(void **state)
{
    (void)state;
    static const struct qn_grammar_params answers[] = {
        {.kind = QN_GRAMMAR_REGEX, .text = "[xy]{3}", .n = 7},
        {.kind = QN_GRAMMAR_CHOICE, .text = "[\"xxx\",\"yyy\"]", .n = 13},
        {.kind = QN_GRAMMAR_GBNF, .text = "root ::= [xy] rest\nrest ::= [xy] [xy]", .n = 37},
        {.kind = QN_GRAMMAR_JSON_SCHEMA, .text = "{\"enum\":[111,222]}", .n = 18},
        {.kind = QN_GRAMMAR_JSON_OBJECT},
    };
    json_t *tools = list("[" WEATHER "," NOTHING "]");
    struct words s = words_open(true);
    for (size_t i = 0; i < N_FORMS; i++)
        for (size_t k = 0; k < sizeof answers / sizeof *answers; k++) {
            struct shelved *g;
            struct found f;
            struct qn_error e;
            if (shelved(&g, &s, &forms[i], tools, &(struct qn_grammar_params){0}, &answers[k], &e))
                fail_msg("%s", e.msg);
            for (int w = 0; w < WALKS / 2; w++) {
                walk(&f, &s, g, &forms[i], tools);
                if (f.ended && k < 4) check_calls(&f);
                const char *text = (char *)f.content.data;
                bool fits = strlen(text) == 3 && strspn(text, "xy12") == 3;
                if (f.ended && k < 4 && f.n_calls == 0 && !fits) fail_msg("%s in %s", text, f.text.data);
                forget(&f);
            }
            shelf_put(g);
        }
    words_close(&s);
    json_decref(tools);
}

/* ---- refusals ---- */

static void refused(const char *tools, const struct chat_form *form, const struct qn_grammar_params *p, int code,
                    const char *words)
{
    struct words s = words_open(false);
    json_t *all = list(tools);
    struct shelved *g;
    struct qn_error e = {0};
    assert_int_equal(shelved(&g, &s, form, all, p, NULL, &e), code);
    if (!strstr(e.msg, words)) fail_msg("'%s' has no '%s'", e.msg, words);
    json_decref(all);
    words_close(&s);
}

static void what_cannot_be_enforced_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"nope"};
    const struct qn_grammar_params must = {.required = true}, named = {.required = true, .names = names, .n_names = 1};
    refused("[" FUNCTION("f", ",\"parameters\":{\"properties\":{\"a\":{\"format\":\"dob\"}}}") "]", &forms[0], &must,
            QN_EUNSUP, "tool 'f': /properties/a/format: ");
    refused("[" FUNCTION("f", ",\"parameters\":{\"type\":\"string\"}") "]", &forms[0], &must, QN_EDATA, "tool 'f': ");
    refused("[" FUNCTION("a b", "") "]", &forms[1], &must, QN_EUNSUP, "tool 'a b': ");
    refused("[" FUNCTION("f", ",\"parameters\":{\"type\":\"object\",\"minProperties\":3}") "]", &forms[1], &must,
            QN_EUNSUP, "tool 'f': ");
    refused("[" FUNCTION("f", ",\"parameters\":{\"properties\":{\"a\":{\"enum\":[1,1e300]}}}") "]", &forms[0], &must,
            QN_EUNSUP, "tool 'f': the number 1e+300 ");
    refused("[" FUNCTION("f", ",\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1e19}}}") "]",
            &forms[0], &must, QN_EUNSUP, "tool 'f': a number has to have more digits");
    refused("[" NOTHING "]", &forms[0], &named, QN_EUSAGE, "'nope'");
    refused("[]", &forms[0], &must, QN_EUSAGE, "no tools");
    refused("[" NOTHING "]", &(struct chat_form){0}, &must, QN_EUNSUP, "no form");
}

static void only_the_named_tools_are_called(void **state)
{
    (void)state;
    static const char *const names[] = {"no_thing"};
    const struct qn_grammar_params p = {.required = true, .names = names, .n_names = 1};
    json_t *tools = list("[" WEATHER "," NOTHING "]");
    struct words s = words_open(true);
    struct shelved *g;
    struct found f;
    struct qn_error e;
    assert_int_equal(shelved(&g, &s, &forms[0], tools, &p, NULL, &e), 0);
    for (int w = 0; w < WALKS; w++) {
        walk(&f, &s, g, &forms[0], tools);
        for (int i = 0; i < f.n_calls; i++) assert_string_equal(f.name[i], "no_thing");
        forget(&f);
    }
    shelf_put(g);
    words_close(&s);
    json_decref(tools);
}

/* LeakSanitizer sees what is lost. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const struct qn_grammar_params p = {.required = true},
                                          answer = {.kind = QN_GRAMMAR_CHOICE, .text = "[\"xxx\",\"yyy\"]", .n = 13};
    json_t *tools = list("[" WEATHER "," NOTHING "," BAD "]");
    struct words s = words_open(true);
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        struct shelved *g = NULL;
        struct qn_error e = {0};
        mem_fault_set(n);
        int rc = shelved(&g, &s, &forms[n % 2], tools, &p, n % 3 ? NULL : &answer, &e);
        hit = mem_fault_hit();
        mem_fault_set(0);
        assert_true(rc == 0 || (hit && rc == QN_ENOMEM));
        shelf_put(g);
        shelf_deinit(s.shelf); /* so that nothing is found there */
        shelf_init(s.shelf);
    }
    words_close(&s);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_of_every_form_are_read_and_fit),
        cmocka_unit_test(loose_parameters_come_in_order),
        cmocka_unit_test(loose_keywords_are_those_that_are_read),
        cmocka_unit_test(parameters_are_found_behind_references),
        cmocka_unit_test(long_numbers_of_an_enumeration_come),
        cmocka_unit_test(a_text_may_come_where_no_call_is_asked_for),
        cmocka_unit_test(a_text_may_begin_with_a_bracket),
        cmocka_unit_test(the_text_in_place_of_calls_has_its_form),
        cmocka_unit_test(what_cannot_be_enforced_is_refused_by_name),
        cmocka_unit_test(only_the_named_tools_are_called),
        cmocka_unit_test(every_allocation_may_fail),
    };
    json_set_alloc_funcs(mem_alloc, mem_free); /* as in the program: its allocations may fail, too */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
