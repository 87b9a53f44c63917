/* SPDX-License-Identifier: MIT
 *
 * responses.h: the two halves of the dialect of POST /v1/responses: responses_in.c reads requests, responses.c writes
 * answers.
 */
#ifndef QUERN_SERVER_RESPONSES_H
#define QUERN_SERVER_RESPONSES_H

#include "server/api/api_impl.h"

extern const struct field responses_fields[];
/* Turns instructions and input into the messages of a chat template. 0, or -1 and *f. */
int responses_messages(struct answer_params *a, struct fault *f);

#endif
