/* SPDX-License-Identifier: MIT
 *
 * chat_adapt.h: gives the messages of a request the shape that a template is written for.
 */
#ifndef QUERN_TEXT_CHAT_ADAPT_H
#define QUERN_TEXT_CHAT_ADAPT_H

#include <jansson.h>

#include "text/chat/chat_taste.h"

/* Makes the messages for the template from a checked request. The list is the caller's; it shares values with the
 * request, which is not changed. ending (may be NULL) is added to the text of the last message. Sets *changed to bits
 * of enum qn_chat_change, and adds to `ours` what Quern has written into the contents, as jinja_input has it. NULL:
 * there is no memory. */
json_t *chat_adapt(const json_t *request, const struct chat_taste *taste, const char *ending, unsigned *changed,
                   json_t *ours);

#endif
