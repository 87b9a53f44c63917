/* SPDX-License-Identifier: MIT
 *
 * rank_prompt.h: the prompt by which a model says whether a document answers a query.
 *
 * Source: the model card of Qwen3-Reranker; llama.cpp's converter writes it into files as
 * tokenizer.chat_template.rerank.
 */
#ifndef QUERN_TEXT_RANK_PROMPT_H
#define QUERN_TEXT_RANK_PROMPT_H

#include "text/token/vocab.h"

/* Makes the prompt from the file's template, in which {query} and {document} stand for the texts, or from Qwen's if the
 * file has none. Only the template may write control tokens. *ids becomes the caller's, to mem_free(). QN_EDATA: the
 * template has no place for one of the texts, or more than eight places; QN_ECANCEL; QN_ENOMEM. */
int rank_prompt_encode(const struct vocab *v, const struct weights *w, struct str query, struct str document,
                       const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e);

#endif
