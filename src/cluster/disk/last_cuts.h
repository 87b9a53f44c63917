/* SPDX-License-Identifier: MIT
 *
 * last_cuts.h: how the layers of a model were divided the last time, in a file of the cache directory.
 *
 * Stages keep pages on disk for their own layers, so a group that is started again keeps the layers where they were,
 * unless the hosts have changed.
 */
#ifndef QUERN_CLUSTER_LAST_CUTS_H
#define QUERN_CLUSTER_LAST_CUTS_H

#include <stdbool.h>

#include "base/sha256.h"

/* Reads cuts[n_stages + 1]. key: of the model and the hosts. Returns false if there are none, or for others. */
bool last_cuts_read(const char *dir, const uint8_t key[SHA256_BYTES], int n_stages, int n_layer, int32_t *cuts);
/* If it fails, a line in the log says so. */
void last_cuts_write(const char *dir, const uint8_t key[SHA256_BYTES], int n_stages, const int32_t *cuts);

#endif
