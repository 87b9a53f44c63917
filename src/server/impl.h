/* SPDX-License-Identifier: MIT
 *
 * impl.h: what the parts of the server share: struct http, its connections and requests. docs/THREADS.md tells which
 * thread touches what; in short, everything below is under http.lock but for what its comment says.
 *
 *     door.c     the thread that accepts, sees clients leave, and keeps the deadlines
 *     conn.c     connections: the table, the deadlines' lists, hanging up
 *     check.c    may a request come in?
 *     request.c  from the first line of a request to its handler, in libmicrohttpd's thread
 *     reply.c    answers and streams, from any thread
 *     http.c     opening, starting, reloading, draining, closing
 */
#ifndef QUERN_SERVER_IMPL_H
#define QUERN_SERVER_IMPL_H

#include <pthread.h>
#include <microhttpd.h>

#include "base/buf.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/listen.h"
#include "server/tls.h"

/* What a connection is waited for, each with its own time span; a list is in order of time because spans are equal. */
enum due_kind { DUE_HEADER, DUE_IDLE, DUE_BODY, DUE_HEARTBEAT, N_DUE, DUE_NOTHING = N_DUE };

struct conn {
    struct http *http;
    int fd;       /* libmicrohttpd's to read, write and close; ours to watch and to shut down while in the table */
    uint32_t gen; /* tells this connection from an earlier one with the same fd in events that come late */
    const struct listener *listener;
    uid_t uid;                /* of the peer on a Unix socket */
    struct http_request *req; /* the current one, from its first line until it is completed */
    int hung_up;              /* the client has closed, or we have shut it down */
    enum due_kind due;
    uint64_t due_ns; /* clock_ns() */
    struct conn *due_prev, *due_next;
};

#define N_REPLY_HEADERS 8
#define QUEUE_BYTES     4096      /* of a stream's queue, held from the request's beginning to its end */
#define ANSWER_BYTES    (8 << 10) /* of a connection's memory in libmicrohttpd, for what is sent */

struct http_request {
    struct http *http;
    struct conn *conn;          /* NULL once completed */
    struct MHD_Connection *mhd; /* likewise */
    int n_refs;                 /* libmicrohttpd's, the handler's side's, the stream's reader's */
    int held;                   /* the handler's side owes the answer */
    int running;                /* counted in http.n_running */
    int suspended;              /* nothing happens in libmicrohttpd until resume() */
    int gone;                   /* nobody will see what is still said */
    int answered;               /* response is there, or was queued */
    int want_room;

    /* Written in libmicrohttpd's thread before the handler runs, constant from then on, no lock. */
    char *path, *query, *param;
    char method[16], id[24], trace[56];
    struct http_identity who;
    struct buf body;
    size_t n_discarded;             /* bytes of a body that were thrown away */
    size_t answer_taken;            /* bytes of the whole answer, from the ledger until it is sent */
    int stage;                      /* enum stage in request.c */
    uint64_t t0_ns;
    char *origin; /* an allowed one, echoed */

    struct http_watch watch;
    struct MHD_Response *response; /* not yet queued */
    int status;
    struct buf queue; /* of a stream: bytes from queue_at on are to be sent */
    size_t queue_at;
    int streaming, ended, broken;
    uint64_t n_sent;
    struct {
        char *name, *value;
    } header[N_REPLY_HEADERS];
    int n_headers;
};

struct http {
    struct http_config c;
    struct listener *listener;  /* [c.n_listen] */
    void *ctx;                  /* for the handlers */
    pthread_rwlock_t keys_lock; /* of `keys` alone: a leaf */
    struct keys keys;
    struct tls_cert *cert; /* what new sessions show; NULL when no listener has TLS */
    uint64_t id_base;      /* request ids: random start, counted */
    struct MHD_Daemon *plain, *tls;
    pthread_t door;
    int has_door, epoll_fd, wake_fd;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* n_running, n_held, n_alive */
    struct conn **conn;     /* [n_slots], by fd; NULL: none */
    size_t n_slots;
    int n_conns;
    uint32_t next_gen;
    uint64_t n_requests;
    int n_running;                  /* requests between their handler's call and their completion */
    int n_held;                     /* requests that handlers still owe an answer */
    int n_alive;                    /* requests not freed: somebody may be about to touch struct http */
    int draining, shut, door_stops; /* shut: the listeners are closed, nothing is accepted any more */
    uint64_t linger_ns;             /* while draining: until then new connections may bring a request */
    struct {
        uint64_t span_ns;
        struct conn *head, *tail;
    } due[N_DUE];
    int n_due;
    int door_is_idle; /* nothing was due when it went to sleep: it sleeps until it is woken */
};

/* ---- conn.c; all under the lock ---- */

int conn_add(struct http *h, int fd, const struct listener *l, uid_t uid);
void conn_remove(struct conn *c); /* frees it */
void conn_wait(struct conn *c, enum due_kind kind);
/* The client cannot be reached any more: the request ends, the socket is shut down. */
void conn_hang_up(struct conn *c);
void conn_resume(struct http_request *r);

/* ---- door.c ---- */

/* An event's data: a connection is its generation and fd; a listener, or the wake-up, is an index with this bit. */
#define DOOR_OTHER (1ull << 63)
#define DOOR_WAKE  (DOOR_OTHER | 0xFFFFFFFF)

void door_wake(struct http *h); /* any thread */
void *door_main(void *http);

/* ---- request.c: libmicrohttpd's callbacks, and the life of a request ---- */

void *request_target(void *cls, const char *target, struct MHD_Connection *mhd);
enum MHD_Result request_handle(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *data, size_t *n_data, void **req_cls);
void request_completed(void *cls, struct MHD_Connection *mhd, void **req_cls, enum MHD_RequestTerminationCode why);
void request_connection(void *cls, struct MHD_Connection *mhd, void **socket_cls,
                        enum MHD_ConnectionNotificationCode what);
void request_unref(struct http_request *r); /* without the lock */
void request_given_back(
    struct http_request *r); /* the answer is not owed any more; under the lock, an unref has to follow */

/* ---- check.c ---- */

#define DISCARD_BYTES ((size_t)64 << 20) /* of a refused request's body are read and thrown away */

/* Answers what it refuses; its body is to be discarded, or not read at all and the connection closed. */
enum check_result { CHECK_OK, CHECK_DISCARD, CHECK_CLOSE } check_headers(struct http_request *r);

/* ---- reply.c ---- */

/* The body of an error into text, at least 128 bytes; returns its length. */
size_t error_json(char *text, size_t cap, int status, const char *param, const char *code, const char *message);
/* Has the heartbeat callback say something if there is silence. Under the lock. */
void stream_heartbeat(struct http_request *r);

#endif
