/* SPDX-License-Identifier: MIT
 *
 * group_memory.h: which layers each stage of a group gets, and how much context all of them have memory for.
 *
 * Every stage has as many pages and states as the others, with its layers' part of each. So the stage with the least
 * memory for its layers decides how many tokens the group can keep. What the caller asks for is taken as it is; what is
 * left open follows the rule of one process (budget.h), for the stage that has the least room.
 */
#ifndef QUERN_CLUSTER_GROUP_MEMORY_H
#define QUERN_CLUSTER_GROUP_MEMORY_H

#include "cluster/placement.h"
#include "engine/budget.h"

/* Where a stage runs. */
struct group_host {
    const char *name; /* borrowed */
    uint64_t memory;  /* bytes, for this stage */
    double layer_ms;  /* of one token; 0: not known */
    int lo, hi;       /* its file has the weights of the layers [lo, hi); hi 0: of all */
};

/* Bytes that a stage takes. */
struct stage_need {
    uint64_t weights, kv, states;
    uint64_t buffers; /* of passes and packets, about */
};

/* p: settled. */
void stage_need_count(struct stage_need *n, const struct model *m, const struct qn_engine_params *p, int lo, int hi);

/* Describes n hosts for placement.h. p: its context and cache are settled. *head_layers: what comes after the last
 * layer, in layers. */
void group_describe(struct placement_host *out, double *head_layers, const struct model *m,
                    const struct qn_engine_params *p, const struct group_host *host, int n);

/* Divides the layers over n hosts: cuts[n + 1]; as the last time (NULL: there was none) if that is about as good.
 * *fits: their weights have room in memory. Where p leaves the context or the cache open, the layers are divided for
 * the least that an engine takes by itself. QN_EUSAGE, QN_EUNSUP: as budget_settle(). QN_EDATA: the hosts'
 * files lack layers, so that no division is possible. */
int group_place(int32_t *cuts, bool *fits, const int32_t *last, const struct model *m, const struct qn_engine_params *p,
                const struct group_host *host, int n, struct qn_error *e);

/* Settles p as budget_settle() does, by the memory of hosts with these layers. p->state_bytes is then for the number of
 * states that the group has, if the model has any. QN_ENOMEM: a stage has too little; the message has its host and all
 * numbers. */
int group_settle(struct qn_engine_params *p, const struct model *m, const int32_t *cuts, const struct group_host *host,
                 int n, struct qn_error *e);

/* The same for one stage on this host with all layers. p->memory_bytes: what this host has. */
int group_settle_alone(struct qn_engine_params *p, const struct model *m, struct qn_error *e);
/* Whether such a stage would have all weights in memory, next to a cache that is settled. */
bool group_fits_alone(const struct qn_engine_params *p, const struct model *m, uint64_t memory);

#endif
