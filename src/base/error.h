/* SPDX-License-Identifier: MIT
 *
 * error.h: how a function says that something foreign went wrong.
 *
 * A fallible function returns 0 or a negative QN_E* and, on failure, has filled
 * the caller's struct qn_error with one line that names the thing and the number.
 * The line is written once, where the fault is detected; callers pass it up
 * untouched. Our own bugs are not errors: they assert.
 */
#ifndef QUERN_BASE_ERROR_H
#define QUERN_BASE_ERROR_H

#include <quern.h>

/* Fills *e (ignored when NULL) and returns code, so that `return error_set(...)` reads well.
 * Control characters, characters that reverse the reading direction and bytes that are not
 * UTF-8 are printed as `\xNN`: names come from hostile files and end up on terminals. A message that is too long keeps
 * its beginning and its end, cut on character boundaries. */
int error_set(struct qn_error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Copies src to dst (cap bytes, NUL included) as error_set does with its message: one printable line of
 * UTF-8, cut on a character boundary. Returns its length. For names that are shown outside of an error. */
size_t error_clean(char *dst, size_t cap, const char *src);

/* The usual message for a failed allocation of `bytes` for `what`; returns QN_ENOMEM. */
int error_nomem(struct qn_error *e, const char *what, size_t bytes);

#endif
