/* SPDX-License-Identifier: MIT
 *
 * guide.h: which tokens one answer may have next, when it has a grammar.
 *
 * A continued text follows its grammar from its first token. A reply to a conversation may have other parts, which
 * stay free: thoughts come before the text, and a tool call may take its place. A guide follows the tokens of an answer
 * through these parts:
 *
 *     START      the first token of the text comes next, or a mark that begins thoughts or a call. After thoughts one
 *                token of line feeds may come first
 *     MARK       the rest of such a mark, if it is not a single token
 *     THOUGHTS   up to the mark that ends them: any token, except those that end the answer
 *     HEAD BODY  the same for the heads of messages, and for the texts of the channel `analysis` (gpt-oss)
 *     TEXT       what the grammar allows
 *     FREE       a call, and what follows it: any token
 *
 * A grammar of tool calls (calls.h) has the calls and the channels in it, and so it has no HEAD, BODY and FREE.
 *
 * The tokens taken so far decide all of it, so a guide that was kept and one that takes the same tokens again are
 * equal.
 *
 *     guide_new(&g, shelved, vocab, n_vocab, &start, &e);
 *     guide_prepare(g, 0);                        may take long; in any thread, but in one at a time
 *     mask = guide_mask(g);                       of the next token
 *     guide_take(g, token);                       then guide_prepare() again
 */
#ifndef QUERN_GRAMMAR_GUIDE_H
#define QUERN_GRAMMAR_GUIDE_H

#include "grammar/shelf.h"
#include "text/chat/chat_reply.h"

#define GUIDE_FORCED 32 /* tokens that guide_forced() finds at most */

/* The place where a reply begins. */
struct guide_start {
    const struct chat_form *form; /* of the replies; copied */
    enum chat_begins begins;
    bool has_tools;
    bool is_silent;     /* thoughts are switched off: none begin */
    const char *prompt; /* [n_prompt] its text */
    size_t n_prompt;
};

struct guide;

/* Makes a guide at the beginning of an answer. n_vocab: tokens that have logits, at least those of the vocabulary.
 * start NULL: the text begins with the first token. *out is the caller's, to guide_free(). It is one more user of the
 * grammar. It waits for the grammar's lock. QN_EUNSUP: a call has no mark, so it could not be told
 * from the text; QN_ENOMEM. */
int guide_new(struct guide **out, struct shelved *grammar, const struct vocab *v, int n_vocab,
              const struct guide_start *start, struct qn_error *e);
/* Frees a guide; NULL is fine. It waits for the grammar's lock, */
void guide_free(struct guide *g);
bool guide_try_free(struct guide *g); /* and this does not: false if another thread has it. Nothing is freed then */

/* Finds out which tokens may come next. Afterwards guide_is_ready(). */
void guide_prepare(struct guide *g);
/* The same with little work, and without waiting for another thread. Returns false if that was not enough. */
bool guide_try_prepare(struct guide *g);
bool guide_is_ready(const struct guide *g);
/* The failure of the last preparation: 0, or its code. QN_EDATA: no token fits; QN_EUNSUP: it is too complex. */
int guide_failed(const struct guide *g, struct qn_error *e);
/* The tokens that may come next, a bit for each of n_vocab, until the next call. NULL: all of them. */
const uint64_t *guide_mask(const struct guide *g);
/* Tokens that can only be followed by one text. */
struct guide_forced {
    struct guide_forced_token {
        qn_token token;
        bool is_only; /* no other token may come here */
        bool is_last; /* the forced text ends with it, so a longer token may come as well */
    } tokens[GUIDE_FORCED];
    int n;
};
/* Finds at most `most` tokens, from the next one on, that spell the bytes which have to come: always the longest token
 * that fits. They are the likely ones, and seldom the only ones. None: there is a choice, or finding out would take
 * long. The guide has to be ready. The grammar may grow within its memory, as for a mask. */
void guide_forced(struct guide *g, int most, struct guide_forced *out);
/* Makes the error of a draw for which the mask left no token with a probability, and returns its code. are_banned: the
 * request has banned tokens; if not, all of them are NaN. */
int guide_nothing_left(const struct guide *g, bool are_banned, struct qn_error *e);
/* Takes the next token of the answer, which is one of the mask's. An end of the answer is not taken. */
void guide_take(struct guide *g, qn_token token);

#endif
