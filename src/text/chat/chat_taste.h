/* SPDX-License-Identifier: MIT
 *
 * chat_taste.h: how a template wants its variables, as chat_probe.c found it out.
 */
#ifndef QUERN_TEXT_CHAT_TASTE_H
#define QUERN_TEXT_CHAT_TASTE_H

#include <stdbool.h>

#include "text/chat/chat_form.h"

/* What has to be done to a conversation before the template renders it. */
enum chat_need {
    CHAT_NEED_EMPTY = 1u << 0,          /* an empty string in place of a null content next to calls */
    CHAT_NEED_TEXT_ARGUMENTS = 1u << 1, /* arguments as JSON in a string */
    CHAT_NEED_SHORT_IDS = 1u << 2,      /* ids of calls have nine letters and digits (base/short_id.h) */
    CHAT_NEED_NAMES = 1u << 3,          /* a tool's result has the tool's name */
    CHAT_NEED_SINGLE_CALLS = 1u << 4,   /* a message has one call at most */
    CHAT_NEED_ANSWER = 1u << 5,         /* an assistant's turn between a tool's result and a user's turn */
    CHAT_NEED_NO_SYSTEM = 1u << 6,      /* no system message */
    CHAT_NEED_FIRST_SYSTEM = 1u << 7,   /* one system message at most, and it comes first */
    CHAT_NEED_TURNS = 1u << 8,          /* users and assistants take turns */
    CHAT_NEED_PARTS = 1u << 9,          /* content in parts, never as a string */
    CHAT_NEED_TOOL_TEXT = 1u << 10,     /* tools, calls and results as texts of our own (chat_tools.h) */
    CHAT_NEED_USER_LAST = 1u << 11, /* no system message if the last message is not the user's: it would be dropped */
    CHAT_NEED_LISTS = 1u << 12,     /* empty lists where there are no tools or documents, not null */
    CHAT_NEED_WRITTEN_CALLS = 1u << 13, /* calls in the content of their message, as the model writes them (LFM 2) */
};

struct chat_taste {
    bool known;     /* the probes succeeded; false: nothing below is known, and little is changed */
    bool developer; /* it knows the role `developer`, which otherwise becomes `system` */
    bool no_tools;  /* there is no way to give it tools */
    bool parts;     /* it takes content in parts */
    bool thinking;  /* the model writes thoughts */
    bool switches;  /* enable_thinking changes the prompt, */
    bool levels;    /* and so does reasoning_effort */
    enum chat_calls calls;
    unsigned need; /* of enum chat_need */
};

#endif
