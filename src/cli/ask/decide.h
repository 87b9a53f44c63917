/* SPDX-License-Identifier: MIT
 *
 * decide.h: answers that are a decision: yes or no (--yes), or one of some texts (--choose).
 *
 * The server lets the model write nothing but the choices, and the decision is greedy. The instruction ends with the
 * choices, because a model does not see what it may write. The exit status is like that of grep.
 */
#ifndef QUERN_CLI_DECIDE_H
#define QUERN_CLI_DECIDE_H

#include "cli/ask/ask_run.h"

enum { DECIDE_YES = 0, DECIDE_NO = 1, DECIDE_FAILED = 2 }; /* exit statuses */

/* Whether a decision is asked for. */
bool decide_is_asked(const struct ask_options *o);
/* Adds the choices to the instruction. */
int decide_instruct(struct ask_run *a, struct qn_error *e);
/* Refuses an answer that is none of the choices: it was cut, or the server knows no choices. QN_EDATA. */
int decide_check(const struct ask_run *a, const struct buf *answer, const struct chat_result *r, struct qn_error *e);
/* Asks and writes the decision. Returns DECIDE_YES (also for --choose), DECIDE_NO, or the status of a failure, after a
 * message. */
int decide_answer(struct ask_run *a, json_t *request);
/* The exit status of the program for that of a decision or a failure. */
int decide_status(int status);

#endif
