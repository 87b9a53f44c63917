/* SPDX-License-Identifier: MIT
 *
 * origin.h: which bytes of a text the chat template wrote, which is trusted, and which ones a user wrote.
 *
 * Only the template may write the tokens that steer a model. Its output is still encoded as one text, because words are
 * cut and merged across the borders of origin. So a text is passed on together with a list of ranges.
 */
#ifndef QUERN_TEXT_ORIGIN_H
#define QUERN_TEXT_ORIGIN_H

#include <stddef.h>

#include <quern.h>

struct text_span {
    size_t at, n; /* bytes */
};

struct text_origin {
    const struct text_span *user; /* [n_user] untrusted ranges: ascending, not touching, not empty */
    size_t n_user;
    const qn_token *markup; /* [n_markup] user-defined tokens that only the template may write, like control tokens */
    size_t n_markup;
    const qn_token *allowed; /* [n_allowed] control tokens that a user may write, too */
    size_t n_allowed;
};

#endif
