/* SPDX-License-Identifier: MIT
 *
 * anthropic.h: the two halves of the Anthropic dialect: anthropic_in.c reads requests, anthropic.c writes answers.
 */
#ifndef QUERN_SERVER_ANTHROPIC_H
#define QUERN_SERVER_ANTHROPIC_H

#include "server/api/api_impl.h"

/* Fields of requests that count tokens; further fields of requests for answers. */
extern const struct field anthropic_count_fields[], anthropic_fields[];
/* Turns system and messages into the messages of a chat template. 0, or -1 and *f. */
int anthropic_messages(struct answer_params *a, struct fault *f);

#endif
