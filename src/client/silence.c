/* SPDX-License-Identifier: MIT
 *
 * silence.c: asks a silent server whether it lives. See silence.h.
 *
 * Quern's server answers /health in a thread that never computes, and keeps places for it that other connections cannot
 * use up.
 */
#include "client/silence.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "client/response.h"

static const char question[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

int silence_error(const char *path, int silence_ms, struct qn_error *e)
{
    return error_set(e, QN_EIO, "the daemon at '%s' hangs: it has been silent for %g s (see --silence)", path,
                     silence_ms / 1000.0);
}

static int left_ms(uint64_t end)
{
    uint64_t now = clock_ns();
    return now >= end ? 0 : (int)((end - now) / 1000000) + 1;
}

/* Reads a part of the answer. Returns whether the answer has ended; what is not HTTP is an answer, too. */
static bool read_some(int fd, struct response *r)
{
    char bytes[4096];
    const char *body;
    size_t n_body;
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    for (ssize_t at = 0; at < n && r->state != RESPONSE_DONE;) {
        int64_t used = response_read(r, bytes + at, (size_t)(n - at), &body, &n_body, NULL);
        if (used <= 0) return true;
        at += used;
    }
    return n <= 0 || r->state == RESPONSE_DONE;
}

static enum silence wait_for_answer(int probe, int fd, int cancel_fd, uint64_t end, struct response *r)
{
    struct pollfd p[3] = {
        {.fd = probe, .events = POLLIN}, {.fd = fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLIN}};
    for (int ms; (ms = left_ms(end)) > 0;) {
        if (poll(p, 3, ms) <= 0) continue;
        if (p[2].revents) return SILENCE_CANCELLED;
        if (p[1].revents || (p[0].revents && read_some(probe, r))) return SILENCE_ALIVE;
    }
    return SILENCE_DEAD;
}

/* Waits until the server accepts a connection; *probe is -1 otherwise. */
static enum silence wait_for_place(const char *path, int *probe, int fd, int cancel_fd, uint64_t end)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLIN}};
    *probe = -1;
    while (left_ms(end) > 0) {
        *probe = client_connect(path, 1);
        if (*probe >= 0 || *probe != -EAGAIN) return SILENCE_ALIVE;
        if (poll(p, 2, 20) > 0) return p[1].revents ? SILENCE_CANCELLED : SILENCE_ALIVE;
    }
    return SILENCE_DEAD;
}

enum silence silence_ask(const char *path, int fd, int cancel_fd, int wait_ms)
{
    struct client_reply reply;
    uint64_t end = clock_ns() + (uint64_t)wait_ms * 1000000;
    struct response *r = mem_alloc(sizeof *r);
    int probe;
    enum silence s = wait_for_place(path, &probe, fd, cancel_fd, end);
    if (probe >= 0 && r) {
        response_init(r, &reply);
        ssize_t n = send(probe, question, sizeof question - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        s = n < 0 ? SILENCE_ALIVE : wait_for_answer(probe, fd, cancel_fd, end, r);
    }
    if (probe >= 0) close(probe);
    mem_free(r);
    return s;
}
