/* SPDX-License-Identifier: MIT
 *
 * group.c: starts stages, runs steps through them, and starts them again when they are lost. See group.h.
 */
#include "cluster/group.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "cluster/greeting.h"
#include "cluster/disk/group_disk.h"
#include "cluster/disk/last_cuts.h"
#include "cluster/group_memory.h"
#include "cluster/patience.h"
#include "cluster/pipeline.h"
#include "cluster/runner.h"
#include "cluster/start/watcher.h"
#include "engine/scheduler.h"

#define START_NS     20000000000u  /* until the first stage is connected */
#define STEP_NS      600000000000u /* a pass; a process that has ended or is silent is noticed sooner (pulse.h) */
#define ASK_MS       20
#define N_MOVES      1024
#define MAX_FAILURES 2
#define MB           1048576.0

struct group {
    struct watcher watcher;
    struct hosts hosts;
    struct network network;
    char path[PATH_MAX], cache_dir[PATH_MAX];
    int n_threads;
    bool never_alone, rounds_rows;

    const struct model *model;
    struct qn_engine_params settled; /* of the engine that group_engine() made */
    uint64_t memory;                 /* bytes that the head and the stages of this host may take; 0: all there are */
    struct group_host host[STAGE_MOST];
    struct qn_engine *engine; /* attached; NULL: none */
    struct stage stage;
    struct hello hello;
    struct link *link;
    struct pipeline *pipeline;
    struct group_disk disk;

    /* while there is no pipeline */
    struct greeting greeting; /* under way if there is a link */
    bool is_asked;            /* the watcher was asked to start the stages again */
    bool is_greeted; /* the first stage was there when the greeting began: the link is not that of an old one */
    bool is_counted; /* a link that failed was counted; that the run has ended may come later */
    bool is_alone;   /* one stage on this host is used instead of all */
    bool is_placed;  /* `cuts` are for the hosts as they were measured */
    int32_t cuts[STAGE_MOST + 1];
    uint64_t begin_ns;   /* of this try */
    int n_failures;      /* tries that failed one after another */
    struct qn_error why; /* the last one */
};

/* ---- starting ---- */

static int find_network(struct group *g, const struct group_params *p, struct qn_error *e)
{
    if (g->hosts.are_here || p->command) return 0;
    if (p->interface) return network_find(&g->network, p->interface, p->ports, p->is_trusted, e);
    return error_set(e, QN_EUSAGE,
                     "hosts: for stages on other hosts, name the interface of the network that they share "
                     "(--interface wg0): MPI does not encrypt");
}

/* Stages run in another folder. The directory need not exist yet. */
static int find_cache_dir(struct group *g, const char *dir, struct qn_error *e)
{
    char here[PATH_MAX] = "";
    if (dir[0] != '/' && !getcwd(here, sizeof here)) return error_set(e, QN_EIO, "hosts: %s", strerror(errno));
    int n = snprintf(g->cache_dir, sizeof g->cache_dir, "%s%s%s", here, here[0] ? "/" : "", dir);
    return n < PATH_MAX ? 0 : error_set(e, QN_EIO, "hosts: the path '%s' is too long", dir);
}

static int start_watcher(struct group *g, const struct group_params *p, struct qn_error *e)
{
    struct launch_params l = {.program = p->program,
                              .path = g->path,
                              .address = g->watcher.address,
                              .hosts = &g->hosts,
                              .network = g->network.name[0] ? &g->network : NULL,
                              .n_threads = p->n_threads,
                              .cpu = p->cpu,
                              .cache_dir = g->cache_dir[0] ? g->cache_dir : NULL,
                              .locks_weights = p->locks_weights,
                              .is_open = p->is_open,
                              .command = p->command,
                              .agent = p->agent};
    if (!realpath(p->path, g->path))
        return error_set(e, QN_ENOINPUT, "hosts: cannot find '%s': %s", p->path, strerror(errno));
    return watcher_start(&g->watcher, &l, e);
}

int group_start(struct group **out, const struct group_params *p, struct qn_error *e)
{
    struct group *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(e, "a group of stages", sizeof *g);
    g->n_threads = p->n_threads;
    g->never_alone = p->never_alone;
    g->rounds_rows = p->rounds_rows;
    g->watcher = (struct watcher){.listener = -1, .log = -1, .control = -1};
    int rc = hosts_read(&g->hosts, p->hosts, p->hostfile, e);
    if (!rc) rc = find_network(g, p, e);
    if (!rc && p->cache_dir) rc = find_cache_dir(g, p->cache_dir, e);
    if (!rc) rc = watcher_open(&g->watcher, e);
    if (!rc) rc = start_watcher(g, p, e);
    g->begin_ns = clock_ns();
    if (!rc) patience_be_exact();
    if (rc)
        group_free(g);
    else
        *out = g;
    return rc;
}

/* ---- connecting ---- */

static void drop(struct group *g)
{
    greeting_deinit(&g->greeting);
    group_disk_set(&g->disk, NULL);
    pipeline_free(g->pipeline);
    link_close(g->link);
    g->is_greeted = false;
    g->pipeline = NULL;
    g->link = NULL;
}

/* Begins a try: all stages, or one here. */
static void try_again(struct group *g)
{
    drop(g);
    watcher_run(&g->watcher, g->is_alone ? WATCHER_ALONE : WATCHER_ALL);
    g->is_asked = true;
    g->is_counted = false;
    g->begin_ns = clock_ns();
}

/* What the next packet says about stages and layers: a probe, or the cuts for the stages that are there. */
static void set_stages(struct group *g)
{
    int n = g->is_alone ? 1 : g->hosts.n_stages;
    g->hello.n_stages = g->stage.n_stages = n;
    for (int i = 0; i <= n; i++) g->hello.cuts[i] = i * g->hello.n_layer / n;
    g->hello.is_probe = !g->is_alone && !g->is_placed;
    if (!g->is_alone && g->is_placed) memcpy(g->hello.cuts, g->cuts, sizeof g->cuts);
}

/* Takes the connection of the first stage. QN_EBUSY: there is none yet. */
static int take_link(struct group *g, struct qn_error *e)
{
    int fd, rc = watcher_take(&g->watcher, &fd, e);
    if (!rc && (rc = link_open_socket(&g->link, fd, e))) close(fd);
    return rc;
}

/* Goes on with the connection. 0: the stages have answered what they were asked. QN_EBUSY: they have not yet. */
static int greet(struct group *g, struct qn_error *e)
{
    int rc = g->link ? 0 : take_link(g, e);
    if (!rc && !g->greeting.link) {
        set_stages(g);
        rc = greeting_init(&g->greeting, g->link, &g->hello, e);
    }
    if (!rc) rc = greeting_go_on(&g->greeting, e);
    if (!rc) greeting_deinit(&g->greeting);
    return rc;
}

static int join(struct group *g, struct qn_error *e)
{
    int rc = greet(g, e);
    if (rc || g->hello.is_probe) return rc;
    struct pipeline_params p = {.kv = g->engine->kv,
                                .limits = g->hello.limits,
                                .group = g->hello.group,
                                .to_first = g->link,
                                .from_last = g->link,
                                .deadline_ns = STEP_NS,
                                .depth = stage_steps(&g->stage)};
    if ((rc = pipeline_new(&g->pipeline, &p, e))) return rc;
    group_disk_set(&g->disk, g->pipeline);
    return 0;
}

/* ---- memory ---- */

static uint64_t own_memory(const struct group *g)
{
    uint64_t all = os_memory_bytes();
    return g->memory && g->memory < all ? g->memory : all;
}

/* Whether one stage with all layers fits this host. */
static bool fits_here(const struct group *g) { return group_fits_alone(&g->settled, g->model, own_memory(g)); }

static const char *host_of(const struct group *g, int stage)
{
    int i = 0;
    if (g->is_alone) return "this host";
    while (stage >= g->hosts.host[i].n) stage -= g->hosts.host[i++].n;
    return g->hosts.host[i].name;
}

int group_stages(const struct group *g, struct group_stage *out)
{
    struct placement_host host[STAGE_MOST] = {{0}};
    double head_layers;
    int n = g->stage.n_stages;
    group_describe(host, &head_layers, g->model, &g->settled, g->host, n);
    for (int i = 0; i < n; i++) {
        struct group_stage *s = &out[i];
        struct stage_need need;
        *s = (struct group_stage){.host = host_of(g, i),
                                  .lo = g->hello.cuts[i],
                                  .hi = g->hello.cuts[i + 1],
                                  .layer_ms = host[i].layer_ms,
                                  .head_ms = i == n - 1 ? host[i].layer_ms * head_layers : 0,
                                  .memory_mb = (uint32_t)(g->host[i].memory >> 20),
                                  .fits_all = host[i].most >= g->hello.n_layer};
        stage_need_count(&need, g->model, &g->settled, s->lo, s->hi);
        s->bytes = (double)(need.weights + need.kv + need.states);
    }
    return n;
}

static void tell_placement(const struct group *g)
{
    for (int i = 0; i < g->hosts.n_stages; i++) {
        const struct group_host *h = &g->host[i];
        int lo = g->cuts[i], hi = g->cuts[i + 1];
        struct stage_need need;
        stage_need_count(&need, g->model, &g->settled, lo, hi);
        log_at(LOG_INFO,
               "stage %d on %s: layers %d to %d, %.3f ms each, %.2f ms a token; needs %.1f MB of memory (weights %.1f, "
               "KV cache %.1f), has %.1f MB",
               i, h->name, lo, hi - 1, h->layer_ms, h->layer_ms * (hi - lo),
               (double)(need.weights + need.kv + need.states + need.buffers) / MB, (double)need.weights / MB,
               (double)need.kv / MB, (double)h->memory / MB);
    }
    if (fits_here(g))
        log_at(LOG_INFO,
               "the model fits this host, which alone needs no network: if it is as fast as the others, it is "
               "faster alone for one answer");
}

static int n_here(const struct group *g)
{
    int n = 0;
    for (int i = 0; i < g->hosts.n; i++) n += g->hosts.host[i].is_here ? g->hosts.host[i].n : 0;
    return n > 0 ? n : 1;
}

/* Stages of one host are equally fast: what was measured differs by what else ran. */
static void share_speed(struct group_host *host, int n)
{
    double least = host[0].layer_ms;
    for (int i = 1; i < n; i++)
        if (host[i].layer_ms < least) least = host[i].layer_ms;
    for (int i = 0; i < n; i++) host[i].layer_ms = least;
}

/* Takes over what the stages have told. Those on this host have together what the daemon may take. */
static void note_hosts(struct group *g)
{
    int stage = 0;
    for (int i = 0; i < g->hosts.n; i++) {
        const struct host *h = &g->hosts.host[i];
        for (int k = 0; k < h->n; k++, stage++) {
            const struct hello_host *told = &g->hello.host[stage];
            uint64_t memory = (uint64_t)told->memory_mb << 20, most = own_memory(g) / (uint64_t)n_here(g);
            if (h->is_here && most < memory) memory = most;
            g->host[stage] = (struct group_host){
                .name = h->name, .memory = memory, .layer_ms = 1e-6 * told->layer_ns, .lo = told->lo, .hi = told->hi};
        }
        share_speed(g->host + stage - h->n, h->n);
    }
}

/* Returns a stage of this host if the layers should all be here, although there are hosts for them: it was measured,
 * and the slowest stage alone would take longer than this host for everything. Otherwise -1; also if all stages are
 * here anyway. p: settled for this host. */
static int find_better(const struct group *g, const struct qn_engine_params *p)
{
    struct placement_host host[STAGE_MOST];
    double head_layers;
    int stage = 0, n = g->hosts.n_stages;
    if (g->never_alone || g->hosts.are_here || !group_fits_alone(p, g->model, own_memory(g))) return -1;
    group_describe(host, &head_layers, g->model, p, g->host, n);
    for (int i = 0; i < g->hosts.n; stage += g->hosts.host[i++].n)
        if (g->hosts.host[i].is_here && placement_is_for_one(g->cuts, n, host, head_layers, stage)) return stage;
    return -1;
}

/* A hash of the model and the hosts, for last_cuts.h: stages have pages on disk for the layers that they had. */
static void name_cuts(const struct group *g, uint8_t key[SHA256_BYTES])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, g->hello.model, sizeof g->hello.model);
    for (int i = 0; i < g->hosts.n_stages; i++) sha256_add(&s, g->host[i].name, strlen(g->host[i].name) + 1);
    sha256_end(&s, key);
}

/* Divides the layers by what the probe found, settles the rest of p by the memory of the stages, and says how. If this
 * host alone is better, it is asked for, and p is settled by its memory. */
static int place(struct group *g, struct qn_engine_params *p, struct qn_error *e)
{
    struct qn_engine_params alone = *p;
    int n = g->hosts.n_stages;
    bool fits;
    int32_t last[STAGE_MOST + 1];
    uint8_t key[SHA256_BYTES];
    note_hosts(g);
    name_cuts(g, key);
    bool has_last = g->cache_dir[0] && last_cuts_read(g->cache_dir, key, n, g->hello.n_layer, last);
    int rc = group_place(g->cuts, &fits, has_last ? last : NULL, g->model, p, g->host, n, e);
    if (rc) return rc;
    int better = group_settle_alone(&alone, g->model, NULL) ? -1 : find_better(g, &alone);
    if (better >= 0) {
        log_at(LOG_WARN, "this host alone is faster than all of the hosts together, so it computes the model "
                         "(--only-hosts: let them compute it nevertheless)");
        g->is_alone = true;
        g->host[0] = g->host[better];
        g->host[0].memory = own_memory(g);
        try_again(g);
        *p = alone;
        return 0;
    }
    if ((rc = group_settle(p, g->model, g->cuts, g->host, n, e))) return rc;
    if (!fits)
        log_at(LOG_WARN, "the hosts have no room for all layers, so weights are read from disk again for every token");
    if (g->cache_dir[0] && !(has_last && !memcmp(last, g->cuts, sizeof *last * (size_t)(n + 1))))
        last_cuts_write(g->cache_dir, key, n, g->cuts);
    g->settled = *p;
    g->is_placed = true;
    tell_placement(g);
    return 0;
}

/* ---- failures ---- */

/* Counts the tries that have failed since the last call. QN_EIO: there will be none again. */
static int count_failures(struct group *g, struct qn_error *e)
{
    char log[300];
    int n, rc = watcher_n_ended(&g->watcher, &n, e);
    bool is_late = !g->link && clock_ns() - g->begin_ns > START_NS;
    if (rc || (!n && !is_late)) return rc;
    watcher_log(&g->watcher, log, sizeof log);
    if (n)
        error_set(&g->why, QN_EIO, "hosts: the stages have ended before they were ready%s", log);
    else
        error_set(&g->why, QN_EIO, "hosts: no stage came within %llu s%s", (unsigned long long)(START_NS / 1000000000),
                  log);
    g->n_failures += n ? n - g->is_counted : 1;
    g->is_counted = false;
    g->begin_ns = clock_ns();
    if (is_late) try_again(g);
    return 0;
}

/* After too many failures: one stage here, if that is possible. */
static bool fall_back(struct group *g)
{
    if (g->is_alone || g->never_alone || g->n_failures < MAX_FAILURES || !fits_here(g)) return false;
    log_at(LOG_WARN, "the hosts do not answer (%s); this one computes the model from now on", g->why.msg);
    g->is_alone = true;
    g->n_failures = 0;
    try_again(g);
    return true;
}

/* A link that fails at once is that of stages that were ended before: the next one is waited for. If it fails later, so
 * has this try. */
static int try_to_join(struct group *g, struct qn_error *e)
{
    bool was_greeted = g->is_greeted;
    int rc = join(g, e);
    if (!rc) return 0;
    if (rc == QN_EBUSY)
        g->is_greeted = g->link != NULL;
    else
        drop(g);
    if (rc == QN_EIO && was_greeted) {
        error_set(&g->why, QN_EIO, "hosts: the stages have gone before they were ready: %s", e->msg);
        g->n_failures++;
        g->is_counted = true;
    }
    if (rc != QN_EBUSY && rc != QN_EIO) return rc;
    rc = count_failures(g, e);
    return rc ? rc : QN_EBUSY;
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

/* A try is begun at once, and then asked about. Those that run are told to wait until two have failed, and then those
 * that come, because the watcher goes on. */
static int mend(void *arg, struct qn_error *e)
{
    struct group *g = arg;
    struct qn_error why;
    if (!g->is_asked) try_again(g);
    int rc = try_to_join(g, &why);
    if (!rc) {
        g->is_asked = false;
        g->n_failures = 0;
        return 0;
    }
    if (rc == QN_EBUSY && (g->link || g->n_failures < MAX_FAILURES || fall_back(g))) return QN_EBUSY;
    if (e) *e = rc == QN_EBUSY ? g->why : why;
    return QN_EIO;
}

static void detach(void *arg)
{
    struct group *g = arg;
    drop(g);
    g->engine = NULL;
}

/* Asks until the stages have answered, or the tries have failed. */
static int wait_for_stages(struct group *g, struct qn_error *e)
{
    struct qn_error why;
    int rc;
    while ((rc = try_to_join(g, &why)) == QN_EBUSY && g->n_failures < MAX_FAILURES) poll(NULL, 0, ASK_MS);
    if (!rc) {
        g->n_failures = 0;
        return 0;
    }
    drop(g);
    if (e) *e = rc == QN_EBUSY ? g->why : why;
    return rc == QN_EBUSY ? QN_EIO : rc;
}

/* The first greeting: its limits only have to be possible ones. */
static int probe(struct group *g, struct qn_error *e)
{
    struct step_limits *l = &g->hello.limits;
    hello_init(&g->hello, g->model, g->hosts.n_stages);
    g->hello.n_ctx = 1;
    g->hello.n_threads = g->n_threads;
    runner_limits(l, g->model, g->hello.n_ctx);
    l->n_rows = l->n_seqs = l->n_moves = l->n_logits = l->n_pages = 1;
    g->is_placed = false;
    g->n_failures = 0;
    g->begin_ns = clock_ns();
    return wait_for_stages(g, e);
}

int group_engine(struct group *g, qn_engine **out, const qn_model *model, const struct qn_engine_params *params,
                 struct qn_error *e)
{
    struct qn_engine_params p = *params;
    g->model = model->model;
    g->memory = p.memory_bytes;
    if (g->hosts.n_stages > g->model->hp.n_layer)
        return error_set(e, QN_EUSAGE, "hosts: %d stages, but the model has %d layers", g->hosts.n_stages,
                         g->model->hp.n_layer);
    if (!p.memory_bytes) p.memory_bytes = os_memory_bytes();
    int rc = g->is_alone ? group_settle_alone(&p, g->model, e) : probe(g, e);
    if (!rc && !g->is_alone) rc = place(g, &p, e);
    g->settled = p;
    if (!rc) rc = engine_new_head(out, model, &p, pipeline_kv_shape, e);
    if (rc) {
        drop(g);
        return rc;
    }
    group_disk_init(&g->disk, g->model, kv_pool_shape((*out)->kv)->type, g->rounds_rows);
    (*out)->far = &g->disk.far;
    return 0;
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
    hello_init(&g->hello, q->model, g->hosts.n_stages);
    g->hello.kv = (int32_t)kv_pool_shape(q->kv)->type;
    g->hello.n_ctx = q->n_ctx;
    g->hello.n_threads = g->n_threads;
    group_limits(&g->hello.limits, s);
    g->hello.limits.rounds_rows = g->rounds_rows;
}

int group_attach(struct group *g, qn_scheduler *s, struct qn_error *e)
{
    static const struct stage_ops ops = {start, end, cancel, accept_rows, mend, detach};
    g->engine = s->engine;
    set_limits(g, s);
    g->stage = (struct stage){&ops, g, g->hosts.n_stages};
    int rc = wait_for_stages(g, e);
    if (rc) {
        g->engine = NULL;
        return rc;
    }
    g->is_asked = false;
    engine_set_stage(s->engine, &g->stage);
    return 0;
}

#define N_ROUNDS 25

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int group_round(struct group *g, uint64_t pause_ns, double *ms, struct qn_error *e)
{
    uint64_t ns[N_ROUNDS];
    for (int i = 0, rc; i < N_ROUNDS; i++) {
        if (!g->pipeline) return error_set(e, QN_EIO, "hosts: the stages are gone");
        nanosleep(&(struct timespec){(time_t)(pause_ns / 1000000000u), (long)(pause_ns % 1000000000u)}, NULL);
        if ((rc = pipeline_round(g->pipeline, &ns[i], e))) return rc;
    }
    qsort(ns, N_ROUNDS, sizeof *ns, ascending);
    *ms = 1e-6 * (double)ns[N_ROUNDS / 2];
    return 0;
}

bool group_rounds_rows(const struct group *g) { return g && g->rounds_rows; }

void group_free(struct group *g)
{
    if (!g) return;
    watcher_close(&g->watcher);
    hosts_deinit(&g->hosts);
    mem_free(g);
}
