/* SPDX-License-Identifier: MIT
 *
 * masks.c: the masks of answers with a grammar, made between the draw of one token and the pass for the next one. See
 * scheduler.h.
 *
 * Most masks take a few microseconds, so the scheduler's thread makes them itself, with a limit of less than a
 * millisecond for each. A mask that needs more is made by a thread for all of them. Until then its answer misses steps,
 * and the others do not wait. The bits of an answer do not depend on the steps that it misses.
 *
 * A grammar is used by one thread at a time. Where the other thread has it, the scheduler's thread does not wait for
 * its lock, but leaves the work to that thread.
 */
#include "engine/scheduler.h"

#include "base/os.h"

#define WAIT_NS 2000000 /* then the scheduler looks after new requests, cancels and deadlines */

static void run_job(struct worker_job *job) { guide_prepare(((struct guide_job *)job)->guide); }

static bool is_posted(struct qn_scheduler *s, struct guide_job *j)
{
    if (j->is_posted && worker_is_done(s->masks, &j->job)) j->is_posted = false;
    return j->is_posted;
}

/* Leaves a guide to the other thread. If that cannot be started, it is prepared here. */
static void post(struct qn_scheduler *s, struct guide_job *j)
{
    if (!s->masks && worker_new(&s->masks, "masks", NULL)) {
        guide_prepare(j->guide);
        return;
    }
    j->job.run = run_job;
    j->is_posted = true;
    worker_post(s->masks, &j->job);
}

/* Frees guides of requests that have ended, as far as the other thread has let go of them. */
static void free_retired(struct qn_scheduler *s)
{
    for (struct guide_job **at = &s->retired, *j; (j = *at);) {
        if (is_posted(s, j) || !guide_try_free(j->guide)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        mem_free(j);
    }
}

void masks_prepare(struct qn_scheduler *s)
{
    free_retired(s);
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        for (int k = 0; r->guides && k < r->p.n_answers; k++) {
            struct guide_job *j = r->guides[k];
            if (r->n_started > k && r->answers[k].finish != QN_FINISH_NONE) continue;
            if (is_posted(s, j) || guide_is_ready(j->guide) || guide_try_prepare(j->guide)) continue;
            post(s, j);
        }
    }
}

enum masks_waited masks_wait(struct qn_scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        for (int k = 0; r->guides && k < r->n_started; k++) {
            struct guide_job *j = r->guides[k];
            if (!j->is_posted || !request_answer_runs(r, k)) continue;
            if (!worker_wait_until(s->masks, &j->job, clock_ns() + WAIT_NS)) return MASKS_LATE;
            j->is_posted = false;
            return MASKS_MADE;
        }
    }
    return MASKS_NONE;
}

bool masks_try(struct request *r, int answer)
{
    return request_has_mask(r, answer) || guide_try_prepare(r->guides[answer]->guide);
}

void masks_retire(struct qn_scheduler *s, struct request *r)
{
    for (int k = 0; r->guides && k < r->p.n_answers; k++) {
        struct guide_job *j = r->guides[k];
        j->next = s->retired;
        s->retired = j;
        r->guides[k] = NULL;
    }
    free_retired(s);
}

void masks_end(struct qn_scheduler *s)
{
    worker_free(s->masks); /* after its last job */
    while (s->retired) {
        struct guide_job *j = s->retired;
        s->retired = j->next;
        guide_free(j->guide);
        mem_free(j);
    }
}
