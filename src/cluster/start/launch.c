/* SPDX-License-Identifier: MIT
 *
 * launch.c: puts the commands for stages together. See launch.h.
 *
 * The options are those of Open MPI 4; its manual pages are mpirun(1) and the output of `ompi_info --all`.
 */
#include "cluster/start/launch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define MPIRUN_PORTS   "oob_tcp_dynamic_ipv4_ports"
#define MPIRUN_N_PORTS 3

int words_add(struct words *w, const char *word, struct qn_error *e)
{
    char **more = mem_realloc(w->v, ((size_t)w->n + 2) * sizeof *more);
    if (!more) return error_nomem(e, "a command", sizeof *more);
    w->v = more;
    w->v[w->n + 1] = NULL;
    if (!(w->v[w->n] = mem_dup(word, strlen(word)))) return error_nomem(e, "a command", strlen(word));
    w->n++;
    return 0;
}

void words_deinit(struct words *w)
{
    for (int i = 0; i < w->n; i++) mem_free(w->v[i]);
    mem_free(w->v);
    *w = (struct words){0};
}

static int add_all(struct words *w, const char *const *list, struct qn_error *e)
{
    int rc = 0;
    for (int i = 0; !rc && list[i]; i++) rc = words_add(w, list[i], e);
    return rc;
}

static int add_setting(struct words *w, const char *name, const char *value, struct qn_error *e)
{
    const char *const list[] = {"--mca", name, value, NULL};
    return add_all(w, list, e);
}

static int add_range(struct words *w, const char *name, int from, int to, struct qn_error *e)
{
    char text[32];
    snprintf(text, sizeof text, to ? "%d-%d" : "%d", from, to);
    return add_setting(w, name, text, e);
}

bool launch_has_door(const struct launch_params *l) { return !l->hosts->host[0].is_here; }

/* A rank's own command line. */
static int add_stage(struct words *w, const struct launch_params *l, const char *as, const char *path,
                     struct qn_error *e)
{
    char threads[16], flags[8];
    snprintf(threads, sizeof threads, "%d", l->n_threads);
    snprintf(flags, sizeof flags, "%s%s%s-", launch_has_door(l) && strcmp(as, "alone") ? "d" : "",
             l->locks_weights ? "l" : "", l->is_open ? "o" : "");
    const char *const list[] = {
        l->program, as, path, l->address, threads, flags, l->cpu ? l->cpu : "best", l->cache_dir ? l->cache_dir : "-",
        NULL};
    return add_all(w, list, e);
}

int launch_alone(struct words *w, const struct launch_params *l, struct qn_error *e)
{
    return add_stage(w, l, "alone", l->path, e);
}

/* ---- mpirun ---- */

static int add_network(struct words *w, const struct launch_params *l, struct qn_error *e)
{
    const struct network *n = l->network;
    int rc, half = n->n_ports / 2;
    if ((rc = add_setting(w, "btl", "self,vader,tcp", e)) ||
        (rc = add_setting(w, "btl_tcp_if_include", n->subnet, e)) ||
        (rc = add_setting(w, "oob_tcp_if_include", n->subnet, e)) ||
        (rc = add_range(w, "btl_tcp_port_min_v4", n->port, 0, e)) ||
        (rc = add_range(w, "btl_tcp_port_range_v4", half, 0, e)) ||
        (rc = add_range(w, MPIRUN_PORTS, n->port + half, n->port + n->n_ports - 1, e)) || /* launch_pick_ports() */
        (rc = add_setting(w, "plm_rsh_no_tree_spawn", "1", e)) ||  /* only this host needs a way to the others */
        (rc = add_setting(w, "oob_tcp_keepalive_time", "2", e)) || /* s; a host that was cut off ends what it has */
        (rc = add_setting(w, "oob_tcp_keepalive_intvl", "1", e)) ||
        (rc = add_setting(w, "oob_tcp_keepalive_probes", "2", e)))
        return rc;
    return l->agent ? add_setting(w, "plm_rsh_agent", l->agent, e) : 0;
}

void launch_pick_ports(char **argv, char range[LAUNCH_RANGE])
{
    int from, to;
    while (argv[0] && strcmp(argv[0], MPIRUN_PORTS) != 0) argv++;
    if (!argv[0] || !argv[1] || sscanf(argv[1], "%d-%d", &from, &to) != 2) return;
    from = network_free_ports(from, to, MPIRUN_N_PORTS);
    snprintf(range, LAUNCH_RANGE, "%d-%d", from, from + MPIRUN_N_PORTS - 1);
    argv[1] = range;
}

/* Open MPI refuses to run as root unless it is told to; a daemon that is root has decided that already. Stages that are
 * fenced in cannot read each other's memory, so a copy goes through shared memory. */
static int add_mpirun(struct words *w, const struct launch_params *l, struct qn_error *e)
{
    static const char *const always[] = {"--oversubscribe",
                                         "--bind-to",
                                         "none",
                                         "--wdir",
                                         "/",
                                         "--mca",
                                         "pml",
                                         "ob1",
                                         "--mca",
                                         "btl_vader_single_copy_mechanism",
                                         "none",
                                         NULL};
    int rc = words_add(w, "mpirun", e);
    if (!rc && !geteuid()) rc = words_add(w, "--allow-run-as-root", e);
    if (!rc) rc = add_all(w, always, e);
    if (!rc && l->network) return add_network(w, l, e);
    if (!rc) rc = add_setting(w, "btl", "self,vader", e);
    return rc ? rc : add_setting(w, "oob_tcp_if_include", "lo", e);
}

/* n ranks on a host. */
static int add_ranks(struct words *w, const struct launch_params *l, const char *name, int n, const char *path,
                     bool is_first, struct qn_error *e)
{
    char count[16], place[280];
    snprintf(count, sizeof count, "%d", n);
    snprintf(place, sizeof place, "%s:%d", name, n);
    const char *const list[] = {"--host", place, "-n", count, NULL};
    int rc = is_first ? 0 : words_add(w, ":", e);
    if (!rc) rc = add_all(w, list, e);
    return rc ? rc : add_stage(w, l, "rank", path, e);
}

static int with_mpirun(struct words *w, const struct launch_params *l, struct qn_error *e)
{
    int rc = add_mpirun(w, l, e);
    if (!rc && launch_has_door(l)) rc = add_ranks(w, l, "localhost", 1, l->path, true, e);
    for (int i = 0; !rc && i < l->hosts->n; i++) {
        const struct host *h = &l->hosts->host[i];
        rc = add_ranks(w, l, h->is_here ? "localhost" : h->name, h->n, h->path[0] ? h->path : l->path,
                       i == 0 && !launch_has_door(l), e);
    }
    return rc;
}

/* ---- a command that was given ---- */

static int with_command(struct words *w, const struct launch_params *l, struct qn_error *e)
{
    char count[16], *copy, *rest;
    int rc = 0;
    if (launch_has_door(l))
        return error_set(e, QN_EUSAGE, "hosts: with --launch, the first host has to be this one, not '%s'",
                         l->hosts->host[0].name);
    for (int i = 0; i < l->hosts->n; i++)
        if (l->hosts->host[i].path[0])
            return error_set(e, QN_EUSAGE, "hosts: with --launch, the model has the same path on all hosts");
    if (!(copy = mem_dup(l->command, strlen(l->command)))) return error_nomem(e, "a command", strlen(l->command));
    for (char *p = strtok_r(copy, " \t\n", &rest); p && !rc; p = strtok_r(NULL, " \t\n", &rest))
        rc = words_add(w, p, e);
    mem_free(copy);
    if (!rc && !w->n) rc = error_set(e, QN_EUSAGE, "hosts: --launch is empty");
    snprintf(count, sizeof count, "%d", l->hosts->n_stages);
    if (!rc) rc = words_add(w, "-n", e);
    if (!rc) rc = words_add(w, count, e);
    return rc ? rc : add_stage(w, l, "rank", l->path, e);
}

int launch_all(struct words *w, const struct launch_params *l, struct qn_error *e)
{
    return l->command ? with_command(w, l, e) : with_mpirun(w, l, e);
}
