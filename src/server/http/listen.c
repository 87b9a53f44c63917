/* SPDX-License-Identifier: MIT
 *
 * listen.c: opens, takes over and closes listening sockets.
 *
 * The name of a Unix socket outlives the process that made it; then nobody answers there. listener_open() finds that
 * out by connecting. Meanwhile, and until its own socket is in place, it holds a lock on the directory: of two
 * processes that start at once, the second finds the first one answering. The mode is set on the descriptor before the
 * name exists, so at no moment can others connect.
 *
 * At the end the name is removed only if it is still the inode that was made, because another process may have replaced
 * it.
 *
 * Source: unix(7): the mode of the new name is the descriptor's, cut by the umask; flock(2).
 */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

#define BACKLOG     1024
#define GROUP_BYTES 16384 /* for getgrnam_r(): enough for a group of about a thousand members */

/* ---- Unix sockets ---- */

/* Locks the directory of the path, which is made if it is missing. Returns a descriptor, or an error. */
static int lock_directory(const char *path, struct qn_error *e)
{
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
    size_t n = (size_t)(strrchr(path, '/') - path);
    int fd;

    memcpy(dir, n ? path : "/", n ? n : 1);
    dir[n ? n : 1] = '\0';
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return error_set(e, QN_EIO, "cannot make '%s' for the socket: %m", dir);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_set(e, QN_EIO, "cannot open '%s' for the socket: %m", dir);
    if (flock(fd, LOCK_EX) < 0) {
        error_set(e, QN_EIO, "cannot lock '%s': %m", dir);
        close(fd);
        return QN_EIO;
    }
    return fd;
}

/* Removes a socket where nobody answers. */
static int remove_stale(const struct sockaddr_un *at, struct qn_error *e)
{
    struct stat st;
    int fd, r;

    if (lstat(at->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : error_set(e, QN_EIO, "cannot look at '%s': %m", at->sun_path);
    if (!S_ISSOCK(st.st_mode)) return error_set(e, QN_EIO, "'%s' is there and is not a socket", at->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return error_set(e, QN_EIO, "socket: %m");
    r = connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? errno : 0;
    close(fd);
    /* EAGAIN: a process is there, and its backlog is full. */
    if (r != ECONNREFUSED) return error_set(e, QN_EIO, "'%s' is served by another process already", at->sun_path);
    if (unlink(at->sun_path) < 0) return error_set(e, QN_EIO, "cannot remove the stale socket '%s': %m", at->sun_path);
    return 0;
}

static int give_to_group(const char *path, const char *name, struct qn_error *e)
{
    char *text = mem_alloc(GROUP_BYTES);
    struct group g, *found = NULL;
    int r = 0;

    if (!text) return error_nomem(e, "a group's entry", GROUP_BYTES);
    if (getgrnam_r(name, &g, text, GROUP_BYTES, &found) || !found)
        r = error_set(e, QN_EUSAGE, "no group '%s' for the socket '%s'", name, path);
    else if (chown(path, (uid_t)-1, found->gr_gid) < 0 || chmod(path, 0660) < 0)
        r = error_set(e, QN_EIO, "cannot give '%s' to the group '%s': %m", path, name);
    mem_free(text);
    return r;
}

static int open_unix(struct listener *l, const struct http_listen *how, struct qn_error *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    int dir, r;

    if (strlen(how->address) >= sizeof at.sun_path)
        return error_set(e, QN_EUSAGE, "the socket's path has %zu bytes, %zu are possible: '%s'", strlen(how->address),
                         sizeof at.sun_path - 1, how->address);
    memcpy(at.sun_path, how->address, strlen(how->address));
    dir = lock_directory(at.sun_path, e);
    if (dir < 0) return dir;
    r = remove_stale(&at, e);
    if (r < 0) goto out;

    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 || fchmod(l->fd, 0600) < 0 || bind(l->fd, (struct sockaddr *)&at, sizeof at) < 0) {
        r = error_set(e, QN_EIO, "cannot make the socket '%s': %m", at.sun_path);
        goto out;
    }
    l->is_unix = true;
    l->path = mem_dup(at.sun_path, strlen(at.sun_path));
    if (!l->path) r = error_nomem(e, "a path", strlen(at.sun_path) + 1);
    if (!l->path || stat(at.sun_path, &st) < 0) {
        if (r == 0) r = error_set(e, QN_EIO, "cannot look at '%s': %m", at.sun_path);
        unlink(at.sun_path);
        goto out;
    }
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    if (how->group) r = give_to_group(at.sun_path, how->group, e);
    if (r == 0 && listen(l->fd, BACKLOG) < 0) r = error_set(e, QN_EIO, "cannot listen on '%s': %m", at.sun_path);
out:
    close(dir);
    return r;
}

/* ---- TCP ---- */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* host:port or [host]:port */
static int resolve(struct addrinfo **out, const char *address, struct qn_error *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST};
    char host[64];
    const char *colon = strrchr(address, ':'), *from = address;
    size_t n = colon ? (size_t)(colon - address) : 0;
    int r;

    if (n >= 2 && address[0] == '[' && address[n - 1] == ']') {
        from++;
        n -= 2;
    }
    if (!colon || n == 0 || n >= sizeof host || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !colon[1] ||
        strtoul(colon + 1, NULL, 10) > 65535 || (from == address && memchr(from, ':', n)))
        return error_set(e, QN_EUSAGE, "'%s' is neither /path nor address:port ([address]:port for IPv6)", address);
    memcpy(host, from, n);
    host[n] = '\0';
    r = getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, colon + 1, &hints, out);
    if (r) return error_set(e, QN_EUSAGE, "cannot listen on '%s': %s", address, gai_strerror(r));
    return 0;
}

static int open_tcp(struct listener *l, const struct http_listen *how, struct qn_error *e)
{
    struct addrinfo *ai = NULL;
    int one = 1, r = resolve(&ai, how->address, e);

    if (r < 0) return r;
    l->is_loopback = is_loopback(ai->ai_addr);
    l->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        (ai->ai_family == AF_INET6 && setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0) ||
        bind(l->fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(l->fd, BACKLOG) < 0)
        r = error_set(e, QN_EIO, "cannot listen on '%s': %m", how->address);
    freeaddrinfo(ai);
    return r;
}

/* ---- both ---- */

static int take_over(struct listener *l, const struct http_listen *how, struct qn_error *e)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    int listens = 0;
    socklen_t n_listens = sizeof listens;

    l->fd = how->fd;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_listens) < 0 || !listens ||
        getsockname(l->fd, (struct sockaddr *)&at, &n) < 0)
        return error_set(e, QN_EUSAGE, "descriptor %d is not a listening socket", how->fd);
    if (at.ss_family != AF_UNIX && at.ss_family != AF_INET && at.ss_family != AF_INET6)
        return error_set(e, QN_EUSAGE, "descriptor %d listens on neither a Unix nor an IP address", how->fd);
    l->is_unix = at.ss_family == AF_UNIX;
    l->is_loopback = is_loopback((struct sockaddr *)&at);
    if (fcntl(l->fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(l->fd, F_SETFD, FD_CLOEXEC) < 0)
        return error_set(e, QN_EIO, "descriptor %d: %m", how->fd);
    return 0;
}

int listener_open(struct listener *l, const struct http_listen *how, struct qn_error *e)
{
    int r;

    *l = (struct listener){.fd = -1, .tls = how->tls};
    if (!how->address)
        r = take_over(l, how, e);
    else if (how->address[0] == '/')
        r = open_unix(l, how, e);
    else
        r = open_tcp(l, how, e);
    if (r < 0) listener_close(l);
    return r;
}

void listener_close(struct listener *l)
{
    struct stat st;

    if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino) unlink(l->path);
    mem_free(l->path);
    if (l->fd >= 0) close(l->fd);
    l->path = NULL;
    l->fd = -1;
}

int listener_port(const struct listener *l)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;

    if (getsockname(l->fd, (struct sockaddr *)&at, &n) < 0) return 0;
    if (at.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)(void *)&at)->sin_port);
    return at.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)(void *)&at)->sin6_port) : 0;
}
