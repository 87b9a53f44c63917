/* SPDX-License-Identifier: MIT
 *
 * test_chat.c: prompts from requests: what templates get, which bytes may become control tokens, what is refused.
 *
 * The vocabulary has a token for each byte and a few marks, so the tokens of a prompt can be read back as its text:
 * a mark that is a token is written with its number, as #7.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "text/chat/chat.h"
#include "../tiny_vocab.h"

enum { UNK, BOS, EOS, START, END, THINK, UNTHINK, CALL, UNCALL, LFM_START, LFM_END, N_MARKS };
static const char *const mark_text[N_MARKS] = {
    "<unk>",    "<s>",         "</s>",         "<|im_start|>",        "<|im_end|>",       "<think>",
    "</think>", "<tool_call>", "</tool_call>", "<|tool_call_start|>", "<|tool_call_end|>"};
static const int32_t mark_type[N_MARKS] = {2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3};

static const char chatml[] =
    "{% if tools %}<tool_call>{{ tools | tojson }}</tool_call>{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + (m.content or '') }}"
    "{% for c in m.tool_calls or [] %}{{ '<tool_call>{\"name\": \"' + c.function.name + '\", \"arguments\": ' + "
    "(c.function.arguments | tojson) + '}</tool_call>' }}{% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant:{% if enable_thinking %}<think>{% endif %}{% endif %}";

struct fixture {
    struct weights *w;
    struct vocab *v;
    struct chat *c;
};

static struct weights *make_file(const char *template, const char *tool_use)
{
    static char bytes[256][8];
    const char *text[N_MARKS + 257];
    int32_t type[N_MARKS + 257];
    float score[N_MARKS + 257] = {0};
    struct vfile f = {0};
    for (int i = 0; i < N_MARKS; i++) text[i] = mark_text[i], type[i] = mark_type[i];
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        text[N_MARKS + i] = bytes[i];
        type[N_MARKS + i] = 6;
    }
    text[N_MARKS + 256] = "\u2581"; /* a space */
    type[N_MARKS + 256] = 1;
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", text, N_MARKS + 257);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, N_MARKS + 257);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, N_MARKS + 257);
    vf_bool(&f, "tokenizer.ggml.add_space_prefix", false);
    if (template) vf_str(&f, "tokenizer.chat_template", template);
    if (tool_use) vf_str(&f, "tokenizer.chat_template.tool_use", tool_use);
    return vf_open(&f);
}

static struct fixture open_chat(const char *template, const char *tool_use)
{
    struct fixture x = {.w = make_file(template, tool_use)};
    assert_int_equal(vocab_load(&x.v, x.w, NULL), 0);
    assert_int_equal(chat_new(&x.c, x.w, x.v, NULL, 0, NULL), 0);
    return x;
}

static void close_chat(struct fixture *x)
{
    chat_free(x->c);
    vocab_free(x->v);
    weights_close(x->w);
}

/* The prompt's tokens as text; owned. */
static char *read_tokens(const struct fixture *x, const struct chat_prompt *p)
{
    struct buf b = {0};
    for (size_t i = 0; i < p->n_tokens; i++) {
        qn_token id = p->tokens[i];
        int rc = id < N_MARKS ? buf_printf(&b, NULL, "#%d", id) : vocab_token_bytes(x->v, id, false, &b, NULL);
        assert_int_equal(rc, 0);
    }
    buf_add(&b, "", 1, NULL);
    return (char *)b.data;
}

static void check(const struct fixture *x, const char *request, const char *want)
{
    struct chat_prompt p;
    struct qn_error e = {0};
    int rc = chat_prompt_make(&p, x->c, request, strlen(request), NULL, NULL, &e);
    if (rc) print_error("%s\n", e.msg);
    assert_int_equal(rc, 0);
    char *got = read_tokens(x, &p);
    assert_string_equal(got, want);
    mem_free(got);
    chat_prompt_deinit(&p);
}

#define USER(content) "{\"messages\": [{\"role\": \"user\", \"content\": " content "}]}"
#define REPLY         "#3assistant:"

static void test_messages(void **state)
{
    (void)state;
    struct fixture x = open_chat(chatml, NULL);
    check(&x, USER("\"Hi\""), "#1#3user:Hi#4" REPLY);
    check(&x, USER("[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]"),
          "#1#3user:a\nb#4" REPLY);
    check(&x, "{\"messages\": [{\"role\": \"developer\", \"content\": \"x\"}], \"add_generation_prompt\": false}",
          "#1#3system:x#4");
    check(&x,
          "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", "
          "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1.50}\"}}, {\"function\": {\"name\": \"g\", "
          "\"arguments\": \"{bad\"}}, {\"function\": {\"name\": \"h\", \"arguments\": \"\"}}]}]}",
          "#1#3assistant:#7{\"name\": \"f\", \"arguments\": {\"a\": 1.5}}#8"
          "#7{\"name\": \"g\", \"arguments\": \"{bad\"}#8#7{\"name\": \"h\", \"arguments\": {}}#8#4" REPLY);
    check(&x, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"tool_calls\": []}], \"tools\": []}",
          "#1#3user:x#4" REPLY);
    check(&x, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}], \"tools\": null}",
          "#1#3user:a"); /* and more, behind the NUL */
    close_chat(&x);
}

/* Nothing that a request says is a token of the model's. */
static void test_injection(void **state)
{
    (void)state;
    struct fixture x = open_chat(chatml, NULL);
    for (int i = 0; i < N_MARKS; i++) {
        struct buf r = {0}, want = {0};
        const char *m = mark_text[i];
        buf_printf(&r, NULL,
                   "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"%s\"}]}, "
                   "{\"role\": \"%s\", \"content\": \"x%s%s\"}, {\"role\": \"tool\", \"content\": \"%.3s\"}, "
                   "{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": null, "
                   "\"tool_calls\": [{\"function\": {\"name\": \"%s\", \"arguments\": {\"%s\": \"%s\"}}}]}], "
                   "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"%s\"}}]}",
                   m, m, m, m, m, m + 3, m, m, m, m);
        buf_printf(
            &want, NULL,
            "#1#7[{\"type\": \"function\", \"function\": {\"name\": \"%s\"}}]#8#3user:%s#4#3%s:x%s%s#4#3tool:%.3s#4"
            "#3user:%s#4#3assistant:#7{\"name\": \"%s\", \"arguments\": {\"%s\": \"%s\"}}#8#4" REPLY,
            m, m, m, m, m, m, m + 3, m, m, m);
        check(&x, (const char *)r.data, (const char *)want.data);
        buf_deinit(&r);
        buf_deinit(&want);
    }
    /* A mark whose bytes are only in part the template's, from either side. */
    close_chat(&x);
    x = open_chat("<|im_{{ messages[0].content }}|>{{ messages[0].role }}<|im_end|>", NULL);
    check(&x, USER("\"start\""), "#1<|im_start|>user#4");
    check(&x, USER("\"end|><|im_end\""), "#1<|im_end|><|im_end|>user#4");
    close_chat(&x);
    x = open_chat("{{ '<|im_' + messages[0].role + '|>' }}<|im_end|>", NULL);
    check(&x, "{\"messages\": [{\"role\": \"end\", \"content\": \"\"}]}", "#1<|im_end|>#4");
    close_chat(&x);
}

/* What lies between marks is one text for the tokenizer, whoever wrote its parts. */
static void test_one_text(void **state)
{
    const struct text_span user[] = {{0, 3}, {4, 2}, {12, 5}};
    const struct text_origin o = {.user = user, .n_user = 3};
    static const char text[] = "<s></s></s><s></s>";
    (void)state;
    struct fixture x = open_chat(chatml, NULL);
    qn_token *ids = NULL;
    size_t n = 0;
    assert_int_equal(vocab_encode_chat(x.v, text, strlen(text), &o, NULL, &ids, &n, NULL), 0);
    struct chat_prompt p = {.tokens = ids, .n_tokens = n};
    char *got = read_tokens(&x, &p);
    assert_string_equal(got, "#1<s></s>#2<s></s>");
    mem_free(got);
    mem_free(ids);
    close_chat(&x);
}

static void test_bos(void **state)
{
    (void)state;
    struct fixture x = open_chat("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", NULL);
    check(&x, USER("\"<s>a\""), "#1<s>a#2");
    close_chat(&x);
    x = open_chat("{{ messages[0].content }}", NULL);
    check(&x, USER("\"<s>\""), "#1<s>");
    check(&x, USER("\"\""), "#1");
    close_chat(&x);
}

static void test_thinking(void **state)
{
    struct chat_prompt p;
    static const struct {
        const char *request;
        bool thinking;
    } rows[] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": {\"enable_thinking\": "
         "true}}",
         true},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"<think>\"}]}", false},
    };
    (void)state;
    struct fixture x = open_chat(chatml, NULL);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(chat_prompt_make(&p, x.c, rows[i].request, strlen(rows[i].request), NULL, NULL, NULL), 0);
        assert_int_equal(p.begins == CHAT_BEGIN_THOUGHTS, rows[i].thinking);
        assert_int_equal(p.form.calls, CHAT_CALLS_TAG);
        assert_null(p.tools);
        chat_prompt_deinit(&p);
    }
    close_chat(&x);
}

static void test_named(void **state)
{
    (void)state;
    struct fixture x = open_chat("plain", "with tools");
    check(&x, USER("\"a\""), "#1plain");
    check(&x,
          "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", "
          "\"function\": {\"name\": \"f\"}}]}",
          "#1with tools");
    close_chat(&x);
}

static void test_no_template(void **state)
{
    struct chat *c = NULL;
    struct vocab *v = NULL;
    struct qn_error e;
    (void)state;
    struct weights *w = make_file(NULL, NULL);
    assert_int_equal(vocab_load(&v, w, NULL), 0);
    assert_int_equal(chat_new(&c, w, v, NULL, 0, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "tokenizer.chat_template"));
    assert_int_equal(chat_new(&c, w, v, "{% if %}", 8, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "chat template: "));
    assert_int_equal(chat_new(&c, w, v, "ok", 2, &e), 0);
    chat_free(c);
    vocab_free(v);
    weights_close(w);
}

static void test_refused(void **state)
{
    static const char *const rows[][2] = {
        {"", "not JSON"},
        {"[]", "not an object"},
        {"{}", "messages is missing"},
        {"{\"messages\": []}", "messages is empty"},
        {"{\"messages\": {}}", "messages is not a list"},
        {"{\"messages\": [1]}", "messages[0] is not an object"},
        {"{\"messages\": [{}]}", "messages[0].role is missing"},
        {"{\"messages\": [{\"role\": 1}]}", "messages[0].role is not a string"},
        {USER("1"), "messages[0].content is neither"},
        {USER("[1]"), "messages[0].content[0] has no type"},
        {USER("[{\"type\": \"image_url\"}]"), "messages[0].content[0] is of type 'image_url'"},
        {USER("[{\"type\": \"text\"}]"), "messages[0].content[0].text is not a string"},
        {"{\"messages\": [{\"role\": \"user\", \"tool_calls\": 1}]}", "messages[0].tool_calls is not a list"},
        {"{\"messages\": [{\"role\": \"user\", \"tool_calls\": [1]}]}",
         "messages[0].tool_calls[0].function is missing"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": [{}]}", "tools[0].type is not 'function'"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
         "\"f\"}}, "
         "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}",
         "tools[1].function.name: 'f' is the name of tools[0] already"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": [{\"type\": \"function\", \"function\": {}}]}",
         "tools[0].function.name is missing"},
        {"{\"messages\": [{\"role\": \"user\"}], \"add_generation_prompt\": 1}", "add_generation_prompt is not"},
        {"{\"messages\": [{\"role\": \"user\"}], \"stop\": 1}", "stop is not known"},
    };
    (void)state;
    struct fixture x = open_chat(chatml, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct chat_prompt p;
        struct qn_error e = {0};
        assert_int_equal(chat_prompt_make(&p, x.c, rows[i][0], strlen(rows[i][0]), NULL, NULL, &e), QN_EUSAGE);
        if (!strstr(e.msg, rows[i][1])) print_error("%s\n", e.msg);
        assert_non_null(strstr(e.msg, rows[i][1]));
    }
    close_chat(&x);
    x = open_chat("{{ raise_exception('no such role') }}", NULL);
    struct chat_prompt p;
    struct qn_error e = {0};
    static const char request[] = USER("\"a\"");
    assert_int_equal(chat_prompt_make(&p, x.c, request, strlen(request), NULL, NULL, &e), QN_EUSAGE);
    assert_string_equal(e.msg, "chat: messages[0]: the model's chat template refuses it: \"no such role\"");
    close_chat(&x);
}

static void test_forms(void **state)
{
    static const struct {
        const char *src;
        enum chat_calls calls;
        const char *think;
    } rows[] = {
        {"hello", CHAT_CALLS_NONE, NULL},
        {"'<tool_call>' content.split('</think>')", CHAT_CALLS_TAG, "<think>"},
        {"[INST] [TOOL_CALLS] [THINK]", CHAT_CALLS_MISTRAL, "[THINK]"},
        {"<|start_header_id|> {\"name\": \"parameters\": }", CHAT_CALLS_LLAMA, NULL},
        {"<|start_header_id|>", CHAT_CALLS_NONE, NULL},
        {"<|start|> <|channel|>analysis<|message|> <think>", CHAT_CALLS_HARMONY, NULL},
        {"<start_of_turn> ```tool_code", CHAT_CALLS_CODE, NULL},
        {"<tool_calls></tool_calls>", CHAT_CALLS_CALLS, NULL},
        {"<TOOLCALL>", CHAT_CALLS_UPPER, NULL},
        {"<|python_tag|>", CHAT_CALLS_LLAMA, NULL},
        {"List of tools: <|tool_list_start|>[ <think>", CHAT_CALLS_PYTHON, "<think>"},
        {"\"List of tools: [\" keep_past_thinking", CHAT_CALLS_PYTHON, NULL},
        {"<function_calls>", CHAT_CALLS_PYTHON, NULL},
        {"[func_name1(params_name1=params_value1...)]", CHAT_CALLS_PYTHON, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct chat_form f = chat_form_of(rows[i].src, strlen(rows[i].src));
        assert_int_equal(f.calls, rows[i].calls);
        assert_true(rows[i].think ? f.think && strcmp(f.think, rows[i].think) == 0 : !f.think);
    }
    const struct chat_form tag = {CHAT_CALLS_TAG, "<think>", "</think>", 0};
    assert_true(chat_form_reads(&tag, "<tool_call>", 11));
    assert_true(chat_form_reads(&tag, "</think>", 8));
    assert_false(chat_form_reads(&tag, "<s>", 3));
    assert_false(chat_form_reads(&tag, "<tool", 5));
}

/* The style in which a template wrote a call decides what a call that is asked for looks like. */
static void test_styles(void **state)
{
    static const struct {
        enum chat_calls calls;
        const char *text;
        unsigned style;
    } rows[] = {
        {CHAT_CALLS_TAG, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", 0},
        {CHAT_CALLS_TAG, "<tool_call>\n<function=f>\n</function>\n</tool_call>", CHAT_STYLE_FUNCTIONS},
        {CHAT_CALLS_TAG, "<seed:tool_call>\n<function=f>", CHAT_STYLE_FUNCTIONS | CHAT_STYLE_BARE},
        {CHAT_CALLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\"}]", 0},
        {CHAT_CALLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{}", CHAT_STYLE_NAMED},
        {CHAT_CALLS_CALLS, "<tool_calls>[{}]</tool_calls>", 0},
        {CHAT_CALLS_CALLS, "<tool_calls>\n{}\n</tool_calls>", CHAT_STYLE_LINES},
        {CHAT_CALLS_PYTHON, "[f(a=1)]", 0},
        {CHAT_CALLS_PYTHON, "<|tool_call_start|>[f(a=1)]<|tool_call_end|>", CHAT_STYLE_START},
        {CHAT_CALLS_PYTHON, "<function_calls>f(a=1)</function_calls>", CHAT_STYLE_TAGS},
        {CHAT_CALLS_CODE, "```tool_code\n{\"name\": \"f\"}\n```", 0},
        {CHAT_CALLS_CODE, "```tool_code\nf(a=1)\n```", CHAT_STYLE_PYTHON},
        {CHAT_CALLS_HARMONY, "<|channel|>commentary to=functions.f<|message|>{}", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(chat_form_style(rows[i].calls, rows[i].text, strlen(rows[i].text)), rows[i].style);
}

/* ---- what templates need ---- */

#define FUNCTION(name) "{\"type\": \"function\", \"function\": {\"name\": \"" name "\"}}"
#define A_CALL(id, name, args)                                                                                         \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name "\", \"arguments\": \"" args "\"}" \
    "}"
#define TURN(role, text)   "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define A_RESULT(id, text) "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" text "\"}"
#define CALLING(calls)     "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" calls "]}"
#define TALK(list)         "{\"messages\": [" list "]}"
#define CALLED(list)       "{\"messages\": [" list "], \"tools\": [" FUNCTION("f") "]}"

/* Renders with a template and compares the text and the changes. */
static void check_with(const char *template, const char *request, const char *want, unsigned changed)
{
    struct fixture x = open_chat(template, NULL);
    struct chat_prompt p;
    struct qn_error e = {0};
    int rc = chat_prompt_make(&p, x.c, request, strlen(request), NULL, NULL, &e);
    if (rc) print_error("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_string_equal((const char *)p.text.data, want);
    assert_int_equal(p.changed, changed);
    chat_prompt_deinit(&p);
    close_chat(&x);
}

/* Prints contents, calls with their ids, and results with theirs. */
#define TOOLS_SHOWN "{% for t in tools or [] %}[{{ t.function.name }}{{ t.function.description }}]{% endfor %}"
#define SHOW                                                                                                           \
    "{{ m.role[0] }}{% if m.tool_call_id %}={{ m.tool_call_id }}{% endif %}:{{ m.content }}"                           \
    "{% for c in m.tool_calls or [] %}<tool_call>{{ '{\"name\": \"' ~ c.function.name ~ '\", \"arguments\": ' }}"      \
    "{{ c.function.arguments | tojson }}{{ '}' }}</tool_call>{{ c.id }}{% endfor %};"
#define LOOP(check) TOOLS_SHOWN "{% for m in messages %}" check SHOW "{% endfor %}"

static void test_needs(void **state)
{
    (void)state;
    /* Without needs, nothing changes. */
    check_with(LOOP(""), TALK(TURN("system", "s") "," TURN("user", "a") "," TURN("user", "b")), "s:s;u:a;u:b;", 0);
    check_with(LOOP("{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"),
               TALK(TURN("system", "s") "," TURN("user", "a") "," TURN("system", "t") "," TURN(
                   "assistant", "b") "," TURN("user", "c")),
               "u:s\n\na;u:t;a:b;u:c;", QN_CHAT_SYSTEM_MERGED);
    check_with(LOOP("{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"),
               TALK(TURN("system", "s") "," TURN("system", "t") "," TURN("user", "a")), "s:s\n\nt;u:a;",
               QN_CHAT_SYSTEM_MERGED);
    check_with(
        LOOP("{% if loop.index0 and messages[loop.index0 - 1].role == m.role %}{{ raise_exception('no') }}{% endif %}"),
        TALK(TURN("user", "a") "," TURN("user", "b") "," TURN("assistant", "c") "," TURN("user", "d") "," TURN(
            "user", "") "," TURN("user", "e")),
        "u:a\n\nb;a:c;u:d\n\ne;", QN_CHAT_TURNS_MERGED);
    check_with(LOOP(""), TALK("{\"role\": \"user\"}," TURN("user", "a")), "u:;u:a;", 0);
}

static void test_needs_of_calls(void **state)
{
    static const char two[] = CALLED(TURN("user", "a") "," CALLING(A_CALL("x-1", "f", "{}") "," A_CALL(
        "x-2", "f", "{\\\"k\\\": 1}")) "," A_RESULT("x-2", "second") "," A_RESULT("x-1", "first"));
    (void)state;
    check_with(LOOP(""), two,
               "[f]u:a;a:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>x-1<tool_call>{\"name\": \"f\", "
               "\"arguments\": {\"k\": 1}}</tool_call>x-2;t=x-2:second;t=x-1:first;",
               0);
    check_with(LOOP("{% if m.tool_calls and m.tool_calls|length > 1 %}{{ raise_exception('one') }}{% endif %}"), two,
               "[f]u:a;a:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>x-1;t=x-1:first;a:<tool_call>"
               "{\"name\": \"f\", \"arguments\": {\"k\": 1}}</tool_call>x-2;t=x-2:second;",
               QN_CHAT_CALLS_SPLIT);
    /* The ids of a call and of its result are still the same. */
    check_with(LOOP("{% if (m.tool_call_id or '123456789')|length != 9 %}{{ raise_exception('nine') }}{% endif %}"),
               CALLED(TURN("user", "a") "," CALLING(A_CALL("x-1", "f", "{}")) "," A_RESULT("x-1", "r") "," CALLING(
                   A_CALL("Aa0000009", "f", "{}")) "," A_RESULT("Aa0000009", "r")),
               "[f]u:a;a:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>ihBWdEvD6;t=ihBWdEvD6:r;"
               "a:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>Aa0000009;t=Aa0000009:r;",
               0);
    check_with(
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}",
        TALK(TURN("user", "a") "," CALLING(A_CALL("x-1", "f", "{}")) "," A_RESULT("x-1", "r") "," A_RESULT("x-2", "q")),
        "u:a;a:<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>;u:<tool_response>\nr\n"
        "</tool_response>\n<tool_response>\nq\n</tool_response>;",
        QN_CHAT_TOOLS_AS_TEXT);
}

/* Templates that write calls in the shape of Python, or that leave it to the client. */
#define NL "{{ '\\n' }}"
#define PYTHON(hint, open, between, close)                                                                             \
    "{% if tools %}" hint "{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role + ':' + (m.content or '') " \
    "}}{% if m.tool_calls %}" open "{% for c in m.tool_calls %}{% if not loop.first %}" between                        \
    "{% endif %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{% if not loop.first %}, "         \
    "{% endif %}{{ k }}={{ v | tojson }}{% endfor %}){% endfor %}" close "{% endif %}{{ '\\n' }}{% endfor %}"          \
    "{% if add_generation_prompt %}assistant:{% endif %}"
#define LFM                                                                                                            \
    "{% if tools %}List of tools: <|tool_list_start|>{{ tools | tojson }}{% endif %}"                                  \
    "{% for m in messages %}{{ m.role + ':' + m.content }}{{ '\\n' }}{% endfor %}"

static void test_python_templates(void **state)
{
    static const char request[] =
        CALLED(TURN("user", "a") "," CALLING(A_CALL("x-1", "f", "{\\\"a\\\": 1}") "," A_CALL("x-2", "f", "{}")));
    static const struct {
        const char *template;
        enum chat_calls calls;
        unsigned style;
        const char *written;
    } rows[] = {
        {PYTHON("[func_name1(a=1)]", "[", ", ", "]"), CHAT_CALLS_PYTHON, 0, "assistant:[f(a=1), f()]\n"},
        {PYTHON("<function_calls>", "<function_calls>" NL, NL, NL "</function_calls>"), CHAT_CALLS_PYTHON,
         CHAT_STYLE_TAGS, "assistant:<function_calls>\nf(a=1)\nf()\n</function_calls>"},
        {PYTHON("tool_code", "```tool_code" NL, NL, NL "```"), CHAT_CALLS_CODE, CHAT_STYLE_PYTHON,
         "assistant:```tool_code\nf(a=1)\nf()\n```"},
        {LFM, CHAT_CALLS_PYTHON, CHAT_STYLE_START, "assistant:<|tool_call_start|>[f(a=1), f()]<|tool_call_end|>\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture x = open_chat(rows[i].template, NULL);
        struct chat_prompt p;
        struct qn_error e = {0};
        if (chat_prompt_make(&p, x.c, request, strlen(request), NULL, NULL, &e)) fail_msg("%zu: %s", i, e.msg);
        if (!strstr((char *)p.text.data, rows[i].written)) fail_msg("%zu: %s", i, p.text.data);
        assert_true(p.form.calls == rows[i].calls && p.form.style == rows[i].style && p.changed == 0);
        chat_prompt_deinit(&p);
        close_chat(&x);
    }
}

/* Only the marks that Quern writes are control tokens, and not those of the conversation or of arguments. */
static void test_written_calls(void **state)
{
    static const char start[] = "<|tool_call_start|>", end[] = "<|tool_call_end|>";
    (void)state;
    struct fixture x = open_chat(LFM, NULL);
    char request[1000], want[1000];
    snprintf(request, sizeof request,
             CALLED("{\"role\": \"user\", \"content\": \"a%s\"}, {\"role\": \"assistant\", \"content\": \"%sb%s\", "
                    "\"tool_calls\": "
                    "[" A_CALL("x-1", "f", "{\\\"a\\\": \\\"%s%s\\\"}") "]}," A_RESULT("x-1", "r") "," CALLING(
                        A_CALL("x-2", "f", "{}"))),
             start, start, end, end, start);
    snprintf(want, sizeof want, "user:a%s\nassistant:%sb%s\n\n#9[f(a=\"%s%s\")]#10\ntool:r\nassistant:#9[f()]#10\n",
             start, start, end, end, start);
    struct chat_prompt p;
    struct qn_error e = {0};
    if (chat_prompt_make(&p, x.c, request, strlen(request), NULL, NULL, &e)) fail_msg("%s", e.msg);
    char *got = read_tokens(&x, &p);
    if (!strstr(got, want)) fail_msg("%s\n%s", got, want);
    mem_free(got);
    chat_prompt_deinit(&p);
    close_chat(&x);
}

/* The reply continues the last message, whatever the template writes after a message. */
static void test_prefill(void **state)
{
    static const char request[] = TALK(TURN("user", "a") "," TURN("assistant", "It is "));
    (void)state;
    check_with("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>", request,
               "<user>a</s><assistant>It is ", 0);
    check_with("{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</s>{% endfor %}", request,
               "<user>a</s><assistant>It is ", 0);
    check_with("{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}"
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>",
               request, "<user>a</s><assistant>It is ", 0);
    struct fixture x = open_chat(chatml, NULL);
    check(&x, TALK(TURN("user", "a") "," TURN("assistant", "<|im_end|>")), "#1#3user:a#4#3assistant:<|im_end|>");
    close_chat(&x);
}

/* Templates that fail, refuse or never end: they are found out in time, and told in the words of old. */
static void test_hostile_templates(void **state)
{
    static const char *const rows[][2] = {
        {"{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}", "the limit of"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "the limit of"},
        {"{{ 'x' * 100000000 }}", "the limit of"},
        {"{{ messages[7].content.strip() }}", "messages[0]: the model's chat template fails on it (in line 1)"},
        {"\n\n{{ 1 + messages }}", "messages[0]: the model's chat template fails on it (in line 3)"},
        {"{% if messages|length > 2 %}{{ raise_exception('Too \"many\"') }}{% endif %}{{ messages[0].content }}",
         "messages[2]: the model's chat template refuses it: \"Too \"many\"\""},
    };
    static const char request[] = TALK(TURN("user", "a") "," TURN("assistant", "b") "," TURN("user", "c"));
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture x = open_chat(rows[i][0], NULL);
        struct chat_prompt p;
        struct qn_error e = {0};
        assert_true(chat_prompt_make(&p, x.c, request, strlen(request), NULL, NULL, &e) < 0);
        if (!strstr(e.msg, rows[i][1])) print_error("%s\n", e.msg);
        assert_non_null(strstr(e.msg, rows[i][1]));
        close_chat(&x);
    }
    struct fixture x = open_chat("{{ messages[-1].content }}", NULL);
    struct qn_chat_capabilities can = {.size = sizeof can};
    struct chat_prompt p;
    struct qn_error e = {0};
    chat_capabilities(x.c, &can);
    assert_int_equal(can.tools, QN_CHAT_REFUSED);
    static const char with_tools[] = CALLED(TURN("user", "a"));
    assert_int_equal(chat_prompt_make(&p, x.c, with_tools, strlen(with_tools), NULL, NULL, &e), QN_EUSAGE);
    assert_non_null(strstr(e.msg, "tools"));
    close_chat(&x);
}

static void test_variables_for_thoughts(void **state)
{
    static const struct {
        const char *source;
        bool switches, levels;
    } rows[] = {
        {"{{ messages[0].content }}", false, false},
        {"{{ messages[0].content }}{{ enable_thinking }}", true, false},
        {"{{ messages[0].content }}{{ reasoning_effort }}", false, true},
        {"{{ messages[0].content }}{% if reasoning_effort == 'none' %}{{ enable_thinking }}{% endif %}", false, false},
        {"{% if reasoning_effort == 'low' %}{{ raise_exception('x') }}{% endif %}{{ messages[0].content }}", false,
         false},
        {"x{{ reasoning_effort }}{{ enable_thinking }}", false, false}, /* it shows no message: nothing is known */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture x = open_chat(rows[i].source, NULL);
        struct qn_chat_capabilities can = {.size = sizeof can};
        chat_capabilities(x.c, &can);
        assert_int_equal(can.switches, rows[i].switches);
        assert_int_equal(can.levels, rows[i].levels);
        close_chat(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_injection),
        cmocka_unit_test(test_one_text),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_needs),
        cmocka_unit_test(test_needs_of_calls),
        cmocka_unit_test(test_python_templates),
        cmocka_unit_test(test_written_calls),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_styles),
        cmocka_unit_test(test_hostile_templates),
        cmocka_unit_test(test_variables_for_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
