/* SPDX-License-Identifier: MIT
 *
 * receipt_impl.h: the names in the JSON of a receipt, shared by the writer and the reader.
 */
#ifndef QUERN_RECEIPT_RECEIPT_IMPL_H
#define QUERN_RECEIPT_RECEIPT_IMPL_H

#include "receipt/receipt.h"

#define RECEIPT_VERSION  1
#define RECEIPT_SEQUENCE "sequence" /* one token after the other, whether they were guessed before or not */
#define RECEIPT_REPLAY   "replay"   /* in windows that were not verified */

/* A number of struct qn_sampling. */
struct receipt_number {
    const char *name; /* NULL ends the table */
    size_t at;
    bool is_float;
};
extern const struct receipt_number receipt_numbers[];

extern const char *const receipt_kv_names[];   /* by enum qn_kv, ended by NULL */
extern const char *const receipt_end_names[];  /* by enum receipt_end, ended by NULL */
extern const char *const receipt_form_names[]; /* by enum qn_grammar_kind without tool calls, ended by NULL */

/* Writes the hash of a document's canonical form. */
int receipt_hash(char hex[RECEIPT_HEX], const json_t *document, struct qn_error *e);

#endif
