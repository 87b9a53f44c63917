/* SPDX-License-Identifier: MIT
 *
 * wedlm_draft.h: a drafter whose guesses the model itself fills in: the window of WeDLM, verified.
 *
 * Masks after the end of a sequence become rows aside of an ordinary step. What they are filled with is proposed in the
 * next step: its rows are computed under plain causal attention over the tokens before them, so the model's own draws
 * verify it, and the same pass fills further masks. The answer is that of plain decoding. A model that was trained to
 * fill windows brings several tokens a pass this way; any other model with a token to use as the mask is slow, but
 * right.
 *
 * A guess that is not the token of its place ends what is accepted. The entries after it stay as guesses.
 *
 * Rows aside share slots with nothing and are forgotten, so the cache has to keep keys and values by slot, for all
 * slots. Models with a recurrent state, with windowed layers or with latent attention are refused.
 */
#ifndef QUERN_DECODE_WEDLM_DRAFT_H
#define QUERN_DECODE_WEDLM_DRAFT_H

#include "decode/drafter.h"
#include "decode/wedlm_file.h"
#include "model/model.h"

/* Whether the model can have windows. QN_EUNSUP names what it lacks. mask: of its file; -1: none. */
int wedlm_draft_check(const struct model *m, qn_token mask, struct qn_error *e);
/* Bytes that wedlm_draft_new() takes from the ledger. */
size_t wedlm_draft_bytes(const struct model *m, int n_seqs);
/* For n_seqs sequences at a time. file: the token of masks and the parameters; copied. m, kt and l are borrowed until
 * the drafter is freed. QN_EUNSUP names what the model lacks. QN_ENOMEM: the ledger has no room, among other reasons.
 */
int wedlm_draft_new(struct drafter **out, const struct model *m, const struct kernels *kt,
                    const struct wedlm_file *file, int n_seqs, struct ledger *l, struct qn_error *e);

/* The masks that it has looked at, by wedlm_class(). [WEDLM_CLASSES] */
const uint64_t *wedlm_draft_entropies(const struct drafter *d);

#endif
