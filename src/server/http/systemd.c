/* SPDX-License-Identifier: MIT
 *
 * systemd.c: socket activation and readiness without libsystemd: numbers in two variables, and one datagram.
 *
 * It ignores LISTEN_FDNAMES, and does not remove the variables.
 *
 * Source: sd_listen_fds(3), sd_notify(3).
 */
#include "server/http/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_FDS 64

int systemd_listen_fds(const char *listen_pid, const char *listen_fds, struct qn_error *e)
{
    char *end;
    long pid, n;

    if (!listen_pid || !listen_fds) return 0;
    pid = strtol(listen_pid, &end, 10);
    if (*end || pid != (long)getpid()) return 0;
    n = strtol(listen_fds, &end, 10);
    if (*end || end == listen_fds || n < 0 || n > MAX_FDS)
        return error_set(e, QN_EUSAGE, "LISTEN_FDS is '%s', not a number from 0 to %d", listen_fds, MAX_FDS);
    for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + n; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return error_set(e, QN_EUSAGE, "LISTEN_FDS is %ld, but descriptor %d: %m", n, fd);
    return (int)n;
}

int systemd_notify_open(int *out, const char *address, struct qn_error *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = address ? strlen(address) : 0;
    int fd;

    *out = -1;
    if (!address) return 0;
    if (n < 2 || n >= sizeof to.sun_path || (address[0] != '/' && address[0] != '@'))
        return error_set(e, QN_EUSAGE, "NOTIFY_SOCKET is '%s', neither a path nor @name of 2 to %zu bytes", address,
                         sizeof to.sun_path - 1);
    memcpy(to.sun_path, address, n);
    if (address[0] == '@') to.sun_path[0] = '\0'; /* the abstract name space */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return error_set(e, QN_EIO, "socket: %m");
    if (connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0) {
        error_set(e, QN_EIO, "notifying '%s': %m", address);
        close(fd);
        return QN_EIO;
    }
    *out = fd;
    return 0;
}

int systemd_notify(int fd, const char *state, struct qn_error *e)
{
    if (fd < 0 || send(fd, state, strlen(state), MSG_NOSIGNAL) >= 0) return 0;
    return error_set(e, QN_EIO, "notifying the service manager: %m");
}
