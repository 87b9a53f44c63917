/* SPDX-License-Identifier: MIT
 *
 * responses.h: the parts of the dialect of POST /v1/responses: responses_in.c reads requests, responses_items.c adds
 * the items of earlier responses, responses.c answers, responses_object.c writes the objects of answers, and
 * responses_kept.c has the routes of kept responses.
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

/* ---- objects of answers (responses_object.c) ---- */

/* The open item of an answer: a->block; by its part. */
enum { ITEM_NONE, ITEM_REASONING, ITEM_SUMMARY, ITEM_MESSAGE, ITEM_CALL };

/* An item of an answer; they are in a->items. */
struct output_item {
    int block;
    size_t from, to; /* bytes of the answer's content or thoughts. from: the number of a call */
};

const char *responses_text(const struct job *j, const struct output_item *m, size_t *n); /* of an item of text */
const char *responses_item_prefix(int block);
/* Writes the id of an item: its kind, the request, and its place in the output. */
void responses_write_id(struct job *j, const char *key, const char *prefix, int k);
void responses_write_part(struct job *j, const char *key, int block, const char *text, size_t n);
/* Writes item number `index`. begun: it has just begun, and is still empty. */
void responses_write_item(struct job *j, const char *key, int index, const struct output_item *m, bool begun);
/* Writes the response object. It repeats the request's parameters and, once done, has the output. */
void responses_write(struct job *j, const char *key, bool done);
/* Writes the response object once it is done, and keeps it. If there is no room for it, it is written again, because it
 * says whether it is kept. */
void responses_write_done(struct job *j, const char *key);

#endif
