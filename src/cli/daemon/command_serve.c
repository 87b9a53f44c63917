/* SPDX-License-Identifier: MIT
 *
 * command_serve.c: `quern serve`: answers over HTTP until a signal comes.
 *
 * Without --listen it listens on a Unix socket of this user, or on the sockets that a service manager passes
 * (LISTEN_FDS). SIGTERM and SIGINT drain the daemon: it accepts nothing new, and running requests may finish within
 * the grace period; a second signal ends those too. SIGHUP reads keys and certificates again. In a daemon with a
 * terminal SIGHUP ends it, because the signal then means that the terminal is gone. docs/API.md describes what is
 * served. This file connects the parts, and takes them down in order: connections, running requests, server, API,
 * models.
 *
 * The sandbox decides the order of the start. Sockets come first, because they need rights that nothing needs later.
 * Files are fenced next, while there is one thread, and all later threads inherit the fence. System calls are fenced
 * before the first connection is accepted. Then models are loaded, inside both fences, while the daemon already answers
 * who asks whether it lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
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
#include "cli/core/commands.h"
#include "cli/core/home.h"
#include "cli/place/catalog.h"
#include "cli/daemon/serve.h"
#include "cli/daemon/serve_log.h"
#include "cli/daemon/serve_sandbox.h"
#include "server/sandbox.h"
#include "server/server.h"
#include "server/http/systemd.h"

#define SLICE_MS 100 /* between two checks for a signal while draining */
#define FLUSH_MS 800 /* for the last bytes, when nothing is computed any more */
#define READ_MS  500 /* for a request that is being read: it checks every few milliseconds whether to end */

struct serve {
    struct serve_options *o;
    char path[256];              /* the default socket */
    struct http_listen *sockets; /* [n_sockets] */
    int n_sockets;
    int notify_fd;      /* -1: nobody waits for it */
    int ready;          /* the same */
    struct buf missing; /* what the sandbox could not fence, for a message */

    struct server server;
};

/* ---- sockets ---- */

static bool is_tcp(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    return getsockname(fd, (struct sockaddr *)&a, &n) == 0 && a.ss_family != AF_UNIX;
}

/* Collects the passed sockets and the named addresses; without either, the default socket. */
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
    if (home_make_above(v->path, e)) return cli_fail(e);
    v->sockets[v->n_sockets++] = (struct http_listen){.address = v->path, .group = v->o->group};
    return 0;
}

static void add_models(struct buf *b, struct models *models)
{
    int n = models_count(models);
    struct models_info m;
    for (int i = 0; i < n; i++) {
        models_look(models, i, &m);
        buf_printf(b, NULL, "%s'%s'", i ? ", " : "", m.name);
    }
    if (!n) buf_str(b, "no model", NULL);
}

static void add_address(struct buf *b, const struct http_listen *l, int port)
{
    const char *colon = l->address ? strrchr(l->address, ':') : NULL;
    if (!l->address)
        buf_printf(b, NULL, "descriptor %d", l->fd);
    else if (!port || !colon)
        buf_printf(b, NULL, "unix:%s", l->address);
    else
        buf_printf(b, NULL, "http%s://%.*s:%d", l->tls ? "s" : "", (int)(colon - l->address), l->address, port);
}

static void say_where(const struct serve *v)
{
    struct buf names = {0}, places = {0};
    add_models(&names, v->server.models);
    for (int i = 0; i < v->n_sockets; i++) {
        if (i) buf_str(&places, ", ", NULL);
        add_address(&places, &v->sockets[i], http_port(v->server.http, i));
    }
    serve_log("serving %s at %s", names.data ? (char *)names.data : "", places.data ? (char *)places.data : "");
    buf_deinit(&names);
    buf_deinit(&places);
}

/* ---- running ---- */

static void warn(const char *what, const char *why) { serve_log("warning: %s%s", what, why); }

static void notify(const struct serve *v, const char *state)
{
    struct qn_error e = {0};
    if (systemd_notify(v->notify_fd, state, &e)) warn("", e.msg);
}

/* Tells the process that waits for the start. If that process is gone, it is no error. */
static void say_ready(struct serve *v)
{
    if (v->ready < 0) return;
    if (write(v->ready, "", 1) < 0) warn("the process that started this one is gone: ", strerror(errno));
    close(v->ready);
}

/* Waits for a signal of the set; 0: none came in time. */
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
        serve_log("reloaded");
}

static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Waits for the signal that ends the daemon. If a service manager asked for it, tells it regularly that all is well. */
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

/* Ends the connections first, so that running answers arrive; then what is computed; then sends the last bytes. By
 * then everything is saved, so if a request is still being read, the process ends without it. */
static void drain(struct serve *v, const sigset_t *set)
{
    uint64_t until = clock_ns() + (uint64_t)v->o->grace_s * 1000000000;
    notify(v, "STOPPING=1");
    while (http_drain(v->server.http, SLICE_MS) > 0 && clock_ns() < until) {
        int sig = wait_signal(set, 0);
        if (sig && sig != SIGHUP) break;
    }
    bool read = server_stop(&v->server, READ_MS);
    http_drain(v->server.http, read ? FLUSH_MS : FLUSH_MS / 4); /* does not wait for an answer that will not come */
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
    const char **paths = cli_alloc(2 * (size_t)v->o->models.n + 1, sizeof *paths);
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
    for (int i = 0; i < v->o->models.n; i++)
        if (v->o->source[i].draft) paths[p.n_models++] = v->o->source[i].draft;
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

/* Starts sharing before the fences, because they allow no programs. The rsync daemon ends with this process in any
 * case. */
static int share(const struct serve *v, struct qn_error *e)
{
    char *folder;
    int rc = 0;
    if (!v->o->share.is_on) return 0;
    if ((rc = catalog_first_folder(&folder, &v->o->folders, e))) return rc;
    rc = share_start(&v->o->share, folder, e);
    if (!rc) serve_log("sharing '%s' at rsync://HOST:%d/models/", folder, v->o->share.port);
    mem_free(folder);
    return rc;
}

/* Opens the file for receipts before the fences, because it may be anywhere. It has the texts of conversations. */
static int open_receipts(struct serve *v, struct qn_error *e)
{
    const char *path = v->o->receipts;
    if (!path) return 0;
    return os_open_log(&v->server.receipts, path, 0600, e);
}

/* Lines reach the system as they are written, but the disk only now, because no step waits for a disk. */
static void close_receipts(struct serve *v)
{
    if (v->server.receipts <= 0) return;
    if (fsync(v->server.receipts)) log_at(LOG_WARN, "receipts may be lost: %s", strerror(errno));
    close(v->server.receipts);
}

/* Starts the stages before the fences, too. */
static int start_stages(struct serve *v, struct qn_error *e)
{
    struct models_config *m = &v->o->models;
    v->o->stages.cache_dir = m->scheduler.cache_dir;
    return stage_hosts_start(&m->group, &v->o->stages, m->n ? m->source[0].path : NULL, &m->engine, v->o->no_sandbox,
                             e);
}

static int serve(struct serve *v)
{
    struct qn_error e = {0};
    sigset_t set;
    int rc = find_sockets(v, &e), sig_reload = has_terminal() ? 0 : SIGHUP;
    if (rc) return rc;
    if (systemd_notify_open(&v->notify_fd, getenv("NOTIFY_SOCKET"), &e)) warn("", e.msg);
    /* Blocked here and in all threads, which inherit this: only wait_signal() sees these signals. */
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (server_share_memory(&v->server, &v->o->models, &e) || open_http(v, &e) ||
        models_make_folders(&v->o->models, &e) || open_receipts(v, &e) || share(v, &e) || start_stages(v, &e) ||
        fence_files(v, &e) || fence_calls(v, &e) || server_listen(&v->server, &e) ||
        server_load(&v->server, &v->o->models, v->o->page, &e) || server_start(&v->server, &e)) {
        rc = cli_fail(&e);
    } else {
        say_where(v);
        notify(v, "READY=1");
        say_ready(v);
        wait_for_end(v, &set, sig_reload);
        drain(v, &set);
    }
    server_close(&v->server);
    group_free(v->o->models.group);
    close_receipts(v);
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
        serve_log_open(o->log);
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
    {"quern serve chat.gguf -l 127.0.0.1:8080", "For clients that know only TCP"},
    {"quern serve chat=m.gguf -l 0.0.0.0:8080 --api-keys keys",
     "For other machines, with keys, under another name; --tls-cert and --tls-key encrypt it"},
    {"quern serve chat.gguf -l 127.0.0.1:8080 --page", "With a page for browsers at http://127.0.0.1:8080/"},
    {0},
};

const struct command command_serve = {
    .name = "serve",
    .operands = "[MODEL | NAME=MODEL]... [OPTIONS]",
    .brief = "answer over HTTP: the OpenAI API and others",
    .about = "Answers over HTTP until SIGTERM or SIGINT. A single model is loaded at the start; of several models, "
             "each is loaded at its first request.\n\n"
             "The APIs are those of OpenAI (completions, chat completions, responses, embeddings, models) and "
             "Anthropic (messages): quern-api(7). A request for something that is not supported is refused with the "
             "name of the field; nothing is dropped silently.\n\n"
             "Without --listen it listens on the sockets that a service manager passes, or on quern/quern.sock in "
             "XDG_RUNTIME_DIR (without it, on quern.sock in ~/.cache/quern), for this user alone. On TCP every address "
             "except loopback needs --api-keys. A model has "
             "the name of its file without the folder and the ending; NAME=MODEL gives another name. MODEL is a file, "
             "a folder, or a name in the folders of models. Without any, the default model is served, or else all "
             "models in the "
             "folders.\n\n"
             "After the first signal, running requests may finish within --grace seconds; the second signal ends them "
             "too. SIGHUP reads keys and certificates again. After the start, the process can open only its own files "
             "and start no programs, unless --no-sandbox is given.",
    .min = 0,
    .max = -1,
    .words = WORDS_MODEL,
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct serve_options),
    .init = serve_options_init,
    .run = run,
};
