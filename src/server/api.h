/* SPDX-License-Identifier: MIT
 *
 * api.h: the APIs that are served over HTTP: routes, fields, answers. What they are is told in docs/API.md.
 *
 * Written against quern.h: everything that is computed goes through the scheduler of the model that was asked for. The
 * routes go into an http_config; what an API object takes from the HTTP server it gives back by answering.
 */
#ifndef QUERN_SERVER_API_H
#define QUERN_SERVER_API_H

#include <quern.h>

#include "server/http.h"
#include "server/models.h"

/* What it points to is borrowed until api_free(). */
struct api_config {
    struct models *models;
    struct ledger *requests; /* what requests take beside their places with a model; NULL: not counted */
    size_t program_bytes;    /* what the process takes beside all that is counted */
    int n_workers;           /* threads that read requests and turn text into tokens; 0: 2 */
};

struct api;
int api_new(struct api **out, const struct api_config *c, struct qn_error *e);
/* No request is wanted any more: those that are read, or wait to be, are refused. Waits so long for the workers; false:
 * one has not ended, and neither http_close() nor api_free() would return. What is submitted is models_stop()'s to end.
 */
bool api_stop(struct api *a, int ms);
/* After http_close() and models_stop(): no request is under way. NULL is fine. */
void api_free(struct api *a);
/* The routes; their context is the struct api. */
const struct http_route *api_routes(int *n);
/* The limits that keys may have (http_config.limits). */
const char *const *api_limits(void);
/* Whether what runs makes progress, as GET /health says it. Any thread. */
bool api_is_healthy(struct api *a);

#endif
