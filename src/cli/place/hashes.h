/* SPDX-License-Identifier: MIT
 *
 * hashes.h: SHA-256 of files, remembered for this user in $XDG_CACHE_HOME/quern/hashes.
 *
 * A daemon with a cache on disk needs the hashes of its models (base/file_hash.h). If a hash cannot be remembered,
 * nothing is said, and it will be computed again.
 */
#ifndef QUERN_CLI_HASHES_H
#define QUERN_CLI_HASHES_H

#include "base/file_hash.h"

/* Makes the folder if necessary. Returns its path for mem_free(); NULL: there is none. */
char *hashes_dir(void);
/* Remembers the hash of a file, 64 hexadecimal digits; "": it is not known, and nothing happens. */
void hashes_remember(const char *path, const char *hex);
/* Reads the whole file, computes its hash and remembers it. watch: NULL, or as in file_hash(). Errors are those of
 * file_hash_path(). */
int hashes_make(uint8_t out[SHA256_BYTES], const char *path, file_hash_watch *watch, void *arg, struct qn_error *e);

#endif
