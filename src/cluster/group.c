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
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "cluster/greeting.h"
#include "cluster/disk/group_disk.h"
#include "cluster/disk/last_cuts.h"
#include "cluster/patience.h"
#include "cluster/pipeline.h"
#include "cluster/placement.h"
#include "cluster/runner.h"
#include "cluster/start/watcher.h"
#include "engine/budget.h"
#include "engine/scheduler.h"

#define START_NS     20000000000u  /* until the first stage is connected */
#define STEP_NS      600000000000u /* a pass; a process that has ended or is silent is noticed sooner (pulse.h) */
#define ASK_MS       20
#define N_MOVES      1024
#define MAX_FAILURES 2

struct group {
    struct watcher watcher;
    struct hosts hosts;
    struct network network;
    char path[PATH_MAX], cache_dir[PATH_MAX];
    int n_threads;
    bool never_alone, rounds_rows;

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
    g->hello.is_probe = n > 1 && !g->is_placed;
    if (n > 1 && g->is_placed) memcpy(g->hello.cuts, g->cuts, sizeof g->cuts);
}

/* Takes the connection of the first stage. QN_EBUSY: there is none yet. */
static int take_link(struct group *g, struct qn_error *e)
{
    int fd, rc = watcher_take(&g->watcher, &fd, e);
    if (rc) return rc;
    if ((rc = link_open_socket(&g->link, fd, e))) {
        close(fd);
        return rc;
    }
    set_stages(g);
    return greeting_init(&g->greeting, g->link, &g->hello, e);
}

/* What all layers, and what comes after them, take of a host. */
static int count_bytes(const struct group *g, struct budget *b)
{
    const struct qn_engine *q = g->engine;
    struct qn_engine_params p;
    enum cpu_level level;
    qn_engine_params_init(&p);
    p.n_ctx = q->n_ctx;
    p.n_batch = q->n_batch;
    p.n_sessions = q->n_sessions;
    p.kv = (enum qn_kv)kv_pool_shape(q->kv)->type;
    p.kv_tokens = kv_pool_n_pages(q->kv) * KV_PAGE_SLOTS;
    int rc = budget_settle(&p, q->model, &level, NULL);
    return rc ? rc : budget_check(q->model, &p, b, NULL);
}

/* Whether one stage with all layers fits this host, next to what the head has. */
static bool fits_here(const struct group *g)
{
    struct budget b = {0};
    return !count_bytes(g, &b) && b.room >= b.weights;
}

/* What each host can take, and how fast it is. *head_layers: what comes after the last layer, in layers. Returns the
 * bytes of a layer with its part of the cache. */
static double describe_hosts(const struct group *g, struct placement_host *host, double *head_layers)
{
    struct budget b = {0};
    int n = g->hosts.n_stages, n_layer = g->hello.n_layer;
    double head = (double)g->engine->model->output->bytes;
    count_bytes(g, &b);
    double weights = ((double)b.weights - head) / n_layer, layer = weights + (double)(b.kv + b.states) / n_layer;
    for (int i = 0; i < n; i++) {
        double room = 1048576.0 * g->hello.host[i].memory_mb - (double)(b.buffers + STREAM_BYTES);
        if (i == n - 1) room -= head;
        host[i].layer_ms = 1e-6 * g->hello.host[i].layer_ns;
        host[i].most = room < layer * n_layer ? (int)(room / layer) : n_layer;
    }
    /* Stages of one host are equally fast: what was measured differs by what else ran. */
    for (int h = 0, i = 0; h < g->hosts.n; i += g->hosts.host[h++].n)
        for (int k = i; k < i + g->hosts.host[h].n; k++)
            if (host[k].layer_ms < host[i].layer_ms) host[i].layer_ms = host[k].layer_ms;
    for (int h = 0, i = 0; h < g->hosts.n; i += g->hosts.host[h++].n)
        for (int k = i; k < i + g->hosts.host[h].n; k++) host[k].layer_ms = host[i].layer_ms;
    *head_layers = weights > 0 ? head / weights : 0;
    return layer;
}

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
    double head_layers, layer = describe_hosts(g, host, &head_layers);
    int n = g->stage.n_stages;
    for (int i = 0; i < n; i++) {
        struct group_stage *s = &out[i];
        bool is_last = i == n - 1;
        *s = (struct group_stage){.host = host_of(g, i),
                                  .lo = g->hello.cuts[i],
                                  .hi = g->hello.cuts[i + 1],
                                  .layer_ms = host[i].layer_ms,
                                  .head_ms = is_last ? host[i].layer_ms * head_layers : 0,
                                  .memory_mb = g->hello.host[i].memory_mb,
                                  .fits_all = host[i].most >= g->hello.n_layer};
        s->bytes = layer * (s->hi - s->lo) + (is_last ? (double)g->engine->model->output->bytes : 0);
    }
    return n;
}

static void tell_placement(const struct group *g, const struct placement_host *host, double layer_bytes)
{
    for (int i = 0; i < g->hosts.n_stages; i++) {
        int lo = g->cuts[i], hi = g->cuts[i + 1];
        log_at(LOG_INFO,
               "stage %d on %s: layers %d to %d, %.3f ms each, %.2f ms a token; memory %u MB, each needs %.1f MB", i,
               host_of(g, i), lo, hi - 1, host[i].layer_ms, host[i].layer_ms * (hi - lo), g->hello.host[i].memory_mb,
               layer_bytes / 1048576);
    }
    if (fits_here(g))
        log_at(LOG_INFO,
               "the model fits this host, which alone needs no network: if it is as fast as the others, it is "
               "faster alone for one answer");
}

/* Whether the layers should all be here, although there are hosts for them: a stage of this host was measured, and the
 * slowest stage alone would take longer than this host for everything. Stages that are all here differ by what else
 * runs. */
static bool is_better_alone(const struct group *g, const struct placement_host *host, double head_layers)
{
    int stage = 0;
    if (g->never_alone || g->hosts.are_here || !fits_here(g)) return false;
    for (int i = 0; i < g->hosts.n; stage += g->hosts.host[i++].n)
        if (g->hosts.host[i].is_here && placement_is_for_one(g->cuts, g->hosts.n_stages, host, head_layers, stage))
            return true;
    return false;
}

/* Stages have pages on disk for the layers that they had the last time. */
static void keep_last_cuts(struct group *g, const struct placement_host *host, double head_layers)
{
    int32_t last[STAGE_MOST + 1];
    uint8_t key[SHA256_BYTES];
    struct sha256 s;
    int n = g->hosts.n_stages;
    sha256_init(&s);
    sha256_add(&s, g->hello.model, sizeof g->hello.model);
    for (int i = 0; i < n; i++) sha256_add(&s, host_of(g, i), strlen(host_of(g, i)) + 1);
    sha256_end(&s, key);
    if (last_cuts_read(g->cache_dir, key, n, g->hello.n_layer, last) &&
        placement_is_as_good(last, g->cuts, n, host, head_layers))
        memcpy(g->cuts, last, sizeof last);
    else
        last_cuts_write(g->cache_dir, key, n, g->cuts);
}

/* Divides the layers by what the probe found, and says how. Returns false if this host alone is better. */
static bool place(struct group *g)
{
    struct placement_host host[STAGE_MOST];
    double head_layers, layer = describe_hosts(g, host, &head_layers);
    bool fits = placement_cut(g->cuts, g->hosts.n_stages, g->hello.n_layer, host, head_layers);
    if (g->cache_dir[0]) keep_last_cuts(g, host, head_layers);
    tell_placement(g, host, layer);
    if (is_better_alone(g, host, head_layers)) {
        log_at(LOG_WARN, "this host alone is faster than all of the hosts together, so it computes the model "
                         "(--only-hosts: let them compute it nevertheless)");
        g->is_alone = true;
        try_again(g);
        return false;
    }
    if (!fits)
        log_at(LOG_WARN, "the hosts have no room for all layers, so weights are read from disk again for every token");
    g->is_placed = true;
    return true;
}

/* Goes on with the connection. QN_EBUSY: it is not ready yet. */
static int join(struct group *g, struct qn_error *e)
{
    int rc = g->link ? 0 : take_link(g, e);
    if (!rc) rc = greeting_go_on(&g->greeting, e);
    if (!rc && g->hello.is_probe) {
        if (!place(g)) return error_set(e, QN_EBUSY, "hosts: the stage here is not ready yet");
        set_stages(g);
        greeting_deinit(&g->greeting);
        rc = greeting_init(&g->greeting, g->link, &g->hello, e);
        if (!rc) rc = error_set(e, QN_EBUSY, "hosts: the stages are not ready yet");
    }
    if (rc) return rc;
    greeting_deinit(&g->greeting);
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

int group_engine(struct group *g, qn_engine **out, const qn_model *model, const struct qn_engine_params *params,
                 struct qn_error *e)
{
    int n_layer = model->model->hp.n_layer;
    if (g->hosts.n_stages > n_layer)
        return error_set(e, QN_EUSAGE, "hosts: %d stages, but the model has %d layers", g->hosts.n_stages, n_layer);
    int rc = engine_new_head(out, model, params, pipeline_kv_shape, e);
    if (rc) return rc;
    group_disk_init(&g->disk, model->model, kv_pool_shape((*out)->kv)->type, g->rounds_rows);
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
    struct qn_error why;
    int rc;
    g->engine = s->engine;
    set_limits(g, s);
    g->stage = (struct stage){&ops, g, g->hosts.n_stages};
    while ((rc = try_to_join(g, &why)) == QN_EBUSY && g->n_failures < MAX_FAILURES) poll(NULL, 0, ASK_MS);
    if (rc) {
        drop(g);
        g->engine = NULL;
        if (e) *e = rc == QN_EBUSY ? g->why : why;
        return rc == QN_EBUSY ? QN_EIO : rc;
    }
    g->n_failures = 0;
    g->is_asked = false;
    engine_set_stage(s->engine, &g->stage);
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
