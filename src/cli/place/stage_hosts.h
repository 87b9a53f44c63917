/* SPDX-License-Identifier: MIT
 *
 * stage_hosts.h: the options that name the hosts of one model's layers, and starting processes there.
 */
#ifndef QUERN_CLI_STAGE_HOSTS_H
#define QUERN_CLI_STAGE_HOSTS_H

#include "cli/core/options.h"
#include "cluster/group.h"

struct stage_hosts {
    const char *hosts, *hostfile, *interface, *ports, *launch, *agent;
    bool is_trusted, only_these;
    int wire;              /* enum stage_wire */
    const char *cache_dir; /* no option here: of the command, if it has one */
};

enum stage_wire { WIRE_F32, WIRE_BF16 };

/* Options of a struct stage_hosts; --only-hosts is among them. */
extern const struct opt opts_stage_hosts[];

static inline bool stage_hosts_are_named(const struct stage_hosts *o) { return o->hosts || o->hostfile; }
/* Whether the options go together. Returns 0 or an exit status, after a message that begins with `command`. */
int stage_hosts_check(const struct stage_hosts *o, const char *command);
/* What --draft means with these hosts, if nothing was said (QN_DRAFT_DEFAULT): nothing, unless a draft model is named.
 * Stages do one step at a time while something drafts, so several answers would not keep them busy. */
enum qn_draft stage_hosts_draft(const struct stage_hosts *o, enum qn_draft how, bool has_model);
/* group_start() for these hosts and the model at `path`; *out stays as it is if none are named. is_open: stages are not
 * fenced in. */
int stage_hosts_start(struct group **out, const struct stage_hosts *o, const char *path,
                      const struct qn_engine_params *p, bool is_open, struct qn_error *e);
/* Makes the engine of a model and its scheduler, and waits until the hosts are ready. g: NULL: qn_engine_new(), without
 * hosts. On failure, what was made is for the caller to free. */
int stage_hosts_engine(struct group *g, qn_engine **engine, qn_scheduler **scheduler, const qn_model *model,
                       const struct qn_engine_params *p, const struct qn_scheduler_params *q, struct qn_error *e);
/* group_free(). After the engine. NULL is fine. */
void stage_hosts_end(struct group *g);

#endif
