/* SPDX-License-Identifier: MIT
 *
 * chat_harmony.c: reads replies that are divided into channels (gpt-oss).
 *
 * A reply is a list of messages, each with a head and a text. The head is <|channel|>NAME, perhaps with
 * " to=functions.TOOL" and <|constrain|>json, and ends with <|message|>. The text ends with <|end|>, <|call|> or
 * <|return|>, and <|start|> comes before the next message. A message to a tool is a call. The channel `analysis` holds
 * thoughts; all others are content (the model uses `commentary` before a call). The prompt ends with
 * <|start|>assistant, so the first head begins after that.
 *
 * Format: https://cookbook.openai.com/articles/openai-harmony
 */
#include <string.h>

#include "text/chat/chat_state.h"

#define MAX_HEAD 512 /* bytes */

/* The word after `mark` in a head, of *n_word bytes; NULL when the mark is not there. */
static const char *word_after(const char *p, size_t n, const char *mark, size_t *n_word)
{
    const char *hit = memmem(p, n, mark, strlen(mark));
    *n_word = 0;
    if (!hit) return NULL;
    hit += strlen(mark);
    while (hit + *n_word < p + n && !strchr(" \n<", hit[*n_word])) ++*n_word;
    return hit;
}

bool chat_harmony_body(struct chat_reply *r)
{
    static const char *const marks[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", NULL};
    int which = chat_give_until(r, r->channel, marks);
    if (which < 0) return false;
    r->state = which == 3 ? chat_harmony_head : chat_harmony_between;
    return true;
}

bool chat_harmony_head(struct chat_reply *r)
{
    static const char mark[] = "<|message|>", functions[] = "functions.";
    size_t at, n, n_channel;
    bool found = chat_find(r, mark, &at);
    if (!found && !r->last && chat_left(r) < MAX_HEAD + strlen(mark)) return false;
    r->channel = QN_REPLY_CONTENT;
    r->trim = false;
    r->state = chat_harmony_body;
    if (!found || at > MAX_HEAD) return true; /* there is no head, so all of it is text */
    const char *p = chat_text(r), *to = word_after(p, at, " to=", &n);
    const char *channel = word_after(p, at, "<|channel|>", &n_channel);
    if (to && r->tools) {
        size_t skip = n > strlen(functions) && memcmp(to, functions, strlen(functions)) == 0 ? strlen(functions) : 0;
        chat_begin_call(r, 0, chat_call_json);
        tool_json_deinit(&r->json);
        chat_fail(r, tool_json_init(&r->json, to + skip, n - skip, &r->error));
        chat_take(r, at + strlen(mark));
        return true;
    }
    if (channel && n_channel == 8 && memcmp(channel, "analysis", 8) == 0) r->channel = QN_REPLY_REASONING;
    chat_skip(r, at + strlen(mark));
    return true;
}

bool chat_harmony_between(struct chat_reply *r)
{
    static const char *const marks[] = {"<|start|>", "<|end|>", "<|call|>", "<|return|>"};
    chat_take_space(r);
    if (chat_left(r) == 0) return false;
    for (int i = 0; i < 4; i++) {
        enum chat_match m = chat_match(r, 0, marks[i]);
        if (m == CHAT_PART) return false;
        if (m == CHAT_NO) continue;
        chat_skip(r, strlen(marks[i]));
        if (i == 0) r->state = chat_harmony_head;
        return true;
    }
    r->state = chat_harmony_head;
    return true;
}
