/* SPDX-License-Identifier: MIT
 *
 * fim.h: the prompt for filling a gap in a text, in the order of tokens that the model was trained with.
 *
 *     most models             [REP] files [PRE] prefix [SUF] suffix [MID]
 *     Mistral ("[PREFIX]")    files [SUFFIX] suffix [PREFIX] prefix
 *
 * Sources: Bavarian et al. 2022, arXiv:2207.14255 (the orders); Hui et al. 2024, "Qwen2.5-Coder technical report",
 * arXiv:2409.12186 (other files before the text); Rozière et al. 2023, "Code Llama", arXiv:2308.12950 (no space before
 * the suffix); the documentation of Mistral's tokenizers.
 */
#ifndef QUERN_TEXT_FIM_H
#define QUERN_TEXT_FIM_H

#include <quern.h>

#include "text/token/vocab.h"

/* Makes the prompt that p describes (quern.h), which is valid. *ids becomes the caller's, to mem_free(). No text in p
 * becomes a control token. *was_cut (may be NULL): something was left out, so that the prompt has p->max_tokens.
 * QN_EUNSUP: the vocabulary has no tokens for it; QN_EFULL: not even the markers fit; QN_ECANCEL; QN_ENOMEM. */
int fim_encode(const struct vocab *v, const struct qn_infill *p, const struct qn_cancel *cancel, qn_token **ids,
               size_t *n_ids, bool *was_cut, struct qn_error *e);

#endif
