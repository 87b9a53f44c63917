/* SPDX-License-Identifier: MIT
 *
 * rsync.h: files and folders through the rsync program, over ssh or from a daemon.
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

/* Finds out what is at `place`. QN_ENOINPUT: nothing; QN_EUNSUP: there is no rsync here; QN_EIO: rsync failed, in its
 * own words. */
int rsync_list(struct rsync_listing *l, const char *place, const struct fetch_options *o, struct qn_error *e);
/* Copies `place` to `to`; both are files, or both are folders. Blocks that are here already are not sent again. A lost
 * connection is made again. show_fd: where rsync writes its progress; -1: nowhere. */
int rsync_fetch(const char *place, bool is_folder, const char *to, int show_fd, const struct fetch_options *o,
                struct qn_error *e);
/* Whether the file at `path` has the same bytes as `place`; only sums are sent. 1: yes; 0: no; or an error. */
int rsync_is_same(const char *place, const char *path, const struct fetch_options *o, struct qn_error *e);

/* Copies the file or folder at `path` to `place`, whose folder is made if it is missing. has_holes: long runs of zeros
 * become holes there, and hardly anything is sent for them, because everything is compressed. */
int rsync_send(const char *path, bool is_folder, bool has_holes, const char *place, int show_fd,
               const struct fetch_options *o, struct qn_error *e);
/* Whether `place` has the bytes of all files at `path`; only sums are sent. 1: yes; 0: no; or an error. */
int rsync_has_same(const char *path, bool is_folder, const char *place, const struct fetch_options *o,
                   struct qn_error *e);

#endif
