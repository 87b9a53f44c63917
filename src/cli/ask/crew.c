/* SPDX-License-Identifier: MIT
 *
 * crew.c: a ring of pieces, threads that ask, and the caller, which takes the answers. See crew.h.
 *
 * Signals reach the caller's thread alone; their handler ends the exchanges of the others (answer_stream.h).
 */
#include "cli/ask/crew.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "cli/core/cli.h"

struct crew_member {
    struct crew *c;
    struct place place;
    pthread_t thread;
};

struct crew {
    struct place *place;
    crew_ask *ask;
    crew_take *take;
    void *arg;
    pthread_mutex_t mutex; /* protects what follows */
    pthread_cond_t changed;
    struct crew_piece piece[CREW_PIECES]; /* piece i is at i % CREW_PIECES */
    bool is_done[CREW_PIECES];
    uint64_t first, taken, end; /* pieces before these were handed on, are being asked, exist */
    bool is_over, is_broken;    /* no more pieces come; one failed, so no more are asked */
    uint64_t at;
    struct crew_piece failed; /* the first one in order; rc 0: none */
    int n;
    struct crew_member member[CREW_AT_ONCE];
};

struct crew *crew_new(struct place *place, crew_ask *ask, crew_take *take, void *arg)
{
    struct crew *c = cli_alloc(1, sizeof *c);
    c->place = place;
    c->ask = ask;
    c->take = take;
    c->arg = arg;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    return c;
}

static void *work(void *arg)
{
    struct crew_member *m = arg;
    struct crew *c = m->c;
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        while (c->taken == c->end && !c->is_over && !c->is_broken) pthread_cond_wait(&c->changed, &c->mutex);
        if (c->taken == c->end || c->is_broken) break;
        size_t i = c->taken++ % CREW_PIECES;
        pthread_mutex_unlock(&c->mutex);
        c->piece[i].rc = c->ask(c->arg, &m->place, &c->piece[i]);
        pthread_mutex_lock(&c->mutex);
        c->is_done[i] = true;
        c->is_broken |= c->piece[i].rc != 0; /* its connection can only be closed */
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static void drop(struct crew_piece *p)
{
    buf_deinit(&p->text);
    buf_deinit(&p->answer);
}

/* Hands on the answers whose turn it is, with the mutex held. */
static void hand_on(struct crew *c)
{
    for (; c->first < c->taken && c->is_done[c->first % CREW_PIECES]; c->first++) {
        struct crew_piece *p = &c->piece[c->first % CREW_PIECES];
        if (!p->rc && !c->failed.rc) p->rc = c->take(c->arg, p);
        if (p->rc && !c->failed.rc) {
            c->failed = *p;
            c->failed.text = c->failed.answer = (struct buf){0};
            c->is_broken = true;
        }
        drop(p);
        c->is_done[c->first % CREW_PIECES] = false;
    }
    pthread_cond_broadcast(&c->changed);
}

/* Starts one more thread. If there are others, they do without it. Returns 0 or an error. */
static int grow(struct crew *c, struct qn_error *e)
{
    sigset_t all, old;
    struct crew_member *m = &c->member[c->n];
    m->c = c;
    if (place_again(&m->place, c->place, c->n + 1)) return error_set(e, QN_EIO, "the connection is lost");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int why = pthread_create(&m->thread, NULL, work, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!why) {
        c->n++;
        return 0;
    }
    place_end_again(&m->place);
    return c->n ? 0 : error_set(e, QN_ENOMEM, "a thread: %s", strerror(why));
}

int crew_put(struct crew *c, const char *text, size_t n)
{
    struct crew_piece p = {.number = c->end + 1, .at = c->at};
    p.rc = buf_add(&p.text, text, n, &p.e);
    if (!p.rc && c->n < CREW_AT_ONCE && (uint64_t)c->n == c->end) p.rc = grow(c, &p.e);
    pthread_mutex_lock(&c->mutex);
    hand_on(c);
    while (c->end - c->first == CREW_PIECES && !c->is_broken) {
        pthread_cond_wait(&c->changed, &c->mutex);
        hand_on(c);
    }
    bool is_broken = c->is_broken || p.rc;
    if (p.rc && !c->failed.rc) c->failed = p;
    if (is_broken) drop(&p);
    c->failed.text = (struct buf){0};
    if (!is_broken) c->piece[c->end++ % CREW_PIECES] = p;
    c->at += n;
    c->is_broken = is_broken;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return is_broken;
}

int crew_end(struct crew *c, struct crew_piece *failed)
{
    pthread_mutex_lock(&c->mutex);
    c->is_over = true;
    pthread_cond_broadcast(&c->changed);
    while (c->first < (c->is_broken ? c->taken : c->end)) {
        hand_on(c);
        if (c->first < (c->is_broken ? c->taken : c->end)) pthread_cond_wait(&c->changed, &c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    for (int i = 0; i < c->n; i++) {
        pthread_join(c->member[i].thread, NULL);
        place_end_again(&c->member[i].place);
    }
    for (; c->first < c->end; c->first++) drop(&c->piece[c->first % CREW_PIECES]);
    *failed = c->failed;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    cli_free(c);
    return failed->rc;
}
