/* SPDX-License-Identifier: MIT
 *
 * room.h: the pages of the KV cache that running requests get, and give up for each other.
 *
 * A request is admitted when there are pages for its prompt and, as far as one can expect, for the answers of all that
 * run. Answers then take one page after the other. When no page is left, not even one of a cached prefix, an answer
 * gives way: it leaves its pages to the cache, keeps everything else, and is paused. It goes on when there is room
 * again, with what the cache still has of it. What the cache has lost is computed again, to the same bits.
 *
 * The answer that gives way is one of the lowest priority; among these, one of the identity with the largest share;
 * among these, the youngest. Answers that are paused go on in the opposite order, before requests that wait with the
 * same priority.
 */
#ifndef QUERN_ENGINE_ROOM_H
#define QUERN_ENGINE_ROOM_H

#include "engine/scheduler.h"

/* Before anything is known of the lengths of answers. */
void room_init(struct qn_scheduler *s);
/* A request has ended: its answers say how long others will be. */
void room_learn(struct qn_scheduler *s, const struct request *r);

/* Starts a waiting request, with the pages of its prompt. Answers of lower priority give way for them. QN_EFULL: there
 * is no room at present. */
int room_start(struct qn_scheduler *s, struct request *r, struct qn_error *e);
/* Call it when the request's answers have been forked. One that gets no page for its copy of the prompt's last page is
 * paused. */
void room_fork(struct qn_scheduler *s, struct request *r);
/* Gives every answer the page that its next row needs. Where none can be had, answers give way. An answer that still
 * has no page then waits until cached pages are on disk, for two seconds at most. */
void room_grow(struct qn_scheduler *s);
bool room_has_page(const struct qn_scheduler *s, const struct answer *a); /* for its next row */
/* Returns how many of the next n rows of an answer have window pages, which it gets for that; at least 1, unless
 * room_has_page() is false. */
int room_open(struct qn_scheduler *s, struct answer *a, int n);
/* Returns for how many of n drafted rows after an answer's next row there are pages. It takes pages for them only while
 * every answer could still get one more of the free ones. */
int room_draft(struct qn_scheduler *s, struct answer *a, int n);
/* Gives back the pages that drafted rows had, except for one with the next row. */
void room_undraft(struct answer *a);
/* Leaves what the finished answers of a running request hold to the cache. */
void room_collect(struct qn_scheduler *s, struct request *r);

/* A paused answer. No request: there is none. */
struct room_paused {
    struct request *request;
    int answer;
};
/* Returns the paused answer that goes on first. */
struct room_paused room_first_paused(const struct qn_scheduler *s);
/* Lets a paused answer go on. Returns false if there is no room at present. */
bool room_resume(struct qn_scheduler *s, struct room_paused p);
/* What was computed of all sequences is lost: pauses every answer that runs, and empties the cache. */
void room_lose(struct qn_scheduler *s);
/* Returns true if no step can have rows: nothing runs, or everything that runs is paused. */
bool room_is_quiet(const struct qn_scheduler *s);
/* Ends the pause of an answer that is about to go on or to end. Does nothing if it is not paused. */
void room_end_pause(struct qn_scheduler *s, struct request *r, int answer);
/* Rotates the context of an answer that is full. What remains is computed again, as far as it is not in the cache. */
void room_rotate(struct qn_scheduler *s, struct request *r, int answer);

#endif
