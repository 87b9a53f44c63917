/* SPDX-License-Identifier: MIT
 *
 * run_scheduled.c: see run_scheduled.h. Of the engine it knows only quern.h.
 */
#include "cli/direct/run_scheduled.h"

#include "cli/place/await.h"

struct under_way {
    const struct run_scheduled *w;
    qn_scheduler *scheduler;
    struct await await;
    bool is_refused; /* put() wants no more */
};

static void told(void *arg, const struct qn_event *ev)
{
    struct under_way *u = arg;
    if (ev->n_text && !u->is_refused && !u->w->put(u->w->arg, ev->text, ev->n_text)) {
        u->is_refused = true;
        qn_cancel(u->scheduler, ev->request);
    }
    await_told(&u->await, ev);
}

int run_scheduled(qn_scheduler *s, const struct run_scheduled *w, bool *is_full, struct qn_error *e)
{
    struct under_way u = {.w = w, .scheduler = s, .await = AWAIT_INIT};
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = w->prompt;
    p.n_prompt = w->n_prompt;
    p.sampling = w->sampling;
    p.stop = w->stop;
    p.n_stop = w->n_stop;
    p.continues = w->continues;
    p.max_tokens = w->max_tokens;
    p.draft = w->draft;
    p.callback = told;
    p.arg = &u;
    int rc = await_one(&u.await, s, &p, e);
    if (u.is_refused) rc = 0;
    *is_full = !rc && u.await.finish == QN_FINISH_LENGTH &&
               (w->max_tokens < 0 || u.await.usage.n_generated < w->max_tokens) && !u.is_refused;
    return rc;
}
