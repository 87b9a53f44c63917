/* SPDX-License-Identifier: MIT
 *
 * ahead.h: keeps what a person types or pastes while nobody reads, such as during a reply.
 *
 * Between ahead_start() and ahead_stop() a thread reads the terminal, shows nothing, and collects the bytes. Pastes
 * keep their brackets (paste.h). Where the terminal sets none, bytes that come together and have a line break in their
 * midst are a paste, and get brackets: so nothing that was pasted is sent before Enter. The keys that send signals do
 * so at once, outside of pastes, and the terminal's modes are restored while the program is stopped and before a signal
 * ends it.
 *
 * This module does not know how lines are edited.
 */
#ifndef QUERN_CLI_AHEAD_H
#define QUERN_CLI_AHEAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

#include "base/buf.h"
#include "cli/chat/signals.h"

#define AHEAD_MOST     ((size_t)16 << 20) /* bytes; more stays in the terminal */
#define AHEAD_BURST_MS 30                 /* bytes with shorter pauses came together */

struct ahead {
    bool runs;
    bool brackets; /* the terminal can be asked to bracket pastes */
    struct buf typed;
    struct termios before, mine; /* the terminal's modes outside and inside */
    struct signals signals;
    pthread_t thread;
    int stop[2];              /* a pipe whose end tells the thread to stop */
    size_t burst;             /* where the last bytes that came together begin */
    bool open, pasted;        /* more may come together with them; they have brackets */
    bool pasting;             /* between brackets */
    bool ended;               /* nothing more can be read */
    bool stopped;             /* a stop was asked for, and SIGCONT has not come */
    struct sigaction on_stop; /* what SIGTSTP does else */
};

/* Starts to collect. `before`: the modes to restore. Adds to a->typed, which the caller empties. On an error the
 * terminal's modes are `before`. */
int ahead_start(struct ahead *a, const struct termios *before, bool brackets, struct qn_error *e);
/* Stops, after the bytes that come together. The terminal's modes are `before` again; brackets stay on. */
void ahead_stop(struct ahead *a);

#endif
