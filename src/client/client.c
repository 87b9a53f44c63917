/* SPDX-License-Identifier: MIT
 *
 * client.c: exchanges over a stream socket; remote.c has those over a URL.
 *
 * A request is one write that gathers head and body. While it is sent, answers are read too, because a server that
 * refuses a long body says so before it has read all of it, and closes. Closing the socket ends a request at the other
 * side.
 *
 * A silent server is asked whether it lives by silence.c.
 *
 * Cancelling adds to the count of an eventfd, which is polled together with the socket. So a signal handler needs only
 * write().
 */
#include "client/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "client/remote.h"
#include "client/response.h"
#include "client/silence.h"

#define READ_BYTES 16384
#define RETRY_MS   20 /* until the next attempt to connect to a server that accepts no connection */

struct client {
    int cancel_fd;
    struct remote *remote; /* NULL: over a socket */
    int fd;                /* -1: not connected */
    bool failed;           /* an exchange has failed; there cannot be another one */
    client_dial *dial;     /* NULL: cannot be done */
    void *arg;
    char *path;     /* the path of the socket, if dial is our own function */
    int silence_ms; /* 0: no limit */
    bool is_silent; /* the last exchange failed because of it */
};

/* ---- opening ---- */

static int make(struct client **out, struct qn_error *e)
{
    struct client *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(e, "a client", sizeof *c);
    c->fd = -1;
    c->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->cancel_fd < 0) {
        mem_free(c);
        return error_set(e, QN_EIO, "eventfd: %m");
    }
    *out = c;
    return 0;
}

int client_open_fd(struct client **out, int fd, struct qn_error *e)
{
    int rc = make(out, e);
    if (rc)
        close(fd);
    else
        (*out)->fd = fd;
    return rc;
}

int client_open_dial(struct client **out, client_dial *dial, void *arg, struct qn_error *e)
{
    struct client *c = NULL;
    int rc = make(&c, e);
    if (rc) return rc;
    c->dial = dial;
    c->arg = arg;
    if ((rc = dial(arg, &c->fd, e)))
        client_close(c);
    else
        *out = c;
    return rc;
}

int client_connect(const char *path, int wait_ms)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000};
    uint64_t end = clock_ns() + (uint64_t)wait_ms * 1000000;
    int fd, why;
    if (strlen(path) >= sizeof at.sun_path) return -ENAMETOOLONG;
    memcpy(at.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    while (connect(fd, (const struct sockaddr *)&at, sizeof at)) { /* EAGAIN: as many wait as the server lets wait */
        why = errno;
        bool again = why == EINTR || (why == EAGAIN && (!wait_ms || clock_ns() < end));
        if (!again) {
            close(fd);
            return -why;
        }
        if (why == EAGAIN) nanosleep(&pause, NULL);
    }
    return fd;
}

static int dial_path(void *arg, int *out, struct qn_error *e)
{
    const struct client *c = arg;
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (!*c->path || strlen(c->path) > most)
        return error_set(e, QN_EUSAGE, "the socket's path has %zu bytes, 1 to %zu are possible: '%s'", strlen(c->path),
                         most, c->path);
    int fd = client_connect(c->path, c->silence_ms);
    if (fd >= 0) {
        *out = fd;
        return 0;
    }
    if (fd == -ENOENT || fd == -ECONNREFUSED || fd == -ENOTDIR)
        return error_set(e, QN_ENOINPUT, "nobody listens on the socket '%s'", c->path);
    if (fd == -EAGAIN) {
        silence_error(c->path, c->silence_ms, e);
        return QN_EBUSY;
    }
    return error_set(e, QN_EIO, "cannot connect to the socket '%s': %s", c->path, strerror(-fd));
}

int client_open_socket(struct client **out, const char *path, int silence_ms, struct qn_error *e)
{
    struct client *c = NULL;
    int rc = make(&c, e);
    if (rc) return rc;
    c->dial = dial_path;
    c->arg = c;
    c->silence_ms = silence_ms;
    c->path = mem_dup(path, strlen(path));
    rc = c->path ? dial_path(c, &c->fd, e) : error_nomem(e, "a path", strlen(path) + 1);
    if (rc)
        client_close(c);
    else
        *out = c;
    return rc;
}

int client_open_url(struct client **out, const char *url, const char *key, const char *authorities, struct qn_error *e)
{
    struct client *c = NULL;
    int rc = make(&c, e);
    if (rc) return rc;
    if ((rc = remote_open(&c->remote, url, key, authorities, e)))
        client_close(c);
    else
        *out = c;
    return rc;
}

void client_close(struct client *c)
{
    if (!c) return;
    if (c->fd >= 0) close(c->fd);
    close(c->cancel_fd);
    remote_close(c->remote);
    mem_free(c->path);
    mem_free(c);
}

void client_cancel(struct client *c)
{
    int why = errno;
    uint64_t one = 1;
    ssize_t n = write(c->cancel_fd, &one, sizeof one); /* a full count means that it was cancelled already */
    (void)n;
    errno = why;
}

int client_cancelled(int cancel_fd, struct qn_error *e)
{
    uint64_t n;
    ssize_t got = read(cancel_fd, &n, sizeof n); /* the writer does not use the client any more */
    (void)got;
    return error_set(e, QN_ECANCEL, "cancelled");
}

/* ---- an exchange ---- */

struct exchange {
    struct client *c;
    struct iovec part[2]; /* the parts of the request that are still to be sent */
    size_t n_left;        /* bytes of both */
    bool cut;             /* the other side does not read any more */
    struct response response;
    client_sink *sink;
    void *arg;
    struct client_reply *reply;
    char bytes[READ_BYTES];
};

static void skip_sent(struct exchange *x, size_t n)
{
    x->n_left -= n;
    for (int i = 0; i < 2; i++) {
        size_t k = n < x->part[i].iov_len ? n : x->part[i].iov_len;
        if (k) x->part[i].iov_base = (char *)x->part[i].iov_base + k; /* there may be no body */
        x->part[i].iov_len -= k;
        n -= k;
    }
}

/* Sends as much as the socket takes now. A server that stops reading may have answered all the same, so that is no
 * error yet. */
static int send_some(struct exchange *x, struct qn_error *e)
{
    struct msghdr m = {.msg_iov = x->part, .msg_iovlen = 2};
    ssize_t n = sendmsg(x->c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
        skip_sent(x, (size_t)n);
    else if (errno == EPIPE || errno == ECONNRESET)
        x->cut = true;
    else if (errno != EAGAIN && errno != EINTR)
        return error_set(e, QN_EIO, "cannot send the request: %m");
    return 0;
}

/* Reads bytes, and hands those of the body on. */
static int receive_some(struct exchange *x, struct qn_error *e)
{
    ssize_t n = recv(x->c->fd, x->bytes, sizeof x->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n < 0 && errno != ECONNRESET) return error_set(e, QN_EIO, "cannot read the answer: %m");
    if (n <= 0) {
        x->response.keep = false;
        return response_end(&x->response, e);
    }
    for (ssize_t at = 0; at < n;) {
        const char *body;
        size_t n_body;
        int64_t used = response_read(&x->response, x->bytes + at, (size_t)(n - at), &body, &n_body, e);
        if (used < 0) return (int)used;
        if (used == 0) { /* bytes after the end belong to no request */
            x->response.keep = false;
            return 0;
        }
        if (n_body && x->sink && x->sink(x->arg, x->reply, body, n_body))
            return error_set(e, QN_ECANCEL, "the answer was not read to its end");
        at += used;
    }
    return 0;
}

/* The time is over in which the server may say nothing without being asked. */
static int ask_whether_alive(struct exchange *x, struct qn_error *e)
{
    struct client *c = x->c;
    switch (silence_ask(c->path, c->fd, c->cancel_fd, c->silence_ms - c->silence_ms / 2)) {
    case SILENCE_CANCELLED: return client_cancelled(c->cancel_fd, e);
    case SILENCE_DEAD: c->is_silent = true; return silence_error(c->path, c->silence_ms, e);
    default: return 0;
    }
}

static int run(struct exchange *x, struct qn_error *e)
{
    const int wait_ms = x->c->silence_ms ? x->c->silence_ms / 2 : -1;
    int rc = send_some(x, e);
    while (!rc && x->response.state != RESPONSE_DONE) {
        bool sending = x->n_left > 0 && !x->cut;
        struct pollfd p[2] = {
            {.fd = x->c->fd, .events = (short)(POLLIN | (sending ? POLLOUT : 0))},
            {.fd = x->c->cancel_fd, .events = POLLIN},
        };
        int n = poll(p, 2, wait_ms);
        if (n < 0 && errno != EINTR) return error_set(e, QN_EIO, "poll: %m");
        if (n < 0) continue;
        if (n == 0) {
            rc = ask_whether_alive(x, e);
            continue;
        }
        if (p[1].revents) return client_cancelled(x->c->cancel_fd, e);
        if (p[0].revents & ~POLLOUT) rc = receive_some(x, e);
        if (!rc && sending && p[0].revents & POLLOUT) rc = send_some(x, e);
    }
    return rc;
}

/* A connection without a request is used up if anything comes on it: its end, or a server's answer to a timeout. */
static bool is_idle(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static int connect_again(struct client *c, struct qn_error *e)
{
    if (c->fd >= 0 && is_idle(c->fd)) return 0;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    if (!c->dial) return error_set(e, QN_EIO, "the server has closed the connection");
    int rc = c->dial(c->arg, &c->fd, e);
    c->is_silent = rc == QN_EBUSY;
    return c->is_silent ? QN_EIO : rc;
}

static int exchange(struct client *c, const char *method, const char *path, const char *body, size_t n_body,
                    client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e)
{
    char head[512];
    struct exchange *x;
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path), rc;
    if (body && n < (int)sizeof head)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      n_body);
    if (n < (int)sizeof head) n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    if (n >= (int)sizeof head) return error_set(e, QN_EUSAGE, "the path of a request has %zu bytes", strlen(path));
    if ((rc = connect_again(c, e))) return rc;
    x = mem_alloc(sizeof *x);
    if (!x) return error_nomem(e, "an exchange", sizeof *x);
    x->c = c;
    x->part[0] = (struct iovec){head, (size_t)n};
    x->part[1] = (struct iovec){(void *)(uintptr_t)body, body ? n_body : 0};
    x->n_left = x->part[0].iov_len + x->part[1].iov_len;
    x->cut = false;
    x->sink = sink;
    x->arg = arg;
    x->reply = reply;
    response_init(&x->response, reply);
    rc = run(x, e);
    if (!rc && (!x->response.keep || x->n_left)) {
        close(c->fd);
        c->fd = -1;
    }
    mem_free(x);
    return rc;
}

int client_send(struct client *c, const char *method, const char *path, const char *body, size_t n_body,
                client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e)
{
    int rc;
    if (c->failed) return error_set(e, QN_EUSAGE, "an exchange has failed: this connection can only be closed");
    for (const char *p = path; *p; p++) /* the path may contain a name that somebody else chose */
        if (*p <= ' ' || *p > '~')
            return error_set(e, QN_EUSAGE, "'%s' cannot be asked for: it has blanks in it", path);
    rc = c->remote ? remote_send(c->remote, c->cancel_fd, method, path, body, n_body, sink, arg, reply, e)
                   : exchange(c, method, path, body, n_body, sink, arg, reply, e);
    c->failed = rc != 0;
    return rc;
}

bool client_is_silent(const struct client *c) { return c && c->is_silent; }
