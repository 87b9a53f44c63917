/* SPDX-License-Identifier: MIT
 *
 * file_hash.h: identifies a file, quickly by its mark, and for certain by the SHA-256 of its bytes.
 *
 * The mark is what the system says of a file: device, inode, size and times. A file that was changed has another mark,
 * because a write sets its time. A folder remembers the SHA-256 of files by their marks. An equal mark is believed.
 */
#ifndef QUERN_BASE_FILE_HASH_H
#define QUERN_BASE_FILE_HASH_H

#include <sys/stat.h>

#include "base/error.h"
#include "base/sha256.h"

struct file_mark {
    uint64_t dev, ino, bytes, mtime_ns;
    uint64_t ctime_ns; /* cannot be set back, as mtime_ns can; a new name or mode changes it too */
};

void file_mark_of(struct file_mark *m, const struct stat *st);
bool file_mark_get(struct file_mark *m, const char *path); /* follows links; false: there is no file, or no access */
bool file_mark_is_same(const struct file_mark *a, const struct file_mark *b); /* does not compare ctime_ns */

/* Called after each MB; false: stop. */
typedef bool file_hash_watch(void *arg, uint64_t done, uint64_t total);
/* Computes the SHA-256 of a whole file. is_gentle: pages that were not in memory before do not stay there. path is for
 * messages, watch may be NULL. QN_EIO; QN_ECANCEL: watch returned false. */
int file_hash(uint8_t out[SHA256_BYTES], int fd, const char *path, bool is_gentle, file_hash_watch *watch, void *arg,
              struct qn_error *e);
/* The same for a file by name; *m becomes its mark. QN_ENOINPUT: it cannot be opened; QN_EIO: also when it changed
 * meanwhile. */
int file_hash_path(uint8_t out[SHA256_BYTES], struct file_mark *m, const char *path, bool is_gentle,
                   file_hash_watch *watch, void *arg, struct qn_error *e);

/* Looks in the folder `dir` for the hash of the file with this mark; false: it is not there. */
bool file_hash_recall(uint8_t out[SHA256_BYTES], const char *dir, const struct file_mark *m);
/* Remembers a hash in the folder `dir`, as one small file that appears whole. QN_EIO. */
int file_hash_remember(const char *dir, const struct file_mark *m, const uint8_t hash[SHA256_BYTES],
                       struct qn_error *e);
/* Whether file_hash_remember() makes files of this name. */
bool file_hash_is_name(const char *name);

#endif
