/* SPDX-License-Identifier: MIT
 *
 * row_costs.h: what passes of several rows cost, and how often guesses of tokens have to be right to pay for theirs.
 */
#ifndef QUERN_CLI_ROW_COSTS_H
#define QUERN_CLI_ROW_COSTS_H

#include <jansson.h>

#include "cli/measure/ceilings.h"
#include "engine/engine.h"

#define ROW_COSTS 10

/* Passes of 1 to 32 rows, which all want logits. */
struct row_costs {
    struct row_cost {
        int rows;
        double floor_s; /* the least time by the machine's ceilings */
        double s;       /* the median of the measured times; 0: not measured */
    } v[ROW_COSTS];
    int n;
};

/* How often each guess has to be right so that a pass with rows - 1 guesses of one answer, which takes so many times as
 * long as a pass of one row, brings as many tokens in a second. More than 1: it never does. */
double row_break_even(int rows, double times);
/* Prints that, after "; ". */
void row_print_break_even(int rows, double times);

/* The floors of all that the engine has room for at this depth. */
int row_costs_count(struct row_costs *r, const struct qn_engine *g, const struct ceilings *c, int depth,
                    struct qn_error *e);
/* The times: medians of `reps` passes each. */
int row_costs_measure(struct row_costs *r, struct qn_engine *g, int depth, int reps, struct qn_error *e);
void row_costs_print(const struct row_costs *r);
json_t *row_costs_json(const struct row_costs *r); /* the caller's */

#endif
