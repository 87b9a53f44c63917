/* SPDX-License-Identifier: MIT
 *
 * chat_input.h: turns a request in the words of the OpenAI API into the variables of a chat template.
 */
#ifndef QUERN_TEXT_CHAT_INPUT_H
#define QUERN_TEXT_CHAT_INPUT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "text/chat/chat_taste.h"

/* Parses and checks a request of n bytes. *out is the caller's, to json_decref(). QN_EUSAGE: the message names the
 * member that is wrong ("messages[3].role"); QN_ENOMEM. */
int chat_request_parse(json_t **out, const char *text, size_t n, struct qn_error *e);

/* Vouches for the roles of messages, for jinja_render(). */
bool chat_vouch(void *arg, const char *key, const char *text, size_t n);

/* Whether the request ends with a text of the assistant's, which the reply continues. */
bool chat_is_prefilled(const json_t *request);

/* Makes the template's variables, a JSON object, from a parsed request. ending (may be NULL) is added to the last
 * message's text. *changed: the changes that the client should know of, bits of enum qn_chat_change. *ours: the parts
 * of its strings that Quern wrote, as jinja_input has it. *out and *ours are the caller's, to json_decref(); they share
 * values with the request, which is not changed. QN_ENOMEM. */
int chat_context(json_t **out, json_t **ours, const json_t *request, const struct chat_taste *taste, const char *ending,
                 unsigned *changed, struct qn_error *e);

#endif
