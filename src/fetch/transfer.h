/* SPDX-License-Identifier: MIT
 *
 * transfer.h: the bytes of one version of a file from one address into a file here, over several connections at once,
 * each for a piece of what is missing. Lost connections are made again after a while.
 *
 * It does not find the file's address, and does not decide what to do when the file has changed: it reports that and
 * stops.
 */
#ifndef QUERN_FETCH_TRANSFER_H
#define QUERN_FETCH_TRANSFER_H

#include "fetch/partial.h"
#include "fetch/remote_file.h"
#include "fetch/sidecar.h"

enum transfer_end {
    TRANSFER_DONE,    /* every byte is written */
    TRANSFER_CHANGED, /* the file is another version now */
    TRANSFER_MOVED,   /* the file is no longer there or no longer allowed: signed addresses end like that */
    TRANSFER_WHOLE,   /* the server gives no parts of it any more */
};

/* Fetches the bytes that side->written lacks of side->size, writes them to part->fd, and keeps `side` true on the disk.
 * Returns an enum transfer_end, or QN_EIO (no bytes come after several attempts, or they cannot be written here),
 * QN_ECANCEL or QN_ENOMEM. */
int transfer(const struct remote_file *from, const struct partial_file *part, struct sidecar *side,
             const struct fetch_options *o, struct qn_error *e);

#endif
