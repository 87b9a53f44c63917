/* SPDX-License-Identifier: MIT
 *
 * peer.h: the other side of a client in tests: a thread that reads requests and answers each with prepared bytes.
 */
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/client.h"

#define PEER_REQUESTS 4

struct peer {
    int fd;
    const char *answer[PEER_REQUESTS]; /* the answer to each request; NULL: none, and the next read follows */
    size_t n_answer[PEER_REQUESTS];    /* bytes; 0: strlen() */
    size_t step;                       /* bytes of one write; 0: all at once */
    bool early;                        /* answers after the head, and reads no body */
    bool waits;                        /* after its answer it waits for the client to close, and reads nothing */
    bool stays;                        /* the connection stays open after the last answer, until the client closes */
    struct client *cancel;             /* cancelled when a request has come that has no answer */
    int n_requests;
    char *request[PEER_REQUESTS]; /* whole, terminated */
    bool left;                    /* the client has closed */
    pthread_t thread;
};

/* Reads a whole request: its head, and as many bytes as the head says. NULL when the client leaves. */
static char *peer_read(struct peer *p)
{
    size_t n = 0, cap = 1 << 16, need = 0;
    char *text = malloc(cap), *end = NULL;
    while (!need || n < need) {
        if (n + 1 == cap) text = realloc(text, cap *= 2);
        ssize_t got = read(p->fd, text + n, need && need - n < cap - 1 - n ? need - n : need ? cap - 1 - n : 1);
        if (got <= 0) {
            free(text);
            return NULL;
        }
        text[n += (size_t)got] = '\0';
        if (!need && (end = strstr(text, "\r\n\r\n"))) {
            const char *length = strstr(text, "Content-Length: ");
            need = n + (length && !p->early ? strtoul(length + 16, NULL, 10) : 0);
        }
    }
    return text;
}

static void *peer_run(void *arg)
{
    struct peer *p = arg;
    while (p->n_requests < PEER_REQUESTS && (p->n_requests == 0 || p->stays || p->answer[p->n_requests])) {
        int i = p->n_requests;
        char *request = peer_read(p);
        if (!request) {
            p->left = true;
            break;
        }
        p->request[p->n_requests++] = request;
        const char *text = p->answer[i];
        size_t n = text ? p->n_answer[i] ? p->n_answer[i] : strlen(text) : 0, step = p->step ? p->step : n;
        for (size_t at = 0; at < n; at += step)
            if (send(p->fd, text + at, n - at < step ? n - at : step, MSG_NOSIGNAL) < 0) break;
        if (!text && p->cancel) client_cancel(p->cancel);
    }
    struct pollfd gone = {.fd = p->fd};
    if (p->waits) poll(&gone, 1, -1); /* until it has hung up */
    shutdown(p->fd, SHUT_WR);
    close(p->fd);
    return NULL;
}

static void peer_start(struct peer *p, struct client **c)
{
    int ends[2], rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    assert(!rc);
    rc = client_open_fd(c, ends[0], NULL);
    assert(!rc);
    p->fd = ends[1];
    if (p->cancel) p->cancel = *c;
    rc = pthread_create(&p->thread, NULL, peer_run, p);
    assert(!rc);
    (void)rc;
}

/* Waits for the peer: the client must have closed, or the peer have answered everything. */
static void peer_join(struct peer *p)
{
    pthread_join(p->thread, NULL);
    for (int i = 0; i < p->n_requests; i++) free(p->request[i]);
}
