/* SPDX-License-Identifier: MIT
 *
 * drafters.h: the drafters of a scheduler or of a session, and what they propose for the sequences of one step.
 *
 * The owner fills in an offer for each sequence that has a row in the step, and calls drafters_ask() and
 * drafters_share(). The first n_rows proposed tokens of an offer's best plan then become rows. When their tokens are
 * known, drafters_compare() tells the controller how good all proposals were.
 *
 * One thread.
 */
#ifndef QUERN_ENGINE_DRAFTERS_H
#define QUERN_ENGINE_DRAFTERS_H

#include <stddef.h>

#include "decode/wedlm_file.h"
#include "decode/wedlm_pace.h"
#include "engine/engine.h"

#define DRAFT_ROWS 31 /* drafted rows of a step */

/* The drafters, in the order in which they are asked: the first ones cost no time. */
enum draft_kind {
    DRAFT_FORCED, /* a grammar's forced tokens; part of "ngram" */
    DRAFT_NGRAM,
    DRAFT_MTP,
    DRAFT_MODEL,
    DRAFT_WEDLM,
    DRAFT_OWN, /* of a test */
};

/* What one sequence has of drafters. Zeroed at its beginning. */
struct draft_seqs {
    void *of[DRAFT_KINDS]; /* the drafters' records of it; NULL: none */
    struct draft_record record;
    struct wedlm_pace pace;
    int window;                  /* masks that the window had in the last step */
    struct wedlm_params windows; /* of its windows; window 0: as the file says */
    int fixed_window;            /* masks that its windows always have; 0: the controller decides */
    int n_passes, n_drafted, n_accepted, n_rows, n_unverified; /* as in struct qn_usage */
};

/* The proposals for one sequence in the step that is being made. */
struct draft_offer {
    struct draft_seqs *seqs;
    const qn_token *tokens; /* [n_tokens] of the sequence, before the step */
    int n_tokens;
    int most;                             /* tokens that may be proposed */
    struct guide *guide;                  /* of the sequence's grammar, prepared; NULL: there is none */
    struct draft_plan plans[DRAFT_KINDS]; /* those that were not asked have n == 0 */
    int kind;                             /* of the plan that may have rows */
    qn_token proposed[DRAFT_KINDS][DRAFT_MOST];
    const qn_token *recorded; /* [n_recorded] the sequence's next tokens, if it is a replay */
    int n_recorded;
    qn_token instead[DRAFT_MOST];
    uint8_t sureness[DRAFT_KINDS][DRAFT_MOST];
    int window;                          /* masks that the sequence's window should have */
    struct draft_row aside[DRAFT_ASIDE]; /* [n_aside] rows after those of the drafts, which never stay */
    int n_aside;
    int n_fixed; /* rows of a window of a fixed size, while rows are shared out */
};

/* For measurements: in a replay, guess i of a drafter that computes its guesses (all but FORCED and NGRAM) is the
 * recorded token with the probability p[i] if those before it are right. The drafter works as always, and its guesses
 * are thrown away. */
struct drafts_right {
    float p[DRAFT_MOST];
    int n; /* a proposal has no more guesses, and further ones in a run of WEDLM's window are wrong; 0: guesses are the
              drafter's own */
};

struct drafters {
    struct drafter *of[DRAFT_KINDS]; /* owned; NULL: not there */
    struct draft_control control;
    struct wedlm_pace pace; /* of all sequences' windows */
    bool is_eager;          /* all proposed tokens become rows, as far as there is room: for tests */
    int window;             /* masks of each window, if is_eager */
    int most_window;        /* masks of a window, by the model's file; 0: not said */
    struct drafts_right right;
    int most;                      /* tokens of a proposal; 0: DRAFT_MOST */
    const struct wedlm_file *file; /* of a test; NULL: what the model's file says */
    int most_rows; /* of a step, drafted or aside: the windows of all offers are within it; 0: no windows */
    struct draft_offer *offers; /* [n_offers] of [n_places] */
    struct draft *calls;        /* [n_places] of one call of propose() */
    int *callers;               /* [n_places] their offers */
    struct draft_plan *plans;   /* [n_places] those that may have rows */
    int n_offers, n_places;
};

struct qn_scheduler;
struct step_part;

/* What a test or a measurement wants to be different. */
struct drafters_own {
    struct drafter *drafter; /* replaces those of the parameters; NULL: does not. It becomes the owner's if that can be
                                made, and stays the caller's otherwise */
    bool is_eager;
    int window; /* masks of each window, for a drafter with rows aside */
    int most;   /* tokens of a proposal, 0..DRAFT_MOST; 0: as many as are wanted */
    struct drafts_right right;
    const struct wedlm_file *file; /* of windows, instead of what the model's file says; NULL: that */
    /* Sees the rows of each unverified window (struct step_part) and the logits of its masks. NULL: nobody does. */
    void (*watch)(const struct qn_scheduler *s, const struct step_part *p, const float *logits);
};

/* Room for n_places offers. own NULL: drafters_make() makes the drafters. Call drafters_deinit() after a failure,
 * too. */
int drafters_init(struct drafters *d, int n_places, const struct drafters_own *own, struct qn_error *e);
/* Makes the drafters that `draft` means, in the budget of the engine. model: for MODEL and AUTO; NULL: none. QN_EUSAGE,
 * QN_EUNSUP: one that is named cannot be there. QN_ENOMEM: there is no room for one that is named. */
int drafters_make(struct drafters *d, struct qn_engine *g, enum qn_draft draft, const struct qn_model *model,
                  struct qn_error *e);
/* Returns the bytes that they take from the ledger, for n_places sequences. */
uint64_t drafters_bytes(const struct model *m, const struct qn_engine_params *engine, enum qn_draft draft,
                        const struct qn_model *model, int n_places);
void drafters_deinit(struct drafters *d);

/* The drafter that `draft` names, and whether a request for `asked` may have those of a kind. */
enum qn_draft drafters_name(int kind);
bool drafters_may(enum qn_draft asked, int kind);

/* Opens the records of a sequence of at most max_tokens. A drafter without room for it has none. */
void drafters_open(struct drafters *d, struct draft_seqs *s, enum qn_draft asked, uint64_t identity, int max_tokens);
void drafters_close(struct drafters *d, struct draft_seqs *s);

/* Adds an offer with the members that follow and returns it. The others are set by the functions below, but for
 * recorded, which is for the caller. */
struct draft_offer *drafters_offer(struct drafters *d, struct draft_seqs *s, const qn_token *tokens, int n_tokens,
                                   int most, struct guide *guide);
/* Asks the drafters for proposals. */
void drafters_ask(struct drafters *d);
/* The most rows of plans[i], for a pass that takes back rows of recurrent states; returns `most` or less. */
int drafters_limit(struct drafters *d, const struct qn_engine *g, int most);
/* Shares out at most `most` rows: shortens the rows aside of each offer i, and sets its plans[i].n_rows. */
void drafters_share(struct drafters *d, int most);
/* Returns true if drafters of this kind are there and have rows aside. */
bool drafters_have_aside(const struct drafters *d, int kind);
/* Shows the drafters of a sequence, which now has n_tokens tokens, the n rows aside that had logits. */
void drafters_look(struct drafters *d, struct draft_seqs *s, const qn_token *tokens, int n_tokens,
                   const struct draft_look *looks, int n);
/* The sequence of the offer has n_tokens tokens now. */
void drafters_compare(struct drafters *d, const struct draft_offer *o, const qn_token *tokens, int n_tokens);
/* Row row + i of the last pass, 0 <= i < n, stays, and was the token at position from + i. */
void drafters_absorb(struct drafters *d, struct draft_seqs *s, int row, int from, int n);

#endif
