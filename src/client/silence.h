/* SPDX-License-Identifier: MIT
 *
 * silence.h: tells a server that hangs from one that has nothing to say, on a connection of its own. Used by client.c.
 */
#ifndef QUERN_CLIENT_SILENCE_H
#define QUERN_CLIENT_SILENCE_H

#include "base/error.h"

enum silence {
    SILENCE_ALIVE,     /* it answers, or something came on fd meanwhile */
    SILENCE_DEAD,      /* it does not answer in time */
    SILENCE_CANCELLED, /* cancel_fd became readable */
};

/* Asks the server on a Unix socket for /health, and waits at most wait_ms for the end of an answer, which may be of any
 * kind. A server that accepts no more connections lives, too: it may be ending, with our request as its last. */
enum silence silence_ask(const char *path, int fd, int cancel_fd, int wait_ms);

/* Says that the server was silent for silence_ms. Returns QN_EIO. */
int silence_error(const char *path, int silence_ms, struct qn_error *e);

#endif
