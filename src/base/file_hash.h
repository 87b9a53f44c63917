/* SPDX-License-Identifier: MIT
 *
 * file_hash.h: which file this is: quickly, by what the system says of it, and for good, by the SHA-256 of its bytes;
 * and a folder where the second is remembered by the first.
 *
 * A file that was changed has another mark, for a write sets its time. A mark that is the same is believed.
 */
#ifndef QUERN_BASE_FILE_HASH_H
#define QUERN_BASE_FILE_HASH_H

#include <sys/stat.h>

#include "base/error.h"
#include "base/sha256.h"

struct file_mark {
    uint64_t dev, ino, bytes, mtime_ns;
    uint64_t ctime_ns; /* which an old time that is given back does not fool; a new name or mode changes it too */
};

void file_mark_of(struct file_mark *m, const struct stat *st);
bool file_mark_get(struct file_mark *m, const char *path); /* links followed; false: nothing is there to be seen */
bool file_mark_is_same(const struct file_mark *a, const struct file_mark *b); /* but for ctime_ns */

/* Asked after each MB; false: stop. */
typedef bool file_hash_watch(void *arg, uint64_t done, uint64_t total);
/* The SHA-256 from the first byte to the last. is_gentle: pages that were not in memory before do not stay there. path:
 * for messages. QN_EIO; QN_ECANCEL: watch (may be NULL) said so. */
int file_hash(uint8_t out[SHA256_BYTES], int fd, const char *path, bool is_gentle, file_hash_watch *watch, void *arg,
              struct qn_error *e);
/* The same of a file by name, and its mark. QN_ENOINPUT: cannot be opened; QN_EIO too when it changed meanwhile. */
int file_hash_path(uint8_t out[SHA256_BYTES], struct file_mark *m, const char *path, bool is_gentle,
                   file_hash_watch *watch, void *arg, struct qn_error *e);

/* What is remembered in the folder `dir` of the file with this mark; false: nothing. */
bool file_hash_recall(uint8_t out[SHA256_BYTES], const char *dir, const struct file_mark *m);
/* One small file for each that is remembered, which appears whole. QN_EIO. */
int file_hash_remember(const char *dir, const struct file_mark *m, const uint8_t hash[SHA256_BYTES],
                       struct qn_error *e);
/* Whether a folder's entry of this name is one that file_hash_remember() makes. */
bool file_hash_is_name(const char *name);

#endif
