/* SPDX-License-Identifier: MIT
 *
 * layer_ranges.h: which layers of a model each of several hosts gets (`quern pull --layers`).
 */
#ifndef QUERN_CLI_LAYER_RANGES_H
#define QUERN_CLI_LAYER_RANGES_H

#include "cluster/start/hosts.h"
#include "engine/core/stage.h"

struct layer_ranges {
    struct {
        int lo, hi; /* [lo, hi) */
    } host[STAGE_MOST];
};

/* Reads a list with a range for each host, FIRST-LAST (both included) or one number, or "even": each stage gets as
 * many layers as the others, and a host those of its stages. The ranges must have all layers in the order of the
 * hosts; they may overlap, which leaves the division open. QN_EUSAGE. */
int layer_ranges_read(struct layer_ranges *r, const char *list, const struct hosts *hosts, int n_layer,
                      struct qn_error *e);

#endif
