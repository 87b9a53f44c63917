/* SPDX-License-Identifier: MIT
 *
 * test_chat_reply.c: replies in every form: whole, cut anywhere, cut short, and malformed.
 *
 * An expectation is the events written as text: ordinary for content, (...) for reasoning, {name|arguments} for a call
 * (the brace is missing where it did not end), !...! for what was no call. Every case is fed whole and byte by byte,
 * and must give the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/chat/chat_reply.h"

static const char tools_text[] = "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": "
                                 "{\"type\": \"object\", \"properties\": "
                                 "{\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}, \"any\": {}}}}}]";
static json_t *tools;

static const struct chat_form tag = {CHAT_CALLS_TAG, "<think>", "</think>", 0};
static const struct chat_form llama = {CHAT_CALLS_LLAMA, NULL, NULL, 0};
static const struct chat_form mistral = {CHAT_CALLS_MISTRAL, "[THINK]", "[/THINK]", 0};
static const struct chat_form harmony = {CHAT_CALLS_HARMONY, NULL, NULL, 0};
static const struct chat_form code = {CHAT_CALLS_CODE, NULL, NULL, 0};
static const struct chat_form calls = {CHAT_CALLS_CALLS, NULL, NULL, 0};
static const struct chat_form upper = {CHAT_CALLS_UPPER, NULL, NULL, 0};
static const struct chat_form python = {CHAT_CALLS_PYTHON, "<think>", "</think>", 0};
static const struct chat_form none = {CHAT_CALLS_NONE, NULL, NULL, 0};

struct joined {
    struct buf text;
    enum qn_reply_kind kind; /* of the last event */
    bool any, in_call;
    int n_calls;
};

static void leave(struct joined *j)
{
    static const char *const ends[] = {
        [QN_REPLY_REASONING] = ")", [QN_REPLY_BAD_CALL] = "!", [QN_REPLY_CALL_END] = NULL};
    const char *end = !j->any || j->kind > QN_REPLY_BAD_CALL ? NULL : ends[j->kind];
    if (end) buf_str(&j->text, end, NULL);
    j->any = false;
}

static void add(struct joined *j, const struct qn_reply_event *v)
{
    static const char *const begins[] = {
        [QN_REPLY_CONTENT] = "",    [QN_REPLY_REASONING] = "(", [QN_REPLY_CALL] = "{",
        [QN_REPLY_ARGUMENTS] = "|", [QN_REPLY_CALL_END] = "}",  [QN_REPLY_BAD_CALL] = "!"};
    if (!j->any || j->kind != v->kind) {
        leave(j);
        buf_str(&j->text, begins[v->kind], NULL);
    }
    buf_add(&j->text, v->text, v->n, NULL);
    if (v->kind == QN_REPLY_CALL) {
        assert_false(j->in_call);
        assert_int_equal(v->call, j->n_calls);
        j->in_call = true;
    } else if (v->kind == QN_REPLY_BAD_CALL) {
        assert_int_equal(v->call, j->in_call ? j->n_calls : -1);
        if (j->in_call) j->n_calls++;
        j->in_call = false;
    } else if (v->kind == QN_REPLY_CALL_END || v->kind == QN_REPLY_ARGUMENTS) {
        assert_true(j->in_call);
        assert_int_equal(v->call, j->n_calls);
        if (v->kind == QN_REPLY_CALL_END) j->n_calls++, j->in_call = false;
    } else {
        assert_true(v->n > 0);
        assert_false(j->in_call);
    }
    j->kind = v->kind;
    j->any = true;
}

/* Feeds the text in pieces of `step` bytes; the events as text, owned. */
static char *read_as(const struct chat_form *f, bool with_tools, bool thinking, const char *text, size_t n, size_t step)
{
    struct chat_reply *r = NULL;
    struct qn_reply_event v;
    struct joined j = {0};
    assert_int_equal(chat_reply_new(&r, f, with_tools ? tools : NULL, thinking, NULL), 0);
    for (size_t i = 0; i < n; i += step) {
        assert_int_equal(chat_reply_push(r, text + i, n - i < step ? n - i : step, NULL), 0);
        while (chat_reply_next(r, &v)) add(&j, &v);
    }
    assert_int_equal(chat_reply_end(r, "", 0, NULL), 0);
    while (chat_reply_next(r, &v)) add(&j, &v);
    assert_false(j.in_call); /* every call ends, well or not */
    leave(&j);
    buf_add(&j.text, "", 1, NULL);
    chat_reply_free(r);
    return (char *)j.text.data;
}

static void check(const struct chat_form *f, bool with_tools, bool thinking, const char *text, const char *want)
{
    size_t n = strlen(text);
    for (size_t step = 1; step <= n + 1; step += step < 4 ? 1 : n) {
        char *got = read_as(f, with_tools, thinking, text, n, step);
        if (strcmp(got, want) != 0) print_error("in pieces of %zu: %s\n", step, text);
        assert_string_equal(got, want);
        mem_free(got);
    }
}

#define READS(form, text, want) check(&form, true, false, text, want)

static void test_content(void **state)
{
    (void)state;
    READS(none, "", "");
    READS(none, "  Hello <tool_call> \n", "  Hello <tool_call> \n");
    READS(tag, " Hello\n\n", " Hello\n\n");
    READS(tag, "a < b <tool", "a < b <tool");
    READS(tag, "<<tool_cal <<", "<<tool_cal <<");
    check(&tag, false, false, "<tool_call>{\"name\": \"add\"}</tool_call>",
          "<tool_call>{\"name\": \"add\"}</tool_call>");
    check(&llama, false, false, "{\"name\": \"add\", \"parameters\": {}}", "{\"name\": \"add\", \"parameters\": {}}");
}

static void test_thoughts(void **state)
{
    (void)state;
    READS(tag, "<think>\nhm\n</think>\n\nYes.", "(hm)Yes.");
    READS(tag, "\n<think>hm", "(hm)");
    READS(tag, "<think>\n\n</think>\n\nYes.", "Yes.");
    READS(tag, "<think>a </th b </think>c</think>", "(a </th b)c</think>");
    READS(tag, "I <think> so", "I <think> so");
    READS(tag, "<thinking>", "<thinking>");
    READS(mistral, "[THINK]hm[/THINK]Yes.", "(hm)Yes.");
    check(&tag, true, true, "\nhm\n\n</think>\n\nYes.", "(hm)Yes.");
    check(&tag, true, true, "hm <tool_call>{} </think><tool_call>{\"name\":\"f\"}</tool_call>",
          "(hm <tool_call>{}){f|{}}");
    /* More white space than a mark draws in. */
    char text[256] = "x", want[256] = "x";
    memset(text + 1, '\n', 100);
    strcpy(text + 101, "<tool_call>{\"name\":\"f\"}</tool_call>");
    memset(want + 1, '\n', 36);
    strcpy(want + 37, "{f|{}}");
    READS(tag, text, want);
}

static void test_tag(void **state)
{
    (void)state;
    READS(tag, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"s\": \"x}\\\"\"}}\n</tool_call>",
          "{add|{\"a\": 1, \"s\": \"x}\\\"\"}}");
    READS(tag,
          "Sure.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\": [{}], "
          "\"name\":\"g\"}</tool_call>Done.",
          "Sure.{f|{}}!<tool_call>{\"arguments\": [{}], \"name\":\"g\"}</tool_call>!Done.");
    READS(tag, "<tool_call>{\"arguments\": {\"k\": [1, -2.5e+3, true, null]}, \"name\": \"g\"}</tool_call> ok",
          "{g|{\"k\": [1, -2.5e+3, true, null]}}ok");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "{f|{\"a\": 1}}");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "{f|{}}");
    READS(tag, "<tool_call>{\"name\": \"f\", \"x\": [1], \"arguments\": {}, \"n\": 12 }</tool_call>", "{f|{}}");
    READS(tag, "<tool_call>{\"name\": \"\\u0061dd\"}", "{add|{}}"); /* the closing mark is missing */
    READS(tag, "<tool_call>{\"name\": \"f\"} and more", "{f|{}}and more");
}

static void test_tag_bad(void **state)
{
    (void)state;
    READS(tag, "<tool_call>nothing</tool_call>x", "!<tool_call>nothing</tool_call>!x");
    READS(tag, "<tool_call>", "!<tool_call>!");
    READS(tag, "a <tool_call>{}</tool_call>", "a!<tool_call>{}</tool_call>!");
    READS(tag, "<tool_call>{\"name\": 1}</tool_call>", "!<tool_call>{\"name\": 1}</tool_call>!");
    READS(tag, "<tool_call>{\"name\": \"\"}</tool_call>", "!<tool_call>{\"name\": \"\"}</tool_call>!");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": 5}</tool_call>",
          "{f!<tool_call>{\"name\": \"f\", \"arguments\": 5}</tool_call>!");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}</tool_call>y",
          "{f|{\"a\": !<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}</tool_call>!y");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"a\": 2}}</tool_call>y",
          "{f|{\"a\": 1, \"a\": 2}!<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"a\": 2}}</tool_call>!y");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1",
          "{f|{\"a\": 1!<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1!");
    READS(tag, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>",
          "{f|{\"a\": 0!<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>!");
}

static void test_function(void **state)
{
    (void)state;
    READS(tag,
          "<tool_call>\n<function=add>\n<parameter=a>\n12\n</parameter>\n<parameter=s>\n12\n</parameter>\n"
          "</function>\n</tool_call>ok",
          "{add|{\"a\": 12, \"s\": \"12\"}}ok");
    READS(tag, "<function=add>\n</function>", "{add|{}}");
    READS(tag, "<function=add><parameter=any>[\"</parameter>\", 2]</parameter></function>y",
          "{add|{\"any\": [\"</parameter>\", 2]}}y");
    READS(tag, "<function=add><parameter=any>[\"x</parameter></function>y", "{add|{\"any\": \"[\\\"x\"}}y");
    READS(tag,
          "<tool_call><function=add><parameter=any>[1, {}]</parameter><parameter=new>1</parameter></function>"
          "</tool_call>",
          "{add|{\"any\": [1, {}], \"new\": \"1\"}}");
    READS(tag, "<tool_call><function=other><parameter=a>\n\n<b>\"x\"\n\n</parameter></function></tool_call>",
          "{other|{\"a\": \"\\n<b>\\\"x\\\"\\n\"}}");
    READS(tag, "<tool_call><function=add><parameter=a>not a number</parameter></function></tool_call>",
          "{add|{\"a\": \"not a number\"}}");
    READS(tag, "<tool_call><function=add><parameter=a>1</parameter><parameter=a>1</parameter></function></tool_call>",
          "{add|{\"a\": 1!<tool_call><function=add><parameter=a>1</parameter><parameter=a>1</parameter></function>"
          "</tool_call>!");
    READS(tag, "<function=add><para", "{add!<function=add><para!");
    READS(tag, "<function=>", "!<function=>!");
    READS(tag, "<function=a\nb>", "!<function=a\nb>!");
    READS(tag, "<function=f><parameter=a\1>1</parameter></function>",
          "{f!<function=f><parameter=a\1>1</parameter></function>!");
}

static void test_llama(void **state)
{
    (void)state;
    READS(llama, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "{add|{\"a\": 1}}");
    READS(llama,
          "\n{\"type\": \"function\", \"name\": \"add\", \"parameters\": {}} ; {\"name\": \"add\", \"parameters\": {}}",
          "{add|{}}{add|{}}");
    READS(llama, "<|python_tag|>{\"name\": \"new\", \"parameters\": {}}", "{new|{}}");
    READS(llama, "<|python_tag|>print(1)", "!<|python_tag|>print(1)!");
    READS(llama, "{\"name\": \"Ann\", \"age\": 5} is JSON", "{\"name\": \"Ann\", \"age\": 5} is JSON");
    READS(llama, "\n {x}", "\n {x}");
    READS(llama, "{\"name\": \"a", "{\"name\": \"a");
    READS(llama, "{\"name\": \"add\", \"parameters\": {1}}", "{add|{!{\"name\": \"add\", \"parameters\": {1}}!");
    READS(llama, "Use {\"name\": \"add\", \"parameters\": {}}", "Use {\"name\": \"add\", \"parameters\": {}}");
}

static void test_mistral(void **state)
{
    (void)state;
    READS(mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]",
          "{f|{\"a\": [1]}}{g|{}}");
    READS(mistral, "Hm. [TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}]\n", "Hm.{f|{}}");
    READS(mistral, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g.h[CALL_ID]123[ARGS]{}", "{f|{\"a\": 1}}{g.h|{}}");
    READS(mistral, "[TOOL_CALLS]f[ARGS]", "![TOOL_CALLS]f[ARGS]!");
    READS(mistral, "[TOOL_CALLS]no name[ARGS]{}", "![TOOL_CALLS]no name[ARGS]{}!");
    READS(mistral, "[TOOL_CALLS][]", "![TOOL_CALLS][]!");
    READS(mistral, "[TOOL_CALLS]f[ARGS]{]", "{f|{![TOOL_CALLS]f[ARGS]{]!");
}

static void test_harmony(void **state)
{
    (void)state;
    READS(harmony, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
          "(hm)Yes.");
    READS(harmony,
          "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>commentary "
          "to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
          "First.{add|{\"a\": 1}}");
    READS(harmony, " to=functions.add<|channel|>commentary json<|message|>{}", "{add|{}}");
    READS(harmony, "<|channel|>commentary to=python<|message|>print(1)<|end|>",
          "{python!<|channel|>commentary to=python<|message|>print(1)<|end|>!");
    READS(harmony, "<|channel|>commentary to= <|message|>{}", "!<|channel|>commentary to= <|message|>{}!");
    READS(harmony, "no head at all", "no head at all");
    READS(harmony, "<|channel|>final<|message|>", "");
    check(&harmony, false, false, "<|channel|>commentary to=functions.add<|message|>{}<|call|>", "{}");
}

static void test_code(void **state)
{
    (void)state;
    READS(code, "Ok\n```tool_code\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```\nDone", "Ok{f|{\"a\": 1}}Done");
    READS(code, "```tool_code\n[{\"name\": \"f\"}, {\"name\": \"g\"}]\n```", "{f|{}}{g|{}}");
    READS(code, "```tool_code\nf(a=1)\n```x", "{f|{\"a\": 1}}x");
    READS(code, "```tool_code\n!\n```x", "!```tool_code\n!\n```!x");
    READS(code, "```c\nint x;\n```", "```c\nint x;\n```");
}

static void test_lists_of_calls(void **state)
{
    (void)state;
    READS(upper, "Ok <TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL> x", "Ok{f|{\"a\": 1}}x");
    READS(calls, "<tool_calls>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]</tool_calls>", "{f|{}}{g|{}}");
    READS(calls, "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\"}\n</tool_calls>",
          "{f|{}}{g|{}}");
    READS(calls, "<tool_calls>[f(a=1)]</tool_calls>x", "!<tool_calls>[f(a=1)]</tool_calls>!x");
    READS(calls, "<tool_call> <TOOLCALL>", "<tool_call> <TOOLCALL>");
}

/* Every beginning of a reply with everything in it: ends, loses no call that was whole, and does not care for pieces.
 */
static void test_cut_short(void **state)
{
    static const struct {
        const struct chat_form *form;
        const char *text;
    } replies[] = {
        {&tag, "<think>\na\n</think>\n\nb\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
               "\"\\u00e9\"}}\n</tool_call>\n"
               "<tool_call><function=add>\n<parameter=a>\n1\n</parameter>\n</function></tool_call>"},
        {&llama, "{\"name\": \"add\", \"parameters\": {\"a\": [1, 2]}}; <|python_tag|>{\"name\": \"f\"}"},
        {&mistral, "[THINK]a[/THINK]b[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}][TOOL_CALLS]g[ARGS]{\"a\": 1}"},
        {&harmony, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                   "<|constrain|>json<|message|>{\"a\": {}}<|call|>"},
        {&code, "a\n```tool_code\n[{\"name\": \"f\"}, {\"name\": \"g\"}]\n```"},
        {&code, "```tool_code\n[f(a='x\\\\'), g()]\n```a"},
        {&python, "<think>a</think>[add(a='\\u00e9\\'', b=[1, {\"x\": None}]), add()]b"},
        {&python,
         "a <|tool_call_start|>[f(a=1)]<|tool_call_end|>b<function_calls>\nf(a=(1, ))\ng()\n</function_calls>c"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++)
        for (size_t n = 0; n <= strlen(replies[i].text); n++) {
            char *whole = read_as(replies[i].form, true, false, replies[i].text, n, n + 1);
            char *bytes = read_as(replies[i].form, true, false, replies[i].text, n, 1);
            assert_string_equal(whole, bytes);
            mem_free(whole);
            mem_free(bytes);
        }
}

/* A byte of a reply replaced by each of a few that mean something. */
static void test_garbage(void **state)
{
    static const char *const texts[] = {
        "<think>a</think>b<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, \"x\"]}}</tool_call>"
        "<tool_call><function=add><parameter=a>1</parameter></function></tool_call>c",
        "[add(a=[1, 'x'], s={\"y\": True}), add()] <|tool_call_start|>[f(a='\\n')]<|tool_call_end|>b",
    };
    static const char bytes[] = "<>{}[]()\"',:=\\ \n\0001ae-\x80\xff";
    (void)state;
    char changed[200];
    for (int t = 0; t < 2; t++) {
        size_t n = strlen(texts[t]);
        for (size_t i = 0; i < n * sizeof bytes; i++) {
            memcpy(changed, texts[t], n);
            changed[i / sizeof bytes] = bytes[i % sizeof bytes];
            char *whole = read_as(t ? &python : &tag, true, false, changed, n, sizeof changed);
            char *one = read_as(t ? &python : &tag, true, false, changed, n, 1);
            assert_string_equal(whole, one);
            mem_free(whole);
            mem_free(one);
        }
    }
}

static void test_no_memory(void **state)
{
    static const char text[] = "<think>a</think>b<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"
                               "<function=add><parameter=a>1</parameter></function>",
                      in_python[] =
                          "<think>a</think>b<|tool_call_start|>[add(a=['x', {'y': 1}], s=None)]<|tool_call_end|>";
    (void)state;
    bool is_python = false;
    for (uint64_t n = 1;; n++) {
        struct chat_reply *r = NULL;
        struct qn_error e = {0};
        const char *all = is_python ? in_python : text;
        mem_fault_set(n);
        int rc = chat_reply_new(&r, is_python ? &python : &tag, tools, false, &e);
        if (rc == 0) rc = chat_reply_push(r, all, strlen(all), &e);
        if (rc == 0) rc = chat_reply_end(r, "", 0, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        chat_reply_free(r);
        if (!hit && is_python) break;
        if (!hit) n = 0;
        is_python |= !hit;
        assert_int_equal(rc, hit ? QN_ENOMEM : 0);
        assert_int_equal(e.code, hit ? QN_ENOMEM : 0);
    }
}

static void test_depth(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", NULL);
    for (int i = 0; i < 100000; i++) buf_str(&b, "[", NULL);
    char *got = read_as(&tag, true, false, (const char *)b.data, b.len, b.len);
    assert_non_null(strchr(got, '!'));
    mem_free(got);
    buf_deinit(&b);
}

/* Calls in the shape of Python, in a list and in marks. */
static void test_python(void **state)
{
    (void)state;
    READS(python, "[add(a=1)]", "{add|{\"a\": 1}}");
    READS(python, "<think>hm</think>\n[add(a=1, s='x'), add()]\n", "(hm){add|{\"a\": 1, \"s\": \"x\"}}{add|{}}");
    READS(python, "<|tool_call_start|>[add(a=1), f(b=\"x\")]<|tool_call_end|> ok",
          "{add|{\"a\": 1}}{f|{\"b\": \"x\"}}ok");
    READS(python, "Well. <|tool_call_start|>[add(a=1)]<|tool_call_end|>", "Well.{add|{\"a\": 1}}");
    READS(python, "<|python_start|>[add(a=1)]<|python_end|>", "{add|{\"a\": 1}}");
    READS(python, "<function_calls>\nadd(a=1)\nx.y(b=[1, 2])\n</function_calls>Done",
          "{add|{\"a\": 1}}{x.y|{\"b\": [1, 2]}}Done");
    READS(code, "```tool_code\nadd(a=1)\nf()\n```", "{add|{\"a\": 1}}{f|{}}");
    READS(code, "```tool_code\n[ add(a=1) , f()]\n```", "{add|{\"a\": 1}}{f|{}}");
    /* values */
    READS(python, "[add(a=True, b=False, c=None, d=true, e=null, f=-1.5e3)]",
          "{add|{\"a\": true, \"b\": false, \"c\": null, \"d\": true, \"e\": null, \"f\": -1.5e3}}");
    READS(python, "[add(a = [1, (2, 'x,)]'), {'k': {}, \"m\": [],},], b=())]",
          "{add|{\"a\": [1, [2, \"x,)]\"], {\"k\": {}, \"m\": []}], \"b\": []}}");
    READS(python, "[add(s='it\\'s \"so\"\\n\\\\ \\u00e9\\ud83d\\ude00\\x41\\d')]",
          "{add|{\"s\": \"it's \\\"so\\\"\\n\\\\ \u00e9\U0001F600A\\\\d\"}}");
    READS(python, "[add(unit of it=1, x-y=2,)]", "{add|{\"unit of it\": 1, \"x-y\": 2}}");
    READS(python, "[add(a=(5), b=(5,), c=((\"x\")), d=((5,)), e=(1, 2), f=([]), g=[(5)], h=( ))]",
          "{add|{\"a\": 5, \"b\": [5], \"c\": \"x\", \"d\": [5], \"e\": [1, 2], \"f\": [], \"g\": [5], \"h\": []}}");
    /* JSON in marks */
    READS(python, "<|tool_call_start|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]<|tool_call_end|> ok",
          "{add|{\"a\": 1}}ok");
    READS(python, "<|tool_call_start|>\n[ {\"name\": \"f\"}, {\"name\": \"g\"}]<|tool_call_end|>[note]",
          "{f|{}}{g|{}}[note]");
    READS(python, "<|python_start|>{\"name\": \"f\", \"parameters\": {\"x\": [1]}}<|python_end|>", "{f|{\"x\": [1]}}");
    READS(python, "<function_calls>\n{\"name\": \"f\"}\n</function_calls>x", "{f|{}}x");
    READS(python, "<|tool_call_start|>[add(a=1), {\"name\": \"f\"}]<|tool_call_end|>", "{add|{\"a\": 1}}{f|{}}");
    READS(python, "<|tool_call_start|>[{\"no\": 1}]<|tool_call_end|>x",
          "!<|tool_call_start|>[{\"no\": 1}]<|tool_call_end|>!x");
    READS(code, "```tool_code\n[\n{\"name\": \"f\"}]\n```x", "{f|{}}x");
    /* no calls */
    READS(python, "[1, 2]", "[1, 2]");
    READS(python, "[f(a=1)] is a list", "[f(a=1)] is a list"); /* no tool has that name */
    READS(python, "[add", "[add");
    READS(python, "I call [add(a=1)]", "I call [add(a=1)]");
    check(&python, false, false, "[add(a=1)]", "[add(a=1)]");
    READS(python, "[1] See the paper. [2] is older.", "[1] See the paper. [2] is older.");
    READS(python, " [note]", " [note]");
    READS(python, "[add(1)] x", "[add(1)] x");
    READS(python, "[add(see below)]", "[add(see below)]");
    READS(python, "[add() takes nothing]", "[add() takes nothing]");
    READS(python, "[add()", "[add()");
    READS(python, "[[add()]]", "[[add()]]");
    READS(python, "[{\"name\": \"add\", \"arguments\": {}}]", "[{\"name\": \"add\", \"arguments\": {}}]");
    READS(python, "[add(a=1, a=2)]", "{add|{\"a\": 1![add(a=1, a=2)]!");
    READS(python, "[add(a=b)]", "{add![add(a=b)]!");
    READS(python, "[add(a=1]", "{add![add(a=1]!");
    READS(python, "[add(a=01)]", "{add![add(a=01)]!");
    READS(python, "[add(a={'x': 1, 'x': 2})]", "{add![add(a={'x': 1, 'x': 2})]!");
    READS(python, "[add(a='\\ud83d')]", "{add![add(a='\\ud83d')]!");
    READS(python, "[add(a='x", "{add![add(a='x!");
    READS(python, "<|tool_call_start|>[add(1)]<|tool_call_end|>Hm", "!<|tool_call_start|>[add(1)]<|tool_call_end|>!Hm");
    READS(python, "<|tool_call_start|>no<|tool_call_end|>Hm", "!<|tool_call_start|>no<|tool_call_end|>!Hm");
    assert_true(chat_form_reads(&python, "<|tool_call_end|>", 17));
}

/* White space is looked at once, however it is cut. */
static void test_white_space_takes_linear_time(void **state)
{
    (void)state;
    static const char *const begins[] = {"```tool_code\n[", "<tool_calls>[", "[", "[add(", "[add()"},
                             *const ends[] = {"f(a=1)]\n```", "{\"name\":\"f\"}]</tool_calls>", "add()]", ")]", "]"};
    static const struct chat_form *const forms[] = {&code, &calls, &python, &python, &python};
    for (int k = 0; k < 5; k++) {
        struct chat_reply *r = NULL;
        struct qn_reply_event v;
        int n_ends = 0;
        assert_int_equal(chat_reply_new(&r, forms[k], tools, CHAT_BEGIN_REPLY, NULL), 0);
        assert_int_equal(chat_reply_push(r, begins[k], strlen(begins[k]), NULL), 0);
        for (int i = 0; i < 1 << 18; i++) assert_int_equal(chat_reply_push(r, " ", 1, NULL), 0);
        assert_int_equal(chat_reply_end(r, ends[k], strlen(ends[k]), NULL), 0);
        while (chat_reply_next(r, &v)) n_ends += v.kind == QN_REPLY_CALL_END;
        assert_int_equal(n_ends, 1);
        chat_reply_free(r);
    }
}

/* A value is looked at once, however it is cut. */
static void test_a_long_value_of_python_takes_linear_time(void **state)
{
    (void)state;
    const size_t n = 1 << 20;
    struct chat_reply *r = NULL;
    struct qn_reply_event v;
    size_t n_args = 0;
    assert_int_equal(chat_reply_new(&r, &python, tools, CHAT_BEGIN_REPLY, NULL), 0);
    assert_int_equal(chat_reply_push(r, "[add(s='", 8, NULL), 0);
    for (size_t i = 0; i < n; i++) assert_int_equal(chat_reply_push(r, "x", 1, NULL), 0);
    assert_int_equal(chat_reply_end(r, "')]", 3, NULL), 0);
    while (chat_reply_next(r, &v)) n_args += v.kind == QN_REPLY_ARGUMENTS ? v.n : 0;
    assert_int_equal(n_args, n + strlen("{\"s\": \"\"}"));
    chat_reply_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_white_space_takes_linear_time),
        cmocka_unit_test(test_python),
        cmocka_unit_test(test_a_long_value_of_python_takes_linear_time),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_tag),
        cmocka_unit_test(test_tag_bad),
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_code),
        cmocka_unit_test(test_lists_of_calls),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_depth),
    };
    tools = json_loads(tools_text, 0, NULL);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(tools);
    return rc;
}
