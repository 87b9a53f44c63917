/* SPDX-License-Identifier: MIT
 *
 * api.h: the APIs that are served over HTTP: routes, fields, answers. docs/API.md describes them for clients.
 *
 * The code uses quern.h only: everything is computed by the scheduler of the model that the request names. The routes
 * go into an http_config. Every request that the API takes from the HTTP server it gives back by answering.
 */
#ifndef QUERN_SERVER_API_H
#define QUERN_SERVER_API_H

#include <quern.h>

#include "server/api/receipts.h"
#include "server/http/http.h"
#include "server/models/served.h"

/* Everything it points to is borrowed until api_free(). */
struct api_config {
    struct models *models;
    struct ledger *requests; /* memory that requests take in addition to their places with a model; NULL: not counted */
    size_t program_bytes;    /* memory of the process that nothing else counts */
    struct receipts_config receipts;
    bool has_page; /* GET / is answered with the page for browsers */
    int n_workers; /* threads that read requests and turn text into tokens; 0: 2 */
};

struct api;
/* Starts the workers. *out is freed with api_free(). */
int api_new(struct api **out, const struct api_config *c, struct qn_error *e);
/* Ends requests that are still read or wait to be read: they are refused. Waits up to ms milliseconds for the workers.
 * false: a worker has not ended, and neither http_close() nor api_free() would return. Requests that were submitted are
 * ended by models_stop(). */
bool api_stop(struct api *a, int ms);
/* Call it after http_close() and models_stop(), when no request is under way. NULL is fine. */
void api_free(struct api *a);
/* The *n routes. Their context is the struct api. */
const struct http_route *api_routes(int *n);
/* The names of limits that keys may have (http_config.limits), ended by NULL. */
const char *const *api_limits(void);
/* Whether running requests make progress, as GET /health reports it. Any thread. */
bool api_is_healthy(struct api *a);

#endif
