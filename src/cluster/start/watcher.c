/* SPDX-License-Identifier: MIT
 *
 * watcher.c: starts the watcher of stages and talks to it. See watcher.h.
 */
#include "cluster/start/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MS 3000 /* until the watcher has ended everything */

extern char **environ;

int watcher_open(struct watcher *w, struct qn_error *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char log[96];
    *w = (struct watcher){.listener = -1, .log = -1, .control = -1};
    snprintf(w->dir, sizeof w->dir, "/tmp/quern-stages-XXXXXX");
    if (!mkdtemp(w->dir)) {
        w->dir[0] = '\0';
        return error_set(e, QN_EIO, "hosts: cannot make a folder in /tmp: %s", strerror(errno));
    }
    snprintf(w->address, sizeof w->address, "%s/head", w->dir);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", w->address);
    w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->listener < 0 || bind(w->listener, (struct sockaddr *)&a, sizeof a) || listen(w->listener, 4))
        return error_set(e, QN_EIO, "hosts: cannot listen at '%s': %s", w->address, strerror(errno));
    snprintf(log, sizeof log, "%s/log", w->dir);
    w->log = open(log, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    return w->log < 0 ? error_set(e, QN_EIO, "hosts: cannot make '%s': %s", log, strerror(errno)) : 0;
}

/* The watcher's standard input is its end of the socket pair. */
static int spawn(struct watcher *w, const char *program, char **argv, struct qn_error *e)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    int ends[2], rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return error_set(e, QN_EIO, "hosts: cannot make a pair of sockets: %s", strerror(errno));
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0); /* a terminal's Ctrl-C is for the head */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    rc = posix_spawnp(&w->pid, program, &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(ends[0]);
    w->control = ends[1];
    if (!rc) return 0;
    w->pid = 0;
    return error_set(e, QN_EIO, "hosts: cannot start '%s': %s (it is built with -Dmpi=enabled)", program, strerror(rc));
}

/* quern-stage watch FOLDER N ALONE[N] ALL... */
int watcher_start(struct watcher *w, const struct launch_params *l, struct qn_error *e)
{
    struct words all = {0}, alone = {0}, argv = {0};
    char count[16];
    int rc = launch_all(&all, l, e);
    if (!rc) rc = launch_alone(&alone, l, e);
    snprintf(count, sizeof count, "%d", alone.n);
    const char *const first[] = {l->program, "watch", w->dir, count};
    for (int i = 0; !rc && i < 4; i++) rc = words_add(&argv, first[i], e);
    for (int i = 0; !rc && i < alone.n; i++) rc = words_add(&argv, alone.v[i], e);
    for (int i = 0; !rc && i < all.n; i++) rc = words_add(&argv, all.v[i], e);
    if (!rc) rc = spawn(w, l->program, argv.v, e);
    words_deinit(&argv);
    words_deinit(&alone);
    words_deinit(&all);
    return rc;
}

void watcher_run(struct watcher *w, char what)
{
    if (send(w->control, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) w->n_asked++;
}

int watcher_n_ended(struct watcher *w, int *n, struct qn_error *e)
{
    char c;
    ssize_t k;
    *n = 0;
    while ((k = recv(w->control, &c, 1, MSG_DONTWAIT)) > 0) {
        if (c == WATCHER_DONE) w->n_asked--;
        if (c == WATCHER_ENDED && !w->n_asked) ++*n;
    }
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    return error_set(e, QN_EIO, "hosts: the process that starts stages is gone: start quern again");
}

int watcher_take(struct watcher *w, int *fd, struct qn_error *e)
{
    *fd = w->n_asked ? -1 : accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    return *fd < 0 ? error_set(e, QN_EBUSY, "hosts: no stage is there yet") : 0;
}

void watcher_log(const struct watcher *w, char *out, size_t size)
{
    char log[512];
    ssize_t n = pread(w->log, log, sizeof log, 0);
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)log[i] < ' ') log[i] = ' ';
    snprintf(out, size, "%s%.*s", n > 0 ? ": " : "", n > 0 ? (int)n : 0, log);
}

void watcher_close(struct watcher *w)
{
    if (w->control >= 0) close(w->control);
    for (int ms = 0; w->pid > 0 && ms < END_MS && !waitpid(w->pid, NULL, WNOHANG); ms += 10) poll(NULL, 0, 10);
    if (w->listener >= 0) close(w->listener);
    if (w->log >= 0) close(w->log);
    if (w->dir[0] && !w->pid) {
        char log[96];
        snprintf(log, sizeof log, "%s/log", w->dir);
        unlink(log);
        unlink(w->address);
        rmdir(w->dir);
    }
    *w = (struct watcher){.listener = -1, .log = -1, .control = -1};
}
