/* SPDX-License-Identifier: MIT
 *
 * model_proof.h: the SHA-256 of an open model's files, vocabulary and chat template, for receipts.
 */
#ifndef QUERN_RECEIPT_MODEL_PROOF_H
#define QUERN_RECEIPT_MODEL_PROOF_H

#include "receipt/receipt.h"

/* Where the hashes of files are remembered (base/file_hash.h). Borrowed for the call. */
struct model_proof_places {
    const char *dir;      /* new hashes are written here, if that is possible; NULL: nowhere */
    const char *other[2]; /* folders that are only read; NULL: none */
};

/* Fills *m. A file whose hash is not remembered is read as a whole. pre: of qn_model_params, borrowed as long as *m is
 * used; m->file is for mem_free(). QN_EIO: a file cannot be read, or has changed since the model was opened. */
int model_proof(struct receipt_model *m, const qn_model *model, const char *name, const char *pre,
                const struct model_proof_places *places, struct qn_error *e);
/* The vocabulary and the template only, which takes milliseconds. */
void model_proof_texts(struct receipt_model *m, const qn_model *model);
/* Returns QN_EDATA, with the first difference, unless both have the same files, vocabulary, template and
 * pre-tokeniser. said: of the receipt. */
int model_proof_compare(const struct receipt_model *said, const struct receipt_model *is, struct qn_error *e);

#endif
