/* SPDX-License-Identifier: MIT
 *
 * chat_shape.h: a list of messages while its passes change it: what chat_adapt.c and chat_shape.c share.
 */
#ifndef QUERN_TEXT_CHAT_SHAPE_H
#define QUERN_TEXT_CHAT_SHAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "text/chat/chat_taste.h"

/* The messages while they change. After a failure, rc is not 0 and nothing counts. */
struct adapt {
    const struct chat_taste *taste;
    json_t *list, *made; /* before and after the pass */
    unsigned changed;
    int rc;
    /* of the calls that came last: */
    json_t *ids;   /* a list, for results that have no id */
    json_t *names; /* an object: ids and the names of their tools */
    size_t n_results;
};

bool adapt_has_role(const json_t *m, const char *role);
bool adapt_needs(const struct adapt *a, unsigned need);
void adapt_add(struct adapt *a, json_t *owned); /* to the list that is made */

/* The pass that gives each message its shape. */
void adapt_shape(struct adapt *a);

#endif
