/* SPDX-License-Identifier: MIT
 *
 * run_windows.c: see run_windows.h. Of the engine it knows only quern.h.
 */
#include "cli/direct/run_windows.h"

#include <pthread.h>

struct under_way {
    const struct run_windows *w;
    qn_scheduler *scheduler;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t done;
    bool is_done, is_refused; /* is_refused: put() wants no more */
    enum qn_finish finish;
    int n_generated;
    struct qn_error error;
};

static void end(struct under_way *u, const struct qn_event *ev)
{
    pthread_mutex_lock(&u->mutex);
    u->finish = ev->finish;
    u->n_generated = ev->usage.n_generated;
    if (ev->error) u->error = *ev->error;
    u->is_done = true;
    pthread_cond_signal(&u->done);
    pthread_mutex_unlock(&u->mutex);
}

static void told(void *arg, const struct qn_event *ev)
{
    struct under_way *u = arg;
    if (ev->n_text && !u->is_refused && !u->w->put(u->w->arg, ev->text, ev->n_text)) {
        u->is_refused = true;
        qn_cancel(u->scheduler, ev->request);
    }
    if (ev->type == QN_EVENT_DONE) end(u, ev);
}

static int submit(struct under_way *u, struct qn_error *e)
{
    const struct run_windows *w = u->w;
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = w->prompt;
    p.n_prompt = w->n_prompt;
    p.sampling = w->sampling;
    p.stop = w->stop;
    p.n_stop = w->n_stop;
    p.continues = w->continues;
    p.max_tokens = w->max_tokens;
    p.draft = QN_DRAFT_WEDLM;
    p.callback = told;
    p.arg = u;
    return qn_submit(u->scheduler, &p, NULL, NULL, e);
}

int run_windows(qn_engine *g, const struct run_windows *w, bool *is_full, struct qn_error *e)
{
    struct under_way u = {.w = w, .mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.n_running = 1;
    p.draft = QN_DRAFT_WEDLM;
    p.wedlm = w->wedlm;
    int rc = qn_scheduler_new(&u.scheduler, g, &p, e);
    if (!rc && !(rc = submit(&u, e))) {
        pthread_mutex_lock(&u.mutex);
        while (!u.is_done) pthread_cond_wait(&u.done, &u.mutex);
        pthread_mutex_unlock(&u.mutex);
        if (u.error.code && !u.is_refused) rc = (*e = u.error).code;
    }
    *is_full =
        !rc && u.finish == QN_FINISH_LENGTH && (w->max_tokens < 0 || u.n_generated < w->max_tokens) && !u.is_refused;
    qn_scheduler_free(u.scheduler);
    return rc;
}
