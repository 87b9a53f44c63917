/* SPDX-License-Identifier: MIT
 *
 * resumable.c: streams that outlive their connection. A request asks for it with the header Quern-Resume: SECONDS. Its
 * events then have ids and are recorded, and when the connection breaks, the request goes on. A client that comes back
 * within that time names the last event that it has, and is sent those after it: none is lost, none comes twice.
 *
 * A record is a window of the newest events. The oldest are dropped when the window of an answer is full. When all
 * records together are too large, those of an identity that has more than its share are dropped first, then the oldest.
 * A record whose events were dropped stays known, so that a client that comes too late is told so (410).
 *
 * Threads. The scheduler's thread writes, the server's thread brings clients back; both do so under resumables.lock,
 * which is held around calls of http.h. So no callback of the server may take it: on_hangup only stores the time.
 *
 * Source: the HTML standard, section 9.2 (server-sent events: id, Last-Event-ID).
 */
#include "server/api/api_impl.h"
#include "server/api/endpoints.h"

#include <stdlib.h>
#include <string.h>

#include "base/inline/digits.h"
#include "base/os.h"

#define WINDOW_BYTES  ((size_t)4 << 20) /* of the newest events of one answer */
#define TOTAL_PART    8                 /* all records have this part of the requests' memory */
#define IDENTITY_PART 4                 /* an identity's share of that */
#define MOST_RECORDS  1024
#define MOST_SECONDS  600
#define STREAM_TYPE   "text/event-stream"

struct resumable {
    struct resumable *next; /* in order of their beginning */
    struct api *api;
    char id[48]; /* the ticket's */
    size_t n_prefix;
    uint64_t identity;
    uint64_t keep_ns;
    struct http_request *reader; /* whom the events are sent to; NULL: nobody */
    struct http_watch watch;     /* for readers */
    _Atomic uint64_t alone_ns;   /* clock_ns() since when nobody reads it, or since when it has ended; 0: not so */
    struct buf text;             /* the window */
    uint64_t first, n_events;    /* the number of its first event, which may be yet to come; events so far */
    bool is_listed, ended;
};

/* ---- what is asked for ---- */

/* A decimal number without sign, in [lo, hi]. */
static bool read_number(const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18 || text[n]) return false;
    *out = strtoull(text, NULL, 10);
    return *out >= lo && *out <= hi;
}

int resumable_asked(const struct http_request *r, const char *prefix, int *seconds, struct fault *f)
{
    const char *text = http_header(r, "Quern-Resume");
    uint64_t n = 0;
    *seconds = 0;
    if (!text) return 0;
    if (!prefix[0])
        return fault_set(f, 400, "unsupported_value", "Quern-Resume", "Quern-Resume is for streams, which %s has not",
                         http_path(r));
    if (!read_number(text, 1, MOST_SECONDS, &n))
        return fault_set(f, 400, "out_of_range", "Quern-Resume", "Quern-Resume is '%s', not 1 to %d seconds", text,
                         MOST_SECONDS);
    *seconds = (int)n;
    return 0;
}

/* ---- records; all of these with the lock ---- */

/* Drops all events so far. */
static void forget(struct resumable *s)
{
    struct api *a = s->api;
    a->resumables.bytes -= s->text.len;
    buf_deinit_from(&s->text, a->c.requests);
    s->first = s->n_events + 1;
}

static size_t event_bytes(const uint8_t *p, size_t n)
{
    const uint8_t *end = memmem(p, n, "\n\n", 2);
    return end ? (size_t)(end - p) + 2 : n;
}

/* The place in the text where event k begins. */
static size_t place_of(const struct resumable *s, uint64_t k)
{
    size_t at = 0;
    for (uint64_t i = s->first; i < k && at < s->text.len; i++) at += event_bytes(s->text.data + at, s->text.len - at);
    return at;
}

/* Drops the oldest events, at least n bytes of them. */
static void drop_oldest(struct resumable *s, size_t n)
{
    size_t at = 0;
    while (at < n && at < s->text.len) {
        at += event_bytes(s->text.data + at, s->text.len - at);
        s->first++;
    }
    memmove(s->text.data, s->text.data + at, s->text.len - at);
    s->text.len -= at;
    s->api->resumables.bytes -= at;
}

static size_t bytes_of(const struct api *a, uint64_t identity)
{
    size_t n = 0;
    for (const struct resumable *s = a->resumables.first; s; s = s->next)
        if (s->identity == identity) n += s->text.len;
    return n;
}

/* Makes room for n more bytes of s. */
static void make_room(struct resumable *s, size_t n)
{
    struct resumables *all = &s->api->resumables;
    while (all->bytes > 0 && all->bytes + n > all->most_bytes) {
        bool greedy = bytes_of(s->api, s->identity) + n > all->most_bytes / IDENTITY_PART;
        struct resumable *victim = all->first;
        while (victim && (victim->text.len == 0 || (greedy && victim->identity != s->identity))) victim = victim->next;
        if (!victim) /* its share is what it is about to get: the oldest of all */
            for (victim = all->first; victim->text.len == 0;) victim = victim->next;
        forget(victim);
    }
}

/* Adds events to the record, up to number n_events. Without memory they are dropped: the stream itself goes on. */
static void record(struct resumable *s, const void *p, size_t n, uint64_t n_events)
{
    struct resumables *all = &s->api->resumables;
    bool fits = n <= WINDOW_BYTES && n <= all->most_bytes;
    if (fits && s->text.len + n > WINDOW_BYTES) drop_oldest(s, s->text.len + n - WINDOW_BYTES + WINDOW_BYTES / 4);
    if (fits) make_room(s, n);
    fits = fits && !buf_add_from(&s->text, s->api->c.requests, p, n, NULL);
    if (fits) all->bytes += n;
    s->n_events = n_events;
    if (!fits) forget(s);
}

static void unlist(struct resumable **at)
{
    struct resumable *s = *at;
    struct resumables *all = &s->api->resumables;
    *at = s->next;
    if (all->last == &s->next) all->last = at;
    all->n--;
    forget(s);
    mem_free(s);
}

/* Whether nobody has read it for its time. */
static bool is_abandoned(const struct resumable *s, uint64_t now)
{
    uint64_t since = s->alone_ns;
    return since && now > since && now - since > s->keep_ns;
}

/* Frees records of answers that have ended: those whose time is over and, as long as there are too many, the oldest. */
static void purge(struct api *a)
{
    struct resumable **at = &a->resumables.first;
    uint64_t now = clock_ns();
    while (*at)
        if ((*at)->ended && (is_abandoned(*at, now) || a->resumables.n >= MOST_RECORDS))
            unlist(at);
        else
            at = &(*at)->next;
}

/* ---- the writer's side ---- */

void resumables_init(struct api *a)
{
    const struct ledger *l = a->c.requests;
    pthread_mutex_init(&a->resumables.lock, NULL);
    a->resumables.last = &a->resumables.first;
    a->resumables.most_bytes = l ? l->budget / TOTAL_PART : SIZE_MAX;
}

void resumables_deinit(struct api *a)
{
    while (a->resumables.first) unlist(&a->resumables.first);
    pthread_mutex_destroy(&a->resumables.lock);
}

struct resumable *resumable_new(const struct ticket *t)
{
    struct resumable *s = mem_calloc(1, sizeof *s);
    if (!s) return NULL;
    s->api = t->api;
    memcpy(s->id, t->id, sizeof s->id);
    s->n_prefix = t->n_prefix;
    s->identity = t->identity;
    s->keep_ns = (uint64_t)t->resume_s * 1000000000;
    s->first = 1;
    return s;
}

const char *resumable_request(const struct resumable *s) { return s->id + s->n_prefix; }

void resumable_start(struct resumable *s, struct http_request *r, const struct http_watch *w)
{
    struct resumables *all = &s->api->resumables;
    pthread_mutex_lock(&all->lock);
    purge(s->api);
    s->reader = r;
    s->watch = *w;
    s->is_listed = true;
    *all->last = s;
    all->last = &s->next;
    all->n++;
    http_stream_open(r, 200, STREAM_TYPE); /* the client may come back as soon as it has this head */
    pthread_mutex_unlock(&all->lock);
}

void resumable_left(struct resumable *s)
{
    uint64_t nobody = 0;
    atomic_compare_exchange_strong(&s->alone_ns, &nobody, clock_ns());
}

bool resumable_is_abandoned(const struct resumable *s) { return is_abandoned(s, clock_ns()); }

/* Lets the reader go: its stream has ended, or it is broken off. With the lock. */
static void end_reader(struct resumable *s, bool whole)
{
    if (s->reader && whole) http_stream_end(s->reader);
    if (s->reader && !whole) http_stream_abort(s->reader);
    s->reader = NULL;
    resumable_left(s);
}

void resumable_write(struct resumable *s, const void *p, size_t n, uint64_t n_events)
{
    pthread_mutex_lock(&s->api->resumables.lock);
    record(s, p, n, n_events);
    if (s->reader && http_stream_write(s->reader, p, n) != HTTP_OK) end_reader(s, false);
    pthread_mutex_unlock(&s->api->resumables.lock);
}

void resumable_tally(struct resumable *s, const struct served *m, const struct qn_usage *u, const char *outcome)
{
    pthread_mutex_lock(&s->api->resumables.lock);
    if (s->reader) tally_log(s->reader, m, u);
    if (s->reader && outcome) http_outcome(s->reader, outcome);
    pthread_mutex_unlock(&s->api->resumables.lock);
}

void resumable_end(struct resumable *s, bool whole)
{
    struct resumables *all = &s->api->resumables;
    if (!s->is_listed) {
        mem_free(s);
        return;
    }
    pthread_mutex_lock(&all->lock);
    s->ended = true;
    if (!whole) {
        s->n_events++; /* something is missing: nobody has all of it */
        forget(s);
    }
    end_reader(s, whole);
    s->alone_ns = clock_ns();
    pthread_mutex_unlock(&all->lock);
}

/* ---- the reader's side ---- */

static struct resumable *find(struct api *a, const char *id, uint64_t identity)
{
    struct resumable *s = a->resumables.first;
    while (s && (s->identity != identity || (strcmp(id, s->id) && strcmp(id, s->id + s->n_prefix)))) s = s->next;
    return s;
}

/* Sends what is recorded after the event, and what is to come. With the lock. */
static void attach(struct resumable *s, struct http_request *r, uint64_t after)
{
    size_t at = place_of(s, after + 1);
    if (s->reader) end_reader(s, false); /* the client is back before its old connection was seen to be broken */
    if (!s->ended) {
        s->alone_ns = 0;
        http_watch(r, &s->watch); /* if it has left again, the next write notices */
    }
    http_set_header(r, "Cache-Control", "no-cache");
    http_set_header(r, "X-Accel-Buffering", "no");
    http_stream_open(r, 200, STREAM_TYPE);
    if (at < s->text.len) http_stream_write(r, s->text.data + at, s->text.len - at);
    if (s->ended)
        http_stream_end(r);
    else
        s->reader = r;
}

static void attach_or_refuse(struct api *a, struct http_request *r, const char *id, uint64_t after)
{
    pthread_mutex_lock(&a->resumables.lock);
    purge(a);
    struct resumable *s = find(a, id, who_of(http_identity(r), NULL).identity);
    if (!s)
        http_error(r, 404, "id", "request_not_found", "you have no request '%s' whose events are kept", id);
    else if (after + 1 < s->first)
        http_error(r, 410, "Last-Event-ID", "events_gone",
                   "of the events of '%s' those before number %llu are not kept any more", id,
                   (unsigned long long)s->first);
    else if (after > s->n_events)
        http_error(r, 400, "Last-Event-ID", "out_of_range", "'%s' has %llu events so far, not %llu", id,
                   (unsigned long long)s->n_events, (unsigned long long)after);
    else
        attach(s, r, after);
    pthread_mutex_unlock(&a->resumables.lock);
}

/* Reads an event's id, REQUEST:NUMBER. */
static bool read_event_id(const char *text, char id[48], uint64_t *number)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n == 0 || n >= 48 || !read_number(colon + 1, 0, UINT64_MAX, number)) return false;
    memcpy(id, text, n);
    id[n] = '\0';
    return true;
}

static void refuse_event_id(struct http_request *r, const char *text)
{
    http_error(r, 400, "Last-Event-ID", "invalid_value", "Last-Event-ID is '%s', not the id of an event of this stream",
               text);
}

void endpoint_events(struct http_request *r, void *ctx)
{
    const char *last = http_header(r, "Last-Event-ID"), *wanted = http_param(r);
    char id[48] = "";
    uint64_t after = 0;
    size_t n = strlen(wanted);
    bool fits = !last || !last[0] || read_event_id(last, id, &after);
    /* Events have the request's id; the answer's has a prefix. */
    if (fits && id[0]) fits = n >= strlen(id) && !strcmp(wanted + n - strlen(id), id);
    if (http_header(r, "Quern-Resume"))
        http_error(r, 400, "Quern-Resume", "unsupported_value", "the time is the one that the stream was begun with");
    else if (!fits)
        refuse_event_id(r, last);
    else if (!strcmp(http_method(r), "HEAD")) /* takes the stream from nobody */
        http_reply(r, 200, STREAM_TYPE, "", 0);
    else
        attach_or_refuse(ctx, r, wanted, after);
}

bool resumable_again(struct api *a, struct http_request *r)
{
    const char *last = http_header(r, "Last-Event-ID");
    char id[48];
    uint64_t after;
    if (!last || !last[0]) return false;
    if (read_event_id(last, id, &after))
        attach_or_refuse(a, r, id, after);
    else
        refuse_event_id(r, last);
    return true;
}
