/* SPDX-License-Identifier: MIT
 *
 * load.h: loads a model from its files.
 */
#ifndef QUERN_MODEL_LOAD_H
#define QUERN_MODEL_LOAD_H

#include "model/model.h"

/* Opens, checks and binds the model in a file. Of the tensors' data, only small vectors are read. */
int model_load(struct model **out, const char *path, struct qn_error *e);
/* The same with a pre-tokeniser, as in vocab_load_with(). */
int model_load_with(struct model **out, const char *path, const char *pre, struct qn_error *e);
/* As model_load(), for a stage, whose file may have the weights of some layers only (m->file_lo, m->file_hi). The other
 * functions refuse such a file: QN_EUNSUP. */
int model_load_stage(struct model **out, const char *path, struct qn_error *e);
void model_free(struct model *m);
/* Makes the model one stage: its layers [lo, hi). Everything that is made for it later is that of the stage: passes
 * (forward_run_stage()), shapes of caches, budgets, and which weights are entered into the page table. The first stage
 * embeds the tokens. The last one computes the logits and has the block that predicts the token after the next one.
 * Only once, and before anything uses the model. QN_EUSAGE: there are no such layers. */
int model_cut(struct model *m, int lo, int hi, struct qn_error *e);
/* Whether a stage with the layers [lo, hi), or with some of these, needs the data of a tensor of the whole model m. */
bool model_stage_needs(const struct model *m, int lo, int hi, const char *tensor);
/* A stage's part of the whole model m, for counting what the stage would take: its numbers are those that model_cut()
 * would give, without the block that predicts the token after the next one. Everything else is m's, so nothing has to
 * be freed. */
void model_part(struct model *part, const struct model *m, int lo, int hi);
uint64_t model_part_bytes(const struct model *part); /* of its tensors */

/* The same checks on weights that are already open and stay the caller's. */
int model_check(const struct weights *w, const char *pre, struct qn_error *e);

#endif
