/* SPDX-License-Identifier: MIT
 *
 * responses.h: the parts of the dialect of POST /v1/responses: responses_in.c reads requests, responses_items.c adds
 * the items of earlier responses, responses.c writes answers, and responses_kept.c has the routes of kept responses.
 */
#ifndef QUERN_SERVER_RESPONSES_H
#define QUERN_SERVER_RESPONSES_H

#include "server/api/api_impl.h"

extern const struct field responses_fields[];
/* Turns instructions and input items into the messages of a chat template. 0, or -1 and *f. */
int responses_messages(struct answer_params *a, struct fault *f);

/* ---- items of earlier responses (responses_items.c) ---- */

/* A list of items that is being collected. A zeroed one with `ticket` is empty; end with items_deinit(). */
struct items {
    struct ticket *ticket; /* pays for the items, as for those of a body */
    json_t *all;           /* [] the items, in order */
    json_t *known;         /* {id: item} of the kept responses that were read */
    size_t n_text;         /* bytes of their text */
    size_t taken;          /* bytes taken from the ticket, which the caller gives back */
};
void items_deinit(struct items *it); /* it gives nothing back */
/* Adds the input of a kept response, after the inputs and outputs of those that it continues. 0, or -1 and *f. */
int items_add_input(struct items *it, const struct item_record *r, struct fault *f);

/* Makes a request's input a list of items: first those of the response that it continues, then its own, with each
 * reference replaced by the item. *n_before: how many items are not its own. 0, or -1 and *f. */
int responses_gather(struct job *j, size_t *n_before, struct fault *f);
/* Begins the record of a response, whose input begins at items[n_before]. j->record stays NULL if it is not to be kept,
 * or if there is no room. */
void responses_begin_record(struct job *j, const json_t *items, size_t n_before);

#endif
