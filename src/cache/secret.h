/* SPDX-License-Identifier: MIT
 *
 * secret.h: 32 bytes that keys are made with. A key cannot be computed without them.
 */
#ifndef QUERN_CACHE_SECRET_H
#define QUERN_CACHE_SECRET_H

#include <stdint.h>

#include "base/error.h"

#define SECRET_BYTES 32
#define SECRET_NAME  "secret"

/* A new secret from the operating system, for this process. */
int secret_new(uint8_t secret[SECRET_BYTES], struct qn_error *e);
/* The secret of a directory, which is made if there is none. A secret that is damaged, or that others may read, is
 * replaced, with a line in the log; everything stored before is then no longer found. QN_EIO: it cannot be written. */
int secret_of_directory(uint8_t secret[SECRET_BYTES], const char *dir, int dir_fd, struct qn_error *e);

#endif
