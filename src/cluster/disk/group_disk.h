/* SPDX-License-Identifier: MIT
 *
 * group_disk.h: the head's end of the stages' files of pages, for the store of its prefix cache (cache/store_far.h).
 *
 * It outlives the pipelines of a group: what a lost one was doing is lost, too. The scheduler's thread reads ahead
 * while another one connects the first stages, so the functions of `far` and group_disk_set() exclude each other.
 */
#ifndef QUERN_CLUSTER_GROUP_DISK_H
#define QUERN_CLUSTER_GROUP_DISK_H

#include <pthread.h>

#include "cache/store_far.h"
#include "cluster/pipeline.h"

#define GROUP_DISK_DONE 64 /* answers that nobody has fetched yet */

struct group_disk {
    struct store_far far;      /* of which this is the arg */
    pthread_mutex_t mutex;     /* for what follows, and the use of: */
    struct pipeline *pipeline; /* borrowed; NULL: there are no stages at present */
    uint32_t last, first;      /* numbers of orders: the last one, and the first one of this pipeline */
    bool is_entered;
    uint8_t key[CHAIN_MODEL_BYTES]; /* of DISK_ENTER */
    uint64_t budget;
    uint32_t asked; /* the order that the stages are asked about; 0: none */
    uint64_t asked_ns;
    struct {
        uint32_t number, n_good;
    } done[GROUP_DISK_DONE];
    int next_done;
};

/* m: the whole model. rounds_rows: the stages' bits are not those of one host. */
void group_disk_init(struct group_disk *d, const struct model *m, enum kv_type kv, bool rounds_rows);
void group_disk_set(struct group_disk *d, struct pipeline *p); /* a new pipeline, or NULL before it is freed */

#endif
