/* SPDX-License-Identifier: MIT
 *
 * chat_cut.h: finds the boundaries of a prompt: places where other prompts will probably differ from it.
 *
 * One boundary is after the first message, because many conversations share it when it is a system prompt. The other is
 * after the last message, before the template begins the model's turn: in the next request the template may write that
 * turn differently. A message ends before the first control token after it that does not end a turn.
 */
#ifndef QUERN_TEXT_CHAT_CUT_H
#define QUERN_TEXT_CHAT_CUT_H

#include "text/token/vocab.h"

#define CHAT_CUTS 2

/* text: a rendered prompt of n bytes with its origin; tokens: what it was encoded to. Sets cut[] to the number of
 * tokens before each boundary, ascending, at least 1. Returns how many boundaries there are. */
size_t chat_cuts(const struct vocab *v, const char *text, size_t n, const struct text_origin *o, const qn_token *tokens,
                 size_t n_tokens, int cut[CHAT_CUTS]);

#endif
