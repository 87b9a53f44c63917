/* SPDX-License-Identifier: MIT
 *
 * workers.c: the API itself, and the threads that do what handlers must not wait for.
 *
 * Reading a request takes as long as its text is long (a megabyte of JSON, a template, a tokenizer), and a handler must
 * not keep all other connections waiting. So handlers put requests into one queue for a few workers. The queue needs no
 * bound of its own, because each connection has few requests at most: one, or those of a WebSocket.
 */
#include "server/api/api_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/os.h"

#define ITEMS_SHARE    32                 /* the part of the requests' memory that kept responses may have, */
#define ITEMS_BYTES    ((size_t)16 << 20) /* and their bytes where nothing is counted */
#define MODELS_RETRY_S 5                  /* a guess: nobody can tell how long other requests need their models */

/* ---- calls ---- */

static void queue(struct api_call *c)
{
    struct api *a = c->api;
    c->next = NULL;
    pthread_mutex_lock(&a->lock);
    *a->last = c;
    a->last = &c->next;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* The model is there, or will not come: the call goes back to the workers. In the models' thread. */
static void model_is_ready(struct models_wait *w, struct served *m, const struct fault *why)
{
    struct api_call *c = (struct api_call *)w;
    c->served = m;
    c->load_ms = 1e-6 * (double)(clock_ns() - c->asked_ns);
    if (why) c->fault = *why;
    queue(c);
}

/* Queues a copy of the call, with a ticket, or refuses it. */
static void hand_over_call(const struct api_call *call, const char *prefix)
{
    struct fault f = {0};
    struct api_call *c = mem_alloc(sizeof *c);
    struct ticket *t = c ? ticket_new(call->api, call->req, prefix, &f) : NULL;
    if (t) {
        *c = *call;
        c->ticket = t;
        c->fault = f;
        queue(c);
        return;
    }
    if (!c) api_no_memory(&f);
    mem_free(c);
    api_refuse_busy(call->req, &f, 1, call->refuse);
}

void api_hand_over(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse, const char *prefix)
{
    hand_over_call(&(struct api_call){.wait.ready = model_is_ready, .api = a, .req = r, .work = work, .refuse = refuse},
                   prefix);
}

void api_hand_over_body(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse)
{
    hand_over_call(&(struct api_call){.api = a, .req = r, .work = work, .refuse = refuse, .no_model = true}, "");
}

void api_hand_over_message(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse,
                           const char *prefix)
{
    if (message_cancels(a, r)) return;
    hand_over_call(
        &(struct api_call){
            .wait.ready = model_is_ready, .api = a, .req = r, .work = work, .refuse = refuse, .is_message = true},
        prefix);
}

void api_hand_over_bare(struct api *a, struct http_request *r, api_work *work)
{
    hand_over_call(
        &(struct api_call){
            .api = a, .req = r, .work = work, .refuse = api_refuse_openai, .no_model = true, .no_body = true},
        "");
}

static void call_free(struct api_call *c)
{
    json_decref(c->body);
    models_release(c->served);
    ticket_free(c->ticket);
    mem_free(c);
}

/* Parses the body. The memory of its object is taken before the object is made. */
static int read_body(struct api_call *c)
{
    struct ticket *t = c->ticket;
    struct field_size size;
    size_t n;
    const void *text = http_body(c->req, &n);
    if (field_measure(text, n, &size, &c->fault) ||
        ticket_take(t, size.kept + size.more, "what the body becomes", &c->fault))
        return -1;
    c->body_taken = size.kept;
    c->body = field_parse_body(text, n, &t->cancel, &c->fault);
    ticket_give(t, size.more);
    http_drop_body(c->req);
    t->n_body = 0;
    if (!c->body && !c->fault.code) ticket_fault(t, &c->fault);
    return c->body ? 0 : -1;
}

/* Reads the body and asks for the model that it names. This is the first field to be read, because the range of others
 * depends on the model. */
static enum models_answer find_model(struct api_call *c)
{
    if (read_body(c) || (c->is_message && message_open(c))) return MODELS_REFUSED;
    const json_t *name = json_object_get(c->body, "model");
    if (name && !json_is_null(name) && !json_is_string(name)) {
        field_wrong_type(&c->fault, "model", "a string", name);
        return MODELS_REFUSED;
    }
    c->asked_ns = clock_ns();
    return models_acquire(c->api->c.models, json_string_value(name), &c->wait, &c->served, &c->fault);
}

/* A message that is refused before it is read: its refusal repeats the client's name for it. */
static void name_refused(struct api_call *c)
{
    const struct fault why = c->fault;
    c->fault = (struct fault){0};
    if (!read_body(c)) message_open(c);
    c->fault = why;
}

/* Does a worker's part for a call. Afterwards the call is freed or belongs to somebody else. */
static void run(struct api_call *c)
{
    if (c->fault.status && c->is_message && !c->body) name_refused(c);
    if (!c->fault.status && ticket_is_over(c->ticket)) ticket_fault(c->ticket, &c->fault);
    if (!c->no_model && !c->served && !c->fault.status && find_model(c) == MODELS_WAIT) return;
    if (c->no_model && !c->no_body && !c->fault.status) read_body(c);
    if (c->served) tally_log(c->req, c->served, NULL);
    if (!c->fault.status && (c->served || c->no_model)) {
        c->work(c);
    } else {
        ticket_unlist(c->ticket);
        api_refuse_busy(c->req, &c->fault, MODELS_RETRY_S, c->refuse);
    }
    call_free(c);
}

/* The number of workers that have a call of this identity; with the lock. */
static int n_busy_for(const struct api *a, uint64_t identity)
{
    int n = 0;
    for (int i = 0; i < a->n_workers; i++) n += a->busy[i] && a->busy_for[i] == identity;
    return n;
}

/* Takes the next call out of the queue; with the lock. Calls go in order of arrival, except that an identity for which
 * a worker is busy lets others go first. So a client that sends one large body after the other keeps others waiting for
 * the end of one at most. */
static struct api_call *next_call(struct api *a)
{
    struct api_call **at = &a->first, *c;
    while (*at && n_busy_for(a, (*at)->ticket->identity)) at = &(*at)->next;
    if (!*at) at = &a->first;
    if (!(c = *at)) return NULL;
    *at = c->next;
    if (a->last == &c->next) a->last = at;
    return c;
}

/* The number of the worker that calls this. */
static int own_number(struct api *a)
{
    int i = 0;
    while (!pthread_equal(a->worker[i], pthread_self())) i++;
    return i;
}

/* One worker: runs until there are no calls and the API is taken down. */
static void *work(void *arg)
{
    struct api *a = arg;
    pthread_setname_np(pthread_self(), "worker");
    pthread_mutex_lock(&a->lock);
    int i = own_number(a);
    for (;;) {
        while (!a->first && !a->stopping) pthread_cond_wait(&a->wake, &a->lock);
        struct api_call *c = next_call(a);
        if (!c) break;
        a->busy[i] = true;
        a->busy_for[i] = c->ticket->identity;
        pthread_mutex_unlock(&a->lock);
        run(c);
        pthread_mutex_lock(&a->lock);
        a->busy[i] = false;
        pthread_cond_broadcast(&a->idle);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- life ---- */

/* Starts the workers. The lock is held until all have a number, because a worker looks up its own under it. */
static int start_workers(struct api *a, int n, struct qn_error *e)
{
    int rc = 0;
    pthread_mutex_lock(&a->lock);
    for (; a->n_workers < n && !rc; a->n_workers += !rc)
        rc = os_thread_start(&a->worker[a->n_workers], work, a, "requests", e);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* No call waits for a worker, and no worker has one; with the lock. */
static bool is_idle(const struct api *a)
{
    bool busy = a->first != NULL;
    for (int i = 0; i < a->n_workers; i++) busy = busy || a->busy[i];
    return !busy;
}

int api_new(struct api **out, const struct api_config *c, struct qn_error *e)
{
    struct api *a = mem_calloc(1, sizeof *a);
    int n = c->n_workers ? c->n_workers : 2;
    if (!a) return error_nomem(e, "the API", sizeof *a);
    assert(n <= (int)(sizeof a->worker / sizeof a->worker[0]));
    a->c = *c;
    int n_models = models_count(c->models);
    a->hists = mem_calloc((size_t)n_models, sizeof *a->hists);
    if (!a->hists) {
        mem_free(a);
        return error_nomem(e, "histograms", (size_t)n_models * sizeof *a->hists);
    }
    for (int i = 0; i < n_models; i++) pthread_mutex_init(&a->hists[i].lock, NULL);
    a->start_s = (uint64_t)time(NULL);
    a->start_ns = clock_ns();
    a->last = &a->first;
    resumables_init(a);
    receipts_init(a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->idle, &attr);
    pthread_condattr_destroy(&attr);
    size_t most = c->requests ? c->requests->budget / ITEMS_SHARE : ITEMS_BYTES;
    int rc = item_store_new(&a->items, c->requests, most, e);
    if (!rc) rc = start_workers(a, n, e);
    if (rc) {
        api_free(a);
        return QN_ENOMEM;
    }
    *out = a;
    return 0;
}

bool api_stop(struct api *a, int ms)
{
    uint64_t until = clock_ns() + (uint64_t)ms * 1000000;
    const struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    bool idle = false;
    a->ending = true;
    pthread_mutex_lock(&a->lock);
    for (int rc = 0; !(idle = is_idle(a)) && rc != ETIMEDOUT;) rc = pthread_cond_timedwait(&a->idle, &a->lock, &at);
    pthread_mutex_unlock(&a->lock);
    return idle;
}

void api_free(struct api *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->wake);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_workers; i++) pthread_join(a->worker[i], NULL);
    assert(!a->first && !a->tickets);
    pthread_cond_destroy(&a->wake);
    pthread_cond_destroy(&a->idle);
    for (int i = 0; i < models_count(a->c.models); i++) pthread_mutex_destroy(&a->hists[i].lock);
    mem_free(a->hists);
    item_store_free(a->items);
    resumables_deinit(a);
    receipts_deinit(a);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}
