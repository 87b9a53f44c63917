/* SPDX-License-Identifier: MIT
 *
 * drafts.h: drafts of the next tokens of running answers, which become rows of a step.
 *
 * In each step the drafters (decode/drafter.h) propose what comes next, and the controller (decode/draft_control.h)
 * decides how many of the proposed tokens become rows. The model's own draw at each row is what the answer gets, in the
 * order of the rows, up to and including the first draw that is not the token of the next row. The rows after it are
 * forgotten. So text, logprobs and usage are those of plain decoding, to the bit.
 *
 * The drafter `wedlm` also has rows aside, after the drafted ones: masks that the pass fills. No row of the answer sees
 * them. They count as drafted rows wherever rows are limited.
 *
 * Drafts cost others nothing: they take pages only while every answer could have one more, they give back those that
 * they did not need, no step has more drafted rows than there is room for, and steps with rows of prompts have none.
 *
 * All functions belong to the scheduler's thread.
 */
#ifndef QUERN_ENGINE_DRAFTS_H
#define QUERN_ENGINE_DRAFTS_H

#include <stdatomic.h>

#include "engine/drafters.h"

struct qn_scheduler;
struct request;

struct drafts {
    struct drafters drafters;
    int most; /* drafted rows of a step; 0: there are no drafters */
    struct draft_place {
        struct request *request;
        int answer;
    } * places;               /* [drafters.n_places] the answers of the offers, in the order of the running ones */
    int32_t *n_accepted;      /* [drafters.n_places] */
    struct draft_look *looks; /* [DRAFT_ASIDE] of one answer */
    int n_taken;
    double seconds;  /* that the drafters took in this step */
    double settle_s; /* the same of drafts_settle() */
    struct drafts_sums {
        double all_s;     /* of all steps that could have drafts */
        double spent_s;   /* in the functions of this file */
        double won_s;     /* as in struct draft_control */
    } sums;               /* guarded by the scheduler's mutex */
    _Atomic size_t bytes; /* that they have of the ledger */
};

/* Makes room for drafts, if the parameters name drafters, or for own. */
int drafts_init(struct qn_scheduler *s, const struct qn_scheduler_params *p, const struct drafters_own *own,
                struct qn_error *e);
/* Makes the drafters, after everything else has taken its memory. QN_EUSAGE, QN_EUNSUP: one that is named cannot be
 * there. */
int drafts_make(struct qn_scheduler *s, const struct qn_scheduler_params *p, struct qn_error *e);
/* Returns the drafted rows that a step can have, and the bytes that the drafters take. */
int drafts_rows(const struct qn_scheduler_params *p);
uint64_t drafts_bytes(const struct model *m, const struct qn_engine_params *engine,
                      const struct qn_scheduler_params *p);
/* QN_EUSAGE: the scheduler does not have the drafter that the request names. */
int drafts_check(const struct qn_scheduler *s, enum qn_draft draft, struct qn_error *e);
void drafts_deinit(struct qn_scheduler *s);

/* Opens the records of an answer that begins to run. An answer for which there is no room has no drafts. */
void drafts_open(struct qn_scheduler *s, struct request *r, int answer);
/* Closes the records of all answers of a request. */
void drafts_close(struct qn_scheduler *s, struct request *r);
/* Opens the records of an answer again, whose tokens are no longer those that it had. */
void drafts_open_again(struct qn_scheduler *s, struct request *r, int answer);

/* Forgets what sequences have said, but not what open ones go on with. */
void drafts_empty(struct qn_scheduler *s);
/* Asks the drafters about the answers that have a row in the step, which is about to be gathered. */
void drafts_propose(struct qn_scheduler *s);
/* Returns the drafts of an answer, whose pages are there: plans[kind].n_rows tokens become rows after its next one, and
 * n_aside rows come after them. NULL: it has none. Call it once for each answer, in the order of the running ones. */
const struct draft_offer *drafts_take(struct qn_scheduler *s, const struct request *r, int answer);
/* After the results were taken: lets the rows go that do not stay (step_part.n_kept), and tells drafters and the
 * controller what came. */
void drafts_settle(struct qn_scheduler *s);
/* The same for a step that was abandoned. */
void drafts_forget(struct qn_scheduler *s);
/* The step took so many seconds, without those of the drafters. */
void drafts_took(struct qn_scheduler *s, double seconds);

#endif
