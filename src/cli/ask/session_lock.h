/* SPDX-License-Identifier: MIT
 *
 * session_lock.h: one question at a time goes on with the conversation in a file.
 *
 * The lock is that of flock(2) on .NAME.lock next to the file, because the file itself is replaced by each answer. It
 * ends with its process, however that ends, and the file of the lock is removed when it is released.
 */
#ifndef QUERN_CLI_SESSION_LOCK_H
#define QUERN_CLI_SESSION_LOCK_H

#include "base/error.h"

struct session_lock {
    char *path; /* of the lock's file; NULL: there is no lock */
    int fd;
}; /* zeroed: there is none */

/* Checks that the file can be read and replaced, or made, and locks it. While another process has the lock, it waits at
 * most wait_s, after a message. QN_ENOINPUT: the folder does not exist, or the file is no regular file; QN_EIO: it
 * cannot be written; QN_EBUSY: the time is over. */
int session_lock_take(struct session_lock *l, const char *file, int wait_s, struct qn_error *e);
/* May be called twice. */
void session_lock_release(struct session_lock *l);

#endif
