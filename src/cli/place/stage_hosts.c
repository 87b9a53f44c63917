/* SPDX-License-Identifier: MIT
 *
 * stage_hosts.c: the hosts of one model's layers. See stage_hosts.h.
 */
#include "cli/place/stage_hosts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cluster/start/network.h"

#define AT(field) offsetof(struct stage_hosts, field)
const struct opt opts_stage_hosts[] = {
    {"hosts", 0, OPT_STRING, AT(hosts), "HOST[:N][=PATH],...",
     "compute the model on several hosts, each with some of its layers: N processes on each, where the model is at "
     "PATH",
     .rare = true},
    {"hostfile", 0, OPT_STRING, AT(hostfile), "FILE", "the same, with a line for each host", .words = WORDS_FILE,
     .rare = true},
    {"interface", 0, OPT_STRING, AT(interface), "NAME", "network interface that the hosts share (wg0)", .rare = true},
    {"stage-ports", 0, OPT_STRING, AT(ports), "FROM-TO", "TCP ports that stages use (default " NETWORK_PORTS ")",
     .rare = true},
    {"i-trust-this-network", 0, OPT_FLAG, AT(is_trusted), NULL,
     "use --interface although its address is public: what is sent is not encrypted", .rare = true},
    {"only-hosts", 0, OPT_FLAG, AT(only_these), NULL,
     "when the hosts do not answer, or are slower than this one alone, refuse requests or go on with them; never "
     "compute the whole model here",
     .rare = true},
    {"wire", 0, OPT_CHOICE, AT(wire), "TYPE",
     "how hosts send each other their results: f32 (exact, the default) or bf16 (half the bytes, and other answers)",
     .choices = "f32|bf16", .rare = true},
    {"launch", 0, OPT_STRING, AT(launch), "COMMAND", "starts the processes instead of mpirun (srun --mpi=pmix)",
     .rare = true},
    {"launch-agent", 0, OPT_STRING, AT(agent), "COMMAND", "reaches other hosts instead of ssh", .rare = true},
    {0},
};
#undef AT

int stage_hosts_check(const struct stage_hosts *o, const char *command)
{
    const struct {
        const char *name;
        bool is_given, is_for_mpirun;
    } more[] = {{"--interface", o->interface, true},   {"--stage-ports", o->ports, true},
                {"--launch-agent", o->agent, true},    {"--i-trust-this-network", o->is_trusted, true},
                {"--launch", o->launch, false},        {"--only-hosts", o->only_these, false},
                {"--wire", o->wire != WIRE_F32, false}};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        if (more[i].is_given && !stage_hosts_are_named(o))
            return cli_usage("%s: %s needs --hosts or --hostfile", command, more[i].name);
        if (more[i].is_given && more[i].is_for_mpirun && o->launch)
            return cli_usage("%s: %s is for mpirun, which --launch takes the place of", command, more[i].name);
    }
    if (o->is_trusted && !o->interface) return cli_usage("%s: --i-trust-this-network needs --interface", command);
    if (o->hosts && o->hostfile) return cli_usage("%s: --hosts and --hostfile exclude each other", command);
    return 0;
}

/* ssh must neither ask for a password nor wait for a host that is gone. A cluster may have set another agent. */
static const char *agent_of(const struct stage_hosts *o)
{
    if (o->agent) return o->agent;
    return getenv("OMPI_MCA_plm_rsh_agent") ? NULL : "ssh -o BatchMode=yes -o ConnectTimeout=5";
}

/* The program lies next to this one where it was built, and in a folder of programs for programs where it was
 * installed. Otherwise it is looked for where programs are found. */
static const char *find_program(char path[PATH_MAX])
{
    static const char *const places[] = {"quern-stage", "../lib/quern/quern-stage"};
    char own[PATH_MAX], name[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    while (n > 0 && own[n - 1] != '/') n--;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && n > 0; i++) {
        int length = snprintf(name, sizeof name, "%.*s%s", (int)n, own, places[i]);
        if (length < (int)sizeof name && !access(name, X_OK) && realpath(name, path)) return path;
    }
    return places[0];
}

enum qn_draft stage_hosts_draft(const struct stage_hosts *o, enum qn_draft how, bool has_model)
{
    return how == QN_DRAFT_DEFAULT && !has_model && stage_hosts_are_named(o) ? QN_DRAFT_OFF : how;
}

int stage_hosts_start(struct group **out, const struct stage_hosts *o, const char *path,
                      const struct qn_engine_params *p, bool is_open, struct qn_error *e)
{
    char program[PATH_MAX];
    if (!stage_hosts_are_named(o)) return 0;
    const struct group_params g = {.program = find_program(program),
                                   .path = path,
                                   .hosts = o->hosts,
                                   .hostfile = o->hostfile,
                                   .n_threads = p->n_threads,
                                   .cpu = p->cpu,
                                   .interface = o->interface,
                                   .ports = o->ports,
                                   .command = o->launch,
                                   .agent = agent_of(o),
                                   .cache_dir = o->cache_dir,
                                   .is_trusted = o->is_trusted,
                                   .locks_weights = p->lock_weights,
                                   .is_open = is_open,
                                   .never_alone = o->only_these,
                                   .rounds_rows = o->wire == WIRE_BF16};
    return group_start(out, &g, e);
}

int stage_hosts_engine(struct group *g, qn_engine **engine, qn_scheduler **scheduler, const qn_model *model,
                       const struct qn_engine_params *p, const struct qn_scheduler_params *q, struct qn_error *e)
{
    int rc = g ? group_engine(g, engine, model, p, e) : qn_engine_new(engine, model, p, e);
    if (!rc) rc = qn_scheduler_new(scheduler, *engine, q, e);
    if (!rc && g) rc = group_attach(g, *scheduler, e);
    return rc;
}

void stage_hosts_end(struct group *g) { group_free(g); }
