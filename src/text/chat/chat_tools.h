/* SPDX-License-Identifier: MIT
 *
 * chat_tools.h: tools for templates that do not know tools: as texts of our own.
 *
 * A system text lists the tools and tells the model how to write a call. Calls of earlier turns are written in the same
 * form, CHAT_CALLS_TAG, and results become texts of the user.
 */
#ifndef QUERN_TEXT_CHAT_TOOLS_H
#define QUERN_TEXT_CHAT_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

/* Makes a new list from messages without parts: `tools` (may be NULL) come first, added to the system message if there
 * is one. *any: whether anything was written as text. NULL: there is no memory. */
json_t *chat_tools_as_text(const json_t *messages, const json_t *tools, bool *any);

/* Makes a new list from messages without parts, in which calls are a part of their message's content:
 * <|tool_call_start|>[NAME(KEY=VALUE)]<|tool_call_end|>. Notes in `ours` where these marks are, as jinja_input has it.
 * NULL: there is no memory. */
json_t *chat_calls_as_python(const json_t *messages, json_t *ours);

/* a, a blank line and b, in a new string; only one of them if the other is empty or null. NULL: no memory. */
json_t *chat_join(const json_t *a, const json_t *b);

#endif
