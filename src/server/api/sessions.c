/* SPDX-License-Identifier: MIT
 *
 * sessions.c: GET and DELETE /v1/sessions: the conversations that an identity has left in the cache, listed and
 * dropped.
 *
 * The lists have numbers only, no text. Both run in a worker, because the scheduler answers them between two of its
 * steps.
 */
#include "server/api/endpoints.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT 100 /* conversations in one answer, unless limit says otherwise */
#define MOST    1000

/* One conversation and its model. */
struct session {
    struct qn_cached c;
    const char *model;
};

/* "s_" and 16 hexadecimal digits; 0: the text is no id. */
static uint64_t parse_id(const char *s)
{
    if (strncmp(s, "s_", 2) != 0 || strlen(s) != 18 || strspn(s + 2, "0123456789abcdef") != 16) return 0;
    return strtoull(s + 2, NULL, 16);
}

/* Adds a model's conversations to the list. */
static int collect(struct session **all, size_t *n_all, const struct served *m, uint64_t identity, struct qn_error *e)
{
    struct qn_cached *list;
    size_t n;
    int rc = qn_cache_list(m->scheduler, identity, &list, &n, e);
    if (rc) return rc;
    struct session *more = mem_realloc(*all, (*n_all + n) * sizeof *more);
    if (more) {
        *all = more;
        for (size_t i = 0; i < n; i++) more[(*n_all)++] = (struct session){list[i], m->name};
    } else {
        rc = error_nomem(e, "a list of conversations", n * sizeof *more);
    }
    qn_free(list);
    return rc;
}

/* Sorts by last use, the latest first; conversations without a use since the start come last. */
static int by_use(const void *a, const void *b)
{
    double x = ((const struct session *)a)->c.idle_s, y = ((const struct session *)b)->c.idle_s;
    if ((x < 0) != (y < 0)) return x < 0 ? 1 : -1;
    return (x > y) - (x < y);
}

static void write_one(struct json_out *o, const struct session *s)
{
    char id[24];
    snprintf(id, sizeof id, "s_%016" PRIx64, s->c.id);
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", id);
    json_out_str(o, "object", "session");
    json_out_str(o, "model", s->model);
    json_out_int(o, "tokens", s->c.n_tokens);
    json_out_int(o, "memory_bytes", (int64_t)s->c.memory_bytes);
    json_out_int(o, "disk_bytes", (int64_t)s->c.disk_bytes);
    if (s->c.idle_s < 0)
        json_out_str(o, "idle_seconds", NULL);
    else
        json_out_num(o, "idle_seconds", s->c.idle_s);
    json_out_close(o, '}');
}

static void send_list(struct api_call *c, const struct session *s, size_t n, size_t limit)
{
    struct json_out o = {.ledger = c->api->c.requests};
    uint64_t memory = 0, disk = 0;
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "object", "list");
    json_out_open(&o, "data", '[');
    for (size_t i = 0; i < n; i++) {
        memory += s[i].c.memory_part_bytes;
        disk += s[i].c.disk_part_bytes;
        if (i < limit) write_one(&o, &s[i]);
    }
    json_out_close(&o, ']');
    json_out_bool(&o, "has_more", n > limit);
    json_out_int(&o, "total", (int64_t)n);
    json_out_int(&o, "total_memory_bytes", (int64_t)memory);
    json_out_int(&o, "total_disk_bytes", (int64_t)disk);
    json_out_close(&o, '}');
    api_end(c, &o);
}

/* ?limit=N, 1 to MOST. */
static int read_limit(struct http_request *r, size_t *limit, struct fault *f)
{
    char text[64] = "";
    *limit = DEFAULT;
    int rc = http_query(r, "limit", text, sizeof text);
    if (rc == HTTP_NO_VALUE) return 0;
    size_t n = strlen(text);
    *limit = !rc && n && n < 9 && strspn(text, "0123456789") == n ? (size_t)strtoul(text, NULL, 10) : 0;
    if (*limit >= 1 && *limit <= MOST) return 0;
    return fault_set(f, 400, "out_of_range", "limit", "limit has to be 1 to %d, not '%s'", MOST, text);
}

/* The conversations of all models in memory. */
static int collect_all(struct session **all, size_t *n_all, struct models *set, uint64_t identity, struct qn_error *e)
{
    int rc = 0;
    for (int i = 0; i < models_count(set) && !rc; i++) {
        struct served *m = models_hold(set, i);
        if (m) rc = collect(all, n_all, m, identity, e);
        models_release(m);
    }
    return rc;
}

/* One conversation has its id while its model is in memory. All conversations are those of the other models, too. */
static int drop_all(struct models *set, uint64_t identity, uint64_t id, size_t *n_all, struct qn_error *e)
{
    int rc = 0;
    for (int i = 0; i < models_count(set) && !rc; i++) {
        struct served *m = models_hold(set, i);
        size_t n = 0;
        if (m)
            rc = qn_cache_drop(m->scheduler, identity, id, &n, e);
        else if (!id)
            rc = models_drop_files(set, i, identity, &n, e);
        models_release(m);
        *n_all += n;
    }
    return rc;
}

void endpoint_sessions(struct api_call *c)
{
    struct session *all = NULL;
    struct qn_error e;
    struct fault f;
    size_t n = 0, limit;
    if (read_limit(c->req, &limit, &f)) {
        api_end_refused(c, &f);
        return;
    }
    if (collect_all(&all, &n, c->api->c.models, who_of(http_identity(c->req), NULL).identity, &e)) {
        api_fault(&f, &e);
        api_end_refused(c, &f);
    } else {
        if (n) qsort(all, n, sizeof *all, by_use);
        send_list(c, all, n, limit);
    }
    mem_free(all);
}

/* Drops one conversation, or all if the path has no id. */
void endpoint_drop_sessions(struct api_call *c)
{
    const char *name = http_param(c->req);
    uint64_t id = name ? parse_id(name) : 0, identity = who_of(http_identity(c->req), NULL).identity;
    struct json_out o = {.ledger = c->api->c.requests};
    struct qn_error e;
    struct fault f;
    size_t n = 0;
    if ((!name || id) && drop_all(c->api->c.models, identity, id, &n, &e)) {
        api_fault(&f, &e);
        if (e.code == QN_EBUSY) fault_set(&f, 503, "models_busy", NULL, "%s", e.msg);
        api_end_refused(c, &f);
        return;
    }
    if (name && n == 0) {
        ticket_unlist(c->ticket);
        http_error(c->req, 404, "id", "session_not_found", "you have no session '%s'", name);
        return;
    }
    json_out_open(&o, NULL, '{');
    if (name) json_out_str(&o, "id", name);
    json_out_str(&o, "object", "session.deleted");
    json_out_int(&o, "deleted", (int64_t)n);
    json_out_close(&o, '}');
    api_end(c, &o);
}
