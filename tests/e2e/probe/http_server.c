/* SPDX-License-Identifier: MIT
 *
 * http_server.c: a server on src/server/http/http.h with nothing behind it, for test_http.py.
 *
 *     http-server [NAME=VALUE...] ADDRESS...      an ADDRESS may begin with tls+ or be fd:N
 *
 * Prints `ready PORT...` when it listens. On SIGTERM it drains for drain_ms, prints `left N`, closes and prints
 * `closed`. Names: keys, cert, key, host, origin, group, connections, peer, kept, proxy, header, body, queue, budget
 * (bytes), header_ms, body_ms, idle_ms, heartbeat_ms, drain_ms, listen_first (1: it starts when standard input says
 * "s").
 *
 * Everything that takes time is a job in one list with one thread, as a scheduler would do it: callbacks mark a job
 * under the list's lock, and nothing of http.h is called while that is held.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "server/http/http.h"

enum kind { LATE, SLOW, EVENTS, FLOOD };

struct job {
    struct job *next;
    struct http_request *req;
    enum kind kind;
    int gone, full;
    uint64_t due_ns, step_ns; /* UINT64_MAX: only when it is gone or has room */
    int64_t left;             /* events, or bytes, still to send */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static struct job *jobs;
static int n_jobs, n_hangups, n_full, stopping;
static uint64_t hangup_ns;

/* ---- callbacks ---- */

static void on_hangup(void *arg)
{
    struct job *j = arg;
    pthread_mutex_lock(&lock);
    j->gone = 1;
    n_hangups++;
    hangup_ns = clock_ns();
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

static void on_room(void *arg)
{
    struct job *j = arg;
    pthread_mutex_lock(&lock);
    j->full = 0;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

static size_t heartbeat(void *arg, char *text, size_t cap)
{
    (void)arg;
    return (size_t)snprintf(text, cap, ": still here\n\n");
}

/* ---- the thread that does the jobs ---- */

static int is_ready(const struct job *j, uint64_t now) { return j->gone || (!j->full && j->due_ns <= now); }

/* One step; returns 0 when the job is done and the request given back. */
static int step(struct job *j, int gone)
{
    static char block[4096];
    char text[64];
    int r = HTTP_OK;

    if (j->kind == LATE) {
        http_reply(j->req, 200, "text/plain", http_websocket_id(j->req) ? "{\"late\":1}" : "late\n",
                   http_websocket_id(j->req) ? 10 : 5);
        return 0;
    }
    if (j->kind == SLOW && !gone && j->left > 0) {
        if (http_websocket_id(j->req))
            snprintf(text, sizeof text, "{\"event\":%" PRId64 "}", j->left);
        else
            snprintf(text, sizeof text, "event %" PRId64, j->left);
        pthread_mutex_lock(&lock);
        j->full = 1; /* before asking: on_room may come at once */
        pthread_mutex_unlock(&lock);
        r = http_sse_event(j->req, NULL, text);
        if (r == HTTP_OK) {
            j->left--;
            pthread_mutex_lock(&lock);
            j->full = 0;
            pthread_mutex_unlock(&lock);
        }
    }
    while (j->kind == FLOOD && !gone && j->left > 0 && r == HTTP_OK) {
        size_t n = j->left < (int64_t)sizeof block ? (size_t)j->left : sizeof block;
        pthread_mutex_lock(&lock);
        j->full = 1; /* before asking: on_room may come at once */
        pthread_mutex_unlock(&lock);
        r = http_stream_write(j->req, block, n);
        if (r == HTTP_OK) j->left -= (int64_t)n;
    }
    if (r == HTTP_FULL) {
        pthread_mutex_lock(&lock);
        n_full++;
        pthread_mutex_unlock(&lock);
    }
    if (r == HTTP_FULL || (r == HTTP_OK && !gone && j->left > 0)) return 1;
    http_stream_end(j->req);
    return 0;
}

static void *work(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    while (!stopping || n_jobs > 0) {
        uint64_t now = clock_ns(), next = UINT64_MAX;
        struct job *j, **pp;
        for (pp = &jobs; *pp && !is_ready(*pp, now); pp = &(*pp)->next)
            if (!(*pp)->full && (*pp)->due_ns < next) next = (*pp)->due_ns;
        j = *pp;
        if (!j) {
            struct timespec t = {.tv_sec = (time_t)(next / 1000000000), .tv_nsec = (long)(next % 1000000000)};
            if (next == UINT64_MAX)
                pthread_cond_wait(&wake, &lock);
            else
                pthread_cond_timedwait(&wake, &lock, &t);
            continue;
        }
        *pp = j->next;
        int gone = j->gone, more;
        pthread_mutex_unlock(&lock);
        more = step(j, gone);
        pthread_mutex_lock(&lock);
        if (more) {
            j->due_ns = j->kind == FLOOD ? 0 : now + j->step_ns;
            j->next = jobs;
            jobs = j;
        } else {
            n_jobs--;
            mem_free(j);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int64_t number(const struct http_request *r, const char *name, int64_t if_absent)
{
    char text[32];
    return http_query(r, name, text, sizeof text) == 0 ? strtoll(text, NULL, 10) : if_absent;
}

static void start(struct http_request *r, enum kind kind, uint64_t step_ms, int64_t left)
{
    struct job *j = mem_calloc(1, sizeof *j);
    struct http_watch w = {on_hangup, on_room, kind == EVENTS ? heartbeat : NULL, j};

    *j = (struct job){.req = r, .kind = kind, .step_ns = step_ms * 1000000, .left = left};
    j->due_ns = kind == EVENTS ? UINT64_MAX : clock_ns() + j->step_ns;
    int gone = http_watch(r, &w);
    if (kind != LATE) http_stream_open(r, 200, kind == FLOOD ? "application/octet-stream" : "text/event-stream");
    pthread_mutex_lock(&lock);
    j->gone |= gone;
    j->next = jobs;
    jobs = j;
    n_jobs++;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

/* ---- handlers ---- */

static void echo(struct http_request *r, void *ctx)
{
    size_t n;
    const uint8_t *body = http_body(r, &n);
    (void)ctx;
    http_reply(r, 200, "application/json", body, n);
}

static void item(struct http_request *r, void *ctx)
{
    char x[64] = "-", text[512];
    const char *agent = http_header(r, "user-agent");
    (void)ctx;
    http_query(r, "x", x, sizeof x);
    int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%s|%s|%s", http_method(r), http_path(r),
                     http_param(r) ? http_param(r) : "-", x, http_identity(r)->name, http_identity(r)->limits,
                     agent ? agent : "-");
    http_reply(r, 200, "text/plain", text, (size_t)n);
}

static void stats(struct http_request *r, void *ctx)
{
    char text[512];
    struct timespec cpu;
    (void)ctx;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    pthread_mutex_lock(&lock);
    int n = snprintf(
        text, sizeof text,
        "{\"jobs\":%d,\"hangups\":%d,\"hangup_ns\":%" PRIu64 ",\"full\":%d,\"resident\":%zu,\"cpu_ns\":%lld}", n_jobs,
        n_hangups, hangup_ns, n_full, os_resident_bytes(), (long long)cpu.tv_sec * 1000000000 + cpu.tv_nsec);
    pthread_mutex_unlock(&lock);
    http_reply(r, 200, "application/json", text, (size_t)n);
}

static void busy(struct http_request *r, void *ctx)
{
    (void)ctx;
    http_set_header(r, "Retry-After", "7");
    http_error(r, 429, "n", "rate_limit_exceeded", "too \"many\" requests\n");
}

static void broken(struct http_request *r, void *ctx)
{
    (void)ctx;
    if (http_stream_open(r, 200, "text/plain") == HTTP_OK) http_stream_write(r, "half", 4);
    http_stream_abort(r);
}

static void late(struct http_request *r, void *ctx) { (void)ctx, start(r, LATE, (uint64_t)number(r, "ms", 10), 0); }
static void slow(struct http_request *r, void *ctx)
{
    (void)ctx, start(r, SLOW, (uint64_t)number(r, "ms", 10), number(r, "n", 3));
}
static void events(struct http_request *r, void *ctx) { (void)ctx, start(r, EVENTS, 0, 1); }
static void flood(struct http_request *r, void *ctx) { (void)ctx, start(r, FLOOD, 0, number(r, "bytes", 1 << 20)); }

/* A message {"events":N,"ms":N} is answered by a stream, {"late":MS} late, {"no":N} by an error, {"nothing":N} by
 * nothing; of {"break":N} the stream is broken off. Every other message is sent back. */
static void message(struct http_request *r, void *ctx)
{
    size_t n;
    const char *body = (const char *)http_body(r, &n);
    long long number, ms = 0;
    (void)ctx;
    if (sscanf(body, "{\"events\":%lld,\"ms\":%lld", &number, &ms) >= 1) {
        http_set_label(r, "name", "a \"name\"");
        start(r, SLOW, (uint64_t)ms, number);
    } else if (sscanf(body, "{\"late\":%lld", &number) == 1) {
        start(r, LATE, (uint64_t)number, 0);
    } else if (sscanf(body, "{\"no\":%lld", &number) == 1) {
        busy(r, ctx);
    } else if (sscanf(body, "{\"nothing\":%lld", &number) == 1) {
        http_reply(r, 204, NULL, "", 0);
    } else if (sscanf(body, "{\"break\":%lld", &number) == 1) {
        http_stream_open(r, 200, "text/event-stream");
        http_stream_abort(r);
    } else {
        http_reply(r, 200, "application/json", body, n);
    }
}

static const struct http_route routes[] = {
    {"GET", "/ws", message, HTTP_WEBSOCKET},
    {"POST", "/echo", echo, HTTP_JSON_BODY},
    {"POST", "/raw", echo, 0},
    {"GET", "/item", item, 0},
    {"GET", "/item/{id}/part", item, 0},
    {"POST", "/item", item, 0},
    {"GET", "/public", item, HTTP_PUBLIC},
    {"GET", "/late", late, 0},
    {"GET", "/slow", slow, 0},
    {"GET", "/events", events, 0},
    {"GET", "/flood", flood, 0},
    {"GET", "/stats", stats, 0},
    {"GET", "/busy", busy, 0},
    {"GET", "/broken", broken, 0},
    {"POST", "/late", late, 0},
};

/* ---- main ---- */

static void print_log(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    fprintf(stderr, "<%d>%s\n", level, line);
}

#define MAX_LISTEN 8

static struct http_listen listens[MAX_LISTEN];
static const char *names[2], *proxy;
static struct ledger budget;
static int drain_ms = 1000, listen_first;

static void option(struct http_config *c, const char *name, size_t n, const char *value)
{
    const struct {
        const char *name;
        const char **text;
        size_t *bytes;
        int *number;
    } options[] = {
        {"keys", &c->keys_path, NULL, NULL},
        {"cert", &c->cert_path, NULL, NULL},
        {"key", &c->key_path, NULL, NULL},
        {"host", &names[0], NULL, NULL},
        {"origin", &names[1], NULL, NULL},
        {"group", &listens[0].group, NULL, NULL},
        {"header", NULL, &c->max_header_bytes, NULL},
        {"body", NULL, &c->max_body_bytes, NULL},
        {"queue", NULL, &c->max_queue_bytes, NULL},
        {"budget", NULL, &budget.budget, NULL},
        {"header_ms", NULL, NULL, &c->header_ms},
        {"body_ms", NULL, NULL, &c->body_ms},
        {"idle_ms", NULL, NULL, &c->idle_ms},
        {"heartbeat_ms", NULL, NULL, &c->heartbeat_ms},
        {"drain_ms", NULL, NULL, &drain_ms},
        {"connections", NULL, NULL, &c->max_connections},
        {"peer", NULL, NULL, &c->peer_connections},
        {"kept", NULL, NULL, &c->kept_connections},
        {"proxy", &proxy, NULL, NULL},
        {"listen_first", NULL, NULL, &listen_first},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strlen(options[i].name) != n || memcmp(options[i].name, name, n) != 0) continue;
        if (options[i].text) *options[i].text = value;
        if (options[i].bytes) *options[i].bytes = (size_t)atoll(value);
        if (options[i].number) *options[i].number = atoi(value);
        return;
    }
    fprintf(stderr, "no option '%s'\n", name);
    exit(64);
}

int main(int argc, char **argv)
{
    struct http_config c;
    struct http *h;
    struct qn_error e;
    pthread_condattr_t attr;
    pthread_t worker;
    sigset_t term;
    int signal_no;

    http_config_init(&c);
    for (int i = 1; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (eq) {
            option(&c, argv[i], (size_t)(eq - argv[i]), eq + 1);
        } else if (c.n_listen < MAX_LISTEN) {
            struct http_listen *l = &listens[c.n_listen++];
            l->tls = strncmp(argv[i], "tls+", 4) == 0;
            l->address = argv[i] + 4 * l->tls;
            if (strncmp(l->address, "fd:", 3) == 0) {
                l->fd = atoi(l->address + 3);
                l->address = NULL;
            }
        }
    }
    c.listen = listens;
    c.routes = routes;
    c.n_routes = sizeof routes / sizeof *routes;
    c.hosts = &names[0];
    c.n_hosts = names[0] != NULL;
    c.origins = &names[1];
    c.n_origins = names[1] != NULL;
    c.proxies = &proxy;
    c.n_proxies = proxy != NULL;
    if (budget.budget) c.ledger = &budget;

    log_set_sink(print_log, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &attr);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (http_open(&h, &c, &e) < 0 || (listen_first && http_listen(h, &e) < 0) ||
        (!listen_first && http_start(h, NULL, &e) < 0)) {
        fprintf(stderr, "%s\n", e.msg);
        return 69;
    }
    pthread_create(&worker, NULL, work, NULL);
    printf("ready");
    for (int i = 0; i < c.n_listen; i++) printf(" %d", http_port(h, i));
    printf("\n");
    fflush(stdout);
    if (listen_first && getchar() == 's') http_start(h, NULL, &e);

    sigwait(&term, &signal_no);
    printf("left %d\n", http_drain(h, drain_ms));
    fflush(stdout);
    http_close(h);
    pthread_mutex_lock(&lock);
    stopping = 1;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    pthread_join(worker, NULL);
    printf("closed %zu\n", c.ledger ? ledger_used(c.ledger) : 0);
    return 0;
}
