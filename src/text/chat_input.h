/* SPDX-License-Identifier: MIT
 *
 * chat_input.h: a request in the words of the OpenAI API to the variables of a chat template.
 */
#ifndef QUERN_TEXT_CHAT_INPUT_H
#define QUERN_TEXT_CHAT_INPUT_H

#include <jansson.h>

#include "base/error.h"
#include "text/chat_form.h"

/* What depends on the template. */
struct chat_taste {
    bool developer; /* it knows the role of this name, which otherwise becomes `system` */
    enum chat_calls calls;
};

/* Parses and checks a request. QN_EUSAGE names the member that is wrong ("messages[3].role"). */
int chat_request_parse(json_t **out, const char *text, size_t n, struct qn_error *e);

/* The template's variables, an object, from a parsed request. */
int chat_context(json_t **out, const json_t *request, const struct chat_taste *taste, struct qn_error *e);

#endif
