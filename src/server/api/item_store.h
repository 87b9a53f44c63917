/* SPDX-License-Identifier: MIT
 *
 * item_store.h: finished responses, kept in memory for requests that continue them or refer to their items.
 *
 * A record is one response: the items of its input and the response object, both as JSON text. A response that
 * continues another has a record that holds the other's. So a conversation of many turns is kept once, and goes on even
 * when the record of an earlier turn was dropped.
 *
 * The store has a share of a ledger. When it is full, records of the identity that has most of it leave: the one that
 * was used longest ago first. To use a record is to use those that it continues, too, so those never leave before it.
 * Nothing is written to disk.
 *
 * All functions are thread-safe; the store's lock is a leaf and is held for list work and frees only. NULL is a store
 * that keeps nothing.
 */
#ifndef QUERN_SERVER_ITEM_STORE_H
#define QUERN_SERVER_ITEM_STORE_H

#include <stdbool.h>

#include "base/buf.h"

struct item_store;
struct item_owner;

/* Texts and names do not change once the record can be found. The other members are the store's. */
struct item_record {
    struct item_record *previous; /* the one that it continues, held; NULL: none */
    struct item_owner *owner;     /* whose it is; others do not find it */
    char id[48];                  /* of the response */
    struct buf input;             /* {"data": [items]}: the request's own, with ids and without references */
    char *response;               /* [n_response] the response object; NULL until it is kept */
    size_t n_response;

    size_t bytes; /* taken from the ledger */
    int n_holds;  /* the store's own, its users', and those of records that continue it */
    bool is_kept; /* it can be found */
    struct item_record *next_in_bucket, *older, *newer;
};

/* l: pays for everything, borrowed; NULL: nobody does. most_bytes: the store's share. */
int item_store_new(struct item_store **out, struct ledger *l, size_t most_bytes, struct qn_error *e);
/* Call it when nobody holds a record. */
void item_store_free(struct item_store *s);
size_t item_store_used(struct item_store *s); /* bytes of all records that are kept or held */

/* The record of this identity's response, held: item_store_release() drops the hold. NULL: there is none. */
struct item_record *item_store_find(struct item_store *s, uint64_t identity, const char *id);
void item_store_release(struct item_store *s, struct item_record *r); /* r may be NULL */
/* Makes a record of a response that has begun. Nobody finds it yet. It takes over *input, also when it fails, and a
 * hold of its own on `previous` (may be NULL). Returns a held record, or NULL: there is no room for it. */
struct item_record *item_store_begin(struct item_store *s, uint64_t identity, const char *id,
                                     struct item_record *previous, struct buf *input);
/* Completes a record with a copy of the response object: it is found from now on. false: there is no room for it, and
 * nothing has changed. The caller goes on holding it. Call it once. */
bool item_store_keep(struct item_store *s, struct item_record *r, const char *response, size_t n);
/* Drops the record of this identity's response: it is not found any more. The texts stay while others hold it. false:
 * there is none. */
bool item_store_drop(struct item_store *s, uint64_t identity, const char *id);

#endif
