/* SPDX-License-Identifier: MIT
 *
 * placement.h: which stage has which layers, by the speed and the memory of its host.
 *
 * The slowest stage decides how many tokens a second a group makes when several answers keep all stages busy, so its
 * time is made as small as possible. Times that differ by less than a quarter count as equal, because they were
 * measured in a few milliseconds.
 */
#ifndef QUERN_CLUSTER_PLACEMENT_H
#define QUERN_CLUSTER_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

struct placement_host {
    double layer_ms; /* of one token; 0: not known */
    int most;        /* layers that fit its memory */
    int lo, hi;      /* its file has the weights of the layers [lo, hi); hi 0: of all */
};

/* Sets cuts[n_stages + 1] so that stage i has the layers [cuts[i], cuts[i + 1]), at least one each. head_layers: the
 * work after the last layer, in layers. Returns false if the hosts have no room for all layers; they are then divided
 * in proportion to the room. If files lack weights, each cut is then moved to the nearest place that they allow;
 * placement_bad_cut() must be -1. n_stages <= n_layer. */
bool placement_cut(int32_t *cuts, int n_stages, int n_layer, const struct placement_host *host, double head_layers);

/* Whether the layers can be divided so that each stage's file has those of the stage. -1: they can. 0: the first stage
 * lacks the first layer. n_stages: the last stage lacks the last layer. Otherwise the number of a stage that cannot
 * begin where the one before it can end. */
int placement_bad_cut(int n_stages, int n_layer, const struct placement_host *host);

/* Whether other cuts are about as good as these: they fit where these do, and their slowest stage is less than a
 * quarter slower. */
bool placement_is_as_good(const int32_t *others, const int32_t *cuts, int n_stages, const struct placement_host *host,
                          double head_layers);

/* Whether host `one` alone is at least as fast as all of them, for one answer and for as many as keep all stages busy:
 * it has room for all layers, and needs clearly less time for them than the slowest stage of these cuts for its own. */
bool placement_is_for_one(const int32_t *cuts, int n_stages, const struct placement_host *host, double head_layers,
                          int one);

#endif
