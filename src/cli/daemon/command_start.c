/* SPDX-License-Identifier: MIT
 *
 * command_start.c: `quern start`: starts the daemon in the background.
 *
 * If systemd has Quern's unit, and the command line asks for nothing else, systemd starts the daemon. Otherwise the
 * daemon is a child of this process, in its own session, which does the same as `quern serve` and writes its messages
 * to a file. It writes a byte into a pipe when it answers requests, and this process waits for that. If the pipe
 * closes before, this process prints how the child ended and the last lines of the file. Nothing restarts the daemon:
 * use the units for that.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/core/commands.h"
#include "cli/core/config_file.h"
#include "cli/place/daemon.h"
#include "cli/core/home.h"
#include "cli/daemon/serve.h"
#include "cli/place/catalog.h"
#include "cli/daemon/units.h"

#define LOG_NAME   "serve.log"
#define LOG_BYTES  ((off_t)1 << 20) /* a longer log starts again from empty */
#define LAST_LINES 10
#define LAST_BYTES 4096

struct start {
    struct serve_options serve; /* first: its options are found by their offsets */
    const char *socket;
};

/* A start in progress. */
struct launch {
    struct start *o;
    char socket[256]; /* the socket it will listen on; empty: none */
    char *log_path;
    int log;
    off_t log_begin; /* size of the log before the start */
    int ready[2];    /* a pipe */
    pid_t pid;
    bool has_no_model; /* there is nothing to serve */
};

/* ---- the socket and the log ---- */

/* Finds the Unix socket: that of --listen, or the named one, or the usual one. */
static int find_socket(struct launch *l)
{
    struct cli_strings *listen = &l->o->serve.listen;
    struct qn_error e = {0};
    const char *path = listen->n ? NULL : l->o->socket;
    for (size_t i = 0; i < listen->n && !path; i++)
        if (listen->v[i][0] == '/') path = listen->v[i];
    if (!path && listen->n) return 0; /* TCP alone */
    if (path && path[0] != '/') return cli_usage("start: --socket '%s' is not an absolute path", path);
    if (path && strlen(path) >= sizeof l->socket)
        return cli_usage("start: the path of the socket has too many bytes (%zu)", strlen(path));
    if (path) {
        strcpy(l->socket, path);
    } else if (home_socket(l->socket, sizeof l->socket, &e)) {
        return cli_usage("start: %s: --socket PATH has to say where", e.msg);
    } else if (home_make_above(l->socket, &e)) {
        return cli_fail(&e);
    }
    if (!listen->n) {
        *listen = (struct cli_strings){cli_alloc(1, sizeof *listen->v), 1}; /* the invocation owns it and frees it */
        listen->v[0] = l->socket;
    }
    return 0;
}

static int check_free(const struct launch *l)
{
    struct daemon d;
    int rc = daemon_open(&d, l->socket, true);
    daemon_close(&d);
    if (rc == EX_UNAVAILABLE) return 0;
    if (!rc) fprintf(stderr, "quern: a daemon runs already at %s\n", l->socket);
    return rc ? rc : EX_TEMPFAIL;
}

/* Opens the log. If that is not possible, the daemon has none. */
static void open_log(struct launch *l)
{
    struct stat st;
    struct qn_error e = {0};
    l->log = -1;
    if (!home_path(&l->log_path, HOME_STATE, LOG_NAME, &e) && !home_make_above(l->log_path, &e))
        l->log = open(l->log_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (l->log >= 0 && !fstat(l->log, &st)) {
        if (st.st_size > LOG_BYTES && !ftruncate(l->log, 0)) st.st_size = 0;
        l->log_begin = st.st_size;
        return;
    }
    if (!e.code) error_set(&e, QN_EIO, "cannot write '%s': %s", l->log_path, strerror(errno));
    fprintf(stderr, "quern: the daemon will have no log: %s\n", e.msg);
    mem_free(l->log_path);
    l->log_path = NULL;
    l->log = memfd_create("serve.log", MFD_CLOEXEC); /* so that its last messages are known if it does not start */
}

/* ---- the child ---- */

/* Detaches the process from the terminal. The working directory stays, because paths begin there. */
static void detach(const struct launch *l)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    dup2(null, STDIN_FILENO);
    dup2(l->log >= 0 ? l->log : null, STDOUT_FILENO);
    dup2(l->log >= 0 ? l->log : null, STDERR_FILENO);
    close(null);
    close(l->ready[0]);
    unsetenv("NOTIFY_SOCKET"); /* they were meant for another process */
    unsetenv("WATCHDOG_USEC");
    unsetenv("LISTEN_PID");
}

static int fork_child(struct launch *l, struct invocation *v, const sigset_t *mask)
{
    if (pipe2(l->ready, O_CLOEXEC)) {
        fprintf(stderr, "quern: cannot make a pipe: %s\n", strerror(errno));
        return EX_OSERR;
    }
    fflush(NULL);
    l->pid = fork();
    if (l->pid < 0) {
        fprintf(stderr, "quern: cannot start a process: %s\n", strerror(errno));
        return EX_OSERR;
    }
    if (l->pid > 0) {
        close(l->ready[1]);
        return 0;
    }
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    detach(l);
    exit(serve_run(&l->o->serve, v->n, v->operand, l->ready[1]));
}

/* ---- waiting for it ---- */

/* Prints the last lines that it wrote since it was started. */
static void print_last_words(const struct launch *l)
{
    char text[LAST_BYTES + 1], clean[4 * LAST_BYTES];
    struct stat st;
    if (l->log < 0 || fstat(l->log, &st)) return;
    off_t from = st.st_size - LAST_BYTES > l->log_begin ? st.st_size - LAST_BYTES : l->log_begin;
    ssize_t n = pread(l->log, text, LAST_BYTES, from);
    if (n <= 0) return;
    text[n] = 0;
    char *line = text + n;
    for (int lines = 0; line > text; line--)
        if (line[-1] == '\n' && line < text + n && ++lines == LAST_LINES) break;
    for (char *rest = line, *next; (next = strsep(&rest, "\n"));) {
        if (!*next) continue;
        error_clean(clean, sizeof clean, next);
        fprintf(stderr, "%s\n", clean);
    }
}

/* Reports that the child ended before it was ready. Returns the exit status. */
static int report_end(const struct launch *l)
{
    int status;
    while (waitpid(l->pid, &status, 0) < 0)
        if (errno != EINTR) return EX_OSERR;
    print_last_words(l);
    if (WIFEXITED(status)) {
        fprintf(stderr, "quern: the daemon has not started: it ended with status %d\n", WEXITSTATUS(status));
        return WEXITSTATUS(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
    }
    fprintf(stderr, "quern: the daemon has not started: it was ended by signal %d\n", WTERMSIG(status));
    return EX_SOFTWARE;
}

static void report_start(const struct launch *l)
{
    char line[1024], clean[1024];
    snprintf(line, sizeof line, "the daemon runs: pid %ld%s%s", (long)l->pid, l->socket[0] ? ", " : "", l->socket);
    error_clean(clean, sizeof clean, line);
    fprintf(stderr, "quern: %s\n", clean);
    if (l->has_no_model) fputs("quern: it has no model: get one with quern pull, then quern stop and start\n", stderr);
    if (!l->log_path) return;
    error_clean(clean, sizeof clean, l->log_path);
    fprintf(stderr, "quern: its log: %s\n", clean);
}

/* Waits until the daemon is ready. signals: a descriptor for the signals that end this process, and the child with
 * it. */
static int wait_for_start(const struct launch *l, int signals)
{
    struct pollfd p[2] = {{.fd = l->ready[0], .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    char byte;
    for (;;) {
        if (poll(p, 2, -1) < 0 && errno != EINTR) return EX_OSERR;
        if (p[1].revents && read(signals, &info, sizeof info) == sizeof info) {
            kill(l->pid, SIGTERM);
            waitpid(l->pid, NULL, 0);
            return 128 + (int)info.ssi_signo;
        }
        if (!p[0].revents) continue;
        if (read(l->ready[0], &byte, 1) != 1) return report_end(l);
        report_start(l);
        return 0;
    }
}

static int launch(struct launch *l, struct invocation *v)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    int signals = signalfd(-1, &set, SFD_CLOEXEC), rc;
    if (signals < 0) {
        fprintf(stderr, "quern: signalfd: %s\n", strerror(errno));
        return EX_OSERR;
    }
    open_log(l);
    rc = fork_child(l, v, &old);
    if (!rc) rc = wait_for_start(l, signals);
    mem_free(l->log_path);
    return rc;
}

/* ---- the command ---- */

/* Whether the configuration is the one that every process of this user reads. */
static bool is_usual(const struct config_file *c)
{
    struct config_file usual = {0};
    if (getenv("QUERN_CONFIG")) return false;
    bool is = !config_file_open(&usual, NULL) && !c->path == !usual.path && (!c->path || !strcmp(c->path, usual.path));
    config_file_close(&usual);
    return is;
}

/* Whether the command line and the environment set nothing that a unit would not know. */
static bool is_plain(const struct invocation *v)
{
    const struct start *o = v->options;
    bool is = v->n == 0 && !o->socket;
    for (int i = 0; i < options_count(v->command); i++)
        is = is && (v->origin[i] == ORIGIN_DEFAULT || v->origin[i] == ORIGIN_CONFIG);
    return is && is_usual(v->config);
}

static int start_unit(void)
{
    pid_t pid = units_pid();
    if (pid) {
        fprintf(stderr, "quern: a daemon runs already: quern.service, pid %ld\n", (long)pid);
        return EX_TEMPFAIL;
    }
    int rc = units_start();
    if (rc)
        fprintf(stderr, "quern: systemd has not started quern.service: %s says why\n", units_log_command());
    else
        fprintf(stderr, "quern: the daemon runs: quern.service, pid %ld\n", (long)units_pid());
    return rc;
}

static int run(struct invocation *v)
{
    struct launch l = {.o = v->options, .log = -1};
    if (is_plain(v) && units_are_there()) return start_unit();
    int rc = find_socket(&l);
    if (!rc && l.socket[0]) rc = check_free(&l);
    const struct serve_options *o = &l.o->serve;
    l.has_no_model = !v->n && !(o->model && *o->model) && catalog_is_empty(&o->folders);
    return rc ? rc : launch(&l, v);
}

static const struct opt socket_opts[] = {
    {"socket", 0, OPT_STRING, offsetof(struct start, socket), "PATH", "listen on this Unix socket (default: yours)",
     .words = WORDS_FILE},
    {0},
};

static const struct opt_group groups[] = {{"Daemon", socket_opts, 0, ""}, SERVE_GROUPS, {0}};

static const struct example examples[] = {
    {"quern start", "The default model, through systemd if its unit is installed"},
    {"quern start small --memory 6G", "The model small of ~/models, by itself"},
    {0},
};

const struct command command_start = {
    .name = "start",
    .operands = "[MODEL | NAME=MODEL]... [OPTIONS]",
    .brief = "start the daemon in the background",
    .about = "Starts the daemon in the background and waits until it answers.\n\n"
             "Without operands and options it starts systemd's unit quern.service, if that is installed. Otherwise it "
             "starts a process of its own, which does the same as quern serve with the same options, and writes its "
             "messages to serve.log in $XDG_STATE_HOME/quern or ~/.local/state/quern. If the daemon does not start, "
             "the last lines of the log are printed, and its exit status is that of this command.\n\n"
             "If a daemon already listens on the same socket, nothing is started, and the exit status is 75.",
    .examples = examples,
    .min = 0,
    .max = -1,
    .words = WORDS_MODEL,
    .groups = groups,
    .size = sizeof(struct start),
    .init = serve_options_init,
    .run = run,
};
