/* SPDX-License-Identifier: MIT
 *
 * nextn.h: the block that predicts the token after the next one (multi-token prediction), and its pass.
 *
 *     x = W [RMS(E[token]; embd_norm) | RMS(h; hidden_norm)]    h: the hidden row of the token before
 *     x = layer(x)                               a layer of the family, with its own keys and values
 *     y = RMS(x; head_norm),  logits = Wout y    of the token after `token`
 *
 * A hidden row is what forward_hidden() gives: after the last layer and the output norm. The row of a token depends on
 * tokens up to itself only. For further tokens, y takes the place of h. E and Wout are the model's, unless the file has
 * others. Files count the block as one of the model's layers and call its tensors blk.N.nextn.*, with N = n_layer.
 *
 * DeepSeek-AI, "DeepSeek-V3 technical report", 2024 (arXiv:2412.19437), section 2.2; Gloeckle et al., "Better and
 * faster large language models via multi-token prediction", 2024 (arXiv:2404.19737); names and the order of the two
 * halves: the converters' files, and the published modelling code of Qwen3-Next.
 */
#ifndef QUERN_MODEL_NEXTN_H
#define QUERN_MODEL_NEXTN_H

#include "model/forward.h"

struct nextn {
    struct forward *forward; /* its buffers are used */
    struct ledger *ledger;
    int max_rows, n_vocab;
    struct acts joint; /* [max_rows][2 n_embd] */
    struct region region;

    /* of the pass in progress */
    const float *const *hidden;
};

/* The shape of the block's keys and values, which do not lie in the model's cache. */
struct kv_shape nextn_kv_shape(const struct model *m, enum kv_type type);
/* Bytes that nextn_init() takes from the ledger. */
size_t nextn_bytes(const struct model *m, int max_rows);
/* For batches of at most max_rows rows, no more than the forward pass takes. Logits are those of the first n_vocab
 * tokens, 1..hp.n_vocab. The model has the block. f and l are borrowed until nextn_deinit(). */
int nextn_init(struct nextn *x, struct forward *f, int max_rows, int n_vocab, struct ledger *l, struct qn_error *e);
void nextn_deinit(struct nextn *x); /* x may be zeros */

/* Runs the batch through the block; its memories are of nextn_kv_shape(), and rows are not held. hidden[r] is the h of
 * row r, [n_embd]; NULL: zeros, where it is not known. logits: [rows that want them][n_vocab]. Runs between two passes
 * of the model, when nobody needs the results of the first one any more: it uses the same buffers. */
void nextn_run(struct nextn *x, const struct batch *b, struct kv_seq *const *mem, const float *const *hidden,
               float *logits);
/* The y of row i of those that wanted logits, [n_embd]; until the next pass. */
const float *nextn_hidden(const struct nextn *x, int i);

#endif
