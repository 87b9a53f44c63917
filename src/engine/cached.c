/* SPDX-License-Identifier: MIT
 *
 * cached.c: lists and drops the conversations that an identity has in the prefix cache.
 *
 * The tree belongs to the scheduler's thread. Another thread that asks about it queues an errand and waits. The
 * scheduler's thread runs errands between two steps.
 */
#include <string.h>

#include "base/os.h"
#include "cache/store.h"
#include "engine/scheduler.h"

/* ---- errands ---- */

struct errand {
    struct errand *next;
    void (*run)(struct qn_scheduler *s, struct errand *x);
    bool is_done;
    uint64_t identity, id;
    struct qn_cached *list; /* [n]; NULL when the errand drops */
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

/* Queues the errand and returns when it has been run. QN_ECANCEL: the scheduler has been stopped. */
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

/* ---- the two errands ---- */

static void list(struct qn_scheduler *s, struct errand *x)
{
    x->rc = reuse_list(s->reuse, x->identity, &x->list, &x->n, &x->error);
}

static void drop(struct qn_scheduler *s, struct errand *x)
{
    x->n = reuse_drop(s->reuse, x->identity, x->id);
    drafts_empty(s);
    /* Deleted files may have held pages that others use: these have to be written again. */
    s->is_unsaved = reuse_has_disk(s->reuse);
    s->is_full = false;
}

int qn_cache_list(qn_scheduler *s, uint64_t identity, struct qn_cached **out, size_t *n, struct qn_error *e)
{
    struct errand x = {.run = list, .identity = identity};
    if (!s || !out || !n) return usage_null(e, __func__);
    int rc = scheduler_check_thread(s, __func__, e);
    if (!rc) rc = send(s, &x, e);
    if (rc) return rc;
    *out = x.list;
    *n = x.n;
    return 0;
}

int qn_cache_drop(qn_scheduler *s, uint64_t identity, uint64_t id, size_t *n, struct qn_error *e)
{
    struct errand x = {.run = drop, .identity = identity, .id = id};
    if (!s || !n) return usage_null(e, __func__);
    int rc = scheduler_check_thread(s, __func__, e);
    if (!rc) rc = send(s, &x, e);
    if (!rc) *n = x.n;
    return rc;
}

int qn_cache_drop_files(const char *cache_dir, uint64_t identity, size_t *n, struct qn_error *e)
{
    if (!cache_dir || !n) return usage_null(e, __func__);
    return store_drop_files(cache_dir, identity, n, e);
}
