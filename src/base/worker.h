/* SPDX-License-Identifier: MIT
 *
 * worker.h: a thread that runs jobs one after another, for a thread that must not wait for what they wait for.
 *
 * A job belongs to the worker from worker_post() until worker_is_done() or worker_wait() says that it is done. What was
 * written before the post is seen by the job, and what the job wrote by who has been told that it is done.
 */
#ifndef QUERN_BASE_WORKER_H
#define QUERN_BASE_WORKER_H

#include <stdbool.h>

#include "base/error.h"

/* The first member of a struct with what the job needs. */
struct worker_job {
    struct worker_job *next;
    void (*run)(struct worker_job *job);
    bool is_done;
};

struct worker;

/* name: of the thread, at most 15 bytes. All signals are blocked in it. QN_ENOMEM when a thread cannot be had. */
int worker_new(struct worker **out, const char *name, struct qn_error *e);
void worker_free(struct worker *w); /* runs what was posted first. NULL is fine */
void worker_post(struct worker *w, struct worker_job *job);
bool worker_is_done(struct worker *w, const struct worker_job *job);
void worker_wait(struct worker *w, const struct worker_job *job);

#endif
