/* SPDX-License-Identifier: MIT
 *
 * model_list.c: GET /v1/models and /v1/models/{name}: the models that are served, under their names and their aliases.
 * These are handlers and do not wait.
 *
 * The members of OpenAI's and of Anthropic's lists do not clash, so every answer has both. Only errors are in the words
 * of one API: Anthropic's if the request has the header anthropic-version.
 *
 * Source: the API references of OpenAI ("Models") and Anthropic ("List models", "Get a model").
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/endpoints.h"

#define MOST_LIMIT 1000 /* as in the Anthropic API */

/* An entry of the list: a model under one of its names. */
struct listed {
    const char *name;
    int model; /* which one */
};

/* The k-th entry: the models come first, then the aliases. */
static struct listed entry(const struct api *a, int k)
{
    int n_models = models_count(a->c.models), n;
    struct models_info m;
    struct fault f;
    if (k >= n_models) {
        const struct models_alias *alias = &models_aliases(a->c.models, &n)[k - n_models];
        return (struct listed){alias->name, models_find(a->c.models, alias->model, &f)};
    }
    models_look(a->c.models, k, &m);
    return (struct listed){m.name, k};
}

static int n_entries(const struct api *a)
{
    int n;
    models_aliases(a->c.models, &n);
    return models_count(a->c.models) + n;
}

static void write_entry(const struct api *a, struct json_out *o, const struct listed *l)
{
    struct models_info m;
    models_look(a->c.models, l->model, &m);
    status_write_model(o, l->name, &m, a->start_s);
}

static api_refuse *refusal(const struct http_request *r)
{
    return http_header(r, "anthropic-version") ? api_refuse_anthropic : api_refuse_openai;
}

/* ---- a part of the list ---- */

struct models_part {
    int from, to; /* entries */
    bool has_more;
};

/* Reads the name of an entry from the query. *k: its place; unchanged if the query has no such name. */
static int read_place(const struct api *a, const struct http_request *r, const char *param, int *k, struct fault *f)
{
    char name[1024] = "";
    int rc = http_query(r, param, name, sizeof name), n = n_entries(a);
    if (rc == HTTP_NO_VALUE) return 0;
    for (int i = 0; i < n && !rc; i++)
        if (!strcmp(entry(a, i).name, name)) {
            *k = i;
            return 0;
        }
    return fault_set(f, 404, "model_not_found", param, "%s: there is no model '%.200s' in the list", param, name);
}

static int read_limit(const struct http_request *r, int *limit, struct fault *f)
{
    char text[16] = "";
    int rc = http_query(r, "limit", text, sizeof text);
    if (rc == HTTP_NO_VALUE) return 0;
    size_t n = strlen(text);
    *limit = !rc && n && n < 6 && strspn(text, "0123456789") == n ? atoi(text) : 0;
    if (*limit >= 1 && *limit <= MOST_LIMIT) return 0;
    return fault_set(f, 400, "out_of_range", "limit", "limit has to be 1 to %d", MOST_LIMIT);
}

/* The entries after after_id and before before_id. With before_id alone, a limit keeps the last ones. */
static int read_part(const struct api *a, const struct http_request *r, struct models_part *p, struct fault *f)
{
    int after = -1, before = n_entries(a), limit = before, end = before;
    if (read_limit(r, &limit, f) || read_place(a, r, "after_id", &after, f) ||
        read_place(a, r, "before_id", &before, f))
        return -1;
    *p = (struct models_part){after + 1, before > after ? before : after + 1, false};
    p->has_more = p->to - p->from > limit;
    if (p->has_more && before < end && after < 0)
        p->from = p->to - limit;
    else if (p->has_more)
        p->to = p->from + limit;
    return 0;
}

static void write_id(const struct api *a, struct json_out *o, const char *key, const struct models_part *p, int k)
{
    json_out_str(o, key, p->from < p->to ? entry(a, k).name : NULL);
}

/* ---- endpoints ---- */

void endpoint_models(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    struct fault f;
    struct models_part p;
    if (read_part(a, r, &p, &f)) {
        refusal(r)(r, &f);
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "object", "list");
    json_out_open(&o, "data", '[');
    for (int k = p.from; k < p.to; k++) {
        struct listed l = entry(a, k);
        write_entry(a, &o, &l);
    }
    json_out_close(&o, ']');
    json_out_bool(&o, "has_more", p.has_more);
    write_id(a, &o, "first_id", &p, p.from);
    write_id(a, &o, "last_id", &p, p.to - 1);
    json_out_close(&o, '}');
    api_send(r, &o);
}

void endpoint_model(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    struct fault f;
    struct listed l = {http_param(r), models_find(a->c.models, http_param(r), &f)};
    if (l.model < 0) {
        refusal(r)(r, &f);
        return;
    }
    write_entry(a, &o, &l);
    api_send(r, &o);
}
