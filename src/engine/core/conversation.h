/* SPDX-License-Identifier: MIT
 *
 * conversation.h: the messages of a chat as JSON, in the form that a request has them.
 */
#ifndef QUERN_ENGINE_CONVERSATION_H
#define QUERN_ENGINE_CONVERSATION_H

#include <jansson.h>

#include "quern.h"

struct qn_conversation {
    json_t *messages; /* an array of {"role", "content"}; owned */
};

/* Adds a message to an array of them. QN_EUSAGE, with the function's name: role or text is not UTF-8. */
int conversation_append(json_t *messages, const char *role, const char *text, size_t n, const char *function,
                        struct qn_error *e);

#endif
