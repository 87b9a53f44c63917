/* SPDX-License-Identifier: MIT
 *
 * server.h: the parts of a server, put together: a share of the memory for requests, the models, the API, the
 * connections.
 *
 * It is opened in four steps, because a daemon has work to do between them (it fences itself in). It is closed in an
 * order in which nothing is used after its end: running computations, connections, API, models.
 */
#ifndef QUERN_SERVER_SERVER_H
#define QUERN_SERVER_SERVER_H

#include "server/api/api.h"
#include "server/http/http.h"
#include "server/models/served.h"

struct server {
    struct ledger requests;
    size_t program_bytes;
    struct models *models;
    struct api *api;
    struct http *http;
    int receipts; /* the descriptor of a file for receipts, set before server_load(); 0: none */
};

/* Sets the limits and routes of an http_config. The caller adds listeners and the rules of access. */
void server_config(struct server *s, struct http_config *c);

/* 1. Divides the memory: takes the part for requests from m->engine.memory_bytes (0: what the machine has). Call it
 * while every file can be read. */
int server_share_memory(struct server *s, struct models_config *m, struct qn_error *e);
/* 2. Listens: who asks for /health learns that the server is starting, and other requests wait. http is open by now. */
int server_listen(struct server *s, struct qn_error *e);
/* 3. Loads the models. m is borrowed until server_close(). has_page: GET / is answered with the
 * page for browsers. */
int server_load(struct server *s, const struct models_config *m, bool has_page, struct qn_error *e);
/* 4. Answers. */
int server_start(struct server *s, struct qn_error *e);
/* The first half of the end, once no new requests come: ends requests that are read or run, and saves caches. Waits up
 * to ms milliseconds for those that are read; false: one of them has not ended, and server_close() would not return.
 * May be called again. */
bool server_stop(struct server *s, int ms);
/* Frees everything, after any of these steps or none, and ends running requests. */
void server_close(struct server *s);

#endif
