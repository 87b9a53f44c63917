/* SPDX-License-Identifier: MIT
 *
 * worker.h: a thread that runs jobs one after another, for a thread that must not wait for disk or network itself.
 *
 * A job belongs to the worker from worker_post() until worker_is_done() or a wait says that it is done. The job
 * sees everything that was written before the post. A thread that was told that the job is done sees everything that
 * the job wrote.
 */
#ifndef QUERN_BASE_WORKER_H
#define QUERN_BASE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* The first member of a struct that holds all that the job needs. The poster owns it. */
struct worker_job {
    struct worker_job *next; /* the worker's */
    void (*run)(struct worker_job *job);
    bool is_done;
};

struct worker;

/* Starts a thread in which all signals are blocked. name: the thread's name, at most 15 bytes. QN_ENOMEM: no thread can
 * be started. */
int worker_new(struct worker **out, const char *name, struct qn_error *e);
void worker_free(struct worker *w); /* first runs all jobs that were posted. NULL is fine */
void worker_post(struct worker *w, struct worker_job *job);
bool worker_is_done(struct worker *w, const struct worker_job *job);
void worker_wait(struct worker *w, const struct worker_job *job);
/* The same, up to a time of clock_ns(). Returns whether it is done. */
bool worker_wait_until(struct worker *w, const struct worker_job *job, uint64_t ns);

#endif
