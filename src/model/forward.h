/* SPDX-License-Identifier: MIT
 *
 * forward.h: the forward pass: from a batch of tokens to logits.
 *
 * Every member of the thread team runs the same layer code at the same time, in one parallel region for each pass. An
 * operation (pass/op.h) gives each member its contiguous share of the work, and lines the team up where the next
 * operation reads what others wrote. No share ever splits a sum, so the result does not depend on the number of
 * threads.
 */
#ifndef QUERN_MODEL_FORWARD_H
#define QUERN_MODEL_FORWARD_H

#include "model/pass/pass.h"

struct forward {
    struct pass pass;
    struct ledger *ledger;
    int max_rows, max_seqs;
    struct region region; /* the buffers of pass, but for the copies of states */
};

/* The shape of the keys, values and states that the model keeps of its sequences, if all layers keep all slots: the
 * reference. */
struct kv_shape forward_kv_shape(const struct model *m, enum kv_type type);
/* The same where windowed layers keep their windows only, if the model has such layers. The results have the same bits.
 */
struct kv_shape forward_window_shape(const struct model *m, enum kv_type type);
/* Bytes that forward_init() takes from the ledger. */
size_t forward_bytes(const struct model *m, int max_rows, int max_seqs, int n_threads);
/* For batches of at most max_rows rows. Copies of recurrent states have room for max_seqs sequences. model, pool and
 * ledger are borrowed until forward_deinit(). */
int forward_init(struct forward *f, const struct model *m, const struct kernels *kt, struct pool *pool, int max_rows,
                 int max_seqs, int n_ctx, struct ledger *l, struct qn_error *e);
void forward_deinit(struct forward *f);
/* Bytes of the buffers as they were allocated. */
size_t forward_buffer_bytes(const struct forward *f);

/* Runs the batch (1..max_rows rows; tokens < n_vocab; slots reserved and opened in their memories) through all layers.
 * Keys and values are stored, recurrent states advance by the rows, and the logits of the rows that want them are
 * written to logits [n_wanted][n_vocab] in row order. Does not allocate.
 *
 * false: the pass was cancelled. Every sequence is then as it was before, except that its reserved slots hold anything.
 * Two kinds of passes over models with a recurrent state are never cancelled: those with one row of each sequence,
 * because copying the states would cost every token more than a cancelled pass is worth, and those of more than
 * max_seqs sequences. */
bool forward_run(struct forward *f, const struct batch *b, struct kv_seq *const *mem, float *logits);
/* The same through the layers of a stage (model_cut()). in [rows][n_embd]: what forward_row() gave for each row in the
 * stage before; the first stage ignores it. The last stage writes the logits; the others ignore them. The stages, one
 * after the other, give the bits of the whole. */
bool forward_run_stage(struct forward *f, const struct batch *b, struct kv_seq *const *mem, const float *in,
                       float *logits);
/* Row r of the residual stream after the last layer of the last pass, [n_embd]; until the next pass. The pass must have
 * been completed. */
const float *forward_row(const struct forward *f, int r);
/* Makes f->pass ready for the batch: for forward_run(), and for passes of other layers (nextn.h). */
void forward_begin(struct forward *f, const struct batch *b, struct kv_seq *const *mem, float *logits, bool has_state);
/* After a pass, and before the next one, with its batch and memories as they were: of the held rows of sequence seq the
 * first n_accepted[seq] stay. Its recurrent state becomes what it was after them, to the bit. */
void forward_accept(struct forward *f, const int32_t *n_accepted);
/* After a pass that was completed, and before the next one, with its batch and memories as they were: every recurrent
 * state becomes what it was before the pass. Only a pass that could have been cancelled, whether or not the model has
 * states; another stage was, after this one. */
void forward_take_back(struct forward *f);
/* out [n_embd] = row r of the last pass after the last layer and the output norm. The pass must have been completed. */
void forward_hidden(const struct forward *f, int r, float *out);

#endif
