/* SPDX-License-Identifier: MIT
 *
 * responses.h: the two halves of the dialect of POST /v1/responses: reading requests (responses_in.c), writing answers
 * (responses.c).
 */
#ifndef QUERN_SERVER_RESPONSES_H
#define QUERN_SERVER_RESPONSES_H

#include "server/api_impl.h"

extern const struct field responses_fields[];
/* instructions and input of the ask become messages of a chat template. */
int responses_messages(struct ask *a, struct fault *f);

#endif
