/* SPDX-License-Identifier: MIT
 *
 * signals.h: signals as something to wait for, beside other descriptors.
 *
 * A handler may do next to nothing, so it writes the signal's number into a pipe; who waits in poll() sees it there.
 * A catch stands in place of the one before until it is released: signals of the outer one that the inner one does not
 * name stay with the outer one.
 *
 * Does not decide what a signal means.
 */
#ifndef QUERN_CLI_SIGNALS_H
#define QUERN_CLI_SIGNALS_H

#include <signal.h>

#include "base/error.h"

#define SIGNALS_MOST 8

struct signals {
    int fd; /* readable when a signal has come; borrowed */
    int n, number[SIGNALS_MOST];
    struct sigaction before[SIGNALS_MOST];
    int pipe[2], outer; /* outer: where the catch before this one writes */
};

/* From now on these signals (ended by 0) come through s->fd. One that was ignored stays ignored. QN_EIO. For the main
 * thread only. */
int signals_catch(struct signals *s, const int *numbers, struct qn_error *e);
/* The next one that has come; 0: none. */
int signals_take(struct signals *s);
/* As before the catch; what was not taken is forgotten. */
void signals_release(struct signals *s);

#endif
