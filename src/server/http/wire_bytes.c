/* SPDX-License-Identifier: MIT
 *
 * wire_bytes.c: the bytes of a connection, plain or encrypted.
 *
 * Source: GnuTLS manual (asynchronous operation).
 */
#include "server/http/impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* GnuTLS also says "again" after records that contain no bytes for us, although the socket has more. */
static ssize_t pull(gnutls_transport_ptr_t conn, void *p, size_t n)
{
    struct conn *c = conn;
    ssize_t k = recv(c->fd, p, n, 0);

    if (k < 0) {
        c->tls_waits = errno == EAGAIN;
        gnutls_transport_set_errno(c->tls, errno);
    }
    return k;
}

static ssize_t push(gnutls_transport_ptr_t conn, const giovec_t *part, int n)
{
    struct conn *c = conn;
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)part, .msg_iovlen = (size_t)n};
    ssize_t k = sendmsg(c->fd, &m, MSG_NOSIGNAL);

    if (k < 0) {
        c->tls_waits = errno == EAGAIN;
        gnutls_transport_set_errno(c->tls, errno);
    }
    return k;
}

/* Reads one record at most, because a client can send any number of alerts and other records without bytes. */
static ssize_t receive_tls(struct conn *c, void *p, size_t n)
{
    c->tls_waits = false;
    ssize_t k = gnutls_record_recv(c->tls, p, n);

    if (k > 0) return k;
    if (k == GNUTLS_E_INTERRUPTED || k == GNUTLS_E_WARNING_ALERT_RECEIVED) return COME_BACK;
    if (k == GNUTLS_E_AGAIN) return c->tls_waits ? NONE_NOW : COME_BACK;
    return NEVER_AGAIN;
}

ssize_t wire_receive(struct conn *c, void *p, size_t n)
{
    ssize_t k;

    if (c->tls) return receive_tls(c, p, n);
    do k = recv(c->fd, p, n, 0);
    while (k < 0 && errno == EINTR);
    if (k > 0) return k;
    return k < 0 && errno == EAGAIN ? NONE_NOW : NEVER_AGAIN;
}

enum turn_end wire_without_bytes(ssize_t k)
{
    if (k == COME_BACK) return GO;
    return k == NONE_NOW ? WAIT : CLOSE;
}

ssize_t wire_transmit(struct conn *c, const void *p, size_t n)
{
    ssize_t k;

    if (!c->tls) {
        do k = send(c->fd, p, n, MSG_NOSIGNAL);
        while (k < 0 && errno == EINTR);
        if (k >= 0) return k;
        return errno == EAGAIN ? 0 : -1;
    }
    do k = gnutls_record_send(c->tls, p, n);
    while (k == GNUTLS_E_INTERRUPTED);
    if (k >= 0) return k;
    return k == GNUTLS_E_AGAIN ? 0 : -1;
}

/* ---- the beginning ---- */

int wire_begin(struct conn *c)
{
    c->state = AT_HEAD;
    if (!c->listener->tls) return 0;
    c->state = AT_FIRST;
    if (gnutls_init(&c->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL)) {
        c->tls = NULL;
        return -1;
    }
    tls_cert_use(c->tls, c->http->cert);
    gnutls_transport_set_ptr(c->tls, c);
    gnutls_transport_set_pull_function(c->tls, pull);
    gnutls_transport_set_vec_push_function(c->tls, push);
    return gnutls_set_default_priority_append(c->tls, "-VERS-TLS1.0:-VERS-TLS1.1", NULL, 0) ? -1 : 0;
}

enum turn_end wire_first_byte(struct conn *c)
{
    char first = 0;

    if (recv(c->fd, &first, 1, MSG_PEEK) < 0) return errno == EAGAIN ? WAIT : CLOSE;
    c->state = AT_HANDSHAKE;
    if (first < 'A' || first > 'Z') return GO;
    gnutls_deinit(c->tls);
    c->tls = NULL;
    c->is_misled = true;
    c->state = AT_HEAD;
    return GO;
}

enum turn_end wire_handshake(struct conn *c)
{
    c->tls_waits = false;
    int why = gnutls_handshake(c->tls);

    if (why == 0) c->state = AT_HEAD;
    if (why == GNUTLS_E_AGAIN) return c->tls_waits ? WAIT : GO;
    return why < 0 && gnutls_error_is_fatal(why) ? CLOSE : GO;
}

/* ---- bytes that have come ---- */

const uint8_t *wire_unread(const struct conn *c, size_t *n)
{
    *n = c->in.len - c->in_at;
    return *n ? c->in.data + c->in_at : NULL;
}

void wire_drop_read(struct conn *c)
{
    size_t left = c->in.len - c->in_at;

    if (left > 0) {
        memmove(c->in.data, c->in.data + c->in_at, left);
        c->in.len = left;
    } else {
        buf_deinit(&c->in);
    }
    c->in_at = 0;
}

enum turn_end wire_read(struct conn *c, size_t n_most, uint8_t **p, size_t *n)
{
    ssize_t k;

    *n = c->in.len - c->in_at;
    *p = *n ? c->in.data + c->in_at : c->http->scratch;
    if (*n > n_most) *n = n_most;
    if (*n) return GO;
    k = wire_receive(c, c->http->scratch, n_most < SCRATCH_BYTES ? n_most : SCRATCH_BYTES);
    if (k <= 0) return wire_without_bytes(k);
    *n = (size_t)k;
    return GO;
}

enum turn_end wire_used(struct conn *c, uint8_t *p, size_t n, size_t used)
{
    if (p == c->http->scratch) return used < n && buf_add(&c->in, p + used, n - used, NULL) ? CLOSE : GO;
    c->in_at += used;
    if (c->in_at == c->in.len) wire_drop_read(c); /* not before: a frame can be as short as six bytes */
    return GO;
}
