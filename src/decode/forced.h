/* SPDX-License-Identifier: MIT
 *
 * forced.h: a drafter that proposes what a grammar leaves no choice about: names, punctuation, the only word of an
 * enumeration.
 *
 * The bytes are forced, but several tokens may begin them. The longest one is proposed, because that is how a
 * tokenizer mostly writes a text.
 */
#ifndef QUERN_DECODE_FORCED_H
#define QUERN_DECODE_FORCED_H

#include "decode/drafter.h"

int forced_new(struct drafter **out, struct qn_error *e);

#endif
