/* SPDX-License-Identifier: MIT
 *
 * chat_form.h: in which form a model thinks and calls tools, known from the marks that its template contains.
 */
#ifndef QUERN_TEXT_CHAT_FORM_H
#define QUERN_TEXT_CHAT_FORM_H

#include <stdbool.h>
#include <stddef.h>

enum chat_calls {
    CHAT_CALLS_NONE,    /* no form known: everything is content */
    CHAT_CALLS_TAG,     /* <tool_call>{"name": ..., "arguments": {...}}</tool_call>, and <function=NAME> inside of it */
    CHAT_CALLS_LLAMA,   /* {"name": ..., "parameters": {...}} as the whole answer, perhaps behind <|python_tag|> */
    CHAT_CALLS_MISTRAL, /* [TOOL_CALLS][{...}, ...] or [TOOL_CALLS]NAME[ARGS]{...} */
    CHAT_CALLS_HARMONY, /* <|channel|>commentary to=functions.NAME<|message|>{...} (gpt-oss); all text is in channels */
    CHAT_CALLS_CODE,    /* ```tool_code, then {"name": ..., "parameters": {...}} or a list of these, then ``` */
};

struct chat_form {
    enum chat_calls calls;
    const char *think, *unthink; /* around what the model thinks; NULL: it does not. Static strings */
};

/* src: the template's text. */
struct chat_form chat_form_of(const char *src, size_t n);

/* Whether a control token with this text says something to the parser of replies: it then goes in like other text. */
bool chat_form_reads(const struct chat_form *f, const char *text, size_t n);

/* Whether the n bytes, the end of a prompt, leave the model in the middle of thinking. */
bool chat_form_is_thinking(const struct chat_form *f, const char *text, size_t n);

#endif
