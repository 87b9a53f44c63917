/* SPDX-License-Identifier: MIT
 *
 * anthropic.h: the two halves of the Anthropic dialect: reading requests (anthropic_in.c), writing answers
 * (anthropic.c).
 */
#ifndef QUERN_SERVER_ANTHROPIC_H
#define QUERN_SERVER_ANTHROPIC_H

#include "server/api_impl.h"

extern const struct field anthropic_count_fields[],
    anthropic_fields[]; /* what counting takes, and what else answers do */
/* system and messages of the ask become messages of a chat template. */
int anthropic_messages(struct ask *a, struct fault *f);

#endif
