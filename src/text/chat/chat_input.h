/* SPDX-License-Identifier: MIT
 *
 * chat_input.h: turns a request in the words of the OpenAI API into the variables of a chat template.
 */
#ifndef QUERN_TEXT_CHAT_INPUT_H
#define QUERN_TEXT_CHAT_INPUT_H

#include <jansson.h>

#include "base/error.h"
#include "text/chat/chat_form.h"

/* How a template wants its variables. */
struct chat_taste {
    bool developer; /* it knows the role `developer`, which otherwise becomes `system` */
    enum chat_calls calls;
};

/* Parses and checks a request of n bytes. *out is the caller's, to json_decref(). QN_EUSAGE: the message names the
 * member that is wrong ("messages[3].role"); QN_ENOMEM. */
int chat_request_parse(json_t **out, const char *text, size_t n, struct qn_error *e);

/* Makes the template's variables, a JSON object, from a parsed request. *out is the caller's, to json_decref(); it
 * shares values with the request, which is not changed. QN_ENOMEM. */
int chat_context(json_t **out, const json_t *request, const struct chat_taste *taste, struct qn_error *e);

#endif
