/* SPDX-License-Identifier: MIT
 *
 * card.h: what a served model's file says of itself, kept so that it can be told while the model is not in memory.
 */
#ifndef QUERN_SERVER_CARD_H
#define QUERN_SERVER_CARD_H

#include <quern.h>

#include "base/buf.h"

/* Owns its texts. All zero: nothing is known. */
struct model_card {
    uint64_t n_params, file_bytes;
    int64_t modified_s;       /* seconds since 1970 */
    const char *type;         /* the element type of most weights; static */
    bool is_folder;           /* no GGUF file, but a folder */
    bool pools;               /* the file names a pooling of vectors: a model for embeddings */
    bool fills_gaps;          /* it has the tokens of qn_infill_prompt() */
    struct buf family;        /* general.architecture */
    struct buf chat_template; /* its source; empty: none */
    struct buf metadata; /* members of a JSON object, without the template, the parameter count and the context length.
                            An array is null, because a vocabulary is one */
};

/* Reads the card of an open model. path, modified_s: of its file. The caller owns *out: model_card_deinit(). On failure
 * (QN_ENOMEM) it is empty. */
int model_card_read(struct model_card *out, const qn_model *m, const char *path, int64_t modified_s,
                    struct qn_error *e);
int model_card_copy(struct model_card *out, const struct model_card *from, struct qn_error *e);
void model_card_deinit(struct model_card *c);

#endif
