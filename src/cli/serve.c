/* SPDX-License-Identifier: MIT
 *
 * serve.c: `quern serve`: one model, answered over HTTP until a signal comes.
 *
 * Without --listen it listens on a Unix socket of this user, or on the sockets that a service manager passes
 * (LISTEN_FDS). SIGTERM and SIGINT drain: nothing new is accepted, what runs may finish within the grace period; the
 * second signal ends that too. SIGHUP reads keys and certificates again; of a daemon with a terminal it is the end, for
 * then it means that the terminal is gone. What is served is docs/API.md's; this file connects the parts and takes them
 * down in order: connections, scheduler, server, API, engine, model.
 *
 * The order of the start is the sandbox's: sockets first, because they need rights that nothing later does; then files
 * are fenced, while there is one thread, which all others inherit it from; system calls when only accepting is left.
 */
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
#include "base/mem.h"
#include "base/os.h"
#include "cli/cli.h"
#include "cli/serve_sandbox.h"
#include "server/api.h"
#include "server/http.h"
#include "server/sandbox.h"
#include "server/systemd.h"

#define QUEUE_BYTES  (1 << 20)   /* of a stream, for a client that reads slowly: thousands of tokens */
#define BODIES_BYTES (256 << 20) /* of all requests that are under way: 16 of the largest */
#define HEARTBEAT_MS 1000
#define SLICE_MS     100  /* between two looks at whether a signal came, while draining */
#define FLUSH_MS     1000 /* for the last bytes, once nothing is computed any more */

struct serve {
    struct qn_engine_params engine;
    struct qn_scheduler_params scheduler;
    struct cli_strings listen, hosts, origins;
    const char *kv, *name, *keys, *cert, *key, *group, *cache_dir;
    int grace_s;
    bool log, no_sandbox;

    char path[256], stem[256];   /* the default socket, the default name */
    struct http_listen *sockets; /* [n_sockets] */
    int n_sockets;
    struct ledger bodies;
    int notify_fd;      /* -1: nobody wants to know */
    struct buf missing; /* of the sandbox, for people */

    qn_model *m;
    qn_chat *chat;
    qn_engine *g;
    qn_scheduler *s;
    struct api *api;
    struct http *http;
};

/* ---- where to listen ---- */

static int default_path(struct serve *v)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    int n;
    if (dir && *dir == '/')
        n = snprintf(v->path, sizeof v->path, "%s/quern/quern.sock", dir);
    else if (geteuid() == 0)
        n = snprintf(v->path, sizeof v->path, "/run/quern/quern.sock");
    else
        return cli_usage("serve: XDG_RUNTIME_DIR is not set, so --listen ADDRESS has to say where to listen");
    if (n >= (int)sizeof v->path) return cli_usage("serve: XDG_RUNTIME_DIR has %zu bytes, too many", strlen(dir));
    return 0;
}

static bool is_tcp(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    return getsockname(fd, (struct sockaddr *)&a, &n) == 0 && a.ss_family != AF_UNIX;
}

/* Passed sockets and named addresses; with neither, the default. */
static int find_sockets(struct serve *v, struct qn_error *e)
{
    int n = systemd_listen_fds(getenv("LISTEN_PID"), getenv("LISTEN_FDS"), e), rc;
    if (n < 0) return cli_fail(e);
    v->sockets = cli_alloc((size_t)n + v->listen.n + 1, sizeof *v->sockets);
    for (int i = 0; i < n; i++) {
        int fd = SYSTEMD_FIRST_FD + i;
        v->sockets[v->n_sockets++] = (struct http_listen){.fd = fd, .tls = v->cert && is_tcp(fd)};
    }
    for (size_t i = 0; i < v->listen.n; i++) {
        const char *a = v->listen.v[i];
        v->sockets[v->n_sockets++] =
            (struct http_listen){.address = a, .tls = v->cert && a[0] != '/', .group = v->group};
    }
    if (v->n_sockets) return 0;
    if ((rc = default_path(v))) return rc;
    v->sockets[v->n_sockets++] = (struct http_listen){.address = v->path, .group = v->group};
    return 0;
}

static void say_where(const struct serve *v)
{
    char line[1024];
    size_t n = 0;
    for (int i = 0; i < v->n_sockets && n < sizeof line; i++) {
        const struct http_listen *l = &v->sockets[i];
        int port = http_port(v->http, i);
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
    fprintf(stderr, "quern: serving '%s' at %s\n", v->name, line);
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
    if (http_reload(v->http, &e))
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
        if (watched && api_is_healthy(v->api)) notify(v, "WATCHDOG=1");
    }
}

/* Connections first, so that whoever has an answer running gets it; then what is computed; then the last bytes. */
static void drain(struct serve *v, const sigset_t *set)
{
    uint64_t until = clock_ns() + (uint64_t)v->grace_s * 1000000000;
    notify(v, "STOPPING=1");
    while (http_drain(v->http, SLICE_MS) > 0 && clock_ns() < until) {
        int sig = wait_signal(set, 0);
        if (sig && sig != SIGHUP) break;
    }
    qn_scheduler_stop(v->s, 0);
    http_drain(v->http, FLUSH_MS);
}

static int open_api(struct serve *v, struct qn_error *e)
{
    struct api_config c = {
        .model = v->m,
        .scheduler = v->s,
        .model_name = v->name,
        .n_ctx = qn_engine_n_ctx(v->g),
    };
    if (qn_chat_new(&v->chat, v->m, NULL, 0, e)) {
        fprintf(stderr, "quern: warning: no conversations: %s\n", e->msg);
        v->chat = NULL;
    }
    c.chat = v->chat;
    return api_new(&v->api, &c, e);
}

static int open_http(struct serve *v, struct qn_error *e)
{
    struct http_config c;
    http_config_init(&c);
    c.listen = v->sockets;
    c.n_listen = v->n_sockets;
    c.routes = api_routes(&c.n_routes);
    c.cert_path = v->cert;
    c.key_path = v->key;
    c.keys_path = v->keys;
    c.limits = api_limits();
    c.hosts = v->hosts.v;
    c.n_hosts = (int)v->hosts.n;
    c.origins = v->origins.v;
    c.n_origins = (int)v->origins.n;
    ledger_init(&v->bodies, BODIES_BYTES);
    c.ledger = &v->bodies;
    c.max_queue_bytes = QUEUE_BYTES;
    c.heartbeat_ms = HEARTBEAT_MS;
    return http_open(&v->http, &c, e);
}

static int fence_files(struct serve *v, const char *model, struct qn_error *e)
{
    struct serve_paths p = {
        .models = &model,
        .n_models = 1,
        .cache_dir = v->cache_dir,
        .keys = v->keys,
        .cert = v->cert,
        .key = v->key,
        .sockets = v->sockets,
        .n_sockets = v->n_sockets,
    };
    return v->no_sandbox ? 0 : serve_fence_files(&p, &v->missing, e);
}

static int fence_calls(struct serve *v, struct qn_error *e)
{
    int rc = v->no_sandbox ? 0 : sandbox_calls(&v->missing, e);
    if (!rc && v->missing.len) warn("the sandbox has gaps: ", (const char *)v->missing.data);
    return rc;
}

static int serve(struct serve *v, const char *path)
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
    if (open_http(v, &e) || fence_files(v, path, &e) || qn_model_open(&v->m, path, &e) ||
        qn_engine_new(&v->g, v->m, &v->engine, &e) || qn_scheduler_new(&v->s, v->g, &v->scheduler, &e) ||
        open_api(v, &e) || fence_calls(v, &e) || http_start(v->http, v->api, &e)) {
        rc = cli_fail(&e);
    } else {
        say_where(v);
        notify(v, "READY=1");
        wait_for_end(v, &set, sig_reload);
        drain(v, &set);
    }
    if (v->s) qn_scheduler_stop(v->s, 0);
    http_close(v->http);
    api_free(v->api);
    qn_scheduler_free(v->s);
    qn_chat_free(v->chat);
    qn_engine_free(v->g);
    qn_model_close(v->m);
    buf_deinit(&v->missing);
    if (v->notify_fd >= 0) close(v->notify_fd);
    return rc;
}

/* The file's name without its folder and ending. */
static void name_of(struct serve *v, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n;
    snprintf(v->stem, sizeof v->stem, "%s", slash ? slash + 1 : path);
    n = strlen(v->stem);
    if (n > 5 && !strcmp(v->stem + n - 5, ".gguf")) v->stem[n - 5] = 0;
    v->name = v->stem;
}

int cmd_serve(int argc, char **argv)
{
    struct serve v = {.kv = "f16", .grace_s = 30, .notify_fd = -1};
    struct qn_engine_params *g = &v.engine;
    struct qn_scheduler_params *s = &v.scheduler;
    bool help;
    int first, rc;
    qn_engine_params_init(g);
    qn_scheduler_params_init(s);
    g->n_sessions = 2;
    uint64_t cache_bytes = (uint64_t)4 << 30;
    v.listen.v = cli_alloc((size_t)argc, sizeof *v.listen.v);
    v.hosts.v = cli_alloc((size_t)argc, sizeof *v.hosts.v);
    v.origins.v = cli_alloc((size_t)argc, sizeof *v.origins.v);
    const struct opt opts[] = {
        {"listen", 'l', OPT_STRINGS, &v.listen, "ADDRESS", "/PATH (a Unix socket) or HOST:PORT; may be repeated", 0, 0},
        {"group", 0, OPT_STRING, &v.group, "GROUP", "its members may use the Unix socket too", 0, 0},
        {"api-keys", 0, OPT_STRING, &v.keys, "FILE", "TCP needs one of these keys; required but on loopback", 0, 0},
        {"tls-cert", 0, OPT_STRING, &v.cert, "FILE", "TCP speaks TLS with this certificate (PEM)", 0, 0},
        {"tls-key", 0, OPT_STRING, &v.key, "FILE", "and this key (PEM)", 0, 0},
        {"host", 0, OPT_STRINGS, &v.hosts, "NAME", "a name that clients may call this server; may be repeated", 0, 0},
        {"origin", 0, OPT_STRINGS, &v.origins, "URL", "a web origin whose pages may call; may be repeated", 0, 0},
        {"name", 0, OPT_STRING, &v.name, "NAME", "the model's name for clients (default: the file's)", 0, 0},
        {"parallel", 0, OPT_INT, &s->n_running, "N", "answers computed together (default 8)", 1, 1024},
        {"queue", 0, OPT_INT, &s->n_queued, "N", "requests that may wait (default 64)", 1, 65536},
        {"sessions", 0, OPT_INT, &g->n_sessions, "N", "full contexts that memory is reserved for (default 2)", 1, 1024},
        {"cache-dir", 0, OPT_STRING, &v.cache_dir, "DIR", "where prefixes outlive the process", 0, 0},
        {"cache-bytes", 0, OPT_SIZE, &cache_bytes, "BYTES", "on disk at most (default 4G)", 0, 0},
        {"grace", 0, OPT_INT, &v.grace_s, "SECONDS", "for running answers, once a signal came (default 30)", 0, 86400},
        {"no-sandbox", 0, OPT_FLAG, &v.no_sandbox, NULL, "keep all rights that the process has", 0, 0},
        {"log", 0, OPT_FLAG, &v.log, NULL, "a line on standard error for each request", 0, 0},
        {"kv", 0, OPT_STRING, &v.kv, "TYPE", "keys and values as f32, f16 (default) or q8_0", 0, 0},
        {"ctx", 0, OPT_INT, &g->n_ctx, "N", "tokens of context (default: the model's, at most 4096)", 1, 1 << 28},
        {"batch", 0, OPT_INT, &g->n_batch, "N", "most rows in one forward pass (default 512)", 1, 65536},
        {"threads", 0, OPT_INT, &g->n_threads, "N", "threads (default: the CPUs this process may use)", 1, 1024},
        {"cpu", 0, OPT_STRING, &g->cpu, "LEVEL", CLI_CPU_HELP, 0, 0},
        {"memory", 0, OPT_SIZE, &g->memory_bytes, "BYTES", "memory budget, such as 6G (default: what is available)", 0,
         0},
        {"mlock", 0, OPT_FLAG, &g->lock_weights, NULL, "weights stay in memory, as many as the budget has room for", 0,
         0},
        {0},
    };
    rc = cli_parse(argc, argv, "serve MODEL [OPTIONS]\n\nAnswers over HTTP until SIGTERM or SIGINT.", opts, &first,
                   &help);
    if (rc || help) goto done;
    if (argc - first != 1) {
        rc = cli_usage("serve: one MODEL (see quern serve --help)");
        goto done;
    }
    if (!v.cert != !v.key) {
        rc = cli_usage("serve: --tls-cert and --tls-key go together");
        goto done;
    }
    if ((rc = cli_parse_kv(v.kv, &g->kv))) goto done;
    s->cache_dir = v.cache_dir;
    s->cache_bytes = v.cache_dir ? cache_bytes : 0;
    if (!v.name) name_of(&v, argv[first]);
    if (v.log) log_set_sink(log_requests, NULL);
    rc = serve(&v, argv[first]);
done:
    cli_free(v.sockets);
    cli_free(v.listen.v);
    cli_free(v.hosts.v);
    cli_free(v.origins.v);
    return rc;
}
