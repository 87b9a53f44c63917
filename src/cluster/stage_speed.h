/* SPDX-License-Identifier: MIT
 *
 * stage_speed.h: how fast this host computes a layer.
 */
#ifndef QUERN_CLUSTER_STAGE_SPEED_H
#define QUERN_CLUSTER_STAGE_SPEED_H

#include <stdint.h>

#include "base/pool.h"
#include "kernel/cpu.h"
#include "model/model.h"

/* Runs a token a few times through some layers of the model, which becomes a part of itself (model_cut()) and cannot be
 * used for anything else. *layer_ns: the time of a layer; 0 if the model has too few of them. */
int stage_speed(uint32_t *layer_ns, struct model *m, const struct kernels *k, struct pool *team, struct qn_error *e);

#endif
