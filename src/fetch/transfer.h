/* SPDX-License-Identifier: MIT
 *
 * transfer.h: the bytes of one version of a file from one address into a file here: several connections side by side,
 * each at a piece of what is missing; lost connections are made again, after a while.
 *
 * Does not know where the file is found, or what to do when it is another one now: it says so and stops.
 */
#ifndef QUERN_FETCH_TRANSFER_H
#define QUERN_FETCH_TRANSFER_H

#include "fetch/part.h"
#include "fetch/probe.h"
#include "fetch/sidecar.h"

enum transfer_end {
    TRANSFER_DONE,    /* every byte is written */
    TRANSFER_CHANGED, /* the file is another one now */
    TRANSFER_MOVED,   /* it is not there any more, or may not be had there: addresses that were signed end so */
    TRANSFER_WHOLE,   /* parts of it are not given any more */
};

/* Writes what side->written lacks of side->size bytes to part->fd, and keeps `side` true on the disk. A transfer_end,
 * or QN_EIO (nothing comes after several tries; or it cannot be written here), QN_ECANCEL, QN_ENOMEM. */
int transfer(const struct probe *from, const struct part *part, struct sidecar *side, const struct fetch_options *o,
             struct qn_error *e);

#endif
