/* SPDX-License-Identifier: MIT
 *
 * serve.c: `quern serve`: models, answered over HTTP until a signal comes.
 *
 * Without --listen it listens on a Unix socket of this user, or on the sockets that a service manager passes
 * (LISTEN_FDS). SIGTERM and SIGINT drain: nothing new is accepted, what runs may finish within the grace period; the
 * second signal ends that too. SIGHUP reads keys and certificates again; of a daemon with a terminal it is the end, for
 * then it means that the terminal is gone. What is served is docs/API.md's; this file connects the parts and takes them
 * down in order: connections, what is computed, server, API, models.
 *
 * The order of the start is the sandbox's: sockets first, because they need rights that nothing later does; then files
 * are fenced, while there is one thread, which all others inherit it from; system calls when only accepting is left.
 * So what a model takes that is loaded later has to be within both fences.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "cli/commands.h"
#include "cli/home.h"
#include "cli/catalog.h"
#include "cli/serve.h"
#include "cli/serve_sandbox.h"
#include "server/sandbox.h"
#include "server/server.h"
#include "server/systemd.h"

#define SLICE_MS 100 /* between two looks at whether a signal came, while draining */
#define FLUSH_MS 800 /* for the last bytes, once nothing is computed any more */
#define READ_MS  500 /* for what is being read to notice that it is over: it asks every few milliseconds */

struct serve {
    struct serve_options *o;
    char path[256];              /* the default socket */
    struct http_listen *sockets; /* [n_sockets] */
    int n_sockets;
    int notify_fd;      /* -1: nobody wants to know */
    int ready;          /* the same */
    struct buf missing; /* of the sandbox, for people */

    struct server server;
};

/* ---- where to listen ---- */

static bool is_tcp(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    return getsockname(fd, (struct sockaddr *)&a, &n) == 0 && a.ss_family != AF_UNIX;
}

/* Passed sockets and named addresses; with neither, the default. */
static int find_sockets(struct serve *v, struct qn_error *e)
{
    int n = systemd_listen_fds(getenv("LISTEN_PID"), getenv("LISTEN_FDS"), e);
    if (n < 0) return cli_fail(e);
    v->sockets = cli_alloc((size_t)n + v->o->listen.n + 1, sizeof *v->sockets);
    for (int i = 0; i < n; i++) {
        int fd = SYSTEMD_FIRST_FD + i;
        v->sockets[v->n_sockets++] = (struct http_listen){.fd = fd, .tls = v->o->cert && is_tcp(fd)};
    }
    for (size_t i = 0; i < v->o->listen.n; i++) {
        const char *a = v->o->listen.v[i];
        v->sockets[v->n_sockets++] =
            (struct http_listen){.address = a, .tls = v->o->cert && a[0] != '/', .group = v->o->group};
    }
    if (v->n_sockets) return 0;
    if (home_socket(v->path, sizeof v->path, e))
        return cli_usage("serve: %s: --listen ADDRESS has to say where", e->msg);
    v->sockets[v->n_sockets++] = (struct http_listen){.address = v->path, .group = v->o->group};
    return 0;
}

static void say_where(const struct serve *v)
{
    char line[1024];
    size_t n = 0;
    for (int i = 0; i < v->n_sockets && n < sizeof line; i++) {
        const struct http_listen *l = &v->sockets[i];
        int port = http_port(v->server.http, i);
        const char *colon = l->address ? strrchr(l->address, ':') : NULL, *comma = i ? ", " : "";
        int add;
        if (!l->address)
            add = snprintf(line + n, sizeof line - n, "%sdescriptor %d", comma, l->fd);
        else if (!port || !colon)
            add = snprintf(line + n, sizeof line - n, "%sunix:%s", comma, l->address);
        else
            add = snprintf(line + n, sizeof line - n, "%shttp%s://%.*s:%d", comma, l->tls ? "s" : "",
                           (int)(colon - l->address), l->address, port);
        n += (size_t)add;
    }
    fprintf(stderr, "quern: serving ");
    for (int i = 0; i < v->o->models.n; i++) fprintf(stderr, "%s'%s'", i ? ", " : "", v->o->source[i].name);
    fprintf(stderr, "%s at %s\n", v->o->models.n ? "" : "no model", line);
}

/* ---- running ---- */

static void log_requests(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    if (level <= LOG_WARN)
        fprintf(stderr, "quern: warning: %s\n", line);
    else if (level <= LOG_INFO)
        fprintf(stderr, "quern: %s\n", line);
}

static void warn(const char *what, const char *why) { fprintf(stderr, "quern: warning: %s%s\n", what, why); }

static void notify(const struct serve *v, const char *state)
{
    struct qn_error e = {0};
    if (systemd_notify(v->notify_fd, state, &e)) warn("", e.msg);
}

/* That nobody waits for it any more is no harm. */
static void say_ready(struct serve *v)
{
    if (v->ready < 0) return;
    if (write(v->ready, "", 1) < 0) warn("who started this is gone: ", strerror(errno));
    close(v->ready);
}

/* Waits for a signal of the set; 0 when it did not come in time. */
static int wait_signal(const sigset_t *set, int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    int sig = sigtimedwait(set, NULL, &t);
    return sig < 0 ? 0 : sig;
}

static void reload(struct serve *v)
{
    struct qn_error e = {0};
    if (http_reload(v->server.http, &e))
        warn("nothing is reloaded: ", e.msg);
    else
        fprintf(stderr, "quern: reloaded\n");
}

static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Until a signal comes. A service manager that asked for it is told that all is well, as long as it is. */
static void wait_for_end(struct serve *v, const sigset_t *set, int sig_reload)
{
    const char *usec = getenv("WATCHDOG_USEC");
    int64_t every_ms = usec ? strtoll(usec, NULL, 10) / 2000 : 0;
    bool watched = every_ms > 0 && v->notify_fd >= 0;
    if (every_ms < 1 || every_ms > 3600000) every_ms = 3600000;
    for (int sig; !(sig = wait_signal(set, every_ms)) || sig == sig_reload;) {
        if (sig) reload(v);
        if (watched && api_is_healthy(v->server.api)) notify(v, "WATCHDOG=1");
    }
}

/* Connections first, so that whoever has an answer running gets it; then what is computed; then the last bytes. All is
 * saved by then, so if something is still read that should have ended long ago, the process ends without it. */
static void drain(struct serve *v, const sigset_t *set)
{
    uint64_t until = clock_ns() + (uint64_t)v->o->grace_s * 1000000000;
    notify(v, "STOPPING=1");
    while (http_drain(v->server.http, SLICE_MS) > 0 && clock_ns() < until) {
        int sig = wait_signal(set, 0);
        if (sig && sig != SIGHUP) break;
    }
    bool read = server_stop(&v->server, READ_MS);
    http_drain(v->server.http, read ? FLUSH_MS : FLUSH_MS / 4); /* an answer that will not come is not waited for */
    if (server_stop(&v->server, 0)) return;
    warn("a request is still being read: ", "the process ends without an answer to it");
    _exit(0);
}

static int open_http(struct serve *v, struct qn_error *e)
{
    struct http_config c;
    server_config(&v->server, &c);
    c.listen = v->sockets;
    c.n_listen = v->n_sockets;
    c.cert_path = v->o->cert;
    c.key_path = v->o->key;
    c.keys_path = v->o->keys;
    c.hosts = v->o->hosts.v;
    c.n_hosts = (int)v->o->hosts.n;
    c.origins = v->o->origins.v;
    c.n_origins = (int)v->o->origins.n;
    c.proxies = v->o->proxies.v;
    c.n_proxies = (int)v->o->proxies.n;
    c.max_connections = v->o->connections;
    c.peer_connections = v->o->peer_connections;
    return http_open(&v->server.http, &c, e);
}

static int fence_files(struct serve *v, struct qn_error *e)
{
    const char **paths = cli_alloc((size_t)v->o->models.n + 1, sizeof *paths);
    struct serve_paths p = {
        .models = paths,
        .n_models = (size_t)v->o->models.n,
        .cache_dir = v->o->models.scheduler.cache_dir,
        .hash_dir = v->o->models.scheduler.hash_dir,
        .keys = v->o->keys,
        .cert = v->o->cert,
        .key = v->o->key,
        .sockets = v->sockets,
        .n_sockets = v->n_sockets,
    };
    for (int i = 0; i < v->o->models.n; i++) paths[i] = v->o->source[i].path;
    int rc = v->o->no_sandbox ? 0 : serve_fence_files(&p, &v->missing, e);
    cli_free(paths);
    return rc;
}

static int fence_calls(struct serve *v, struct qn_error *e)
{
    int rc = v->o->no_sandbox ? 0 : sandbox_calls(&v->missing, e);
    if (!rc && v->missing.len) warn("the sandbox has gaps: ", (const char *)v->missing.data);
    return rc;
}

/* Before the fences, which let no program be run. The daemon ends with this process, however that ends. */
static int share(const struct serve *v, struct qn_error *e)
{
    char *folder;
    int rc = 0;
    if (!v->o->share.is_on) return 0;
    if ((rc = catalog_first_folder(&folder, &v->o->folders, e))) return rc;
    rc = share_start(&v->o->share, folder, e);
    if (!rc) fprintf(stderr, "quern: sharing '%s' at rsync://HOST:%d/models/\n", folder, v->o->share.port);
    mem_free(folder);
    return rc;
}

static int serve(struct serve *v)
{
    struct qn_error e = {0};
    sigset_t set;
    int rc = find_sockets(v, &e), sig_reload = has_terminal() ? 0 : SIGHUP;
    if (rc) return rc;
    if (systemd_notify_open(&v->notify_fd, getenv("NOTIFY_SOCKET"), &e)) warn("", e.msg);
    /* Blocked in all threads, which inherit it: only wait_signal() sees them. */
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (server_share_memory(&v->server, &v->o->models, &e) || open_http(v, &e) ||
        models_make_folders(&v->o->models, &e) || share(v, &e) || fence_files(v, &e) ||
        server_load(&v->server, &v->o->models, &e) || fence_calls(v, &e) || server_start(&v->server, &e)) {
        rc = cli_fail(&e);
    } else {
        say_where(v);
        notify(v, "READY=1");
        say_ready(v);
        wait_for_end(v, &set, sig_reload);
        drain(v, &set);
    }
    server_close(&v->server);
    buf_deinit(&v->missing);
    if (v->notify_fd >= 0) close(v->notify_fd);
    return rc;
}

int serve_run(struct serve_options *o, int n, char **operands, int ready)
{
    struct serve v = {.o = o, .notify_fd = -1, .ready = ready};
    cli_outlives_files = true;
    int rc = serve_options_finish(o, n, operands);
    if (!rc) {
        if (o->log) log_set_sink(log_requests, NULL);
        rc = serve(&v);
    }
    cli_free(v.sockets);
    serve_options_free(o);
    return rc;
}

static int run(struct invocation *v) { return serve_run(v->options, v->n, v->operand, -1); }

static const struct opt_group groups[] = {SERVE_GROUPS, {0}};

static const struct example examples[] = {
    {"quern serve chat.gguf", "For this user, on a Unix socket"},
    {"quern serve small.gguf large.gguf --memory 24G --idle 600",
     "Two models within one budget, unloaded when idle for ten minutes"},
    {"quern serve chat.gguf -l 127.0.0.1:8080", "For clients that know TCP only"},
    {"quern serve chat=m.gguf -l 0.0.0.0:8080 --api-keys keys",
     "For other machines, with keys, under another name; --tls-cert and --tls-key encrypt it"},
    {0},
};

const struct command command_serve = {
    .name = "serve",
    .operands = "[MODEL | NAME=MODEL]... [OPTIONS]",
    .brief = "answer over HTTP: the OpenAI API and others",
    .about = "Answers over HTTP until SIGTERM or SIGINT. One model is loaded at once; of several, each when it is "
             "first asked for.\n\n"
             "The APIs are those of OpenAI (completions, chat completions, responses, embeddings, models) and "
             "Anthropic (messages): quern-api(7). A request that asks for what is not supported is refused with the "
             "name of the field; nothing is dropped silently.\n\n"
             "Without --listen it listens on the sockets that a service manager passes, or on quern/quern.sock in "
             "XDG_RUNTIME_DIR, for this user alone. On TCP, anything but loopback needs --api-keys. Models are "
             "called as their files are, less the folder and the ending; NAME=MODEL gives another name. MODEL is a "
             "file, a folder, or a name in the models' folders; without any, the default model is served.\n\n"
             "The first signal lets what runs finish within --grace seconds, the second ends that too. SIGHUP reads "
             "keys and certificates again. Once started, the process can open no files but its own and start no "
             "programs, unless --no-sandbox is given.",
    .min = 0,
    .max = -1,
    .words = WORDS_MODEL,
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct serve_options),
    .init = serve_options_init,
    .run = run,
};
