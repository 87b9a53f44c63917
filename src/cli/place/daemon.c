/* SPDX-License-Identifier: MIT
 *
 * daemon.c: connects to a daemon's socket and asks it within a time limit. See daemon.h.
 *
 * The order of the sockets is that of place.h, but nothing else takes the place of a daemon that does not run.
 */
#include "cli/place/daemon.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cli/core/home.h"
#include "client/client_chat.h"

#define QUIET_S      1  /* for a daemon that is asked for a name that is not found */
#define ANSWER_S     10 /* these answers come from a thread that never computes */
#define ANSWER_BYTES ((size_t)16 << 20)

const struct opt opts_socket[] = {
    {"socket", 0, OPT_STRING, 0, "PATH", "the daemon on this Unix socket (default: yours, else the system's)",
     .words = WORDS_FILE},
    {0},
};

/* Connects to one socket, within wait_s if it accepts no connection. Returns 0 or an errno. */
static int connect_to(struct daemon *d, const char *path, int wait_s)
{
    struct ucred peer = {0};
    socklen_t n = sizeof peer;
    struct qn_error e = {0};
    snprintf(d->socket, sizeof d->socket, "%s", path);
    int fd = client_connect(path, wait_s * 1000);
    if (fd < 0) return -fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n)) {
        int why = errno;
        close(fd);
        return why;
    }
    d->peer_pid = peer.pid;
    d->peer_uid = peer.uid;
    return client_open_fd(&d->client, fd, &e) ? ENOMEM : 0;
}

static bool nobody_listens(int why) { return why == ENOENT || why == ECONNREFUSED || why == ENOTDIR; }

/* Says why the socket cannot be used. */
static int fail(const char *path, int why, bool quietly)
{
    struct qn_error e;
    if (quietly && (nobody_listens(why) || why == EAGAIN)) return EX_UNAVAILABLE;
    if (nobody_listens(why))
        error_set(&e, 0, "no daemon runs: nobody listens on the socket '%s'", path);
    else
        error_set(&e, 0, "cannot connect to the socket '%s': %s", path, strerror(why));
    cli_fail(&e);
    return EX_UNAVAILABLE;
}

int daemon_open(struct daemon *d, const char *named, bool quietly)
{
    char user[sizeof d->socket];
    int wait_s = quietly ? QUIET_S : ANSWER_S, why;
    *d = (struct daemon){0};
    if (named) return (why = connect_to(d, named, wait_s)) ? fail(named, why, quietly) : 0;
    bool has_user = !home_socket(user, sizeof user, NULL);
    why = has_user ? connect_to(d, user, wait_s) : ENOENT;
    if (!why) return 0;
    if (!nobody_listens(why)) return fail(user, why, quietly);
    if (!connect_to(d, HOME_SYSTEM_SOCKET, wait_s)) return 0;
    bool two = has_user && strcmp(user, HOME_SYSTEM_SOCKET); /* for root both are the same */
    if (!quietly)
        fprintf(stderr, "quern: no daemon runs: nobody listens on %s%s" HOME_SYSTEM_SOCKET "\n", two ? user : "",
                two ? " or " : "");
    return EX_UNAVAILABLE;
}

void daemon_close(struct daemon *d)
{
    client_close(d->client);
    *d = (struct daemon){0};
}

/* ---- asking ---- */

static struct client *volatile asked;

static void too_late(int sig)
{
    (void)sig;
    if (asked) client_cancel(asked);
}

int daemon_ask(struct daemon *d, const char *target, json_t **out, struct qn_error *e)
{
    struct sigaction act = {.sa_handler = too_late}, old;
    struct chat_result result;
    sigemptyset(&act.sa_mask);
    asked = d->client;
    sigaction(SIGALRM, &act, &old);
    alarm(ANSWER_S);
    json_t *health = NULL;
    int rc = chat_fetch(d->client, "GET", "/health", NULL, ANSWER_BYTES, &health, &result, e);
    json_decref(health);
    d->is_starting = rc && !strcmp(result.code, "starting");
    if (!rc || (result.status && !d->is_starting)) /* a model that is stalled is another matter */
        rc = chat_fetch(d->client, "GET", target, NULL, ANSWER_BYTES, out, &result, e);
    alarm(0);
    sigaction(SIGALRM, &old, NULL);
    asked = NULL;
    if (d->is_starting)
        rc = error_set(e, QN_EBUSY, "the daemon at '%s' is starting: it loads its model", d->socket);
    else if (rc == QN_ECANCEL)
        rc = error_set(e, QN_EBUSY, "the daemon at '%s' has not answered for %d s: it hangs", d->socket, ANSWER_S);
    return rc;
}

double daemon_number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

pid_t daemon_pid(const json_t *status)
{
    json_int_t pid = json_integer_value(json_object_get(status, "pid"));
    return pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

const char *daemon_text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}
