/* SPDX-License-Identifier: MIT
 *
 * special.h: finds special tokens in raw text, before any encoding.
 */
#ifndef QUERN_TEXT_SPECIAL_H
#define QUERN_TEXT_SPECIAL_H

#include "text/token/lexicon.h"
#include "text/token/origin.h"

struct special {
    const struct lexicon *lex; /* borrowed */
    qn_token *id;              /* [n] sorted by text */
    int32_t n;
    int32_t first[257]; /* id[first[b] .. first[b + 1]) begin with byte b */
};

/* Collects the control, unknown and user-defined tokens of lex, which must outlive *s. Call special_deinit() also after
 * a failure. QN_EDATA: a special token is too long; QN_ENOMEM. Immutable afterwards. */
int special_init(struct special *s, const struct lexicon *lex, struct qn_error *e);
void special_deinit(struct special *s);

/* Returns the first special token in text[from .. n), the longest where several begin, and sets *at to its place; -1,
 * and *at = n, when there is none. A control token counts only where the template wrote all of its bytes. The same
 * holds for a user-defined token that o lists as markup. Tokens in o->allowed always count. */
qn_token special_next(const struct special *s, const char *text, size_t n, size_t from, const struct text_origin *o,
                      size_t *at);

#endif
