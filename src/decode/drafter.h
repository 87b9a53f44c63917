/* SPDX-License-Identifier: MIT
 *
 * drafter.h: the interface of what guesses the next tokens of sequences.
 *
 * A drafter proposes; it never decides. The tokens it proposes become rows of the ordinary step, and the model's own
 * draw at each row is what the answer gets. A proposal that differs from the draw ends there. So a drafter changes when
 * tokens come, never which.
 *
 * All calls to one drafter come from one thread, between steps. In each step: propose(), the pass, look() and absorb().
 */
#ifndef QUERN_DECODE_DRAFTER_H
#define QUERN_DECODE_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define DRAFT_MOST    31 /* tokens in one proposal */
#define DRAFT_CLASSES 8  /* how sure a drafter may be of a token */
#define DRAFT_ASIDE   32 /* rows aside of one sequence */

/* A row that a drafter asks for in addition to those of its proposal. It is computed after them, its key and value are
 * forgotten after the pass, and no row of the answer sees it. */
struct draft_row {
    qn_token token;
    int32_t pos;   /* its logical position, within the sequence's longest length */
    bool is_asked; /* the drafter wants to see its logits */
};

/* What came of a row aside whose logits were asked for. */
struct draft_look {
    int32_t pos;
    const float *logits; /* [n_vocab] */
    qn_token token;      /* drawn from them as the answer draws a token at this position; -1: none can be */
};

struct guide;
struct wedlm_params;

/* One sequence's part in a call of propose(). */
struct draft {
    void *seq;              /* the drafter's record of the sequence, from open() */
    const qn_token *tokens; /* [n_tokens] the whole sequence; no row has been computed for the last token yet */
    int n_tokens;
    int most;           /* 0..DRAFT_MOST tokens are wanted; 0: only learn the new tokens */
    qn_token *proposed; /* [most] out */
    uint8_t *sureness;  /* [most] out: 0..DRAFT_CLASSES-1 of each token, rising. What a class is worth is measured */
    int n;              /* out: tokens proposed, 0..most */
    bool is_unsure;     /* out: it looked for one, but proposes none, because none is probable enough */
    const qn_token *instead; /* [most] for measurements: what it proposes, whatever it guessed; NULL: its guesses */
    struct guide *guide;     /* of the sequence's grammar, ready for the next token; NULL: there is none */
    int window;              /* rows aside with logits that are wanted; 0: none */
    const struct wedlm_params *windows; /* of the sequence's windows; NULL: as the drafter was made */
    struct draft_row *aside;            /* [DRAFT_ASIDE] out; used if the type has look() */
    int n_aside;                        /* out */
};

struct drafter;

struct drafter_type {
    const char *name; /* as in --draft and in reports: "ngram", "mtp", "model", "wedlm" */
    /* Makes the record of a new sequence of at most max_tokens. identity: who it belongs to; what one identity's
     * sequences say is never proposed to another. QN_ENOMEM: there is no room; the sequence goes on without drafts. */
    int (*open)(struct drafter *d, uint64_t identity, int max_tokens, void **seq, struct qn_error *e);
    void (*close)(struct drafter *d, void *seq); /* NULL is fine */
    /* Fills in the proposals for n sequences. A sequence's tokens only grow at their end between two calls, so those
     * beyond the last call's n_tokens are new. Proposals of the last call may have become tokens, or not. */
    void (*propose)(struct drafter *d, struct draft *drafts, int n);
    /* NULL: not needed. After a pass, when rows of drafts were accepted or taken back: row `row + i` of the pass,
     * 0 <= i < n, was the token at position from + i of the sequence, and stays. For pieces of prompts, too. A sequence
     * may also grow without it: by what was found in a cache, or before its record was opened. */
    void (*absorb)(struct drafter *d, void *seq, int row, int from, int n);
    /* NULL: it has no rows aside. After a pass with some: the sequence now has these tokens, and the first n of the
     * rows that were asked for had logits. Logits are borrowed for the call. */
    void (*look)(struct drafter *d, void *seq, const qn_token *tokens, int n_tokens, const struct draft_look *looks,
                 int n);
    void (*free)(struct drafter *d);
};

/* The class of a token to which a drafter gives the probability p. The classes are finer where p is high, because a
 * chain of tokens needs each of them to be right. What a class is worth is measured, so these bounds only group. */
static inline uint8_t draft_class(float p)
{
    static const float least[DRAFT_CLASSES] = {0, 0.2f, 0.35f, 0.5f, 0.65f, 0.78f, 0.89f, 0.97f};
    uint8_t class = DRAFT_CLASSES - 1;
    while (class > 0 && !(p >= least[class])) class --; /* NaN: 0 */
    return class;
}

/* The beginning of each drafter. */
struct drafter {
    const struct drafter_type *type;
};

#endif
