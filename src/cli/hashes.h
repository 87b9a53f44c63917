/* SPDX-License-Identifier: MIT
 *
 * hashes.h: SHA-256 of files, remembered for this user in $XDG_CACHE_HOME/quern/hashes, for a daemon whose cache on
 * disk needs them (base/file_hash.h). What cannot be remembered is not.
 */
#ifndef QUERN_CLI_HASHES_H
#define QUERN_CLI_HASHES_H

#include "base/file_hash.h"

/* The folder, made if need be, for mem_free(); NULL: there is none. */
char *hashes_dir(void);
/* The file has this hash, of 64 digits; "": it is not known. */
void hashes_remember(const char *path, const char *hex);
/* Reads the whole file, and remembers its hash. Errors as file_hash_path()'s. */
int hashes_make(uint8_t out[SHA256_BYTES], const char *path, struct qn_error *e);

#endif
