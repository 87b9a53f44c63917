/* SPDX-License-Identifier: MIT
 *
 * secret.h: 32 bytes that keys are made with, so that nobody who does not know them can make a key.
 */
#ifndef QUERN_CACHE_SECRET_H
#define QUERN_CACHE_SECRET_H

#include <stdint.h>

#include "base/error.h"

#define SECRET_BYTES 32
#define SECRET_NAME  "secret"

/* One from the operating system, for a process. */
int secret_new(uint8_t secret[SECRET_BYTES], struct qn_error *e);
/* That of a directory, which is made when there is none. One that is damaged, or that others may read, is replaced,
 * with a line in the log: what was stored before is not found any more. QN_EIO: it cannot be written. */
int secret_of_directory(uint8_t secret[SECRET_BYTES], const char *dir, int dir_fd, struct qn_error *e);

#endif
