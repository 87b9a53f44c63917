/* SPDX-License-Identifier: MIT
 *
 * chat_form.c: recognises the form of replies by the marks in a template's text.
 *
 * A file does not say how its model writes a tool call. Its template does, where it writes earlier calls into the
 * prompt or tells the model what to write. So the template's text is searched for the marks of each form that can be
 * read, the most distinctive ones first. With none of them the replies are content, which is never wrong.
 */
#include "text/chat/chat_form.h"

#include <string.h>

static bool has(const char *text, size_t n, const char *mark) { return memmem(text, n, mark, strlen(mark)) != NULL; }

/* Both marks of a row must be there. Templates quote JSON with and without backslashes. */
static const struct {
    enum chat_calls calls;
    const char *mark[2];
} forms[] = {
    {CHAT_CALLS_HARMONY, {"<|channel|>", "<|message|>"}},
    {CHAT_CALLS_MISTRAL, {"[TOOL_CALLS]", ""}},
    {CHAT_CALLS_CALLS, {"<tool_calls>", "</tool_calls>"}},
    {CHAT_CALLS_UPPER, {"<TOOLCALL>", ""}},
    {CHAT_CALLS_TAG, {"<tool_call>", ""}},
    {CHAT_CALLS_PYTHON, {"<|tool_call_start|>", ""}},
    {CHAT_CALLS_PYTHON, {"<|tool_list_start|>", ""}},
    {CHAT_CALLS_PYTHON, {"\"List of tools: [\"", "keep_past_thinking"}},
    {CHAT_CALLS_PYTHON, {"<function_calls>", ""}},
    {CHAT_CALLS_PYTHON, {"[func_name1(", ""}},
    {CHAT_CALLS_LLAMA, {"<|python_tag|>", ""}},
    {CHAT_CALLS_LLAMA, {"<|start_header_id|>", "\"parameters\""}},
    {CHAT_CALLS_LLAMA, {"<|start_header_id|>", "\"parameters\\\""}},
    {CHAT_CALLS_CODE, {"tool_code", ""}},
};

/* One mark of a pair is enough: some templates name only the closing one, where they cut thoughts off. */
static const struct {
    const char *open, *close;
} thoughts[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}};

struct chat_form chat_form_of(const char *src, size_t n)
{
    struct chat_form f = {0};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && f.calls == CHAT_CALLS_NONE; i++)
        if (has(src, n, forms[i].mark[0]) && has(src, n, forms[i].mark[1])) f.calls = forms[i].calls;
    for (size_t i = 0; i < sizeof thoughts / sizeof thoughts[0] && !f.think; i++)
        if (has(src, n, thoughts[i].open) || has(src, n, thoughts[i].close)) {
            f.think = thoughts[i].open;
            f.unthink = thoughts[i].close;
        }
    f.style = chat_form_style(f.calls, src, n);
    if (f.calls == CHAT_CALLS_HARMONY) f.think = f.unthink = NULL; /* its thoughts are a channel */
    return f;
}

/* Whether a block of code begins with a name, and not with JSON. */
static bool is_python_code(const char *text, size_t n)
{
    static const char mark[] = "```tool_code\n";
    const char *hit = memmem(text, n, mark, strlen(mark)), *p = hit ? hit + strlen(mark) : text + n;
    while (p < text + n && (*p == '[' || *p == ' ' || *p == '\n')) p++;
    return p < text + n && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_');
}

unsigned chat_form_style(enum chat_calls calls, const char *text, size_t n)
{
    switch (calls) {
    case CHAT_CALLS_TAG:
        if (!has(text, n, "<function=")) return 0;
        return CHAT_STYLE_FUNCTIONS | (has(text, n, "<tool_call>") ? 0 : CHAT_STYLE_BARE);
    case CHAT_CALLS_MISTRAL: return has(text, n, "[ARGS]") ? CHAT_STYLE_NAMED : 0;
    case CHAT_CALLS_CALLS:
        return has(text, n, "<tool_calls>[") || has(text, n, "<tool_calls>\n[") ? 0 : CHAT_STYLE_LINES;
    case CHAT_CALLS_PYTHON:
        if (has(text, n, "<function_calls>")) return CHAT_STYLE_TAGS;
        return has(text, n, "<|tool_call_start|>") || has(text, n, "List of tools: ") ? CHAT_STYLE_START : 0;
    case CHAT_CALLS_CODE: return is_python_code(text, n) ? CHAT_STYLE_PYTHON : 0;
    default: return 0;
    }
}

bool chat_form_has_parts(enum chat_calls calls, unsigned style)
{
    return (calls == CHAT_CALLS_TAG && style & CHAT_STYLE_FUNCTIONS) ||
           (calls == CHAT_CALLS_CODE && style & CHAT_STYLE_PYTHON) || calls == CHAT_CALLS_PYTHON;
}

const char *const *chat_form_opens(enum chat_calls calls)
{
    static const char *const opens[][4] = {
        [CHAT_CALLS_NONE] = {NULL},
        [CHAT_CALLS_TAG] = {"<tool_call>", "<function=", NULL},
        [CHAT_CALLS_LLAMA] = {"<|python_tag|>", NULL},
        [CHAT_CALLS_MISTRAL] = {"[TOOL_CALLS]", NULL},
        [CHAT_CALLS_HARMONY] = {NULL},
        [CHAT_CALLS_CALLS] = {"<tool_calls>", NULL},
        [CHAT_CALLS_UPPER] = {"<TOOLCALL>", NULL},
        [CHAT_CALLS_CODE] = {"```tool_code", NULL},
        [CHAT_CALLS_PYTHON] = {"<|tool_call_start|>", "<function_calls>", "<|python_start|>", NULL},
    };
    return opens[calls];
}

char chat_form_bare(enum chat_calls calls)
{
    if (calls == CHAT_CALLS_PYTHON) return '[';
    return calls == CHAT_CALLS_LLAMA ? '{' : '\0';
}

bool chat_form_reads(const struct chat_form *f, const char *text, size_t n)
{
    static const char *const marks[][6] = {
        [CHAT_CALLS_NONE] = {NULL},
        [CHAT_CALLS_TAG] = {"<tool_call>", "</tool_call>"},
        [CHAT_CALLS_LLAMA] = {"<|python_tag|>"},
        [CHAT_CALLS_MISTRAL] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
        [CHAT_CALLS_HARMONY] = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>"},
        [CHAT_CALLS_CALLS] = {"<tool_calls>", "</tool_calls>"},
        [CHAT_CALLS_UPPER] = {"<TOOLCALL>", "</TOOLCALL>"},
        [CHAT_CALLS_CODE] = {NULL},
        [CHAT_CALLS_PYTHON] = {"<|tool_call_start|>", "<|tool_call_end|>", "<|python_start|>", "<|python_end|>",
                               "<function_calls>", "</function_calls>"},
    };
    for (int i = 0; i < 6 && marks[f->calls][i]; i++)
        if (strlen(marks[f->calls][i]) == n && memcmp(marks[f->calls][i], text, n) == 0) return true;
    const char *thought[2] = {f->think, f->unthink};
    for (int i = 0; i < 2 && thought[i]; i++)
        if (strlen(thought[i]) == n && memcmp(thought[i], text, n) == 0) return true;
    return false;
}

/* One more than where the last `mark` begins; 0: there is none. */
static size_t last(const char *text, size_t n, const char *mark)
{
    size_t n_mark = strlen(mark);
    for (size_t i = n; i >= n_mark; i--)
        if (memcmp(text + i - n_mark, mark, n_mark) == 0) return i - n_mark + 1;
    return 0;
}

bool chat_form_is_thinking(const struct chat_form *f, const char *text, size_t n)
{
    return f->think && last(text, n, f->think) > last(text, n, f->unthink);
}
