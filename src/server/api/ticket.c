/* SPDX-License-Identifier: MIT
 *
 * ticket.c: a request from its handler to its answer: the list of all requests under way, a key's limit on their
 * number, and the reasons why one is no longer wanted.
 *
 * Code that works for a request asks now and then, through its qn_cancel, whether to go on. A request that the
 * scheduler has is cancelled there.
 */
#include "server/api/api_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "server/http/api_keys.h"

/* Runs under the server's lock: see docs/THREADS.md. */
static void on_hangup(void *ticket) { ticket_hang_up(ticket); }

static bool is_over(void *ticket) { return ticket_is_over(ticket); }

struct ticket *ticket_new(struct api *a, struct http_request *r, const char *prefix, struct fault *f)
{
    struct ticket *t = mem_calloc(1, sizeof *t);
    int64_t most = api_keys_limit(http_identity(r)->limits, "requests", INT64_MAX), n = 0;
    if (!t) {
        api_no_memory(f);
        return NULL;
    }
    if (resumable_asked(r, prefix, &t->resume_s, f)) {
        mem_free(t);
        return NULL;
    }
    t->api = a;
    t->websocket = http_websocket_id(r);
    t->identity = who_of(http_identity(r), NULL).identity;
    t->arrived_ns = clock_ns();
    t->cancel = (struct qn_cancel){is_over, t};
    t->n_prefix = strlen(prefix);
    http_body(r, &t->n_body);
    snprintf(t->id, sizeof t->id, "%s%s", prefix, http_request_id(r));
    pthread_mutex_lock(&a->lock);
    for (struct ticket *o = a->tickets; o; o = o->next) n += o->identity == t->identity;
    if (n < most) {
        t->is_listed = true;
        t->next = a->tickets;
        a->tickets = t;
    }
    pthread_mutex_unlock(&a->lock);
    if (n >= most)
        fault_set(f, 429, "too_many_requests", NULL, "this key may have %lld requests at a time", (long long)most);
    if (n < most || t->websocket) {
        if (http_watch(r, &(struct http_watch){.on_hangup = on_hangup, .arg = t}) == HTTP_GONE) t->gone = true;
        return t;
    }
    mem_free(t);
    return NULL;
}

void ticket_unlist(struct ticket *t)
{
    pthread_mutex_lock(&t->api->lock);
    for (struct ticket **p = &t->api->tickets; t->is_listed && *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            break;
        }
    t->is_listed = false;
    pthread_mutex_unlock(&t->api->lock);
}

void ticket_free(struct ticket *t)
{
    if (!t) return;
    ticket_unlist(t);
    ticket_give(t, t->taken);
    mem_free(t);
}

int tickets_count(struct api *a)
{
    int n = 0;
    pthread_mutex_lock(&a->lock);
    for (struct ticket *t = a->tickets; t; t = t->next) n++;
    pthread_mutex_unlock(&a->lock);
    return n;
}

size_t tickets_list(struct api *a, uint64_t identity, struct ticket_info *list, size_t cap)
{
    size_t n = 0;
    pthread_mutex_lock(&a->lock);
    for (struct ticket *t = a->tickets; t; t = t->next) {
        if (t->identity != identity || n++ >= cap) continue;
        struct ticket_info *i = &list[n - 1];
        *i = (struct ticket_info){.model = t->model,
                                  .arrived_ns = t->arrived_ns,
                                  .is_submitted = t->number != 0,
                                  .is_cancelled = t->cancelled,
                                  .phase = t->phase,
                                  .n_done = t->n_done,
                                  .n_total = t->n_total,
                                  .n_generated = t->n_generated};
        memcpy(i->id, t->id, sizeof i->id);
    }
    pthread_mutex_unlock(&a->lock);
    return n;
}

/* ---- its end before its time ---- */

void ticket_hang_up(struct ticket *t)
{
    t->gone = true;
    uint64_t number = t->number;
    if (number) qn_cancel(t->scheduler, number);
}

void ticket_started(struct ticket *t, uint64_t number)
{
    pthread_mutex_lock(&t->api->lock);
    t->number = number;
    bool cancelled = t->cancelled;
    pthread_mutex_unlock(&t->api->lock);
    if (cancelled || t->gone) qn_cancel(t->scheduler, number);
}

void ticket_note(struct ticket *t, const struct qn_event *e)
{
    if (e->type == QN_EVENT_QUEUED) t->n_done = e->place;
    if (e->type == QN_EVENT_PREFILL) {
        t->n_done = e->n_done;
        t->n_total = e->n_total;
    }
    t->n_generated += e->type == QN_EVENT_TOKEN;
    t->phase = (int)e->type;
}

/* With api.lock. */
static void cancel(struct ticket *t)
{
    t->cancelled = true;
    if (t->number) qn_cancel(t->scheduler, t->number);
}

bool ticket_cancel(struct api *a, const char *id, uint64_t identity)
{
    bool found = false;
    pthread_mutex_lock(&a->lock);
    for (struct ticket *t = a->tickets; t && !found; t = t->next) {
        if (t->identity != identity || (strcmp(id, t->id) && strcmp(id, t->id + t->n_prefix))) continue;
        found = true;
        cancel(t);
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

bool ticket_cancel_stream(struct api *a, uint64_t websocket, const char *stream_id)
{
    bool found = false;
    pthread_mutex_lock(&a->lock);
    for (struct ticket *t = a->tickets; t; t = t->next)
        if (t->websocket == websocket && !strcmp(stream_id, t->stream_id)) {
            found = true;
            cancel(t);
        }
    pthread_mutex_unlock(&a->lock);
    return found;
}

bool ticket_is_over(const struct ticket *t)
{
    return t->gone || t->cancelled || t->api->ending || (t->deadline_ns && clock_ns() >= t->deadline_ns);
}

int ticket_fault(const struct ticket *t, struct fault *f)
{
    if (t->cancelled) return fault_set(f, 400, "cancelled", NULL, "the request was cancelled before it was read");
    if (!t->gone && !t->api->ending && t->deadline_ns && clock_ns() >= t->deadline_ns)
        return fault_set(f, 504, "deadline_exceeded", NULL, "deadline_ms was over before the answer was");
    return fault_set(f, 503, "stopping", NULL, "the request was ended");
}

int ticket_failed(const struct ticket *t, struct fault *f, const struct qn_error *e)
{
    return e->code == QN_ECANCEL && ticket_is_over(t) ? ticket_fault(t, f) : api_fault(f, e);
}

/* ---- memory ---- */

int ticket_take(struct ticket *t, size_t bytes, const char *what, struct fault *f)
{
    struct ledger *l = t->api->c.requests;
    if (!l) return 0;
    if (bytes > l->budget / 8 * 7 || t->n_body > l->budget / 8 * 7 - bytes)
        return fault_set(f, 413, "request_too_large", NULL,
                         "%s takes %zu bytes of memory; all requests together have %zu", what, bytes, l->budget);
    if (ledger_take(l, bytes, what, NULL))
        return fault_set(f, 503, "no_memory", NULL, "no memory for %s now, which takes %zu bytes", what, bytes);
    t->taken += bytes;
    return 0;
}

void ticket_give(struct ticket *t, size_t bytes)
{
    if (!t->api->c.requests) return;
    ledger_give(t->api->c.requests, bytes);
    t->taken -= bytes;
}
