/* SPDX-License-Identifier: MIT
 *
 * impl.h: what the parts of the HTTP server share: struct http, its connections and its requests. docs/THREADS.md says
 * which thread touches what. In short: a member is under http.lock unless its comment says otherwise.
 *
 *     door.c          the server's thread: accepts, waits for sockets and deadlines, sees clients leave
 *     conn_limit.c    how many connections may be open, and whose
 *     conn.c          the table of connections, the lists of deadlines, hanging up
 *     wire.c          the turn of a connection: head, body, answer, the next head
 *     wire_bytes.c    the bytes of a connection, plain or encrypted
 *     check_head.c    whether a request may come in
 *     http_request.c  a request from its head to its handler, and its end
 *     reply.c         answers and streams, from any thread
 *     ws_open.c       the request for a WebSocket
 *     websocket.c     a connection that has become one
 *     http.c          opening, starting, reloading, draining, closing
 *
 * These files are one module and not layers, because their calls go around in a ring: the door gives a connection its
 * turn (wire.c), the turn begins a request, which is checked and may be answered at once, and an answer, from any
 * thread, gives the connection another turn and wakes the door. All of it is guarded by one lock. What has no part in
 * the ring has headers of its own: head.h, route.h, web_origin.h, api_keys.h, tls.h, listen.h, systemd.h.
 */
#ifndef QUERN_SERVER_IMPL_H
#define QUERN_SERVER_IMPL_H

#include <pthread.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "server/http/head.h"
#include "server/http/http.h"
#include "server/http/api_keys.h"
#include "server/http/listen.h"
#include "server/http/tls.h"
#include "server/http/ws_frame.h"

/* The deadlines of a connection. Each kind has one time span, so a list of them in order of arrival is in order of
 * time. */
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

enum conn_state { AT_FIRST, AT_HANDSHAKE, AT_HEAD, AT_HOLD, AT_BODY, AT_HANDLER, AT_ANSWER, AT_WEBSOCKET, AT_LINGER };

/* The client that a connection counts for: all connections of one peer share a number of places. */
struct peer {
    uint8_t kind;   /* enum in conn_limit.c */
    uint8_t id[15]; /* the IPv4 address, the first 64 bits of the IPv6 address, or the user id; the rest is 0 */
};

struct conn {
    struct http *http;
    int fd;
    uint32_t gen; /* generation: late events of an earlier connection with the same fd have another one */
    const struct listener *listener;
    uid_t uid; /* the user at the other end of a Unix socket */
    struct peer peer;
    bool is_short;               /* has no ordinary place: may ask one public route, once */
    struct http_request *req;    /* the current request, from its head until it is completed; NULL between requests */
    struct websocket *websocket; /* once it is asked for; constant from then on */
    bool hung_up;                /* the client has closed the connection, or we have shut it down */
    bool begun;                  /* part of a request has come, and its end has not */
    bool blocked;                /* the socket takes no more of the answer; the deadline is DUE_SEND */
    enum due_kind due;
    uint64_t due_ns; /* clock_ns() */
    struct conn *due_prev, *due_next;
    bool queued; /* is in http.ready: its turn will come soon */
    struct conn *next_ready;

    /* For the server's thread alone, without the lock. */
    gnutls_session_t tls; /* NULL: plain */
    bool tls_waits;       /* the last TLS call found no bytes in the socket, or no room */
    bool is_misled;       /* the client speaks plain HTTP where TLS is expected: it is told so, in plain HTTP */
    enum conn_state state;
    enum due_kind late;     /* the deadline that has passed and that the next turn handles; DUE_NOTHING: none */
    struct buf in;          /* bytes that have come */
    size_t in_at, scanned;  /* bytes of it that were read; bytes of a head that were searched for its end */
    bool skipped;           /* an empty line before the head was skipped */
    struct buf out;         /* bytes to be sent next */
    size_t out_at, body_at; /* bytes that were sent of it; and of the whole answer, which goes out after it */
    int64_t body_left;      /* bytes of the body that have not come; -1: the body comes in chunks */
    struct chunks chunks;
    size_t n_lingered;
};

#define N_REPLY_HEADERS 8
#define QUEUE_BYTES     4096        /* memory of a stream's queue, held from the request's beginning to its end */
#define ANSWER_BYTES    (8 << 10)   /* the part of a connection's memory that is for sending */
#define SCRATCH_BYTES   (64u << 10) /* the most bytes that are read at once */

/* A connection that has become a WebSocket. Its requests are its messages. */
struct websocket {
    struct http_request *first; /* requests under way, linked by next_message; the one to be served next is first */
    int n_requests;
    int end_code; /* no more requests are taken, and it is closed with this code when none is under way; 0: not yet */
    bool closed;  /* the close frame was sent */

    /* For the server's thread alone. */
    uint64_t id;
    const struct http_route *route;
    struct http_identity who;
    struct frames frames;
    struct buf message;           /* the one that comes; from the ledger */
    struct http_request *sending; /* some of its bytes were sent, and a frame may not be complete */
    uint8_t pong[FRAME_CONTROL_BYTES];
    uint8_t n_pong;
    bool owes_pong, owes_ping, is_silent; /* silent: nothing came since our ping */
    int close_code;                       /* it is to be closed with this code; 0: not yet */
};

struct http_request {
    struct http *http;
    uint64_t websocket_id; /* of the WebSocket whose message it is; 0: it came with a head. Constant */
    struct http_request *next_message;
    struct buf label;  /* members of each message of the answer, `"a":"b",`; before the answer */
    struct conn *conn; /* NULL once completed */
    int n_refs;        /* references: one of the connection, one of the handler's side */
    bool held;         /* the handler's side owes the answer */
    bool running;      /* counted in http.n_running */
    bool gone;         /* nobody will see the answer any more */
    bool answered;     /* the answer has begun */
    bool want_room;

    /* Written in the server's thread before the handler runs, and constant from then on: no lock. */
    char *text; /* the bytes that the head points into; freed after the handler */
    struct head head;
    char *path, *query, *param;
    char method[16], id[24], trace[56];
    const struct http_route *route; /* NULL: not known yet, or none */
    struct http_identity who;
    struct buf body;
    size_t n_discarded;          /* bytes of the body that were thrown away */
    size_t answer_taken;         /* bytes taken from the ledger for the whole answer, until it is sent */
    int head_minor;              /* of HTTP/1.x */
    int64_t n_body;              /* bytes, as the head declares them; -1: in chunks */
    bool expects;                /* 100-continue */
    bool in_handler;             /* the handler was called */
    uint64_t t0_ns, t1_ns;       /* when its head was there; when it was completed */
    char note[224], outcome[32]; /* for the log: see http_note() */
    bool is_whole;               /* the answer was sent completely */
    char *origin;                /* the web origin, if it is allowed: the answer repeats it */

    /* For the server's thread alone. */
    bool close, head_sent, ended_sent;

    struct http_watch watch;
    int status;
    char type[64];     /* Content-Type; "": none */
    struct buf answer; /* the whole one */
    struct buf queue;  /* of a stream: the bytes from queue_at on are to be sent */
    size_t queue_at;
    bool streaming, ended, broken;
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
    pthread_rwlock_t keys_lock; /* guards `keys` and nothing else; a leaf */
    struct api_keys keys;
    struct tls_cert *cert; /* the certificate for new sessions; NULL when no listener has TLS */
    uint64_t id_base;      /* the first request id, random; the others count from it */
    pthread_t door;
    bool has_door;
    int epoll_fd, wake_fd;
    uint8_t *scratch; /* [SCRATCH_BYTES], for the server's thread */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled when n_running, n_held or n_alive changes */
    struct conn **conn;     /* [n_slots], by fd; NULL: none */
    size_t n_slots;
    int n_conns, n_short; /* all connections; the short ones among them */
    struct conn *ready, **ready_tail;
    uint32_t next_gen;
    uint64_t n_requests;
    struct http_refused refused;
    uint64_t *counts;         /* [c.n_routes + 1][N_STATUS] requests that have ended; the last row is for no route */
    uint64_t refused_told_ns; /* when the log last mentioned them */
    int n_running;            /* requests between their handler's call and their completion */
    int n_held;               /* requests that handlers still owe an answer */
    int n_alive;              /* requests that are not freed: a thread may be about to touch struct http */
    bool is_ready;            /* handlers may be called, with ctx */
    bool draining, shut, door_stops; /* shut: the listeners are closed, nothing is accepted any more */
    uint64_t linger_ns;              /* while draining: until this time new connections may bring a request */
    struct {
        uint64_t span_ns;
        struct conn *head, *tail;
    } due[N_DUE];
    int n_due;
    bool door_is_idle; /* nothing was due when the door went to sleep, so it sleeps until it is woken */
};

/* ---- conn_limit.c ---- */

enum conn_place { PLACE_NONE, PLACE_SHORT, PLACE_ANY };

struct peer peer_of(const struct sockaddr *a, uid_t uid);
int peer_read(struct peer *p, const char *address, struct qn_error *e);
/* Fills in the numbers that the configuration leaves open: connections, those of one peer, those kept back. */
int place_init(struct http *h, struct qn_error *e);
/* The place that a new connection gets. *why, and a count, when it gets none. Under the lock. */
enum conn_place place_for(struct http *h, const struct peer *p, bool is_unix, const char **why);

void place_refused(struct http *h, const char *why); /* writes it to the log now and then; without the lock */

/* ---- conn.c; all under the lock ---- */

int conn_add(struct http *h, int fd, const struct listener *l, uid_t uid);
void conn_remove(struct conn *c); /* closes and frees it; in the server's thread, or after that thread's end */
void conn_wait(struct conn *c, enum due_kind kind);
/* The client is gone or is sent away: its request ends and the socket is shut down. */
void conn_hang_up(struct conn *c);
/* Gives it a turn. Returns true if the server's thread has to be woken for that. */
bool conn_queue(struct conn *c);
void conn_poke(struct conn *c); /* gives it a turn, and wakes the thread if necessary */

/* ---- wire_bytes.c: the server's thread, without the lock ---- */

enum turn_end { GO, WAIT, CLOSE };

int wire_begin(struct conn *c); /* starts TLS if its listener has it; -1: out of memory */
/* Looks at the first byte without taking it: in TLS it is never a letter, in HTTP it is one. */
enum turn_end wire_first_byte(struct conn *c);
enum turn_end wire_handshake(struct conn *c);

enum { NONE_NOW = 0, NEVER_AGAIN = -1, COME_BACK = -2 };
/* Takes up to n bytes from the socket. Returns their number, or one of the values above. */
ssize_t wire_receive(struct conn *c, void *p, size_t n);
enum turn_end wire_without_bytes(ssize_t k); /* what one of these values means for the turn */
/* Returns how many of the bytes were sent. 0: the socket is full; -1: the connection is broken. */
ssize_t wire_transmit(struct conn *c, const void *p, size_t n);

const uint8_t *wire_unread(const struct conn *c, size_t *n); /* bytes that were not read yet; NULL if there are none */
void wire_drop_read(struct conn *c);                         /* removes the bytes that were read from the buffer */
/* Reads n bytes at most: those that came before, which are consumed with wire_used(), or new ones. GO: there are *n
 * bytes at *p, which may be changed. */
enum turn_end wire_read(struct conn *c, size_t n_most, uint8_t **p, size_t *n);
enum turn_end wire_used(struct conn *c, uint8_t *p, size_t n, size_t used); /* used of these n bytes were read */

/* ---- wire.c: the server's thread, without the lock ---- */

void wire_turn(struct conn *c);            /* does everything that can be done now; may free the connection */
enum turn_end wire_flush(struct conn *c);  /* GO: everything that was made is sent */
void wire_end(struct conn *c);             /* tells the client that nothing more is sent; wire_linger() follows */
enum turn_end wire_linger(struct conn *c); /* what comes is thrown away for a while */

/* ---- ws_open.c: the server's thread, without the lock ---- */

/* Refuses a request for a WebSocket that is not in order. Returns true if it has answered. */
bool websocket_check(struct http_request *r);
/* The API key among the subprotocols that are offered, because pages cannot set other headers; NULL: none. */
const char *websocket_key(const struct head *h, char *room, size_t cap);
void websocket_accept(struct http_request *r); /* answers; in place of the handler */

/* ---- websocket.c: the server's thread, without the lock, unless it says otherwise ---- */

enum turn_end websocket_turn(struct conn *c);
enum turn_end websocket_late(struct conn *c, enum due_kind kind); /* a deadline has passed */
enum due_kind websocket_due(const struct conn *c); /* the deadline that it has unless something waits to be sent */
void websocket_end(struct conn *c);                /* ends its requests */
/* Under the lock: it is closed as soon as nothing is under way. */
void websocket_finish(struct conn *c, int code);
/* Makes frames of the events that a stream's writer adds. Any thread. Not 0: no memory. */
int websocket_frames(struct buf *out, const struct http_request *r, const void *p, size_t n);

/* ---- door.c ---- */

/* The data of an event. Of a connection: its generation and fd. Of a listener, or the wake-up: an index with this bit.
 */
#define DOOR_OTHER (1ull << 63)
#define DOOR_WAKE  (DOOR_OTHER | 0xFFFFFFFF)

void door_wake(struct http *h); /* any thread */
void *door_main(void *http);

/* ---- http_request.c: the life of a request; the server's thread, without the lock ---- */

/* Begins a request from a complete head of n bytes. If status is not 0, there is no head and the request is refused
 * with it. 0: the request exists and may be answered already; -1: no memory. */
int request_begin(struct conn *c, const uint8_t *head, size_t n, int status, const char *why);
/* Takes a piece of its body, which is collected or thrown away. -1: it is too much to throw away. */
int request_body(struct http_request *r, const uint8_t *p, size_t n);
void request_run(struct http_request *r); /* its body is complete: calls the handler */
/* A request that is a message of a WebSocket, whose body it takes. The handler's side owes an answer. NULL: no memory.
 */
struct http_request *request_of_message(struct conn *c, struct buf *message);
/* The connection is done with it, which is not c->req or was. */
void request_ended(struct http_request *r, bool whole);
/* Refuses the request unless it was refused already. The connection cannot be used for another one. */
void request_spoil(struct http_request *r, int status, const char *why);
/* Ends the connection's part; whole: the answer was sent completely. */
void request_completed(struct conn *c, bool whole);
void request_unref(struct http_request *r); /* without the lock */
/* The answer is no longer owed; under the lock, and request_unref() has to follow. */
void request_given_back(struct http_request *r);

/* ---- check_head.c ---- */

/* The most bytes of a refused request's body that are read and thrown away. */
#define DISCARD_BYTES ((size_t)64 << 20)

/* Answers a request that it refuses. Its body is then discarded, or not read at all and the connection closed. */
enum check_result { CHECK_OK, CHECK_DISCARD, CHECK_CLOSE } check_headers(struct http_request *r);

/* ---- reply.c ---- */

/* Writes the body of an error to text, which has at least 128 bytes. Returns its length. */
size_t error_json(char *text, size_t cap, int status, const char *param, const char *code, const char *message);
const char *reply_reason(int status);
/* The known statuses, for counting: the index of one, N_STATUS - 1 for any other; and the status at an index. */
#define N_STATUS 26
size_t reply_status_index(int status);
int reply_status_at(size_t i);
void reply_drop_headers(struct http_request *r); /* those that were set */
/* Adds the head of the answer to out. */
int reply_head(struct buf *out, const struct http_request *r, bool close);
/* Adds the next bytes of a stream to out. Under the lock. REPLY_WAIT: there are none yet; the connection will have a
 * turn when there are. */
enum reply_state {
    REPLY_MORE,
    REPLY_WAIT,
    REPLY_DONE,
    REPLY_BROKEN
} reply_next(struct buf *out, struct http_request *r);
/* The same for a stream on a WebSocket, whose queue holds frames. REPLY_WAIT: the queue is empty. */
enum reply_state reply_next_frames(struct buf *out, struct http_request *r);
/* Starts the wait for the next heartbeat, if it is wanted; under the lock. */
void stream_silence(struct http_request *r);
/* Asks the heartbeat callback for something to say if the stream is silent. Under the lock. */
void stream_heartbeat(struct http_request *r);

#endif
