/* SPDX-License-Identifier: MIT
 *
 * states.h: recurrent states during a pass, and how a pass or some of its rows are taken back.
 *
 * A pass changes recurrent states as it goes. The states of sequences with held rows are copied before the pass, and so
 * are all states before a pass that may be abandoned. The inputs of held rows to the recurrence are kept, too, so that
 * the rows that stay can be run again from the copy without any matrix.
 */
#ifndef QUERN_MODEL_PASS_STATES_H
#define QUERN_MODEL_PASS_STATES_H

#include "base/region.h"
#include "model/pass/batch.h"
#include "model/model.h"
#include "model/pass/rows.h"

#define PASS_MAX_HELD 32 /* held rows of a pass */

/* A run of consecutive batch rows of one sequence, as long as possible. */
struct state_span {
    int row, n, seq;
    int saved;   /* number of the copy of the sequence's state; -1: there is none, or an earlier span has it */
    int kept;    /* the first row's place among the held rows; -1: the span's rows are not held */
    int n_again; /* rows that are run again from the copy */
};

/* For models without a recurrent state everything is 0. */
struct states {
    int max_seqs; /* copies that there is room for */
    struct region undo;
    uint8_t *saved;   /* in undo: [max_seqs] states */
    struct rows kept; /* in undo: [recurrent layers][PASS_MAX_HELD] inputs to the recurrence */

    /* of the pass in progress */
    struct state_span *spans;
    int n_spans, n_saved, n_kept;
};

/* Bytes that states_open() allocates. */
size_t states_bytes(const struct model *m, int max_seqs);
int states_open(struct states *s, const struct model *m, int max_seqs, struct qn_error *e);
void states_close(struct states *s);
/* The spans of a batch of n rows. */
void states_cut(struct cutter *c, int n, struct states *s);

/* Lists the batch's spans and decides which states are copied. Clears *can_stop if the pass cannot be abandoned: its
 * states have no room, or each sequence has a single row, and a copy would cost more than the rest of the pass. */
void states_survey(struct states *s, const struct batch *b, bool has_state, bool *can_stop);
/* Sets n_again of each span so that of the held rows of sequence seq the first n_accepted[seq] stay. False if all of
 * them stay, and nothing has to be run again. */
bool states_accept(struct states *s, const int32_t *n_accepted);
/* The held rows of the last pass can no longer be taken back. */
void states_forget(struct states *s);

#endif
