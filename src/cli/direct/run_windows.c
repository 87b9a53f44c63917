/* SPDX-License-Identifier: MIT
 *
 * run_windows.c: see run_windows.h. Of the engine it knows only quern.h.
 */
#include "cli/direct/run_windows.h"

#include "cli/place/await.h"

struct under_way {
    const struct run_windows *w;
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

static int ask(struct under_way *u, struct qn_error *e)
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
    return await_one(&u->await, u->scheduler, &p, e);
}

int run_windows(qn_engine *g, const struct run_windows *w, bool *is_full, struct qn_error *e)
{
    struct under_way u = {.w = w, .await = AWAIT_INIT};
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.n_running = 1;
    p.draft = QN_DRAFT_WEDLM;
    p.wedlm = w->wedlm;
    int rc = qn_scheduler_new(&u.scheduler, g, &p, e);
    if (!rc) rc = ask(&u, e);
    if (u.is_refused) rc = 0;
    *is_full = !rc && u.await.finish == QN_FINISH_LENGTH &&
               (w->max_tokens < 0 || u.await.usage.n_generated < w->max_tokens) && !u.is_refused;
    qn_scheduler_free(u.scheduler);
    return rc;
}
