/* SPDX-License-Identifier: MIT
 *
 * chat_cut.h: where in a prompt other prompts will probably go on in another way: its boundaries.
 *
 * Behind the first message, which others share when it is a system prompt, and behind the last one, before the template
 * says that it is the model's turn: a template may write the model's turn in another way once it is over. A message
 * ends before the first control token behind it that does not end a turn.
 */
#ifndef QUERN_TEXT_CHAT_CUT_H
#define QUERN_TEXT_CHAT_CUT_H

#include "text/vocab.h"

#define CHAT_CUTS 2

/* tokens: what the n bytes of text became. cut: numbers of tokens before a boundary, ascending, at least 1. Returns how
 * many there are. */
size_t chat_cuts(const struct vocab *v, const char *text, size_t n, const struct text_origin *o, const qn_token *tokens,
                 size_t n_tokens, int cut[CHAT_CUTS]);

#endif
