/* SPDX-License-Identifier: MIT
 *
 * rsync.h: files and folders through the rsync program: over ssh, or from a daemon.
 */
#ifndef QUERN_FETCH_RSYNC_H
#define QUERN_FETCH_RSYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct rsync_listing {
    bool is_folder;
    uint64_t bytes; /* of all files */
};

/* What is at `place`. QN_ENOINPUT: nothing; QN_EUNSUP: there is no rsync here; QN_EIO: rsync failed, with its own
 * words. */
int rsync_list(struct rsync_listing *l, const char *place, const struct fetch_options *o, struct qn_error *e);
/* Makes `to`, which is a file or a folder as `place` is, like it; what is there of it already is not sent again. A
 * connection that is lost is made again. show_fd: where rsync tells its progress; -1: nowhere. */
int rsync_fetch(const char *place, bool is_folder, const char *to, int show_fd, const struct fetch_options *o,
                struct qn_error *e);
/* Whether the file at `path` is what is at `place`, byte for byte; nothing is sent but sums. 1: yes, 0: no, or QN_E*.
 */
int rsync_is_same(const char *place, const char *path, const struct fetch_options *o, struct qn_error *e);

#endif
