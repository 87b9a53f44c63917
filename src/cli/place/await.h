/* SPDX-License-Identifier: MIT
 *
 * await.h: waits for the end of requests that a scheduler computes. Of the engine it knows only quern.h.
 */
#ifndef QUERN_CLI_AWAIT_H
#define QUERN_CLI_AWAIT_H

#include <quern.h>

#include <pthread.h>

/* Requests of one scheduler. It begins as AWAIT_INIT, and what follows the first two is valid after await_all(). */
struct await {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t ended;
    int n_open;
    struct qn_usage usage; /* sums */
    enum qn_finish finish; /* of the last one that ended */
    struct qn_error error; /* of the first one that failed; code 0: none */
};
#define AWAIT_INIT                                                                                                     \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER                                          \
    }

/* Requests are submitted between these two. No step is computed meanwhile after the first of them, so those that one
 * step has room for begin together. */
void await_hold(struct await *a);
void await_release(struct await *a);
/* As qn_submit(). The request's callback has to call await_told() for each event; if it has none, it gets that one.
 * After a success, await_all() has to follow. */
int await_submit(struct await *a, qn_scheduler *s, struct qn_request_params *p, struct qn_error *e);
/* A callback; arg: the struct await. */
void await_told(void *arg, const struct qn_event *ev);
/* Waits until all requests have ended. Returns the error of the first one that failed. */
int await_all(struct await *a, struct qn_error *e);
/* All of that for one request. */
int await_one(struct await *a, qn_scheduler *s, struct qn_request_params *p, struct qn_error *e);

#endif
