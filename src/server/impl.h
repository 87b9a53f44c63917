/* SPDX-License-Identifier: MIT
 *
 * impl.h: what the parts of the server share: struct http, its connections and requests. docs/THREADS.md tells which
 * thread touches what; in short, everything below is under http.lock but for what its comment says.
 *
 *     door.c     the thread of the server: accepts, waits for sockets and deadlines, sees clients leave
 *     place.c    how many connections may be open, and whose
 *     conn.c     connections: the table, the deadlines' lists, hanging up
 *     wire.c     the bytes of a connection, plain or encrypted, and its turn: head, body, answer, the next head
 *     check.c    may a request come in?
 *     request.c  from a request's head to its handler, and its end
 *     reply.c    answers and streams, from any thread
 *     http.c     opening, starting, reloading, draining, closing
 */
#ifndef QUERN_SERVER_IMPL_H
#define QUERN_SERVER_IMPL_H

#include <pthread.h>
#include <gnutls/gnutls.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "server/head.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/listen.h"
#include "server/tls.h"

/* What a connection is waited for, each with its own time span; a list is in order of time because spans are equal. */
enum due_kind {
    DUE_HEADER,
    DUE_IDLE,
    DUE_BODY,
    DUE_HEARTBEAT,
    DUE_SEND,
    DUE_LINGER,
    DUE_SHORT,
    N_DUE,
    DUE_NOTHING = N_DUE
};

enum conn_state { AT_HANDSHAKE, AT_HEAD, AT_BODY, AT_HANDLER, AT_ANSWER, AT_LINGER };

/* Whose a connection is: those of one peer share a number of places. */
struct peer {
    uint8_t kind;   /* enum in place.c */
    uint8_t id[15]; /* IPv4 address, the first 64 bits of an IPv6 address, user id; the rest is 0 */
};

struct conn {
    struct http *http;
    int fd;
    uint32_t gen; /* tells this connection from an earlier one with the same fd in events that come late */
    const struct listener *listener;
    uid_t uid; /* of the peer on a Unix socket */
    struct peer peer;
    int is_short;             /* beyond the places for all requests: asks a public route, once */
    struct http_request *req; /* the current one, from its head until it is completed */
    int hung_up;              /* the client has closed, or we have shut it down */
    int begun;                /* bytes of a request have come that has no end yet */
    int blocked;              /* the socket takes no more of the answer: waited for with DUE_SEND */
    enum due_kind due;
    uint64_t due_ns; /* clock_ns() */
    struct conn *due_prev, *due_next;
    int queued; /* in http.ready: has its turn soon */
    struct conn *next_ready;

    /* The server's thread alone, no lock. */
    gnutls_session_t tls; /* NULL: plain */
    int tls_waits;        /* in its last call the socket had no bytes, or took none */
    enum conn_state state;
    enum due_kind late;     /* what came too late; DUE_NOTHING */
    struct buf in;          /* what has come and was not read yet */
    size_t in_at, scanned;  /* read so far; of a head, looked at */
    int skipped;            /* an empty line before the head */
    struct buf out;         /* what is to be sent next */
    size_t out_at, body_at; /* sent of it, and of the whole answer behind it */
    int64_t body_left;      /* of a body with a length; -1: it comes in chunks */
    struct chunks chunks;
    size_t n_lingered;
};

#define N_REPLY_HEADERS 8
#define QUEUE_BYTES     4096        /* of a stream's queue, held from the request's beginning to its end */
#define ANSWER_BYTES    (8 << 10)   /* of a connection's memory, for what is sent */
#define SCRATCH_BYTES   (64u << 10) /* what is read at once */

struct http_request {
    struct http *http;
    struct conn *conn; /* NULL once completed */
    int n_refs;        /* the connection's, the handler's side's */
    int held;          /* the handler's side owes the answer */
    int running;       /* counted in http.n_running */
    int gone;          /* nobody will see what is still said */
    int answered;      /* there is something to send */
    int want_room;

    /* Written in the server's thread before the handler runs, constant from then on, no lock. */
    char *text; /* what the head points into, until the handler has run */
    struct head head;
    char *path, *query, *param;
    char method[16], id[24], trace[56];
    struct http_identity who;
    struct buf body;
    size_t n_discarded;  /* bytes of a body that were thrown away */
    size_t answer_taken; /* bytes of the whole answer, from the ledger until it is sent */
    int head_minor;      /* of HTTP/1.x */
    int64_t n_body;      /* as declared; -1: in chunks */
    int expects;         /* 100-continue */
    int in_handler;      /* the handler was called */
    uint64_t t0_ns;
    char *origin; /* an allowed one, echoed */

    /* The server's thread alone. */
    int close, head_sent, ended_sent;

    struct http_watch watch;
    int status;
    char type[64];     /* Content-Type; "": none */
    struct buf answer; /* the whole one */
    struct buf queue;  /* of a stream: bytes from queue_at on are to be sent */
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
    struct peer *proxy;         /* [c.n_proxies] */
    void *ctx;                  /* for the handlers */
    pthread_rwlock_t keys_lock; /* of `keys` alone: a leaf */
    struct keys keys;
    struct tls_cert *cert; /* what new sessions show; NULL when no listener has TLS */
    uint64_t id_base;      /* request ids: random start, counted */
    pthread_t door;
    int has_door, epoll_fd, wake_fd;
    uint8_t *scratch; /* [SCRATCH_BYTES], the server's thread's */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* n_running, n_held, n_alive */
    struct conn **conn;     /* [n_slots], by fd; NULL: none */
    size_t n_slots;
    int n_conns, n_short; /* all of them; those that are short */
    struct conn *ready, **ready_tail;
    uint32_t next_gen;
    uint64_t n_requests;
    struct http_refused refused;
    uint64_t refused_told_ns;       /* when the log said so last */
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

/* ---- place.c ---- */

enum place { PLACE_NONE, PLACE_SHORT, PLACE_ANY };

struct peer peer_of(const struct sockaddr *a, uid_t uid);
int peer_read(struct peer *p, const char *address, struct qn_error *e);
/* Fills in what was left to us: how many connections, of one peer, and kept. */
int place_init(struct http *h, struct qn_error *e);
/* Where a new connection may go; counted if it is refused. Under the lock. */
enum place place_for(struct http *h, const struct peer *p, int is_unix, const char **why);

void place_refused(struct http *h, const char *why); /* says so, now and then; without the lock */

/* ---- conn.c; all under the lock ---- */

int conn_add(struct http *h, int fd, const struct listener *l, uid_t uid);
void conn_remove(struct conn *c); /* closes and frees it; in the server's thread, or after its end */
void conn_wait(struct conn *c, enum due_kind kind);
/* The client cannot be reached any more: the request ends, the socket is shut down. */
void conn_hang_up(struct conn *c);
/* It gets a turn. Returns whether the server's thread has to be woken for that. */
int conn_queue(struct conn *c);
void conn_poke(struct conn *c); /* wakes it */

/* ---- wire.c: the server's thread, without the lock ---- */

int wire_begin(struct conn *c); /* TLS, if it has that; -1: out of memory */
void wire_turn(struct conn *c); /* does what can be done; may close it */

/* ---- door.c ---- */

/* An event's data: a connection is its generation and fd; a listener, or the wake-up, is an index with this bit. */
#define DOOR_OTHER (1ull << 63)
#define DOOR_WAKE  (DOOR_OTHER | 0xFFFFFFFF)

void door_wake(struct http *h); /* any thread */
void *door_main(void *http);

/* ---- request.c: the life of a request; the server's thread, without the lock ---- */

/* A request from a whole head, of n bytes, or of none: it is refused with a status. Answered or not; -1: no memory. */
int request_begin(struct conn *c, const uint8_t *head, size_t n, int status, const char *why);
/* A piece of its body, which is collected or thrown away. -1: too much to be thrown away. */
int request_body(struct http_request *r, const uint8_t *p, size_t n);
void request_run(struct http_request *r); /* all of it is there */
/* Refuses what was not refused yet; the connection is of no use after it. */
void request_spoil(struct http_request *r, int status, const char *why);
void request_completed(struct conn *c, int whole); /* the connection has no request any more */
void request_unref(struct http_request *r);        /* without the lock */
void request_given_back(
    struct http_request *r); /* the answer is not owed any more; under the lock, an unref has to follow */

/* ---- check.c ---- */

#define DISCARD_BYTES ((size_t)64 << 20) /* of a refused request's body are read and thrown away */

/* Answers what it refuses; its body is to be discarded, or not read at all and the connection closed. */
enum check_result { CHECK_OK, CHECK_DISCARD, CHECK_CLOSE } check_headers(struct http_request *r);

/* ---- reply.c ---- */

/* The body of an error into text, at least 128 bytes; returns its length. */
size_t error_json(char *text, size_t cap, int status, const char *param, const char *code, const char *message);
const char *reply_reason(int status);
/* The head of the answer, as it goes out. */
int reply_head(struct buf *out, const struct http_request *r, int close);
/* The next bytes of a stream, as they go out. Under the lock. REPLY_WAIT: none now, it will be poked. */
enum reply_state {
    REPLY_MORE,
    REPLY_WAIT,
    REPLY_DONE,
    REPLY_BROKEN
} reply_next(struct buf *out, struct http_request *r);
void stream_silence(struct http_request *r); /* is measured from now on, if it matters; under the lock */
/* Has the heartbeat callback say something if there is silence. Under the lock. */
void stream_heartbeat(struct http_request *r);

#endif
