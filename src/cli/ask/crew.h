/* SPDX-License-Identifier: MIT
 *
 * crew.h: pieces of a text, asked in several threads with a connection each, and their answers in order.
 *
 * The server computes what is asked at once in one step, which takes little longer than one piece. Memory is bounded:
 * at most CREW_PIECES are known at once.
 */
#ifndef QUERN_CLI_CREW_H
#define QUERN_CLI_CREW_H

#include <stdint.h>

#include "cli/place/answer_stream.h"

#define CREW_AT_ONCE 8
#define CREW_PIECES  16

struct crew;

struct crew_piece {
    uint64_t number, at; /* from 1; the offset in bytes of its text in the whole */
    struct buf text, answer;
    struct chat_result result;
    struct qn_error e;
    int rc; /* of asking */
};

/* Answers a piece at this place, into piece->answer. Several threads call it. 0 or an error, described in piece->e. */
typedef int crew_ask(void *arg, struct place *p, struct crew_piece *piece);
/* Takes the answer of a piece; in order, in the thread of the caller. 0 or an error. */
typedef int crew_take(void *arg, struct crew_piece *piece);

/* place, arg: borrowed. There are no threads before there are pieces. */
struct crew *crew_new(struct place *place, crew_ask *ask, crew_take *take, void *arg);
/* Adds the next piece, of which it makes a copy, and hands on the answers that are ready. It waits if there are too
 * many pieces. Non-zero: a piece failed, and crew_end() has to follow. */
int crew_put(struct crew *c, const char *text, size_t n);
/* Waits for all answers and hands them on; after a failure, only for those that were begun. Returns 0, or the error of
 * the first piece that failed in *failed, whose result and e are filled, and frees all. */
int crew_end(struct crew *c, struct crew_piece *failed);

#endif
