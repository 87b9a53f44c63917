/* SPDX-License-Identifier: MIT
 *
 * one_model.h: a set of models that is played: there is one, and it is always there. And what a worker does before the
 * work of a request begins. For tests that play the server and the scheduler as well; included by one file each.
 */
#ifndef QUERN_TESTS_ONE_MODEL_H
#define QUERN_TESTS_ONE_MODEL_H

#include "server/api/api_impl.h"

static struct served one_model = {.name = "m", .n_ctx = 4096}; /* model and chat are the test's to set */
static int one_n_holds;

enum models_answer models_acquire(struct models *s, const char *name, struct models_wait *w, struct served **out,
                                  struct fault *f)
{
    (void)s;
    (void)name;
    (void)w;
    (void)out;
    (void)f;
    return MODELS_REFUSED; /* workers ask, of which there are none */
}
struct served *models_hold(struct models *s, int i)
{
    (void)s;
    (void)i;
    return NULL; /* those who ask are workers too */
}
void models_release(struct served *m) { one_n_holds -= m != NULL; }
int models_count(const struct models *s) { return s == NULL; }
uint64_t models_budget_bytes(const struct models *s) { return s == NULL; }
const char *models_state_name(enum models_state s) { return s == MODEL_LOADED ? "loaded" : ""; }
int models_find(const struct models *s, const char *name, struct fault *f)
{
    (void)s;
    if (!strcmp(name, "m")) return 0;
    return fault_set(f, 404, "model_not_found", "model", "model '%s' not found", name);
}
int models_card(struct models *s, int i, struct model_card *out, struct qn_error *e)
{
    (void)s;
    (void)e;
    *out = (struct model_card){.fills_gaps = i == 0};
    return 0;
}
void models_look(struct models *s, int i, struct models_info *out)
{
    (void)s;
    *out = (struct models_info){.name = "m", .n_users = i};
}

/* A request as a worker gives it to its work; body is NULL, and the model not held, when it cannot be read. */
static struct api_call one_call(struct api *a, struct http_request *r, const char *prefix, const void *body, size_t n,
                                struct fault *f)
{
    struct api_call c = {.api = a, .req = r, .refuse = api_refuse_openai, .ticket = ticket_new(a, r, prefix, f)};
    if (c.ticket) c.body = field_parse_body(body, n, &c.ticket->cancel, f);
    if (c.body) c.served = &one_model;
    one_n_holds += c.body != NULL;
    return c;
}

/* What the work has not taken over. */
static void one_call_done(struct api_call *c)
{
    models_release(c->served);
    json_decref(c->body);
    ticket_free(c->ticket);
}

#endif
