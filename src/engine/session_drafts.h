/* SPDX-License-Identifier: MIT
 *
 * session_drafts.h: drafts in the steps of a session.
 *
 * Guessed tokens become rows of the session's next pass. The rows are drawn from one after another, each in a call of
 * qn_session_step(), as if each had been a pass of its own. So while rows are left the session is ahead of its
 * timeline: the pass has computed keys, values and states of tokens that may never come. A draw that differs from the
 * next row's token ends that, and so does everything else that is asked of the engine (engine_settle): the rows that
 * did not come true are taken back.
 */
#ifndef QUERN_ENGINE_SESSION_DRAFTS_H
#define QUERN_ENGINE_SESSION_DRAFTS_H

#include "engine/drafters.h"
#include "engine/session.h"

struct session_drafts {
    struct drafters drafters;
    struct draft_seqs seqs;
    enum qn_draft draft;
    int most;              /* drafted rows of a pass */
    float *logits;         /* [most + 1][n_vocab] of the rows of the last pass */
    size_t bytes;          /* of the ledger, for logits */
    struct kv_seq *memory; /* the session's, which passes have a pointer to */
    int n_rows, row;       /* of the last pass; the row that is drawn from next. n_rows 0: the pass was settled */
    double seconds;        /* that it took, with the draws */
    uint64_t drawing_ns;   /* when the present draw began */
};

/* own NULL: the drafters that `draft` means. After a failure nothing has changed. */
int session_drafts_set(struct qn_session *s, enum qn_draft draft, const struct qn_model *model,
                       const struct drafters_own *own, struct qn_error *e);
void session_drafts_free(struct qn_session *s);
/* The timeline has become another one. */
void session_drafts_restart(struct qn_session *s);
/* The engine's last batch was the end of the timeline's evaluated tokens. */
void session_drafts_read(struct qn_session *s);
/* Evaluates the last token of the timeline, and drafts after it. */
int session_drafts_pass(struct qn_session *s, struct qn_error *e);
/* The logits that follow the timeline, if they are those of a row of the last pass; otherwise NULL. */
const float *session_drafts_logits(const struct qn_session *s);
/* A token is about to be drawn; it was drawn, and is in the timeline. */
void session_drafts_draw(struct qn_session *s);
void session_drafts_drawn(struct qn_session *s);

#endif
