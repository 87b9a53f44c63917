/* SPDX-License-Identifier: MIT
 *
 * special.h: finds the tokens that are recognised in raw text before any encoding.
 */
#ifndef QUERN_TEXT_SPECIAL_H
#define QUERN_TEXT_SPECIAL_H

#include "text/lexicon.h"

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
 * begins. Without `control` only user-defined tokens count. */
qn_token special_next(const struct special *s, const char *text, size_t n, size_t from, bool control, size_t *at);

#endif
