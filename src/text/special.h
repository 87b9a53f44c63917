/* SPDX-License-Identifier: MIT
 *
 * special.h: finds the tokens that are recognised in raw text before any encoding.
 */
#ifndef QUERN_TEXT_SPECIAL_H
#define QUERN_TEXT_SPECIAL_H

#include "text/lexicon.h"
#include "text/origin.h"

struct special {
    const struct lexicon *lex; /* borrowed */
    qn_token *id;              /* [n] sorted by text */
    int32_t n;
    int32_t first[257]; /* id[first[b] .. first[b + 1]) begin with byte b */
};

/* Collects the control, unknown and user-defined tokens. To be deinitialised also after a failure. */
int special_init(struct special *s, const struct lexicon *lex, struct qn_error *e);
void special_deinit(struct special *s);

/* The first special token in text[from .. n), the longest where several begin; -1 when there is none. *at is where it
 * begins. A control token counts only where the template wrote all of its bytes; so does a user-defined one that o lists
 * as markup. */
qn_token special_next(const struct special *s, const char *text, size_t n, size_t from, const struct text_origin *o,
                      size_t *at);

#endif
