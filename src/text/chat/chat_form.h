/* SPDX-License-Identifier: MIT
 *
 * chat_form.h: the form in which a model writes thoughts and tool calls, recognised by marks in its template.
 */
#ifndef QUERN_TEXT_CHAT_FORM_H
#define QUERN_TEXT_CHAT_FORM_H

#include <stdbool.h>
#include <stddef.h>

enum chat_calls {
    CHAT_CALLS_NONE,    /* no known form: everything is content */
    CHAT_CALLS_TAG,     /* <tool_call>{"name": ..., "arguments": {...}}</tool_call>, and <function=NAME> inside of it */
    CHAT_CALLS_LLAMA,   /* {"name": ..., "parameters": {...}} as the whole answer, perhaps after <|python_tag|> */
    CHAT_CALLS_MISTRAL, /* [TOOL_CALLS][{...}, ...] or [TOOL_CALLS]NAME[ARGS]{...} */
    CHAT_CALLS_HARMONY, /* <|channel|>commentary to=functions.NAME<|message|>{...} (gpt-oss); all text is in channels */
    CHAT_CALLS_CALLS,   /* <tool_calls>[{"name": ..., "arguments": {...}}, ...]</tool_calls>, or without the list */
    CHAT_CALLS_UPPER,   /* the same in <TOOLCALL> and </TOOLCALL> */
    CHAT_CALLS_CODE,    /* ```tool_code, then {"name": ..., "parameters": {...}} or a list of these, then ```; or
                           calls in the shape of Python in their place */
    CHAT_CALLS_PYTHON,  /* [NAME(KEY=VALUE, ...), ...] as the whole answer, or in marks */
};

/* How a template writes calls where its form can be written in several ways. */
enum chat_style {
    CHAT_STYLE_FUNCTIONS = 1u << 0, /* TAG: <function=NAME>, and no JSON */
    CHAT_STYLE_BARE = 1u << 1,      /* and no <tool_call> around it */
    CHAT_STYLE_NAMED = 1u << 2,     /* MISTRAL: NAME[ARGS]{...}, and no list */
    CHAT_STYLE_LINES = 1u << 3,     /* CALLS: one call a line, and no list */
    CHAT_STYLE_START = 1u << 4,     /* PYTHON: the list in <|tool_call_start|> and <|tool_call_end|> (LFM 2) */
    CHAT_STYLE_TAGS = 1u << 5,      /* PYTHON: one call a line in <function_calls> and </function_calls> (Olmo 3) */
    CHAT_STYLE_PYTHON = 1u << 6,    /* CODE: the shape of Python, one call a line */
};

struct chat_form {
    enum chat_calls calls;
    const char *think, *unthink; /* the marks around thoughts; NULL: the model has none. Static strings */
    unsigned style;              /* of enum chat_style */
};

/* The form of the replies of a model whose template is src, of n bytes. */
struct chat_form chat_form_of(const char *src, size_t n);

/* The style of a call that a template wrote for an earlier turn; text is the call, or more. */
unsigned chat_form_style(enum chat_calls calls, const char *text, size_t n);

/* Whether the arguments of calls are written one by one, and not as a JSON object. */
bool chat_form_has_parts(enum chat_calls calls, unsigned style);

/* The marks that begin a call in the middle of a text, ended by NULL; none where a text cannot go over into a call. */
const char *const *chat_form_opens(enum chat_calls calls);

/* The byte with which calls begin that are the whole answer, without a mark; NUL: the form has none. Whatever the
 * style, a reply that begins so may be such a call. */
char chat_form_bare(enum chat_calls calls);

/* Whether the text of a token is a mark of this form. The text of such a control token must be fed to the parser of
 * replies (chat_reply.h). */
bool chat_form_reads(const struct chat_form *f, const char *text, size_t n);

/* Whether a prompt that ends with these n bytes leaves the model in the middle of its thoughts. */
bool chat_form_is_thinking(const struct chat_form *f, const char *text, size_t n);

#endif
