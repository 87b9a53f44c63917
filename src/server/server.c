/* SPDX-License-Identifier: MIT
 *
 * server.c: puts the parts of a server together, in order, and takes them down again.
 */
#include "server/server.h"

#include "base/mem.h"
#include "base/os.h"

#define QUEUE_BYTES  (1 << 20) /* of a stream, for a client that reads slowly: some thousands of tokens */
#define HEARTBEAT_MS 1000

/* The part of the memory for bodies, for making tokens and for bytes that wait to be sent: a sixteenth, within bounds.
 */
#define REQUESTS_SHARE 16
#define REQUESTS_MIN   ((size_t)64 << 20)
#define REQUESTS_MAX   ((size_t)1 << 30)
#define PROGRAM_BYTES  ((size_t)16 << 20) /* code, libraries, stacks, and memory that the allocator keeps */

void server_config(struct server *s, struct http_config *c)
{
    http_config_init(c);
    c->routes = api_routes(&c->n_routes);
    c->limits = api_limits();
    c->ledger = &s->requests;
    c->max_queue_bytes = QUEUE_BYTES;
    c->heartbeat_ms = HEARTBEAT_MS;
}

int server_share_memory(struct server *s, struct models_config *m, struct qn_error *e)
{
    uint64_t *memory = &m->engine.memory_bytes;
    mem_return_early();
    if (!*memory) *memory = os_memory_bytes();
    uint64_t n = *memory / REQUESTS_SHARE;
    if (n < REQUESTS_MIN) n = REQUESTS_MIN;
    if (n > REQUESTS_MAX) n = REQUESTS_MAX;
    ledger_init(&s->requests, n);
    s->program_bytes = os_anonymous_bytes() + PROGRAM_BYTES;
    uint64_t others = s->requests.budget + s->program_bytes;
    if (*memory <= others)
        return error_set(e, QN_ENOMEM, "%llu bytes of memory: requests and the program itself have %llu of them",
                         (unsigned long long)*memory, (unsigned long long)others);
    *memory -= others;
    return 0;
}

int server_listen(struct server *s, struct qn_error *e) { return http_listen(s->http, e); }

int server_load(struct server *s, const struct models_config *m, bool has_page, struct qn_error *e)
{
    struct models_config config = *m;
    config.requests = &s->requests;
    int rc = models_open(&s->models, &config, e);
    const struct api_config c = {
        .models = s->models,
        .requests = &s->requests,
        .program_bytes = s->program_bytes,
        .has_page = has_page,
        .receipts = {.kv = m->engine.kv, .pre = m->model.pre, .hash_dir = m->scheduler.hash_dir, .log = s->receipts}};
    return rc ? rc : api_new(&s->api, &c, e);
}

int server_start(struct server *s, struct qn_error *e) { return http_start(s->http, s->api, e); }

bool server_stop(struct server *s, int ms)
{
    api_stop(s->api, 0);
    models_stop(s->models);
    return api_stop(s->api, ms);
}

void server_close(struct server *s)
{
    if (s->api) api_stop(s->api, 0);
    if (s->models) models_stop(s->models);
    http_close(s->http);
    api_free(s->api);
    models_close(s->models);
}
