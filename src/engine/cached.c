/* SPDX-License-Identifier: MIT
 *
 * cached.c: what the prefix cache holds, listed and dropped for whose it is.
 *
 * The tree belongs to the scheduler's thread. So what other threads ask about it is an errand, run between two steps,
 * for which they wait.
 */
#include <string.h>

#include "base/os.h"
#include "engine/scheduler.h"

/* ---- errands ---- */

struct errand {
    struct errand *next;
    void (*run)(struct qn_scheduler *s, struct errand *x);
    bool is_done;
    uint64_t identity, id;
    struct qn_cached *list; /* [n]; of what was dropped: none */
    size_t n;
    int rc;
    struct qn_error error;
};

void scheduler_run_errands(struct qn_scheduler *s)
{
    pthread_mutex_lock(&s->mutex);
    for (struct errand *x; (x = s->errands);) {
        s->errands = x->next;
        pthread_mutex_unlock(&s->mutex);
        x->run(s, x);
        pthread_mutex_lock(&s->mutex);
        x->is_done = true;
        pthread_cond_broadcast(&s->end);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* Returns when it has been run. */
static int send(struct qn_scheduler *s, struct errand *x, struct qn_error *e)
{
    pthread_mutex_lock(&s->mutex);
    x->next = s->errands;
    s->errands = x;
    pthread_cond_signal(&s->wake);
    while (!x->is_done && !s->is_ended) pthread_cond_wait(&s->end, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    if (!x->is_done) return error_set(e, QN_ECANCEL, "cache: the scheduler has been stopped");
    if (x->rc && e) *e = x->error;
    return x->rc;
}

/* ---- what they are ---- */

static void list(struct qn_scheduler *s, struct errand *x)
{
    x->rc = reuse_list(s->reuse, x->identity, &x->list, &x->n, &x->error);
}

static void drop(struct qn_scheduler *s, struct errand *x)
{
    x->n = reuse_drop(s->reuse, x->identity, x->id);
    s->is_unsaved = reuse_has_disk(s->reuse); /* a file may have gone with pages that others use */
    s->is_full = false;
}

int qn_cache_list(qn_scheduler *s, uint64_t identity, struct qn_cached **out, size_t *n, struct qn_error *e)
{
    struct errand x = {.run = list, .identity = identity};
    int rc = send(s, &x, e);
    if (rc) return rc;
    *out = x.list;
    *n = x.n;
    return 0;
}

int qn_cache_drop(qn_scheduler *s, uint64_t identity, uint64_t id, size_t *n, struct qn_error *e)
{
    struct errand x = {.run = drop, .identity = identity, .id = id};
    int rc = send(s, &x, e);
    if (!rc) *n = x.n;
    return rc;
}
