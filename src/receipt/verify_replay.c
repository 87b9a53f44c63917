/* SPDX-License-Identifier: MIT
 *
 * verify_replay.c: makes the answers of a receipt again, with a scheduler, and compares them. See verify_impl.h.
 *
 * It is slower than reading, and the only way for answers whose tokens do not follow from those before them alone:
 * those that were filled in windows without verification.
 */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "receipt/verify_impl.h"

/* An answer as it is made again. */
struct replayed {
    qn_token *tokens; /* [n], at most one more than the receipt's, which shows that it goes on */
    size_t n;
    enum qn_finish finish; /* after the last of them; QN_FINISH_NONE: it goes on */
    int stop_index;
    bool is_enough;
};

struct replay {
    struct verification *v;
    qn_scheduler *s;
    struct replayed *answer; /* [n_answers] of the receipt */
    size_t n_enough;
    struct qn_error error; /* why an answer failed */
    pthread_mutex_t mutex; /* a leaf: guards is_done */
    pthread_cond_t done;
    bool is_done;
};

static void add_token(struct replay *x, struct replayed *a, size_t most, qn_token t)
{
    const struct verify_watch *w = x->v->watch;
    if (a->n > most) return;
    a->tokens[a->n++] = t;
    if (w && w->progress) w->progress(w->arg, ++x->v->n_done, 0);
}

static void on_event(void *arg, const struct qn_event *e)
{
    struct replay *x = arg;
    struct replayed *a = &x->answer[e->answer];
    size_t most = x->v->r->answers[e->answer].n;
    if (e->error) x->error = *e->error;
    if (e->type == QN_EVENT_TOKEN) add_token(x, a, most, e->token);
    if (e->type == QN_EVENT_FINISH && !a->is_enough) {
        if (e->finish == QN_FINISH_STOP_TOKEN) add_token(x, a, most, e->token);
        if (a->n <= most) a->finish = e->finish;
        if (e->finish == QN_FINISH_STOP_STRING) a->stop_index = e->stop_index;
    }
    if (!a->is_enough && (e->type == QN_EVENT_FINISH || a->n > most)) {
        a->is_enough = true;
        if (++x->n_enough == x->v->r->n_answers) qn_cancel(x->s, e->request);
    }
    if (e->type != QN_EVENT_DONE) return;
    pthread_mutex_lock(&x->mutex);
    x->is_done = true;
    pthread_cond_signal(&x->done);
    pthread_mutex_unlock(&x->mutex);
}

/* Asks for the decoder that made the answers. */
static void choose_decoder(const struct receipt *r, struct qn_scheduler_params *sp, struct qn_request_params *p)
{
    const struct receipt_windows *w = &r->windows;
    if (!r->is_replay) return;
    sp->draft = p->draft = QN_DRAFT_WEDLM;
    p->wedlm = (struct qn_wedlm){0, w->window, w->entropy_threshold, w->pos_penalty};
}

/* Makes the answers again. */
static int make_again(struct replay *x, struct qn_error *e)
{
    struct verification *v = x->v;
    struct qn_scheduler_params sp;
    struct qn_request_params p;
    qn_scheduler_params_init(&sp);
    sp.n_running = (int)v->r->n_answers;
    verify_describe(v, &p);
    choose_decoder(v->r, &sp, &p);
    p.n_answers = (int)v->r->n_answers;
    p.callback = on_event;
    p.arg = x;
    int rc = qn_scheduler_new(&x->s, v->g, &sp, e);
    if (!rc) rc = qn_submit(x->s, &p, NULL, NULL, e);
    if (rc == QN_EUSAGE || rc == QN_EFULL) rc = e ? (e->code = QN_EDATA) : QN_EDATA; /* the receipt asks for it */
    pthread_mutex_lock(&x->mutex);
    while (!rc && !x->is_done) pthread_cond_wait(&x->done, &x->mutex);
    pthread_mutex_unlock(&x->mutex);
    qn_scheduler_free(x->s);
    if (rc || !x->error.code || x->error.code == QN_ENUMERIC) return rc;
    if (e) *e = x->error; /* says nothing about the receipt */
    return x->error.code;
}

/* Compares the next token. */
static int compare(struct verification *v, const struct replay *x, const struct replayed *a, struct qn_error *e)
{
    if (v->i == a->n) {
        v->out->why = x->error;
        return verify_differs(v, VERIFY_NOTHING);
    }
    bool is_last = v->i + 1 == a->n;
    v->out->n_tokens++;
    v->out->said = v->a->tokens[v->i];
    v->out->expected = a->tokens[v->i];
    v->stop_index = is_last ? a->stop_index : -1;
    if (v->out->said != v->out->expected) return verify_differs(v, VERIFY_TOKEN);
    return verify_took(v, v->out->said, is_last ? a->finish : QN_FINISH_NONE, e);
}

static int compare_all(struct verification *v, const struct replay *x, struct qn_error *e)
{
    int rc = 0;
    for (size_t k = 0; k < v->r->n_answers && !rc; k++) {
        rc = verify_open_reply(v, k, e);
        if (!rc && (v->r->max_tokens == 0 || v->a->n == 0)) rc = verify_empty(v);
        while (!rc && v->i < v->a->n) rc = compare(v, x, &x->answer[k], e);
        qn_reply_free(v->reply);
        v->reply = NULL;
    }
    return rc;
}

int verify_by_replay(struct verification *v, struct qn_error *e)
{
    const struct receipt *r = v->r;
    struct replay x = {.v = v, .mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    size_t n = r->n_answers, n_tokens = n;
    for (size_t k = 0; k < n; k++) n_tokens += r->answers[k].n;
    x.answer = mem_calloc(n, sizeof *x.answer);
    qn_token *tokens = mem_alloc(n_tokens * sizeof *tokens);
    int rc = x.answer && tokens ? 0 : error_nomem(e, "answers", n_tokens * sizeof *tokens);
    for (size_t k = 0, at = 0; k < n && !rc; at += r->answers[k].n + 1, k++)
        x.answer[k] = (struct replayed){.tokens = tokens + at, .stop_index = -1};
    v->out->said_p = v->out->expected_p = -1;
    v->n_done = 0;
    if (!rc) rc = make_again(&x, e);
    v->watch = NULL; /* they were counted when they were made */
    if (!rc) rc = compare_all(v, &x, e);
    mem_free(x.answer);
    mem_free(tokens);
    return rc;
}
