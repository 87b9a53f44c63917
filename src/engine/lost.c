/* SPDX-License-Identifier: MIT
 *
 * lost.c: what a scheduler does when the processes that have the layers are gone. See stage.h.
 *
 * Nothing that a client got is lost, because tokens, samplers and grammars are here. All answers that run are paused
 * and lose their pages, and the cache is emptied. When the processes are there again, the answers go on as after any
 * other pause: their tokens are computed again, to the same bits.
 */
#include <time.h>

#include "base/log.h"
#include "engine/room.h"
#include "engine/core/stage.h"

#define ASK_NS 20000000 /* between two questions whether they are there again */

void scheduler_lose_stage(struct qn_scheduler *s, const struct qn_error *why)
{
    if (s->is_lost) return;
    log_at(LOG_WARN, "the stages are lost, and what runs waits for them: %s", why->msg);
    away_forget(s);
    s->is_lost = true;
    s->is_emptied = false;
}

static void fail_requests(struct qn_scheduler *s, const struct qn_error *why)
{
    for (int i = 0; i < s->n_running; i++)
        if (!s->running[i]->error.code) s->running[i]->error = *why;
    for (struct request *r = s->waiting; r; r = r->next)
        if (!r->error.code) r->error = *why;
}

bool scheduler_mend(struct qn_scheduler *s)
{
    const struct stage *at = s->engine->stage;
    struct qn_error e;
    if (!s->is_emptied) room_lose(s);
    s->is_emptied = true;
    int rc = at->ops->mend(at->arg, &e);
    s->is_lost = rc != 0;
    s->is_full = false;
    if (rc == QN_EBUSY)
        nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
    else if (rc)
        fail_requests(s, &e);
    else
        log_at(LOG_WARN, "the stages are there again");
    return !rc;
}
