/* SPDX-License-Identifier: MIT
 *
 * error.h: how a function reports that something foreign went wrong.
 *
 * A function that can fail returns 0 or a negative QN_E*. On failure it has filled the caller's struct qn_error with
 * one line that names the thing and the number. The line is written once, where the fault is found, and callers pass it
 * on unchanged. Bugs of our own are not errors: they are assertions.
 */
#ifndef QUERN_BASE_ERROR_H
#define QUERN_BASE_ERROR_H

#include <quern.h>

/* Fills *e (may be NULL) and returns code, for `return error_set(...)`. Control characters, characters that change the
 * reading direction, and bytes that are not UTF-8 are written as `\xNN`, because names come from hostile files and are
 * shown on terminals. A message that is too long keeps its beginning and its end, cut between characters. */
int error_set(struct qn_error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Copies src to dst (cap bytes, with the NUL) in the same way: as one printable line of UTF-8, cut between characters.
 * Returns its length. For names that are shown outside of an error. */
size_t error_clean(char *dst, size_t cap, const char *src);

/* Fills *e with the usual message for a failed allocation of `bytes` for `what`. Returns QN_ENOMEM. */
int error_nomem(struct qn_error *e, const char *what, size_t bytes);

#endif
