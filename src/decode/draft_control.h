/* SPDX-License-Identifier: MIT
 *
 * draft_control.h: decides how many drafted tokens of each answer become rows of a step.
 *
 * A drafted row brings a token with some probability, and makes the step longer by some time. Both are measured: how
 * often tokens of each drafter and class of sureness were right, and how long steps of so many rows took. The rows of a
 * step are chosen so that all answers together get the most tokens in a second, if that is clearly more than without
 * drafts. So drafts end by themselves where they fail, or where the rows of many answers fill the step.
 *
 * Proposals that became no rows are compared with the tokens that came, so a drafter that costs no time needs no
 * trials. One that does is tried again at intervals that double.
 *
 * Nothing here looks at a clock, allocates, or changes an answer: decisions depend on what was told before, and only
 * the time depends on decisions. One thread.
 *
 * A step with drafts, in order: draft_control_ask() for each answer and each drafter that costs time; propose();
 * draft_control_share(); the step; draft_control_saw() for each answer with proposals; draft_control_took().
 */
#ifndef QUERN_DECODE_DRAFT_CONTROL_H
#define QUERN_DECODE_DRAFT_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "decode/drafter.h"

#define DRAFT_KINDS  6  /* drafters that a controller tells apart, by numbers that the caller gives them */
#define DRAFT_POINTS 95 /* of a curve: each number of rows below 32, then eight for each doubling, up to 8191 */

/* How often tokens were right. Old ones count less. Zeroed: nothing is known. */
struct draft_rate {
    float n, n_right;
};

/* What is known of one answer's drafts. Zeroed at its beginning. */
struct draft_record {
    struct draft_rate rates[DRAFT_KINDS][DRAFT_CLASSES];
    struct draft_trial {
        uint32_t wait, pause; /* steps until the next trial; steps between the last two */
        uint32_t n_left;      /* steps of the trial under way that are left */
    } trials[DRAFT_KINDS];    /* of drafters that cost time and do not pay */
};

/* Times of steps as a function of their rows, relative to each other. */
struct draft_curve {
    float time[DRAFT_POINTS];     /* measured; 0: not yet */
    float expected[DRAFT_POINTS]; /* in between and beyond, too */
    uint32_t n[DRAFT_POINTS];     /* measurements */
    uint32_t step[DRAFT_POINTS];  /* the number of the step that was measured last */
};

struct draft_control {
    float usual[DRAFT_POINTS];         /* relative times that are believed until they are measured */
    struct draft_curve plain, drafted; /* steps without drafted rows, and with */
    double level_s;                    /* seconds of a step whose relative time is 1; 0: not known */
    uint32_t n_steps, refresh;         /* steps so far; those after which a plain step is measured again */
    int n_answers, most;               /* of the step that is being made; most: drafted rows that it may have */
    int n_aside;                       /* rows aside (drafter.h) of that step: set before draft_control_share() */
    int n_accepted;                    /* drafted tokens of the step that were right */
    double credit;                     /* relative time that drafts may lose */
    double won_s; /* seconds that steps with drafts have saved, by the account; less than 0: lost */
    double lent;  /* that of the last step's rows aside, which is taken out after this step */
    struct draft_rate rates[DRAFT_KINDS][DRAFT_CLASSES]; /* of all answers */
    double token_s[DRAFT_KINDS];                         /* what the drafter itself takes for a token; 0: nothing */
    struct {
        uint32_t next, pause; /* the step from which an answer may begin the next trial; steps between the last two */
    } tried[DRAFT_KINDS];     /* by all answers: drafters that cost time and pay for none of them */
};

/* One answer with proposals, in the step that is being made. */
struct draft_plan {
    struct draft_record *record;
    int kind;                /* the drafter that proposed */
    const uint8_t *sureness; /* [n] */
    int n;                   /* tokens proposed */
    int most;                /* rows that it may have, 0..n */
    int n_rows;              /* out: how many of the first tokens become rows, 0..most */
    double gain;             /* used while rows are shared out */
};

/* relative[i]: the time of a step of i + 1 rows, in units of one row's; [n] up to 31. It is believed until such a step
 * was measured. NULL: a usual curve. */
void draft_control_init(struct draft_control *c, const double *relative, int n);

/* Returns how many tokens a drafter that costs time should propose for an answer: 0..most. n_rows: rows of the step
 * without drafts, of which n_answers are of answers that could have drafts. other: proposals of another drafter that
 * the answer has already; NULL: none. 0 means: do not ask it in this step. Call it once for a step, answer and
 * drafter. */
int draft_control_ask(struct draft_control *c, struct draft_record *r, int kind, int n_rows, int n_answers, int most,
                      const struct draft_plan *other);

/* Returns false if the step of n_rows rows should be made without drafts and rows aside: to be measured, or because
 * drafts have lost too much. */
bool draft_control_may(const struct draft_control *c, int n_rows);

/* Sets n_rows of each plan. n_rows: rows of the step without drafts; n_answers: those of them that bring a token, at
 * least n; most: how many drafted rows there may be in all. Returns the sum of n_rows. */
int draft_control_share(struct draft_control *c, struct draft_plan *plans, int n, int n_rows, int n_answers, int most);

/* After the step: of the proposals of a plan, the first n_known have been compared with the tokens that came, and the
 * first n_right of them were equal: n_known is n_right + 1 where they differ, or n_right. The token drawn at the last
 * row is compared with a proposal that became no row, too. Call it for plans without rows as well, but not when the
 * answer ended in this step before a difference was seen: then n_known == n_right is right. */
void draft_control_saw(struct draft_control *c, const struct draft_plan *p, int n_known, int n_right);
/* The step had so many rows, n_drafted of them of drafts, and took so many seconds, from its first row to its last
 * token, without propose(). */
void draft_control_took(struct draft_control *c, int n_rows, int n_drafted, double seconds);
/* A drafter that was asked was not sure enough of any token. It cost time and brings nothing, as a wrong token does. */
void draft_control_unsure(struct draft_control *c, struct draft_record *r, int kind);
/* The drafter took so many seconds for n tokens: those it proposed, and those it was not sure of. n is 0 if it only
 * read what it had to read first: that costs time, but says nothing about the time of a token. */
void draft_control_drafted(struct draft_control *c, int kind, int n, double seconds);

/* The expected time of a step with n_drafted of its n_rows from drafts, relative to one plain row. For reports. */
double draft_control_cost(const struct draft_control *c, int n_rows, int n_drafted);
/* How probably a token of this class is right. r: of this answer, or NULL: of all. */
double draft_control_rate(const struct draft_control *c, const struct draft_record *r, int kind, int sureness);

#endif
