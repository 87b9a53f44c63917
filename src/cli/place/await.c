/* SPDX-License-Identifier: MIT
 *
 * await.c: see await.h.
 */
#include "cli/place/await.h"

void await_hold(struct await *a) { pthread_mutex_lock(&a->mutex); }

void await_release(struct await *a) { pthread_mutex_unlock(&a->mutex); }

int await_submit(struct await *a, qn_scheduler *s, struct qn_request_params *p, struct qn_error *e)
{
    if (!p->callback) {
        p->callback = await_told;
        p->arg = a;
    }
    int rc = qn_submit(s, p, NULL, NULL, e);
    a->n_open += !rc;
    return rc;
}

static void add_usage(struct qn_usage *sum, const struct qn_usage *u)
{
    sum->n_prompt += u->n_prompt;
    sum->n_cached += u->n_cached;
    sum->n_generated += u->n_generated;
    sum->n_passes += u->n_passes;
    sum->n_drafted += u->n_drafted;
    sum->n_accepted += u->n_accepted;
    sum->n_pass_rows += u->n_pass_rows;
    sum->n_unverified += u->n_unverified;
}

void await_told(void *arg, const struct qn_event *ev)
{
    struct await *a = arg;
    pthread_mutex_lock(&a->mutex); /* for every event: await_hold() keeps the scheduler from going on */
    if (ev->type == QN_EVENT_DONE) {
        add_usage(&a->usage, &ev->usage);
        a->finish = ev->finish;
        if (ev->error && !a->error.code) a->error = *ev->error;
        a->n_open--;
        pthread_cond_signal(&a->ended);
    }
    pthread_mutex_unlock(&a->mutex);
}

int await_all(struct await *a, struct qn_error *e)
{
    pthread_mutex_lock(&a->mutex);
    while (a->n_open) pthread_cond_wait(&a->ended, &a->mutex);
    pthread_mutex_unlock(&a->mutex);
    if (a->error.code && e) *e = a->error;
    return a->error.code;
}

int await_one(struct await *a, qn_scheduler *s, struct qn_request_params *p, struct qn_error *e)
{
    await_hold(a);
    int rc = await_submit(a, s, p, e);
    await_release(a);
    return rc ? rc : await_all(a, e);
}
