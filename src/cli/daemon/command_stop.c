/* SPDX-License-Identifier: MIT
 *
 * command_stop.c: `quern stop`: ends the daemon as SIGTERM does, and waits until it has ended.
 *
 * The daemon itself says which process it is, because with socket activation the service manager made the socket. That
 * answer is used only if this user may end the daemon, and, if the process did not make the socket, only if its name
 * is quern: the number of a daemon in another PID namespace is that of another process here. A daemon that a unit runs
 * is stopped through systemd together with its socket, because otherwise the next connection would start it again.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/place/daemon.h"
#include "cli/daemon/units.h"

#define PAUSE_MS 50 /* until a daemon that is starting is asked again */

struct stop_options {
    const char *socket;
    int wait_s;
};

/* Whether the name of a process is quern. */
static bool is_quern(pid_t pid)
{
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool is = fgets(name, sizeof name, f) && !strcmp(name, "quern\n");
    fclose(f);
    return is;
}

/* Finds the process to end. Returns 0 or an exit status, after a message. */
static int find_process(const struct daemon *d, pid_t said, pid_t *out)
{
    if (geteuid() != 0 && d->peer_uid != geteuid()) {
        fprintf(stderr, "quern: the daemon at %s is not yours to stop: it is user %ld's\n", d->socket,
                (long)d->peer_uid);
        return EX_NOPERM;
    }
    if (said <= 1 || (said != d->peer_pid && !is_quern(said))) {
        fprintf(stderr, "quern: the daemon at %s says that it is process %ld, but that is not a quern process here\n",
                d->socket, (long)said);
        return EX_UNAVAILABLE;
    }
    *out = said;
    return 0;
}

/* A descriptor that becomes readable when the process ends. A process number could be that of another process by
 * then. */
static int watch_process(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

/* Waits for the end. Returns whether it came in time. */
static bool wait_for_end(int watch, int wait_s)
{
    uint64_t until = clock_ns() + (uint64_t)wait_s * 1000000000;
    for (;;) {
        struct pollfd p = {.fd = watch, .events = POLLIN};
        uint64_t now = clock_ns();
        int rc = poll(&p, 1, now < until ? (int)((until - now) / 1000000) + 1 : 0);
        if (rc > 0) return true;
        if (rc == 0 && clock_ns() >= until) return false;
        if (rc < 0 && errno != EINTR) return false;
    }
}

static int end_process(const struct stop_options *o, const char *socket, pid_t pid)
{
    int watch = watch_process(pid), status = 0;
    if (watch < 0 || syscall(SYS_pidfd_send_signal, watch, SIGTERM, NULL, 0)) {
        bool gone = errno == ESRCH;
        if (!gone) fprintf(stderr, "quern: cannot end process %ld: %s\n", (long)pid, strerror(errno));
        status = gone ? 0 : EX_OSERR;
    } else if (!wait_for_end(watch, o->wait_s)) {
        fprintf(
            stderr,
            "quern: the daemon at %s (process %ld) still answers after %d s, and ends when it has done so; quern stop "
            "once more ends it now\n",
            socket, (long)pid, o->wait_s);
        status = EX_TEMPFAIL;
    }
    if (watch >= 0) close(watch);
    return status;
}

/* Asks which process it is. A daemon that is starting says so when it has started. */
static int ask_status(struct daemon *d, int wait_s, json_t **answer, struct qn_error *e)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    uint64_t end = clock_ns() + (uint64_t)wait_s * 1000000000;
    int rc;
    while ((rc = daemon_ask(d, "/v1/status", answer, e)) && d->is_starting && clock_ns() < end) nanosleep(&pause, NULL);
    return rc;
}

static int run(struct invocation *v)
{
    const struct stop_options *o = v->options;
    struct daemon d;
    struct qn_error e = {0};
    json_t *answer = NULL;
    pid_t pid = 0;
    int rc = daemon_open(&d, o->socket, false);
    if (!rc && ask_status(&d, o->wait_s, &answer, &e)) rc = cli_fail(&e);
    if (!rc) rc = find_process(&d, daemon_pid(answer), &pid);
    json_decref(answer);
    client_close(d.client); /* otherwise the daemon would wait for this connection */
    d.client = NULL;
    if (!rc) rc = units_pid() == pid ? units_stop() : end_process(o, d.socket, pid);
    daemon_close(&d);
    return rc;
}

static void init(void *options)
{
    struct stop_options *o = options;
    o->wait_s = 60;
}

static const struct opt opts[] = {
    {"wait", 0, OPT_INT, offsetof(struct stop_options, wait_s), "SECONDS",
     "time for running answers to end (default 60)", 0, 86400},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Daemon", opts_socket, offsetof(struct stop_options, socket), ""}, {0}};

static const struct example examples[] = {
    {"quern stop", "This user's daemon, or the system's"},
    {0},
};

const struct command command_stop = {
    .name = "stop",
    .operands = "[OPTIONS]",
    .brief = "end the daemon after its running answers are complete",
    .about = "Ends the daemon and waits until it has ended.\n\n"
             "The daemon accepts nothing new, and running answers have the time of its --grace; a second quern stop "
             "ends them at once. If it still runs after --wait seconds, the exit status is 75. A daemon that systemd "
             "runs is stopped through systemd together with its socket, so that the next connection does not start it "
             "again.",
    .examples = examples,
    .min = 0,
    .max = 0,
    .groups = groups,
    .size = sizeof(struct stop_options),
    .init = init,
    .run = run,
};
