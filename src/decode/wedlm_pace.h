/* SPDX-License-Identifier: MIT
 *
 * wedlm_pace.h: decides how many masks an answer's window has in the next step.
 *
 * Masks make a step longer, and bring tokens in the next one. What they bring is measured for each answer: how often at
 * least 1, 2, 3, ... guesses in a row were right. What they cost says the controller of drafts (draft_control.h), which
 * measures steps. The window is the one with the most tokens in a second, or none if none is clearly better. It is
 * tried again at intervals that double, because a text can change. What all answers' windows brought is where a new
 * answer begins, and their intervals are where its own begin: otherwise many short answers would each pay for a trial.
 *
 * The first mask brings nothing: its step draws the token of its place anyway, at the row before it. So a window of n
 * masks brings n - 1 guesses at most.
 *
 * Nothing here looks at a clock, allocates, or changes an answer. One thread.
 */
#ifndef QUERN_DECODE_WEDLM_PACE_H
#define QUERN_DECODE_WEDLM_PACE_H

#include "decode/draft_control.h"
#include "decode/wedlm.h"

/* What is known of one answer's windows, or of all answers'. Zeroed: nothing. */
struct wedlm_pace {
    float missed[WEDLM_MOST]; /* how often fewer than i + 1 guesses in a row were right */
    uint32_t n_seen;          /* steps with a window, at most 255 */
    uint32_t wait, pause;     /* steps until the next trial; those between the last two. Of all answers: steps of any
                                 answer until a new one would try */
    uint32_t n_left; /* steps of the trial under way; of all answers: of the one that a new answer begins with */
};

/* The windows of an answer that begins. all: what is known of all answers' windows; it is copied. */
struct wedlm_pace wedlm_pace_begin(const struct wedlm_pace *all);

/* Returns the masks that the answer's window should have: 0, or 2..most. all: what is known of all answers' windows;
 * NULL: nobody asks. n_rows: rows of the step so far; tokens: what it brings so far, this answer's next token included.
 * Call it once for a step and answer. */
int wedlm_pace_choose(struct wedlm_pace *p, struct wedlm_pace *all, const struct draft_control *c, int n_rows,
                      double tokens, int most);
/* Guesses that a step with so many masks expects to be right in the next one. */
double wedlm_pace_gain(const struct wedlm_pace *p, int window);
/* The last step had a window of so many masks, and now the first n_right guesses after the answer's end were right.
 * Nothing is learnt from a step without masks. is_end: the next one was wrong, or there was none; otherwise it was not
 * compared. all: what is known of all answers' windows, which learns the same more slowly; NULL: nobody asks. */
void wedlm_pace_saw(struct wedlm_pace *p, struct wedlm_pace *all, int window, int n_right, bool is_end);

#endif
