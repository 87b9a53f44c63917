/* SPDX-License-Identifier: MIT
 *
 * signals.h: makes signals something that poll() can wait for.
 *
 * A signal handler may do very little, so it writes the number of the signal into a pipe, and poll() sees that. A
 * catch replaces the one before it until it is released. Signals of the outer catch that the inner one does not name
 * stay with the outer one.
 *
 * This module does not decide what a signal means.
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
    int pipe[2], outer; /* outer: the pipe of the catch before this one */
};

/* From here on these signals (the list ends with 0) come through s->fd. An ignored signal stays ignored. For the
 * main thread only. QN_EIO. */
int signals_catch(struct signals *s, const int *numbers, struct qn_error *e);
/* The next signal that has come; 0: none. */
int signals_take(struct signals *s);
/* Restores the state before the catch. Signals that were not taken are lost. */
void signals_release(struct signals *s);

#endif
