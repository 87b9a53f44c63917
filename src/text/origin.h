/* SPDX-License-Identifier: MIT
 *
 * origin.h: who wrote which bytes of a text: the chat template, which is trusted, or a user.
 *
 * Only the template may write the tokens that steer a model. What it makes is one text all the same, for words are cut
 * and merged across these borders; so a text goes around together with a list of ranges.
 */
#ifndef QUERN_TEXT_ORIGIN_H
#define QUERN_TEXT_ORIGIN_H

#include <stddef.h>

#include <quern.h>

struct text_span {
    size_t at, n; /* bytes */
};

struct text_origin {
    const struct text_span *user; /* [n_user] untrusted ranges: ascending, apart, not empty */
    size_t n_user;
    const qn_token *markup; /* [n_markup] user-defined tokens that, as control tokens, only the template may write */
    size_t n_markup;
};

#endif
