/* SPDX-License-Identifier: MIT
 *
 * group.c: starts stages, greets them, and runs steps through them. See group.h.
 */
#include "cluster/group.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

#include "base/os.h"
#include "base/rng.h"
#include "cluster/hello.h"
#include "cluster/patience.h"
#include "cluster/pipeline.h"
#include "cluster/runner.h"
#include "engine/scheduler.h"

#define START_NS    20000000000u /* until the first stage is connected */
#define GREETING_NS 60000000000u /* until all stages have their memory */
#define STEP_NS     60000000000u /* a pass; a process that has ended is noticed at once */
#define END_MS      3000         /* until the watcher has ended everything */
#define N_MOVES     1024
#define MAX_ARGS    40

extern char **environ;

struct group {
    char dir[64], address[96];
    int listener, n_stages;
    int log;        /* what mpirun says; opened early, because files may be fenced off later */
    int watcher_in; /* the watcher ends when this is closed */
    pid_t watcher;
    int n_threads;

    struct qn_engine *engine; /* attached; NULL: none */
    struct stage stage;
    struct hello hello;
    struct link *link;
    struct pipeline *pipeline;
    uint64_t lost_ns; /* since when there is no pipeline */
};

/* ---- hosts ---- */

static int add_host(int *n, const char *p, size_t length, struct qn_error *e)
{
    char own[256] = "", text[64];
    const char *colon = memchr(p, ':', length);
    size_t n_name = colon ? (size_t)(colon - p) : length;
    long count = 1;
    gethostname(own, sizeof own - 1);
    if (colon) {
        char *end;
        snprintf(text, sizeof text, "%.*s", (int)(length - n_name - 1), colon + 1);
        count = strtol(text, &end, 10);
        if (!*text || *end || count < 1 || count > HELLO_MAX_STAGES)
            return error_set(e, QN_EUSAGE, "hosts: '%.*s': not 1 to %d stages", (int)length, p, HELLO_MAX_STAGES);
    }
    bool is_local = (n_name == 9 && !memcmp(p, "localhost", 9)) || (n_name == strlen(own) && !memcmp(p, own, n_name));
    if (!is_local)
        return error_set(e, QN_EUNSUP, "hosts: '%.*s' is not this machine; only localhost can have stages at present",
                         (int)n_name, p);
    *n += (int)count;
    return 0;
}

static int count_stages(const char *hosts, int *n, struct qn_error *e)
{
    *n = 0;
    for (const char *p = hosts;; p++) {
        size_t length = strcspn(p, ",");
        int rc = add_host(n, p, length, e);
        if (rc) return rc;
        p += length;
        if (!*p) break;
    }
    if (*n <= HELLO_MAX_STAGES) return 0;
    return error_set(e, QN_EUSAGE, "hosts: %d stages, the most are %d", *n, HELLO_MAX_STAGES);
}

/* ---- starting ---- */

/* A folder that nobody else can look into, with the socket that the first stage connects to. */
static int open_listener(struct group *g, struct qn_error *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(g->dir, sizeof g->dir, "/tmp/quern-stages-XXXXXX");
    if (!mkdtemp(g->dir)) {
        g->dir[0] = '\0';
        return error_set(e, QN_EIO, "hosts: cannot make a folder in /tmp: %s", strerror(errno));
    }
    snprintf(g->address, sizeof g->address, "%s/head", g->dir);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", g->address);
    g->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (g->listener < 0 || bind(g->listener, (struct sockaddr *)&a, sizeof a) || listen(g->listener, 4))
        return error_set(e, QN_EIO, "hosts: cannot listen at '%s': %s", g->address, strerror(errno));
    char log[96];
    snprintf(log, sizeof log, "%s/log", g->dir);
    g->log = open(log, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    return g->log < 0 ? error_set(e, QN_EIO, "hosts: cannot make '%s': %s", log, strerror(errno)) : 0;
}

/* The watcher's standard input is a pipe from this process. */
static int spawn(struct group *g, const char *program, char **argv, struct qn_error *e)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    int ends[2], rc;
    if (pipe2(ends, O_CLOEXEC)) return error_set(e, QN_EIO, "hosts: cannot make a pipe: %s", strerror(errno));
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0); /* a terminal's Ctrl-C is for the head */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    rc = posix_spawnp(&g->watcher, program, &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(ends[0]);
    g->watcher_in = ends[1];
    if (!rc) return 0;
    g->watcher = 0;
    return error_set(e, QN_EIO, "hosts: cannot start '%s': %s (it is built with -Dmpi=enabled)", program, strerror(rc));
}

/* Open MPI refuses to run as root unless it is told to; a daemon that is root has decided that already. */
static int start_watcher(struct group *g, const struct group_params *p, struct qn_error *e)
{
    char count[16], threads[16], path[PATH_MAX];
    int n = 0;
    char *argv[MAX_ARGS];
    const char *const before[] = {p->program, "watch", g->dir, "mpirun"};
    const char *const after[] = {"--oversubscribe",
                                 "--bind-to",
                                 "none",
                                 "--mca",
                                 "btl",
                                 "self,vader",
                                 "--mca",
                                 "oob_tcp_if_include",
                                 "lo",
                                 "--host",
                                 p->hosts,
                                 "-n",
                                 count,
                                 p->program,
                                 "rank",
                                 path,
                                 g->address,
                                 threads};
    if (!realpath(p->path, path))
        return error_set(e, QN_ENOINPUT, "hosts: cannot find '%s': %s", p->path, strerror(errno));
    snprintf(count, sizeof count, "%d", g->n_stages);
    snprintf(threads, sizeof threads, "%d", p->n_threads);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) argv[n++] = (char *)(uintptr_t)before[i];
    if (!geteuid()) argv[n++] = (char *)(uintptr_t) "--allow-run-as-root";
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) argv[n++] = (char *)(uintptr_t)after[i];
    argv[n] = NULL;
    return spawn(g, p->program, argv, e);
}

int group_start(struct group **out, const struct group_params *p, struct qn_error *e)
{
    struct group *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(e, "a group of stages", sizeof *g);
    g->listener = g->watcher_in = g->log = -1;
    g->n_threads = p->n_threads;
    int rc = count_stages(p->hosts, &g->n_stages, e);
    if (!rc) rc = open_listener(g, e);
    if (!rc) rc = start_watcher(g, p, e);
    if (rc)
        group_free(g);
    else
        *out = g;
    return rc;
}

/* ---- greeting ---- */

/* What mpirun says, for a message. */
static void read_log(const struct group *g, char *out, size_t size)
{
    char log[512];
    ssize_t n = pread(g->log, log, sizeof log, 0);
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)log[i] < ' ') log[i] = ' ';
    snprintf(out, size, "%s%.*s", n > 0 ? ": " : "", n > 0 ? (int)n : 0, log);
}

/* Takes the first stage's connection. QN_EBUSY: there is none yet. */
static int take_link(struct group *g, struct qn_error *e)
{
    int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return error_set(e, QN_EBUSY, "hosts: no stage is there yet");
    int rc = link_open_socket(&g->link, fd, e);
    if (rc) close(fd);
    return rc;
}

static int finish(struct link_transfer *t, uint64_t deadline_ns, struct qn_error *e)
{
    struct patience wait;
    bool done = false;
    int rc = 0;
    patience_reset(&wait);
    while (!(rc = link_test(t, &done, e)) && !done) {
        patience_wait(&wait);
        if (patience_ns(&wait) > deadline_ns) {
            link_cancel(t);
            return error_set(e, QN_EIO, "hosts: the stages were not ready within %llu s",
                             (unsigned long long)(deadline_ns / 1000000000));
        }
    }
    return rc;
}

static int read_greeting(const struct group *g, const uint8_t *data, size_t n, struct qn_error *e)
{
    struct packet_head head;
    struct packet_reply reply;
    int rc = packet_read_head(&head, data, n, g->hello.group, e);
    if (!rc && head.kind != PACKET_REPLY) rc = error_set(e, QN_EDATA, "hosts: a packet of kind %d", head.kind);
    if (!rc) rc = packet_read_reply(&reply, packet_body(data, n), 0, g->hello.limits.n_vocab, e);
    if (!rc && reply.outcome != STEP_DONE) rc = error_set(e, QN_EUNSUP, "hosts: %s", reply.text);
    return rc;
}

/* Greets the stages, and waits until all are ready. */
static int greet(struct group *g, struct qn_error *e)
{
    struct link_transfer t;
    uint8_t *p = mem_alloc(HELLO_BYTES + 1024);
    if (!p) return error_nomem(e, "a packet", HELLO_BYTES + 1024);
    struct packet_out out = {.p = p, .cap = HELLO_BYTES + 1024};
    g->hello.group = (uint32_t)rng_seed_from_os();
    packet_hello(&out, &g->hello);
    int rc = link_isend(g->link, &t, p, out.n, e);
    if (!rc) rc = finish(&t, GREETING_NS, e);
    if (!rc) rc = link_irecv(g->link, &t, p, out.cap, e);
    if (!rc) rc = finish(&t, GREETING_NS, e);
    if (!rc) rc = read_greeting(g, p, t.n, e);
    mem_free(p);
    return rc;
}

static void drop(struct group *g)
{
    pipeline_free(g->pipeline);
    link_close(g->link);
    g->pipeline = NULL;
    g->link = NULL;
}

/* Connects and greets the stages, if the first one is there. QN_EBUSY: not yet. */
static int join(struct group *g, struct qn_error *e)
{
    int rc = take_link(g, e);
    if (rc) return rc;
    rc = greet(g, e);
    struct pipeline_params p = {.kv = g->engine->kv,
                                .limits = g->hello.limits,
                                .group = g->hello.group,
                                .to_first = g->link,
                                .from_last = g->link,
                                .deadline_ns = STEP_NS,
                                .depth = stage_steps(&g->stage)};
    if (!rc) rc = pipeline_new(&g->pipeline, &p, e);
    if (rc) drop(g);
    return rc;
}

/* ---- the engine's stage ---- */

static int start(void *arg, const struct stage_step *s, bool can_cancel, struct qn_error *e)
{
    struct group *g = arg;
    return pipeline_start(g->pipeline, s, can_cancel, e);
}

static int end(void *arg, bool (*is_needed)(void *arg), void *needed_arg, struct stage_result *out, struct qn_error *e)
{
    struct group *g = arg;
    return pipeline_finish(g->pipeline, is_needed, needed_arg, out, e);
}

static int cancel(void *arg, struct qn_error *e)
{
    struct group *g = arg;
    return pipeline_cancel(g->pipeline, e);
}

static int accept_rows(void *arg, const int32_t *n_accepted, struct qn_error *e)
{
    struct group *g = arg;
    return pipeline_accept(g->pipeline, n_accepted, e);
}

/* Stages that begin are given START_NS; those that end again while they are greeted are waited for like those. */
static int mend(void *arg, struct qn_error *e)
{
    struct group *g = arg;
    char why[300];
    drop(g);
    if (!g->lost_ns) g->lost_ns = clock_ns();
    int rc = join(g, e);
    bool is_late = clock_ns() - g->lost_ns > START_NS;
    if ((rc == QN_EBUSY || rc == QN_EIO) && !is_late) return QN_EBUSY;
    g->lost_ns = 0;
    if (rc != QN_EBUSY) return rc;
    read_log(g, why, sizeof why);
    return error_set(e, QN_EIO, "hosts: no stage came within %llu s%s", (unsigned long long)(START_NS / 1000000000),
                     why);
}

static void detach(void *arg)
{
    struct group *g = arg;
    drop(g);
    g->engine = NULL;
}

int group_engine(struct group *g, qn_engine **out, const qn_model *model, const struct qn_engine_params *params,
                 struct qn_error *e)
{
    int n_layer = model->model->hp.n_layer;
    if (g->n_stages > n_layer)
        return error_set(e, QN_EUSAGE, "hosts: %d stages, but the model has %d layers", g->n_stages, n_layer);
    return engine_new_head(out, model, params, pipeline_kv_shape, e);
}

void group_limits(struct step_limits *l, const struct qn_scheduler *s)
{
    const struct qn_engine *q = s->engine;
    runner_limits(l, q->model, q->n_ctx);
    l->n_rows = q->n_batch;
    l->n_seqs = s->n_places;
    l->n_moves = N_MOVES;
    l->n_logits = s->n_places + PROMPT_LOGPROB_ROWS + s->drafts.most;
    if (l->n_logits > l->n_rows) l->n_logits = l->n_rows;
    l->n_pages = kv_pool_n_pages(q->kv);
    l->n_windows = kv_pool_n_windows(q->kv);
    l->n_states = kv_pool_n_states(q->kv);
}

static void set_limits(struct group *g, const struct qn_scheduler *s)
{
    const struct qn_engine *q = s->engine;
    hello_init(&g->hello, q->model, g->n_stages);
    g->hello.kv = (int32_t)kv_pool_shape(q->kv)->type;
    g->hello.n_ctx = q->n_ctx;
    g->hello.n_threads = g->n_threads;
    group_limits(&g->hello.limits, s);
}

int group_attach(struct group *g, qn_scheduler *s, struct qn_error *e)
{
    static const struct stage_ops ops = {start, end, cancel, accept_rows, mend, detach};
    int rc;
    g->engine = s->engine;
    set_limits(g, s);
    g->stage = (struct stage){&ops, g, g->n_stages};
    while ((rc = mend(g, e)) == QN_EBUSY) poll(&(struct pollfd){.fd = g->listener, .events = POLLIN}, 1, 50);
    if (rc) {
        g->engine = NULL;
        return rc;
    }
    g->lost_ns = 0;
    engine_set_stage(s->engine, &g->stage);
    return 0;
}

/* The watcher removes the folder. */
void group_free(struct group *g)
{
    if (!g) return;
    if (g->watcher_in >= 0) close(g->watcher_in);
    for (int ms = 0; g->watcher > 0 && ms < END_MS && !waitpid(g->watcher, NULL, WNOHANG); ms += 10) poll(NULL, 0, 10);
    if (g->listener >= 0) close(g->listener);
    if (g->log >= 0) close(g->log);
    if (g->dir[0] && !g->watcher) {
        char log[96];
        snprintf(log, sizeof log, "%s/log", g->dir);
        unlink(log);
        unlink(g->address);
        rmdir(g->dir);
    }
    mem_free(g);
}
