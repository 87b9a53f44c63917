/* SPDX-License-Identifier: MIT
 *
 * server.h: the parts of a server, put together: a share of the memory for requests, the models, the API, the
 * connections.
 *
 * Opened in three steps, because a daemon has something to do between them (it fences itself in), and closed in the
 * order that lets nothing be used after its end: what is computed, connections, API, models.
 */
#ifndef QUERN_SERVER_SERVER_H
#define QUERN_SERVER_SERVER_H

#include "server/api.h"
#include "server/http.h"
#include "server/models.h"

struct server {
    struct ledger requests;
    size_t program_bytes;
    struct models *models;
    struct api *api;
    struct http *http;
};

/* The limits and routes of an http_config; the caller adds listeners and who may come. */
void server_config(struct server *s, struct http_config *c);

/* 1. Divides the memory: a part of m->engine.memory_bytes (0: what the machine has) is for requests, and is taken from
 * it. While every file can be read. Only one server of a process counts its documents (json_out.h). */
int server_share_memory(struct server *s, struct models_config *m, struct qn_error *e);
/* 2. Loads models; http is open by now. m is borrowed until server_close(). */
int server_load(struct server *s, const struct models_config *m, struct qn_error *e);
/* 3. Answers. */
int server_start(struct server *s, struct qn_error *e);
/* The first half of the end, once nothing new comes in: ends what is read and what runs, and saves caches. Waits so
 * long for those that read; false: one of them has not ended, and server_close() would not return. May be called again.
 */
bool server_stop(struct server *s, int ms);
/* After any of these, or none. Ends what runs. */
void server_close(struct server *s);

#endif
